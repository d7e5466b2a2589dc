//! What the program keeps when it, its disk or the power fails in the middle of the work.
//!
//! * `claims`, `kills`: `kill -9` of the server.
//! * `powercut`, `cut_log`: everything that was not yet synced is lost, too.
//! * `full_disk`, `failing_disk`, `damaged_page`: the disk fails while the server runs.

// A helper of a test that cannot go on fails the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod book;
mod claims;
mod cut_log;
mod damaged_page;
mod failing_disk;
mod full_disk;
mod history;
mod kills;
mod load;
mod place;
mod powercut;
mod shim;
mod watcher;
