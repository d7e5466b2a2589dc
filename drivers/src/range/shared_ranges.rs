//! Which classes have an address, or share addresses with a set of ranges.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipledger_core::net::{Family, Ip, IpRange, RangeSet};

type ByNumber = BTreeSet<(u128, Arc<str>)>;

/// The ranges of all classes, as an interval tree: a question costs O(log n) for each range that is
/// asked for and each range that is found, however many classes there are.
///
/// A range belongs to the smallest block (all numbers with a common prefix) that holds it whole. It
/// then reaches over the middle of the block, so that only the blocks around a number can have ranges
/// around that number, and in each of them one end of a range decides.
#[derive(Debug, Default)]
pub(super) struct SharedRanges {
    by_first: BTreeMap<Family, ByNumber>,
    /// By family and bits behind the prefix, then by prefix.
    blocks: BTreeMap<(Family, u32), BTreeMap<u128, Block>>,
}

/// The ranges that belong to a block.
#[derive(Debug, Default)]
struct Block {
    by_first: ByNumber,
    by_last: ByNumber,
}

impl SharedRanges {
    /// Adds the ranges of a class.
    pub(super) fn insert(&mut self, class: &str, set: &RangeSet) {
        let class: Arc<str> = class.into();
        for range in set.ranges() {
            let (first, last) = (range.first(), range.last());
            let bits = bits_behind(first, last);
            let blocks = self.blocks.entry((range.family(), bits)).or_default();
            let block = blocks.entry(prefix(first, bits)).or_default();
            block.by_first.insert((first, class.clone()));
            block.by_last.insert((last, class.clone()));
            let all = self.by_first.entry(range.family()).or_default();
            all.insert((first, class.clone()));
        }
    }

    /// Takes the ranges of a class out that were added for it.
    pub(super) fn remove(&mut self, class: &str, set: &RangeSet) {
        let class: Arc<str> = class.into();
        for range in set.ranges() {
            let (first, last) = (range.first(), range.last());
            let level = (range.family(), bits_behind(first, last));
            if let Some(blocks) = self.blocks.get_mut(&level) {
                let prefix = prefix(first, level.1);
                if let Some(block) = blocks.get_mut(&prefix) {
                    block.by_first.remove(&(first, class.clone()));
                    block.by_last.remove(&(last, class.clone()));
                    if block.by_first.is_empty() {
                        blocks.remove(&prefix);
                    }
                }
                if blocks.is_empty() {
                    self.blocks.remove(&level);
                }
            }
            if let Some(all) = self.by_first.get_mut(&range.family()) {
                all.remove(&(first, class.clone()));
            }
        }
    }

    /// The classes that have this address, by name.
    pub(super) fn at(&self, ip: Ip) -> BTreeSet<Arc<str>> {
        let mut found = BTreeSet::new();
        self.around(ip.family(), ip.number(), &mut found);
        found
    }

    /// The classes that have an address of the set, by name.
    pub(super) fn with_any_of(&self, set: &RangeSet) -> BTreeSet<Arc<str>> {
        let mut found = BTreeSet::new();
        for range in set.ranges() {
            self.around(range.family(), range.first(), &mut found);
            self.beginning_in(range, &mut found);
        }
        found
    }

    /// The classes that have a range around a number.
    fn around(&self, family: Family, number: u128, found: &mut BTreeSet<Arc<str>>) {
        for ((_, bits), blocks) in self.blocks.range((family, 0)..=(family, u128::BITS)) {
            let Some(block) = blocks.get(&prefix(number, *bits)) else {
                continue;
            };
            // Whether the number lies behind the middle of the block: then only the ends matter.
            let behind = bits.checked_sub(1).is_none_or(|bit| number >> bit & 1 == 1);
            if behind {
                let ends = block.by_last.range((number, Arc::from(""))..);
                found.extend(ends.map(|(_, class)| class.clone()));
            } else {
                let starts = block.by_first.iter();
                let starts = starts.take_while(|(first, _)| *first <= number);
                found.extend(starts.map(|(_, class)| class.clone()));
            }
        }
    }

