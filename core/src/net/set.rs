//! A set of addresses, held as ranges.

use std::iter::Peekable;
use std::slice::Iter;

use super::address::{Family, Ip};
use super::range::IpRange;

/// A set of addresses of both families, as sorted ranges that neither overlap nor touch.
///
/// Memory is that of the ranges, whatever they hold: a /64 costs as much as one address. With `n` ranges, look-ups
/// (`contains`, `nth`, `ordinal`) take O(log n), and operations that change the set or combine two take O(n), so build
/// a large set with [`RangeSet::from_ranges`] and take a large set away with [`RangeSet::subtract`], not range by
/// range. Two sets are equal when they hold the same addresses.
///
/// The *ordinal* of an address is the number of addresses of its family in the set that are below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    v4: Vec<Span>,
    v6: Vec<Span>,
}

/// One range of a set, with the ordinal of its first address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u128,
    pub(super) last: u128,
    before: u128,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self {
            v4: Vec::new(),
            v6: Vec::new(),
        }
    }

    /// The union of ranges in any order; overlaps count once. O(n log n).
    pub fn from_ranges(ranges: impl IntoIterator<Item = IpRange>) -> Self {
        let mut ranges: Vec<IpRange> = ranges.into_iter().collect();
        ranges.sort_unstable();
        let of = |family| {
            let runs = ranges.iter().filter(|range| range.family() == family);
            merge(runs.map(|range| (range.first(), range.last())))
        };
        Self {
            v4: of(Family::V4),
            v6: of(Family::V6),
        }
    }

    /// Adds all addresses of `range`. O(n).
    pub fn insert(&mut self, range: IpRange) {
        *self = self.union(&Self::from_ranges([range]));
    }

    /// Takes all addresses of `range` out; those that are not in the set do no harm. O(n).
    pub fn remove(&mut self, range: IpRange) {
        *self = self.subtract(&Self::from_ranges([range]));
    }

    /// Whether the address is in the set.
    pub fn contains(&self, ip: Ip) -> bool {
        self.ordinal(ip).is_some()
    }

    /// How many addresses of `family` the set holds.
    pub fn size(&self, family: Family) -> u128 {
        self.spans(family)
            .last()
            .map_or(0, |span| span.before + span.size())
    }

    /// Whether the set holds no address of `family`.
    pub fn is_empty(&self, family: Family) -> bool {
        self.spans(family).is_empty()
    }

    /// The ranges, IPv4 first, ascending, neither overlapping nor touching.
    pub fn ranges(&self) -> impl Iterator<Item = IpRange> + '_ {
        Family::ALL.into_iter().flat_map(|family| {
            // Never filters anything out: a span is a union of touching valid ranges, which is a valid range.
            self.spans(family)
                .iter()
                .filter_map(move |span| IpRange::new(family, span.first, span.last))
        })
    }

    /// The lowest address of `family`; `None` if there is none.
    pub fn first(&self, family: Family) -> Option<Ip> {
        self.nth(family, 0)
    }

    /// The address of `family` with ordinal `n` (from 0); `None` if the set holds no more than `n`.
    pub fn nth(&self, family: Family, n: u128) -> Option<Ip> {
        let spans = self.spans(family);
        let index = spans.partition_point(|span| span.before <= n);
        let span = spans.get(index.checked_sub(1)?)?;
        let offset = n - span.before;
        if offset < span.size() {
            Ip::from_number(family, span.first + offset)
        } else {
            None
        }
    }

    /// The ordinal of the address, the reverse of [`RangeSet::nth`]; `None` if it is not in the set.
    pub fn ordinal(&self, ip: Ip) -> Option<u128> {
        let (spans, number) = (self.spans(ip.family()), ip.number());
        let index = spans.partition_point(|span| span.last < number);
        let span = spans.get(index)?;
        let offset = number.checked_sub(span.first)?;
        Some(span.before + offset)
    }

    /// The addresses that are in this set, in the other, or in both.
    pub fn union(&self, other: &Self) -> Self {
        Self::from_ranges(self.ranges().chain(other.ranges()))
    }

    /// The addresses that are in both sets.
    pub fn intersect(&self, other: &Self) -> Self {
        let of = |family| merge(common(self.spans(family), other.spans(family)));
        Self {
            v4: of(Family::V4),
            v6: of(Family::V6),
        }
    }

    /// The addresses of this set that are not in the other.
    pub fn subtract(&self, other: &Self) -> Self {
        let of = |family| merge(difference(self.spans(family), other.spans(family)).into_iter());
        Self {
            v4: of(Family::V4),
            v6: of(Family::V6),
        }
    }

    /// Whether any address is in both sets.
    pub fn overlaps(&self, other: &Self) -> bool {
        Family::ALL.into_iter().any(|family| {
            common(self.spans(family), other.spans(family))
                .next()
                .is_some()
        })
    }

    /// The ranges of one family.
    pub(super) fn spans(&self, family: Family) -> &[Span] {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

/// Same as [`RangeSet::from_ranges`].
impl FromIterator<IpRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = IpRange>>(ranges: I) -> Self {
        Self::from_ranges(ranges)
    }
}

