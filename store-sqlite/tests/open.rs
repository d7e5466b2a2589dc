//! Opening the wrong file, in every way there is: a clear error each, and no damage.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::*;
use ipledger_core::store::{ReadAt, Store};
use ipledger_store_sqlite::{OpenError, Options, SqliteStore};
use sqlx::Connection;

async fn error(path: &Path) -> OpenError {
    let options = Options {
        busy_timeout: Duration::from_millis(50),
        ..Options::default()
    };
    match SqliteStore::open(path, &options).await {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(e) => {
            assert!(e.to_string().contains("ledger.db"), "names no file: {e}");
            e
        }
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    for text in ["x", "SQLite format 3", &"just some text\n".repeat(1_000)] {
        fs::write(folder.file(), text).unwrap();
        let e = error(&folder.file()).await;
        assert!(matches!(e, OpenError::NotADatabase { .. }), "{e}");
        assert_eq!(fs::read_to_string(folder.file()).unwrap(), text);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_path_that_leads_nowhere_is_refused_and_nothing_is_made_there() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = Folder::new();
    let name = std::ffi::OsStr::from_bytes(b"\xff-ledger.db");
    let e = error(&folder.path().join(name)).await;
    assert!(e.to_string().contains("UTF-8"), "{e}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

    let elsewhere = folder.path().join("volume/ledger.db");
    std::os::unix::fs::symlink(&elsewhere, folder.file()).unwrap();
    let e = error(&folder.file()).await;
    assert!(e.to_string().contains("a link to"), "{e}");
    fs::create_dir(elsewhere.parent().unwrap()).unwrap();
    fs::write(&elsewhere, "").unwrap();
    fs::write(folder.path().join("volume/ledger.db-wal"), "x").unwrap();
    let e = error(&folder.file()).await;
    assert!(matches!(e, OpenError::LeftLog { .. }), "{e}");
}

/// SQLite deletes a log beside a database that it makes, with everything that was acknowledged and
/// is in the log alone.
#[tokio::test]
async fn a_log_whose_database_was_moved_away_is_not_deleted_by_a_new_one() {
    let folder = Folder::new();
    let log = folder.path().join("ledger.db-wal");
    let store = open(&folder.file()).await;
    store.create(address("kept", 1)).await.unwrap();
    // What a crash leaves.
    let (file, left) = (fs::read(folder.file()).unwrap(), fs::read(&log).unwrap());
    store.close().await.unwrap();
    fs::write(&log, &left).unwrap();
    let remove = || fs::remove_file(folder.file()).unwrap();
    let empty = || fs::write(folder.file(), "").unwrap();
    for lose in [&remove as &dyn Fn(), &empty] {
        lose();
        let e = error(&folder.file()).await;
        assert!(matches!(e, OpenError::LeftLog { .. }), "{e}");
        assert!(e.to_string().contains("ledger.db-wal is there"), "{e}");
        assert_eq!(fs::read(&log).unwrap(), left);
        fs::write(folder.file(), &file).unwrap();
    }
    let store = open(&folder.file()).await;
    assert_eq!(
        store.get(&key("kept"), ReadAt::Latest).await.unwrap().key(),
        key("kept")
    );
    store.close().await.unwrap();

    remove();
    fs::write(&log, "").unwrap();
    open(&folder.file()).await.close().await.unwrap();
}

#[tokio::test]
async fn a_database_of_another_application_is_refused_and_left_as_it_is() {
    for setup in [
        "CREATE TABLE a (b)",
        "CREATE TABLE a (b); PRAGMA application_id = 77",
        "PRAGMA application_id = -2",
        "PRAGMA journal_mode = WAL; CREATE TABLE a (b); INSERT INTO a VALUES (1)",
    ] {
        let folder = Folder::new();
        let mut connection = raw(&folder.file()).await;
        sql(&mut connection, setup).await;
        connection.close().await.unwrap();
        let before = fs::read(folder.file()).unwrap();
        let e = error(&folder.file()).await;
        assert!(
            matches!(e, OpenError::OtherApplication { .. }),
            "{setup}: {e}"
        );
        assert_eq!(fs::read(folder.file()).unwrap(), before, "{setup}");
    }
}

#[tokio::test]
async fn a_database_of_a_newer_schema_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await.unwrap();
    let mut connection = raw(&folder.file()).await;
    sql(&mut connection, "PRAGMA user_version = 2").await;
    connection.close().await.unwrap();
    let before = fs::read(folder.file()).unwrap();
    let e = error(&folder.file()).await;
    let OpenError::NewerSchema {
        found: 2,
        supported: 1,
        ..
    } = e
    else {
        panic!("{e}")
    };
    assert_eq!(fs::read(folder.file()).unwrap(), before);
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let folder = Folder::new();
    let e = error(&folder.path().join("missing").join("ledger.db")).await;
    assert!(matches!(e, OpenError::NoFolder { .. }), "{e}");
}

#[tokio::test]
async fn a_folder_is_no_database() {
    let folder = Folder::new();
    fs::create_dir(folder.file()).unwrap();
    let e = error(&folder.file()).await;
    assert!(matches!(e, OpenError::NotAFile { .. }), "{e}");
}

#[tokio::test]
async fn a_read_only_file_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await.unwrap();
    let before = fs::read(folder.file()).unwrap();
    let mut permissions = fs::metadata(folder.file()).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(folder.file(), permissions).unwrap();
    let e = error(&folder.file()).await;
    assert!(matches!(e, OpenError::ReadOnly { .. }), "{e}");
    assert_eq!(fs::read(folder.file()).unwrap(), before);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_folder_that_cannot_be_written_is_told_from_a_missing_one() {
    // Nobody can create files there, not even root.
    let e = error(Path::new("/sys/ledger.db")).await;
    assert!(matches!(e, OpenError::ReadOnly { .. }), "{e}");
}

#[tokio::test]
async fn a_file_that_another_process_holds_is_reported_after_the_timeout() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await.unwrap();
    let mut connection = raw(&folder.file()).await;
    sql(&mut connection, "BEGIN IMMEDIATE").await;
    let OpenError::Locked { waited, .. } = error(&folder.file()).await else {
        panic!("not locked")
    };
    assert!(waited >= Duration::from_millis(50), "{waited:?}");
    sql(&mut connection, "ROLLBACK").await;
    open(&folder.file()).await;
}

#[tokio::test]
async fn a_lock_that_goes_in_time_is_waited_for() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await.unwrap();
    let mut connection = raw(&folder.file()).await;
    sql(&mut connection, "BEGIN IMMEDIATE").await;
    let path = folder.file();
    let opening = tokio::spawn(async move { open(&path).await });
    tokio::time::sleep(Duration::from_millis(30)).await;
    sql(&mut connection, "ROLLBACK").await;
    opening.await.unwrap();
}

