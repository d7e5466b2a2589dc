//! What a disk could hold after the power went: what was synced, and any part of what was not.

use std::collections::BTreeMap;
use std::path::Path;

use ipledger_tests::random::Random;

use super::journal::{Act, Record};

/// A disk writes whole sectors, also when the power goes.
const SECTOR: usize = 512;

/// The files of one folder.
pub(super) struct Disk {
    files: Vec<File>,
    /// As the program sees them.
    names: Names,
    synced_names: Names,
    /// Changes of names that are not synced yet, each with its place in the journal.
    pending_names: Vec<(u64, NameChange)>,
    /// Whether the syncs of a file are lost: to prove that the tests notice.
    loses_syncs_of: fn(&str) -> bool,
}

type Names = BTreeMap<String, usize>;

#[derive(Default)]
struct File {
    synced: Vec<u8>,
    /// Changes that are not synced yet, each with its place in the journal.
    pending: Vec<(u64, Change)>,
}

#[derive(Clone)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    Truncate { length: usize },
}

#[derive(Clone)]
enum NameChange {
    Create { name: String, file: usize },
    Unlink { name: String },
    Rename { from: String, to: String },
}

/// Which of the changes that were not synced the disk has nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    None,
    /// As when only the program was killed.
    All,
    /// Any of the changes of content, so many of eight, some of them only in part; and some of the
    /// changes of names, in order.
    Some(usize),
}

impl Disk {
    /// An empty folder.
    pub(super) fn new(loses_syncs_of: fn(&str) -> bool) -> Disk {
        Disk {
            files: Vec::new(),
            names: Names::new(),
            synced_names: Names::new(),
            pending_names: Vec::new(),
            loses_syncs_of,
        }
    }

    /// Does what the program did next.
    pub(super) fn apply(&mut self, record: &Record) {
        let Record { name, act, end } = record;
        // Memory that several processes share, not content.
        if name.ends_with("-shm") {
            return;
        }
        let rename = match act {
            Act::Sync { began } => {
                if !(self.loses_syncs_of)(name) {
                    self.sync(name, *began);
                }
                return;
            }
            Act::Write { offset, data } => {
                let (offset, data) = (*offset, data.clone());
                return self.change(name, *end, Change::Write { offset, data });
            }
            Act::Truncate { length } => {
                return self.change(name, *end, Change::Truncate { length: *length });
            }
            Act::Create => {
                self.files.push(File::default());
                let file = self.files.len() - 1;
                let name = name.clone();
                NameChange::Create { name, file }
            }
            Act::Unlink => NameChange::Unlink { name: name.clone() },
            Act::Rename { to } => NameChange::Rename {
                from: name.clone(),
                to: to.clone(),
            },
        };
        rename.apply(&mut self.names);
        self.pending_names.push((*end, rename));
    }

    fn change(&mut self, name: &str, at: u64, change: Change) {
        let file = self.names[name];
        self.files[file].pending.push((at, change));
    }

    /// Everything that was done to a file, or to the names in the folder, up to a place in the
    /// journal is on the disk.
    fn sync(&mut self, name: &str, until: u64) {
        if name.is_empty() {
            let synced = self.pending_names.partition_point(|(at, _)| *at <= until);
            for (_, change) in self.pending_names.drain(..synced) {
                change.apply(&mut self.synced_names);
            }
        } else {
            let file = &mut self.files[self.names[name]];
            let synced = file.pending.partition_point(|(at, _)| *at <= until);
            for (_, change) in file.pending.drain(..synced) {
                change.apply(&mut file.synced, |_| true);
            }
        }
    }

    /// The files after the power has gone now.
    pub(super) fn after_cut(&self, kept: Kept, random: &mut Random) -> BTreeMap<String, Vec<u8>> {
        let mut names = self.synced_names.clone();
        let changes = match kept {
            Kept::None => 0,
            Kept::All => self.pending_names.len(),
            Kept::Some(_) => random.below(self.pending_names.len() + 1),
        };
        for (_, change) in &self.pending_names[..changes] {
            change.apply(&mut names);
        }
        let contents =
            |(name, file): (String, usize)| (name, self.files[file].after_cut(kept, random));
        names.into_iter().map(contents).collect()
    }
}

impl File {
    fn after_cut(&self, kept: Kept, random: &mut Random) -> Vec<u8> {
        let mut content = self.synced.clone();
        for (_, change) in &self.pending {
            match kept {
                Kept::None => {}
                Kept::All => change.apply(&mut content, |_| true),
                Kept::Some(of_eight) if random.below(8) >= of_eight => {}
                Kept::Some(_) if random.one_in(4) => {
                    change.apply(&mut content, |_| random.one_in(2));
                }
                Kept::Some(_) => change.apply(&mut content, |_| true),
            }
        }
        content
    }
}

