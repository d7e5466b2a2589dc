//! Which addresses are in use, and which is the first free one.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::Bound;

use super::address::{Family, Ip};
use super::set::{RangeSet, Span};

/// The addresses that are in use, whatever set they belong to.
///
/// They are held as runs of consecutive addresses, so memory and look-ups depend on the number of runs, not of
/// addresses: `insert`, `remove` and `contains` take O(log runs), also in a range that is almost full.
///
/// Used addresses outside a set that is asked about (holders left behind by a narrowed range, addresses of another
/// class) are no error and do not count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Occupancy {
    v4: Runs,
    v6: Runs,
    len: usize,
}

/// First to last number of each run; runs neither overlap nor touch.
type Runs = BTreeMap<u128, u128>;

impl Occupancy {
    /// Nothing in use.
    pub const fn new() -> Self {
        Self {
            v4: Runs::new(),
            v6: Runs::new(),
            len: 0,
        }
    }

    /// These addresses in use.
    pub fn of(ips: impl IntoIterator<Item = Ip>) -> Self {
        let mut all = Self::new();
        for ip in ips {
            all.insert(ip);
        }
        all
    }

    /// Marks the address as used; `false` if it was already.
    pub fn insert(&mut self, ip: Ip) -> bool {
        let number = ip.number();
        let runs = self.runs_mut(ip.family());
        let below = run_from(runs, number);
        if below.is_some_and(|(_, end)| number <= end) {
            return false;
        }
        // The ends of a family's space are never an `Ip`, so there is a number before and after this one.
        let start = match below {
            Some((start, end)) if end + 1 == number => start,
            _ => number,
        };
        let end = runs.remove(&(number + 1)).unwrap_or(number);
        runs.insert(start, end);
        self.len += 1;
        true
    }

    /// Marks the address as free; `false` if it was already.
    pub fn remove(&mut self, ip: Ip) -> bool {
        let number = ip.number();
        let runs = self.runs_mut(ip.family());
        let Some((start, end)) = run_from(runs, number).filter(|(_, end)| number <= *end) else {
            return false;
        };
        if start < number {
            runs.insert(start, number - 1);
        } else {
            runs.remove(&start);
        }
        if number < end {
            runs.insert(number + 1, end);
        }
        self.len -= 1;
        true
    }

    /// Whether the address is used.
    pub fn contains(&self, ip: Ip) -> bool {
        let number = ip.number();
        run_from(self.runs(ip.family()), number).is_some_and(|(_, end)| number <= end)
    }

    /// How many addresses are used, both families together.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no address is used.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many addresses of `family` in `set` are used. O(log runs) for each range of the set, plus the runs inside.
    pub fn count_in(&self, set: &RangeSet, family: Family) -> u128 {
        let runs = self.runs(family);
        let inside = |span: &Span| -> u128 {
            let start = run_from(runs, span.first).map_or(span.first, |(start, _)| start);
            runs.range(start..=span.last)
                .map(|(start, end)| (*start.max(&span.first), *end.min(&span.last)))
                // A run that ends before the range counts nothing.
                .map(|(first, last)| (last + 1).saturating_sub(first))
                .sum()
        };
        set.spans(family).iter().map(inside).sum()
    }

    /// The lowest free address of `family` in `set`; `None` if all are used.
    ///
    /// O(log runs + log ranges) if the first range of the set has a free address, however full it is. Each full range
    /// before that one costs one more step: usually a constant one, at worst O(log runs).
    pub fn first_free(&self, set: &RangeSet, family: Family) -> Option<Ip> {
        self.first_free_at(set, family, 0)
    }

    /// The first free address of `family` in `set` at or after the address with ordinal `start_ordinal`, and from the
    /// beginning of the set if there is none; `None` if all are used.
    ///
    /// The ordinal is taken modulo the size of the set, so any hash will do: a hash of a claim's uid makes the random
    /// order a function of claim and ledger, so that an allocation can be repeated. Costs as [`Self::first_free`].
    pub fn first_free_from(
        &self,
        set: &RangeSet,
        family: Family,
        start_ordinal: u128,
    ) -> Option<Ip> {
        let ordinal = start_ordinal.checked_rem(set.size(family))?;
        let start = set.nth(family, ordinal)?;
        // After a miss everything from `start` on is used, so the lowest free address lies before it.
        self.first_free_at(set, family, start.number())
            .or_else(|| self.first_free(set, family))
    }

    fn first_free_at(&self, set: &RangeSet, family: Family, from: u128) -> Option<Ip> {
        let spans = set.spans(family);
        let skipped = spans.partition_point(|span| span.last < from);
        let mut from = from;
        let mut walk = Walk::new(self.runs(family));
        for span in spans.iter().skip(skipped) {
            let candidate = span.first.max(from);
            if candidate > span.last {
                continue; // inside the run that filled an earlier range
            }
            match walk.run_over(candidate) {
                None => return Ip::from_number(family, candidate),
                // Runs do not touch, so the address after a run is free.
                Some(end) if end < span.last => return Ip::from_number(family, end + 1),
                Some(end) => from = end + 1,
            }
        }
        None
    }

