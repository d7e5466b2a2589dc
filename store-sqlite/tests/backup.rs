//! Backups of a ledger that is in use, and ledgers from backups.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::*;
use ipledger_core::api::{Kind, Timestamp};
use ipledger_core::store::{
    ListOptions, ReadAt, Revision, Store, StoreError, WatchEvent, WatchFrom, WatchOptions,
};
use ipledger_store_sqlite::{CopyError, Options, SqliteStore, backup, restore};
use sqlx::Connection;

/// Options with a clock that stands at a time.
fn at(now: u64) -> Options {
    Options {
        now: Arc::new(move || Timestamp::from_unix(now)),
        ..Options::default()
    }
}

const NOW: u64 = 1_800_000_000;

fn from(revision: Revision) -> WatchOptions {
    WatchOptions::all(WatchFrom::After(revision))
}

async fn watch_error(store: &SqliteStore, revision: Revision) -> StoreError {
    match store.watch(Kind::IPAddress, &from(revision)).await {
        Ok(_) => panic!("a watch from revision {revision} was opened"),
        Err(e) => e,
    }
}

fn files(folder: &Folder) -> Vec<String> {
    let names = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> = names
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_writes_is_the_ledger_at_one_moment() {
    const WRITERS: usize = 8;
    let folder = Folder::new();
    let store = Arc::new(open(&folder.file()).await);
    let stop = Arc::new(AtomicBool::new(false));
    let acknowledged: Arc<[AtomicUsize; WRITERS]> = Arc::default();
    let writers: Vec<_> = (0..WRITERS)
        .map(|w| {
            let (store, stop, acknowledged) = (store.clone(), stop.clone(), acknowledged.clone());
            tokio::spawn(async move {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    let object = address(&format!("ip-{w}-{n:05}"), "x".repeat(500));
                    store.create(object).await.unwrap();
                    n += 1;
                    acknowledged[w].store(n, Ordering::Relaxed);
                }
            })
        })
        .collect();
    until("all write", async || {
        acknowledged.iter().all(|n| n.load(Ordering::Relaxed) > 20)
    })
    .await;
    let mut revisions = Vec::new();
    for round in 0..3 {
        let to = folder.path().join(format!("backup-{round}.db"));
        let before = acknowledged.each_ref().map(|n| n.load(Ordering::Relaxed));
        let copied = backup(&folder.file(), &to, &Options::default())
            .await
            .unwrap();
        let mut connection = raw(&to).await;
        let count = "SELECT count(*) FROM objects";
        let total = number(&mut connection, count).await;
        assert_eq!(copied.objects, u64::try_from(total).unwrap());
        // Each writer's objects up to one of them, and nothing that is younger than the revision.
        for (w, before) in before.into_iter().enumerate() {
            let of = format!("FROM objects WHERE name LIKE 'ip-{w}-%'");
            let found = number(&mut connection, format!("SELECT count(*) {of}")).await;
            let last = format!("SELECT CAST(substr(max(name), 6) AS INTEGER) {of}");
            assert_eq!(number(&mut connection, last).await, found - 1);
            assert!(
                usize::try_from(found).unwrap() >= before,
                "{found} {before}"
            );
        }
        let newest = "SELECT max(revision) FROM objects";
        let newest = number(&mut connection, newest).await;
        assert_eq!(copied.revision.0, u64::try_from(newest).unwrap());
        connection.close().await.unwrap();
        revisions.push(copied.revision);
    }
    assert!(revisions.is_sorted() && revisions[0] < revisions[2]);
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    // The ledger itself has noticed nothing.
    let mut watch = store
        .watch(Kind::IPAddress, &from(revisions[0]))
        .await
        .unwrap();
    assert!(matches!(
        next_event(&mut watch).await,
        WatchEvent::Applied(_)
    ));
}

#[tokio::test]
async fn a_backup_is_one_whole_file_for_this_user_only() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    store.create(address("ip-1", 1)).await.unwrap();
    let to = folder.path().join("backup.db");
    let copied = backup(&folder.file(), &to, &Options::default())
        .await
        .unwrap();
    let metadata = fs::metadata(&to).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.len(), copied.bytes);
    store.close().await.unwrap();
    assert_eq!(files(&folder), ["backup.db", "ledger.db"]);
}

