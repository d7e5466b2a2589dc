//! What is wrong with the database file is said clearly, and the file is not harmed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::tempdir;

use ipledger_tests::program::{Server, api, class, cli};

/// `serve` on this file ends with an error that has these words.
fn refused(db: &Path, words: &[&str]) {
    let out = cli(
        "",
        &[
            "serve",
            "--db",
            db.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
        ],
    );
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success(), "{text}");
    assert!(
        text.contains(db.to_str().unwrap()),
        "the file is named: {text}"
    );
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in: {text}");
    }
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn a_file_that_is_no_database_is_refused_and_unharmed() {
    let dir = tempdir().unwrap();
    let db = dir.path().join("notes.db");
    let text = "some notes that somebody needs\n".repeat(100);
    std::fs::write(&db, &text).unwrap();
    refused(&db, &["database"]);
    assert_eq!(std::fs::read_to_string(&db).unwrap(), text);
}

#[test]
fn the_database_of_another_program_is_refused_and_unharmed() {
    let dir = tempdir().unwrap();
    let db = dir.path().join("other.db");
    // Written by hand, so that this test needs no SQLite of its own: a real ledger with another
    // application id in its header (bytes 68 to 71 of the file).
    Server::start(&db, &[]).stop();
    let mut bytes = std::fs::read(&db).unwrap();
    bytes[68..72].copy_from_slice(b"else");
    std::fs::write(&db, &bytes).unwrap();
    refused(&db, &["another"]);
    assert_eq!(std::fs::read(&db).unwrap(), bytes);
}

#[test]
fn a_ledger_that_is_moved_away_without_its_log_after_a_crash_can_be_put_back_whole() {
    let dir = tempdir().unwrap();
    let (db, aside) = (dir.path().join("l.db"), dir.path().join("aside.db"));
    let server = Server::start(&db, &[]);
    let class = class("lan", &["192.0.2.0/30"], "Retain");
    let made = server.ask("POST", &api("ipaddressclasses"), Some(&class));
    assert!(matches!(made, Ok((201, _))), "{made:?}");
    server.kill();
    std::fs::rename(&db, &aside).unwrap();
    refused(&db, &["l.db-wal is there", "put that file back"]);
    assert!(!db.exists());
    std::fs::rename(&aside, &db).unwrap();
    let server = Server::start(&db, &[]);
    let found = server.get("ipaddressclasses/lan");
    assert_eq!(found["metadata"]["name"], "lan");
    assert!(server.stop().success());
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let dir = tempdir().unwrap();
    refused(&dir.path().join("no/such/l.db"), &["folder"]);
}

#[test]
fn a_damaged_file_is_refused() {
    let dir = tempdir().unwrap();
    let db = dir.path().join("l.db");
    let server = Server::start(&db, &[]);
    server.stop();
    let mut bytes = std::fs::read(&db).unwrap();
    let size = bytes.len();
    for byte in &mut bytes[4096..size.min(20_000)] {
        *byte ^= 0x5a;
    }
    std::fs::write(&db, &bytes).unwrap();
    refused(&db, &["damaged"]);
}

#[test]
fn the_ledger_is_readable_by_its_owner_only() {
    let dir = tempdir().unwrap();
    let db = dir.path().join("l.db");
    let server = Server::start(&db, &[]);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.path());
    }
    drop(server);
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let dir = tempdir().unwrap();
    let db = dir.path().join("l.db");
    Server::start(&db, &[]).stop();
    let before = std::fs::read(&db).unwrap();
    // Root may write whatever the mode says; the immutable flag binds root, too.
    let chattr = |flag: &str| Command::new("chattr").arg(flag).arg(&db).status();
    let mode = std::fs::Permissions::from_mode(0o400);
    std::fs::set_permissions(&db, mode).unwrap();
    let is_root = std::fs::OpenOptions::new().write(true).open(&db).is_ok();
    if is_root {
        assert!(
            chattr("+i").unwrap().success(),
            "root can make a file immutable"
        );
    }
    let result = std::panic::catch_unwind(|| refused(&db, &["read-only"]));
    if is_root {
        assert!(chattr("-i").unwrap().success());
    }
    result.unwrap();
    assert_eq!(std::fs::read(&db).unwrap(), before);
}