impl Change {
    /// Applies the sectors of it that are `kept`.
    fn apply(&self, content: &mut Vec<u8>, mut kept: impl FnMut(usize) -> bool) {
        match self {
            Change::Truncate { length } => content.resize(*length, 0),
            Change::Write { offset, data } => {
                let (mut at, mut left) = (*offset, data.as_slice());
                while !left.is_empty() {
                    let (sector, rest) = left.split_at(left.len().min(SECTOR - at % SECTOR));
                    if kept(at) {
                        let end = at + sector.len();
                        content.resize(content.len().max(end), 0);
                        content[at..end].copy_from_slice(sector);
                    }
                    at += sector.len();
                    left = rest;
                }
            }
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Create { name, file } => {
                names.insert(name.clone(), *file);
            }
            NameChange::Unlink { name } => {
                names.remove(name);
            }
            NameChange::Rename { from, to } => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }
}

/// Writes files into an empty folder.
pub(super) fn write(files: &BTreeMap<String, Vec<u8>>, folder: &Path) {
    for (name, content) in files {
        std::fs::write(folder.join(name), content).unwrap();
    }
}

/// The files of a folder, as [`Disk::after_cut`] gives them.
pub(super) fn read(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if !name.ends_with("-shm") {
            files.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(acts: &[(&str, Act)]) -> Disk {
        let mut disk = Disk::new(|_| false);
        for ((name, act), end) in acts.iter().zip(1..) {
            disk.apply(&Record {
                name: (*name).to_owned(),
                act: act.clone(),
                end,
            });
        }
        disk
    }

    fn put(offset: usize, text: &str) -> Act {
        Act::Write {
            offset,
            data: text.as_bytes().to_vec(),
        }
    }

    fn after(disk: &Disk, kept: Kept) -> Vec<(String, String)> {
        let files = disk.after_cut(kept, &mut Random::new(1)).into_iter();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        files.map(|(name, bytes)| (name, text(bytes))).collect()
    }

    fn files(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
        expected.iter().map(owned).collect()
    }

    #[test]
    fn only_what_was_synced_is_certain() {
        let disk = disk(&[
            ("a", Act::Create),
            ("a", put(0, "one")),
            ("", Act::Sync { began: 2 }),
            ("a", put(3, "two")),
            // Began before the second write.
            ("a", Act::Sync { began: 3 }),
            ("b", Act::Create),
            ("b", put(0, "lost")),
            ("b", Act::Sync { began: 7 }),
        ]);
        assert_eq!(after(&disk, Kept::None), files(&[("a", "one")]));
        assert_eq!(
            after(&disk, Kept::All),
            files(&[("a", "onetwo"), ("b", "lost")])
        );
    }

    #[test]
    fn a_name_that_was_given_anew_has_the_old_content_until_the_folder_is_synced() {
        let acts = [
            ("a", Act::Create),
            ("a", put(0, "old")),
            ("a", Act::Sync { began: 2 }),
            ("", Act::Sync { began: 3 }),
            ("b", Act::Create),
            ("b", put(0, "new")),
            ("b", Act::Sync { began: 6 }),
            ("b", Act::Rename { to: "a".to_owned() }),
            ("", Act::Sync { began: 8 }),
        ];
        assert_eq!(after(&disk(&acts[..8]), Kept::None), files(&[("a", "old")]));
        assert_eq!(after(&disk(&acts), Kept::None), files(&[("a", "new")]));
    }

    #[test]
    fn a_truncation_is_a_change_like_any_other() {
        let disk = disk(&[
            ("a", Act::Create),
            ("a", put(0, "12345")),
            ("a", Act::Sync { began: 2 }),
            ("", Act::Sync { began: 3 }),
            ("a", Act::Truncate { length: 2 }),
            ("a", put(3, "x")),
        ]);
        assert_eq!(after(&disk, Kept::None), files(&[("a", "12345")]));
        assert_eq!(after(&disk, Kept::All), files(&[("a", "12\0x")]));
    }

    #[test]
    fn any_part_of_what_was_not_synced_may_be_there_in_whole_sectors() {
        let disk = disk(&[
            ("a", Act::Create),
            ("", Act::Sync { began: 1 }),
            ("a", put(256, &"x".repeat(768))),
        ]);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let files = disk.after_cut(Kept::Some(4), &mut Random::new(seed));
            let content = &files["a"];
            let sectors = [256, 512].map(|at| content.get(at) == Some(&b'x'));
            assert!(content.iter().filter(|b| **b == b'x').count() % 256 == 0);
            seen.insert(sectors);
        }
        assert_eq!(seen.len(), 4, "every combination of the two sectors");
    }
}