#[tokio::test]
async fn a_damaged_page_is_found_at_open_and_nothing_is_written() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    for n in 0..200 {
        store
            .create(address(&format!("ip-{n}"), "x".repeat(200)))
            .await
            .unwrap();
    }
    store.close().await.unwrap();
    let mut bytes = fs::read(folder.file()).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0xa5);
    fs::write(folder.file(), &bytes).unwrap();
    let e = error(&folder.file()).await;
    let OpenError::Damaged { verdict, .. } = e else {
        panic!("{e}")
    };
    assert!(!verdict.is_empty());
    assert_eq!(fs::read(folder.file()).unwrap(), bytes);
}

#[tokio::test]
async fn a_truncated_file_is_damaged() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await.unwrap();
    let bytes = fs::read(folder.file()).unwrap();
    fs::write(folder.file(), &bytes[..bytes.len() - 4096]).unwrap();
    let e = error(&folder.file()).await;
    assert!(matches!(e, OpenError::Damaged { .. }), "{e}");
}

#[tokio::test]
async fn a_full_disk_is_reported() {
    let folder = Folder::new();
    let options = Options {
        max_page_count: Some(2),
        ..Options::default()
    };
    let e = SqliteStore::open(&folder.file(), &options)
        .await
        .err()
        .unwrap();
    assert!(matches!(e, OpenError::Full { .. }), "{e}");
    // With space again it is a new ledger as any other.
    open(&folder.file())
        .await
        .create(address("ip-1", 1))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_empty_file_becomes_a_ledger_for_this_user_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    store.create(address("ip-1", 1)).await.unwrap();
    let files: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|f| f.unwrap())
        .collect();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file:?}");
    }
    let given = folder.path().join("given.db");
    fs::write(&given, "").unwrap();
    open(&given).await.create(address("ip-1", 1)).await.unwrap();
}

#[tokio::test]
async fn closing_leaves_one_file_and_ends_the_store() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let created = store.create(address("ip-1", 1)).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let e = store.create(address("ip-2", 1)).await.unwrap_err();
    assert!(e.to_string().contains("closed"), "{e}");
    let e = store
        .get(&created.key(), ipledger_core::store::ReadAt::Latest)
        .await
        .unwrap_err();
    assert!(e.to_string().contains("closed"), "{e}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_open_a_new_file_at_once_both_succeed() {
    for _ in 0..20 {
        let folder = Folder::new();
        let path = folder.file();
        let (a, b) = tokio::join!(open(&path), open(&path));
        let (one, two) = tokio::join!(a.create(address("ip-1", 1)), b.create(address("ip-2", 1)));
        assert_ne!(revision(&one.unwrap()), revision(&two.unwrap()));
    }
}
