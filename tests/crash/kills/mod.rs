//! `kill -9` of the server 200 times at random moments, under load, on one ledger.
//!
//! After each kill: every acknowledged write is there, none is half there, revisions have not gone
//! back, and watchers that go on from where they were miss nothing and hear nothing twice.

mod rounds;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

use tempfile::{TempDir, tempdir};

use crate::place::{Place, Sqlite};

#[test]
fn a_server_on_sqlite_that_is_killed_200_times_under_load_keeps_its_word() {
    rounds::run(&Sqlite::new(), 200);
}

#[cfg(feature = "etcd")]
#[test]
fn a_server_on_etcd_that_is_killed_200_times_under_load_keeps_its_word() {
    rounds::run(&crate::place::Etcd::new(), 200);
}

/// A store that has lost its last writes when a server is started on it for the fourth time.
struct Forgetful {
    folder: TempDir,
    before: TempDir,
    starts: Cell<usize>,
}

impl Place for Forgetful {
    fn on(&self, server: &mut Command) {
        self.starts.set(self.starts.get() + 1);
        match self.starts.get() {
            3 => copy(self.folder.path(), self.before.path()),
            4 => copy(self.before.path(), self.folder.path()),
            _ => {}
        }
        server.arg("--db").arg(self.folder.path().join("ledger.db"));
    }
}

/// Copies the files, which nobody uses.
fn copy(from: &Path, to: &Path) {
    for name in ["ledger.db", "ledger.db-wal"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

#[test]
fn a_store_that_forgets_what_it_acknowledged_is_found_out() {
    let forgetful = Forgetful {
        folder: tempdir().unwrap(),
        before: tempdir().unwrap(),
        starts: Cell::new(0),
    };
    let found = catch_unwind(AssertUnwindSafe(|| rounds::run(&forgetful, 3)));
    assert_eq!(forgetful.starts.get(), 4);
    let panic = found.expect_err("it was not found out");
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.contains("is none of"), "{message}");
}
