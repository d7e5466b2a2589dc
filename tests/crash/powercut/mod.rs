//! The power goes: every byte that was not yet synced may be lost, or may not.
//!
//! The real server works with a library between it and its disk that keeps a journal. From that
//! the disk is rebuilt as it could be after a cut at many moments, and opened: it must be a
//! beginning of the history that holds everything that was acknowledged before the cut.

mod cuts;
mod disk;
mod journal;
mod recording;

use std::sync::OnceLock;
use std::time::Instant;

use cuts::Cuts;
use disk::Kept;
use recording::Recording;

/// One run of the server serves all tests here.
fn recording() -> &'static Recording {
    static RECORDING: OnceLock<Recording> = OnceLock::new();
    RECORDING.get_or_init(Recording::make)
}

const SEED: u64 = 4;

#[test]
fn what_was_acknowledged_before_the_power_went_is_there_and_nothing_is_half_there() {
    let recording = recording();
    println!("seed {SEED}; {recording}");
    let began = Instant::now();
    let mut cuts = Cuts::new(recording, SEED, |_| false);
    let mut places = cuts.at_boundaries(60);
    places.extend(cuts.anywhere(60));
    let (mut opened, mut wrong) = (0, Vec::new());
    for at in places {
        for kept in [Kept::None, Kept::Some(1 + at % 8), Kept::All] {
            opened += 1;
            if let Err(e) = cuts.check(at, kept) {
                wrong.push(format!("after record {at}, keeping {kept:?}: {e}"));
            }
        }
    }
    println!("{opened} disks opened in {:.0?}", began.elapsed());
    assert!(
        wrong.is_empty(),
        "{} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Of cuts anywhere, how many are found out when the syncs of this file are lost, with these words.
fn found_out(loses_syncs_of: fn(&str) -> bool, words: &str) -> (usize, usize) {
    let mut cuts = Cuts::new(recording(), SEED, loses_syncs_of);
    let places = cuts.anywhere(20);
    let mut check = |at: &&usize| cuts.check(**at, Kept::None);
    let found = places
        .iter()
        .filter(|at| check(at).is_err_and(|e| e.contains(words)));
    (found.count(), places.len())
}

/// As with `synchronous=NORMAL`, which syncs the log only now and then.
#[test]
fn a_store_that_does_not_sync_its_log_is_found_out() {
    let (found, of) = found_out(|name| name.ends_with("-wal"), "was acknowledged");
    assert!(found > of / 2);
}

/// The log is used again from its beginning after a checkpoint, so the pages must be safe by then.
#[test]
fn a_store_that_does_not_sync_its_pages_is_found_out() {
    let (found, of) = found_out(|name| name.ends_with(".db"), "");
    assert!(found > of / 4);
}