    /// The classes that have a range which begins in this one.
    fn beginning_in(&self, range: IpRange, found: &mut BTreeSet<Arc<str>>) {
        let all = self.by_first.get(&range.family());
        let from = all
            .into_iter()
            .flat_map(|all| all.range((range.first(), Arc::from(""))..));
        let starts = from.take_while(|(first, _)| *first <= range.last());
        found.extend(starts.map(|(_, class)| class.clone()));
    }
}

/// How many bits behind their common prefix two numbers have.
fn bits_behind(first: u128, last: u128) -> u32 {
    u128::BITS - (first ^ last).leading_zeros()
}

fn prefix(number: u128, bits: u32) -> u128 {
    number.checked_shr(bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(items: &[&str]) -> RangeSet {
        items
            .iter()
            .map(|item| IpRange::parse(item).unwrap().range)
            .collect()
    }

    fn names(found: BTreeSet<Arc<str>>) -> Vec<String> {
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_wide_range_is_found_by_an_address_in_its_middle_and_at_its_ends() {
        let mut index = SharedRanges::default();
        index.insert("wide", &set(&["10.0.0.1-10.255.0.0", "fd00::/32"]));
        index.insert("one", &set(&["10.7.0.1"]));
        let at = |ip: &str| names(index.at(Ip::parse(ip).unwrap()));
        assert_eq!(at("10.0.0.0"), [""; 0]);
        assert_eq!(at("10.0.0.1"), ["wide"]);
        assert_eq!(at("10.7.0.1"), ["one", "wide"]);
        assert_eq!(at("10.255.0.0"), ["wide"]);
        assert_eq!(at("10.255.0.1"), [""; 0]);
        assert_eq!(at("fd00:0:1::"), ["wide"]);
        assert_eq!(at("fd00:1::"), [""; 0]);
    }

    /// Sets of up to four ranges within 64 addresses across a /27 boundary, of either family.
    fn some_set() -> impl Strategy<Value = RangeSet> {
        let range = (any::<bool>(), 0..64_u128, 0..24_u128).prop_map(|(v4, first, size)| {
            let (family, base) = if v4 {
                (Family::V4, 0x0a00_0000 + 32)
            } else {
                (Family::V6, (0xfd00_u128 << 112) - 32 + (1 << 64))
            };
            IpRange::new(family, base + first, base + first + size).unwrap()
        });
        proptest::collection::vec(range, 0..4).prop_map(RangeSet::from_ranges)
    }

    proptest! {
        #[test]
        fn it_finds_what_a_comparison_with_every_class_finds(
            sets in proptest::collection::vec(some_set(), 0..12),
            gone in 0..12_usize,
            asked in some_set(),
        ) {
            let mut index = SharedRanges::default();
            for (n, set) in sets.iter().enumerate() {
                index.insert(&format!("{n:02}"), set);
            }
            if let Some(set) = sets.get(gone) {
                index.remove(&format!("{gone:02}"), set);
            }
            let expected = |holds: &dyn Fn(&RangeSet) -> bool| -> Vec<String> {
                let kept = sets.iter().enumerate().filter(|(n, _)| *n != gone);
                kept.filter(|(_, set)| holds(set)).map(|(n, _)| format!("{n:02}")).collect()
            };
            prop_assert_eq!(
                names(index.with_any_of(&asked)),
                expected(&|set| set.overlaps(&asked))
            );
            for range in asked.ranges() {
                let ip = Ip::from_number(range.family(), range.last()).unwrap();
                prop_assert_eq!(names(index.at(ip)), expected(&|set| set.contains(ip)));
            }
        }

        #[test]
        fn nothing_is_left_of_classes_that_are_gone(sets in proptest::collection::vec(some_set(), 0..12)) {
            let mut index = SharedRanges::default();
            for (n, set) in sets.iter().enumerate() {
                index.insert(&n.to_string(), set);
            }
            for (n, set) in sets.iter().enumerate() {
                index.remove(&n.to_string(), set);
            }
            prop_assert!(index.blocks.is_empty());
            prop_assert!(index.by_first.values().all(BTreeSet::is_empty));
        }
    }
}
