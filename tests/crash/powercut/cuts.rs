//! Cuts of the power at chosen places of a recording, in their order.

use std::collections::BTreeSet;

use ipledger_tests::random::Random;
use tokio::runtime::{Builder, Runtime};

use super::disk::{self, Disk, Kept};
use super::journal::Act;
use super::recording::Recording;
use crate::place::memory_folder;

pub(super) struct Cuts<'a> {
    recording: &'a Recording,
    disk: Disk,
    /// How many records the disk has taken.
    done: usize,
    random: Random,
    runtime: Runtime,
}

impl<'a> Cuts<'a> {
    pub(super) fn new(
        recording: &'a Recording,
        seed: u64,
        loses_syncs_of: fn(&str) -> bool,
    ) -> Cuts<'a> {
        Cuts {
            recording,
            disk: Disk::new(loses_syncs_of),
            done: 0,
            random: Random::new(seed),
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
        }
    }

    /// Cuts just before and just after so many syncs, and everything that is rarer.
    pub(super) fn at_boundaries(&mut self, syncs: usize) -> BTreeSet<usize> {
        let (mut boundaries, mut rare) = (Vec::new(), Vec::new());
        for (n, record) in self.recording.records.iter().enumerate() {
            match record.act {
                _ if record.name.ends_with("-shm") => {}
                Act::Write { .. } => {}
                Act::Sync { .. } if record.name.ends_with("-wal") => boundaries.push(n),
                _ => rare.push(n),
            }
        }
        let chosen = (0..syncs)
            .map(|_| *self.random.pick(&boundaries))
            .collect::<Vec<_>>();
        let both = |n: usize| [n, n + 1];
        chosen.into_iter().chain(rare).flat_map(both).collect()
    }

    /// So many cuts anywhere.
    pub(super) fn anywhere(&mut self, n: usize) -> BTreeSet<usize> {
        let all = self.recording.records.len();
        (0..n).map(|_| self.random.below(all + 1)).collect()
    }

    /// Cuts the power after so many records, no fewer than the last time, and looks at what is
    /// left.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn check(&mut self, records: usize, kept: Kept) -> Result<u64, String> {
        for record in &self.recording.records[self.done..records] {
            self.disk.apply(record);
        }
        self.done = records;
        let length = match records {
            0 => 0,
            n => self.recording.records[n - 1].end,
        };
        let acknowledged = self.recording.acknowledged_at(length);
        let folder = memory_folder();
        let mut files = self.disk.after_cut(kept, &mut self.random);
        if kept != Kept::None {
            // What processes shared in memory is on the disk as it comes.
            let random = &mut self.random;
            let garbage = (0..32 << 10).map(|_| random.below(256) as u8);
            files.insert("ledger.db-shm".to_owned(), garbage.collect());
        }
        disk::write(&files, folder.path());
        let file = folder.path().join("ledger.db");
        let check = self.recording.history.check(&file, acknowledged);
        self.runtime.block_on(check)
    }
}