#[tokio::test]
async fn what_was_watched_or_listed_before_a_restore_expires_and_no_revision_comes_twice() {
    let folder = Folder::new();
    let store = open_with(&folder.file(), at(NOW)).await;
    for n in 0..20 {
        store.create(address(&format!("ip-{n}"), n)).await.unwrap();
    }
    let page = ListOptions {
        limit: Some(5),
        ..ListOptions::default()
    };
    let page = store.list(Kind::IPAddress, &page).await.unwrap();
    let saved = folder.path().join("backup.db");
    let copied = backup(&folder.file(), &saved, &at(NOW)).await.unwrap();
    assert_eq!(copied.objects, 20);
    // Written after the backup, so lost by the restore; a watcher has seen it.
    let mut lost = store.create(address("ip-lost", 1)).await.unwrap();
    for n in 0..50 {
        let next = with_value(&lost, n + 2);
        lost = store
            .update(next, ipledger_core::store::Part::Main)
            .await
            .unwrap();
    }
    let seen = revision(&lost);
    store.close().await.unwrap();

    let restored = folder.path().join("restored.db");
    let (again, start) = restore(&saved, &restored, &at(NOW + 60)).await.unwrap();
    assert_eq!(again, copied_but_for_size(again, copied));
    assert!(start.0 > seen.0 + 1_000_000_000, "{start}");
    let mode = fs::metadata(&restored).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let store = open_with(&restored, at(NOW + 60)).await;
    for old in [Revision(2), copied.revision, seen, Revision(start.0 - 1)] {
        let e = watch_error(&store, old).await;
        assert!(matches!(e, StoreError::Expired { .. }), "{old}: {e}");
    }
    let rest = ListOptions {
        continue_token: page.continue_token,
        ..ListOptions::default()
    };
    let e = store.list(Kind::IPAddress, &rest).await.unwrap_err();
    assert!(matches!(e, StoreError::Expired { .. }), "{e}");
    assert_eq!(list(&store, &ListOptions::default()).await.len(), 20);
    let mut watch = store.watch(Kind::IPAddress, &from(start)).await.unwrap();
    let next = store.create(address("ip-next", 1)).await.unwrap();
    assert_eq!(revision(&next), Revision(start.0 + 1));
    assert_eq!(
        brief(&next_change(&mut watch).await),
        ("synced", String::new(), start.0)
    );
    assert_eq!(
        brief(&next_change(&mut watch).await),
        ("applied", "ip-next".to_owned(), start.0 + 1)
    );
    store.close().await.unwrap();

    // The same backup once more: what the first restored ledger has written is in the past, too.
    let second = folder.path().join("second.db");
    let (_, later) = restore(&saved, &second, &at(NOW + 120)).await.unwrap();
    assert!(later > revision(&next));
    let store = open_with(&second, at(NOW + 120)).await;
    let e = watch_error(&store, revision(&next)).await;
    assert!(matches!(e, StoreError::Expired { .. }), "{e}");
}

/// Sizes differ by what was not yet cleaned up.
fn copied_but_for_size(
    copied: ipledger_store_sqlite::Copied,
    other: ipledger_store_sqlite::Copied,
) -> ipledger_store_sqlite::Copied {
    ipledger_store_sqlite::Copied {
        bytes: copied.bytes,
        ..other
    }
}

#[tokio::test]
async fn a_backup_that_is_served_as_it_is_moves_on_once() {
    let folder = Folder::new();
    let store = open_with(&folder.file(), at(NOW)).await;
    let created = store.create(address("ip-1", 1)).await.unwrap();
    let saved = folder.path().join("backup.db");
    backup(&folder.file(), &saved, &at(NOW)).await.unwrap();
    let served = folder.path().join("served.db");
    fs::copy(&saved, &served).unwrap();

    let copy = open_with(&served, at(NOW + 1)).await;
    let e = watch_error(&copy, revision(&created)).await;
    assert!(matches!(e, StoreError::Expired { .. }), "{e}");
    let first = revision(&copy.create(address("ip-2", 1)).await.unwrap());
    assert!(first.0 > 1_000_000_000);
    copy.close().await.unwrap();
    let copy = open_with(&served, at(NOW + 1_000)).await;
    let second = copy.create(address("ip-3", 1)).await.unwrap();
    assert_eq!(revision(&second), Revision(first.0 + 1), "only once");
    let mut watch = copy.watch(Kind::IPAddress, &from(first)).await.unwrap();
    let event = next_change(&mut watch).await;
    assert_eq!(brief(&event), ("applied", "ip-3".to_owned(), first.0 + 1));
    // The ledger itself is where it was.
    let next = store.create(address("ip-2", 1)).await.unwrap();
    assert_eq!(revision(&next), Revision(revision(&created).0 + 1));
}