impl Span {
    /// How many addresses. Never a whole family, see [`IpRange`].
    const fn size(&self) -> u128 {
        self.last - self.first + 1
    }
}

/// Spans from runs that are sorted by their first number; overlapping and touching ones become one.
fn merge(runs: impl Iterator<Item = (u128, u128)>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut size = 0;
    for (first, last) in runs {
        match spans.last_mut() {
            // The end of a family's space is never in a range, so there is a number after each `last`.
            Some(span) if first <= span.last + 1 => span.last = span.last.max(last),
            _ => spans.push(Span {
                first,
                last,
                before: size,
            }),
        }
        size = spans.last().map_or(0, |span| span.before + span.size());
    }
    spans
}

/// The runs that two sorted lists have in common, in order.
fn common<'a>(a: &'a [Span], b: &'a [Span]) -> impl Iterator<Item = (u128, u128)> + 'a {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    std::iter::from_fn(move || next_common(&mut a, &mut b))
}

fn next_common(
    a: &mut Peekable<Iter<'_, Span>>,
    b: &mut Peekable<Iter<'_, Span>>,
) -> Option<(u128, u128)> {
    loop {
        let (left, right) = (*a.peek()?, *b.peek()?);
        // The one that ends first meets nothing further on; on a tie the other is passed over in the next round.
        if left.last <= right.last {
            a.next();
        } else {
            b.next();
        }
        let (first, last) = (left.first.max(right.first), left.last.min(right.last));
        if first <= last {
            return Some((first, last));
        }
    }
}

/// The runs of `from` without those of `cuts`, in order.
fn difference(from: &[Span], cuts: &[Span]) -> Vec<(u128, u128)> {
    let mut runs = Vec::new();
    let mut cuts = cuts.iter().peekable();
    for span in from {
        // The part of the span that is not decided yet begins here.
        let mut first = span.first;
        while let Some(cut) = cuts.next_if(|cut| cut.last <= span.last) {
            if cut.last < first {
                continue;
            }
            if cut.first > first {
                runs.push((first, cut.first - 1));
            }
            first = cut.last + 1;
        }
        // The next cut ends behind the span, so it stays for the spans that follow. No cut begins at 0, which is refused.
        let end = cuts
            .peek()
            .map_or(span.last, |cut| span.last.min(cut.first - 1));
        if first <= end {
            runs.push((first, end));
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(items: &[&str]) -> RangeSet {
        items
            .iter()
            .map(|item| IpRange::parse(item).unwrap().range)
            .collect()
    }

    fn printed(set: &RangeSet) -> Vec<String> {
        set.ranges().map(|range| range.to_string()).collect()
    }

    fn ip(text: &str) -> Ip {
        Ip::parse(text).unwrap()
    }

    #[test]
    fn overlapping_and_touching_items_count_once() {
        let set = set(&["10.0.0.4-10.0.0.11", "fd00::1", "10.0.0.0/29", "10.0.0.12"]);
        assert_eq!(printed(&set), ["10.0.0.0-10.0.0.12", "fd00::1"]);
        assert_eq!(set.size(Family::V4), 13);
        assert_eq!(set.size(Family::V6), 1);
    }

    #[test]
    fn the_same_number_in_the_other_family_is_another_address() {
        let set = set(&["0a00::", "10.0.0.1"]);
        assert!(!set.contains(ip("::a00:1")));
        assert!(set.contains(ip("10.0.0.1")));
    }

    #[test]
    fn excluding_the_middle_leaves_two_ranges() {
        let mut set = set(&["10.0.0.0/24", "fd00::/64"]);
        set.remove(IpRange::parse("10.0.0.10-10.0.0.19").unwrap().range);
        assert_eq!(
            printed(&set),
            ["10.0.0.0-10.0.0.9", "10.0.0.20-10.0.0.255", "fd00::/64"]
        );
        assert_eq!(set.nth(Family::V4, 10), Some(ip("10.0.0.20")));
        assert_eq!(set.ordinal(ip("10.0.0.20")), Some(10));
        assert_eq!(set.ordinal(ip("10.0.0.10")), None);
        set.insert(IpRange::parse("10.0.0.10-10.0.0.19").unwrap().range);
        assert_eq!(printed(&set), ["10.0.0.0/24", "fd00::/64"]);
    }

    #[test]
    fn one_cut_over_several_ranges_touches_each_of_them() {
        let from = set(&["10.0.0.0/30", "10.0.0.8/30", "10.0.0.16/30"]);
        let left = from.subtract(&set(&["10.0.0.2-10.0.0.17"]));
        assert_eq!(printed(&left), ["10.0.0.0/31", "10.0.0.18/31"]);
        assert!(from.overlaps(&left));
        assert!(!left.overlaps(&set(&["10.0.0.8/30", "fd00::1"])));
    }

    #[test]
    fn an_empty_set_has_no_first_address() {
        let set = RangeSet::new();
        assert!(set.is_empty(Family::V4) && set.is_empty(Family::V6));
        assert_eq!(set.first(Family::V6), None);
        assert_eq!(set.size(Family::V6), 0);
        assert_eq!(set.ranges().count(), 0);
    }
}
