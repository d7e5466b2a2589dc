//! `kill -9` of the server 200 times at random moments, under load, on one ledger.
//!
//! After each kill: every acknowledged write is there, none is half there, revisions have not gone
//! back, and watchers that go on from where they were miss nothing and hear nothing twice.

mod rounds;

use crate::place::Sqlite;

#[test]
fn a_server_on_sqlite_that_is_killed_200_times_under_load_keeps_its_word() {
    rounds::run(&Sqlite::new(), 200);
}