#[tokio::test]
async fn a_plain_copy_of_a_ledger_is_restored_with_what_is_in_its_write_ahead_log() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let created = store.create(address("ip-1", 1)).await.unwrap();
    // As a snapshot of the volume shows it.
    let plain = folder.path().join("plain.db");
    fs::copy(folder.file(), &plain).unwrap();
    let log = folder.path().join("ledger.db-wal");
    assert!(fs::metadata(&log).unwrap().len() > 0);
    fs::copy(log, folder.path().join("plain.db-wal")).unwrap();
    let to = folder.path().join("restored.db");
    let (copied, start) = restore(&plain, &to, &Options::default()).await.unwrap();
    assert_eq!(copied.objects, 1);
    assert!(start.0 > 1_000_000_000);
    let restored = open(&to).await;
    let read = restored.get(&created.key(), ReadAt::Latest).await.unwrap();
    assert_eq!(read, created);
}

async fn refused(from: &Path, to: &Path) -> CopyError {
    let saved = backup(from, to, &Options::default()).await.unwrap_err();
    let restored = restore(from, to, &Options::default()).await.unwrap_err();
    assert_eq!(saved, restored);
    saved
}

#[tokio::test]
async fn nothing_is_overwritten_nor_mixed_with_what_is_left_of_another_ledger() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await.unwrap();
    for left in ["to.db", "to.db-wal", "to.db-journal"] {
        let left = folder.path().join(left);
        fs::write(&left, "mine").unwrap();
        let e = refused(&folder.file(), &folder.path().join("to.db")).await;
        assert_eq!(e, CopyError::Exists { path: left.clone() });
        assert_eq!(fs::read_to_string(&left).unwrap(), "mine");
        fs::remove_file(left).unwrap();
    }
    let e = refused(&folder.file(), &folder.file()).await;
    assert!(matches!(e, CopyError::Exists { .. }), "{e}");
    assert_eq!(files(&folder), ["ledger.db"]);
}

#[tokio::test]
async fn what_is_no_sound_ledger_is_not_copied() {
    let folder = Folder::new();
    let (from, to) = (folder.file(), folder.path().join("to.db"));
    let e = refused(&from, &to).await;
    assert_eq!(e, CopyError::NoLedger { path: from.clone() });
    fs::write(&from, "").unwrap();
    let e = refused(&from, &to).await;
    assert_eq!(e, CopyError::NoLedger { path: from.clone() });
    fs::write(&from, "just some text\n".repeat(1_000)).unwrap();
    let e = refused(&from, &to).await;
    assert!(e.to_string().contains("is not a database"), "{e}");
    fs::remove_file(&from).unwrap();

    let store = open(&from).await;
    for n in 0..200 {
        let object = address(&format!("ip-{n}"), "x".repeat(200));
        store.create(object).await.unwrap();
    }
    store.close().await.unwrap();
    let mut bytes = fs::read(&from).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0xa5);
    fs::write(&from, &bytes).unwrap();
    let e = refused(&from, &to).await;
    assert!(e.to_string().contains("damaged"), "{e}");
    assert_eq!(fs::read(&from).unwrap(), bytes);
    assert!(files(&folder).iter().all(|f| f.starts_with("ledger.db")));
}

#[tokio::test]
async fn a_folder_that_is_not_there_or_takes_no_files_is_named() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await.unwrap();
    for to in [folder.path().join("none/to.db"), "/sys/to.db".into()] {
        let e = refused(&folder.file(), &to).await;
        assert!(matches!(e, CopyError::Target { .. }), "{e}");
        assert!(e.to_string().contains(to.to_str().unwrap()), "{e}");
    }
}