    fn runs(&self, family: Family) -> &Runs {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    fn runs_mut(&mut self, family: Family) -> &mut Runs {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

/// The last run that starts at or before `number`.
fn run_from(runs: &Runs, number: u128) -> Option<(u128, u128)> {
    runs.range(..=number)
        .next_back()
        .map(|(start, end)| (*start, *end))
}

/// Looks runs up for ascending numbers. With many small full ranges the wanted run is nearly always the one after
/// the last that was found, and stepping there is much cheaper than a search from the root.
struct Walk<'a> {
    runs: &'a Runs,
    /// The runs behind the last that was found; `None` before the first search.
    ahead: Option<btree_map::Range<'a, u128, u128>>,
}

impl<'a> Walk<'a> {
    const fn new(runs: &'a Runs) -> Self {
        Self { runs, ahead: None }
    }

    /// The last number of the run that holds `number`; `None` if `number` is free.
    fn run_over(&mut self, number: u128) -> Option<u128> {
        if let Some((start, end)) = self.ahead.as_mut().and_then(Iterator::next)
            && (*start..=*end).contains(&number)
        {
            return Some(*end);
        }
        self.ahead = Some(self.runs.range((Bound::Excluded(number), Bound::Unbounded)));
        run_from(self.runs, number)
            .map(|(_, end)| end)
            .filter(|end| number <= *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::IpRange;

    fn set(items: &[&str]) -> RangeSet {
        items
            .iter()
            .map(|item| IpRange::parse(item).unwrap().range)
            .collect()
    }

    fn ip(text: &str) -> Ip {
        Ip::parse(text).unwrap()
    }

    fn used(ips: &[&str]) -> Occupancy {
        let mut used = Occupancy::new();
        for text in ips {
            assert!(used.insert(ip(text)));
        }
        used
    }

    #[test]
    fn addresses_are_given_in_order_until_the_set_is_exhausted() {
        let set = set(&["192.0.2.0/31", "192.0.2.7"]);
        let mut used = Occupancy::new();
        for expected in ["192.0.2.0", "192.0.2.1", "192.0.2.7"] {
            let free = used.first_free(&set, Family::V4);
            assert_eq!(free, Some(ip(expected)));
            assert!(free.is_some_and(|ip| used.insert(ip)));
        }
        assert_eq!(used.first_free(&set, Family::V4), None);
        assert_eq!(used.first_free_from(&set, Family::V4, 1), None);
        assert_eq!(used.count_in(&set, Family::V4), 3);
        assert_eq!(used.first_free(&set, Family::V6), None);
        assert_eq!(used.first_free_from(&set, Family::V6, 1), None);
    }

    #[test]
    fn inserting_and_removing_twice_says_so_and_changes_nothing() {
        let mut used = used(&["10.0.0.1", "10.0.0.3", "10.0.0.2"]);
        assert!(!used.insert(ip("10.0.0.2")));
        assert_eq!(used.len(), 3);
        assert!(used.remove(ip("10.0.0.2")));
        assert!(!used.remove(ip("10.0.0.2")));
        assert!(!used.contains(ip("10.0.0.2")));
        assert!(used.contains(ip("10.0.0.1")) && used.contains(ip("10.0.0.3")));
        assert_eq!(used.len(), 2);
        assert!(!used.is_empty());
    }

    #[test]
    fn a_freed_address_is_the_next_one_given() {
        let set = set(&["10.0.0.0/29"]);
        let mut used = used(&["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        used.remove(ip("10.0.0.1"));
        assert_eq!(used.first_free(&set, Family::V4), Some(ip("10.0.0.1")));
    }

    #[test]
    fn the_search_from_an_ordinal_wraps_around_once() {
        let set = set(&["10.0.0.0/30", "10.0.1.0/30"]);
        let used = used(&["10.0.1.2", "10.0.1.3"]);
        let from = |n| used.first_free_from(&set, Family::V4, n);
        assert_eq!(from(5), Some(ip("10.0.1.1")));
        assert_eq!(from(6), Some(ip("10.0.0.0")));
        assert_eq!(from(8 + 1), Some(ip("10.0.0.1")));
        assert_eq!(from(u128::MAX), Some(ip("10.0.0.0")));
    }

    #[test]
    fn used_addresses_outside_the_set_do_not_count() {
        let set = set(&["10.0.0.8/30"]);
        let used = used(&["10.0.0.7", "10.0.0.8", "10.0.0.12", "::a00:9"]);
        assert_eq!(used.count_in(&set, Family::V4), 1);
        assert_eq!(used.first_free(&set, Family::V4), Some(ip("10.0.0.9")));
    }

    #[test]
    fn one_run_may_cover_several_ranges_of_a_set() {
        let set = set(&["10.0.0.0", "10.0.0.2", "10.0.0.4", "10.0.0.9"]);
        let used = used(&["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]);
        assert_eq!(used.first_free(&set, Family::V4), Some(ip("10.0.0.9")));
    }

    #[test]
    fn runs_between_the_ranges_of_a_set_are_passed_over() {
        let set = set(&["10.0.0.0", "10.0.0.9", "10.0.0.20/30"]);
        let used = used(&["10.0.0.0", "10.0.0.2", "10.0.0.4", "10.0.0.9", "10.0.0.20"]);
        assert_eq!(used.first_free(&set, Family::V4), Some(ip("10.0.0.21")));
    }
}
