//! Laws of addresses, range sets and occupancy over random inputs.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests; clippy.toml covers only test functions"
)]

use std::collections::BTreeSet;

use ipledger_core::net::{Family, Ip, IpRange, Occupancy, RangeError, RangeSet};
use proptest::prelude::*;

/// The small space that models cover: `10.0.0.0` or `2001:db8::` and the `SPACE` addresses from there on.
const SPACE: u128 = 64;

fn base(family: Family) -> u128 {
    match family {
        Family::V4 => 0x0a00_0000,
        Family::V6 => 0x2001_0db8 << 96,
    }
}

fn ip(family: Family, offset: u128) -> Ip {
    Ip::from_number(family, base(family) + offset).unwrap()
}

fn families() -> impl Strategy<Value = Family> {
    prop_oneof![Just(Family::V4), Just(Family::V6)]
}

fn small_ip() -> impl Strategy<Value = Ip> {
    (families(), 0..SPACE).prop_map(|(family, offset)| ip(family, offset))
}

fn small_range() -> impl Strategy<Value = IpRange> {
    (families(), 0..SPACE, 0..SPACE).prop_map(|(family, a, b)| {
        let base = base(family);
        IpRange::new(family, base + a.min(b), base + a.max(b)).unwrap()
    })
}

/// A few short ranges, so that gaps remain.
fn small_set() -> impl Strategy<Value = RangeSet> {
    let range = (families(), 0..SPACE, 0..8u128).prop_map(|(family, first, more)| {
        let first = base(family) + first;
        IpRange::new(family, first, first + more).unwrap()
    });
    prop::collection::vec(range, 0..10).prop_map(RangeSet::from_ranges)
}

/// Any address, with the edges of blocks and of 64-bit halves more often than chance has them.
fn any_ip() -> impl Strategy<Value = Ip> {
    let v6 = prop_oneof![
        any::<u128>(),
        any::<u64>().prop_map(|high| u128::from(high) << 64),
        any::<u64>().prop_map(u128::from),
        any::<[u8; 8]>().prop_map(|groups| {
            // Groups that are 0 or small, for many kinds of zero runs.
            groups
                .iter()
                .fold(0, |sum, group| (sum << 16) | u128::from(group & group >> 4))
        }),
    ];
    prop_oneof![
        any::<u32>().prop_map(|number| (Family::V4, u128::from(number))),
        v6.prop_map(|number| (Family::V6, number)),
    ]
    .prop_filter_map("refused address", |(family, number)| {
        Ip::from_number(family, number)
    })
}

fn members(range: IpRange) -> impl Iterator<Item = Ip> {
    (range.first()..=range.last()).map(move |n| Ip::from_number(range.family(), n).unwrap())
}

fn model(set: &RangeSet) -> BTreeSet<Ip> {
    set.ranges().flat_map(members).collect()
}

fn of_family(ips: &BTreeSet<Ip>, family: Family) -> Vec<Ip> {
    ips.iter()
        .copied()
        .filter(|ip| ip.family() == family)
        .collect()
}

/// Text that looks like addresses and ranges.
fn looks_like_a_range() -> impl Strategy<Value = String> {
    "[0-9a-f:./%,\\[\\] -]{0,24}|[0-9]{1,4}(\\.[0-9]{1,4}){3}([-/][0-9a-f.:]{0,8})?|[0-9a-f:]{2,12}(-[0-9a-f:]{1,12}|/[0-9]{1,3})?"
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = Ip::parse(&text).map_err(|error| error.to_string());
        let _ = Ip::parse_canonical(&text).map_err(|error| error.to_string());
        let _ = IpRange::parse(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn what_is_read_prints_as_what_reads_back(text in looks_like_a_range()) {
        if let Ok(ip) = Ip::parse(&text) {
            prop_assert_eq!(Ip::parse_canonical(&ip.to_string()), Ok(ip));
        }
        match IpRange::parse(&text) {
            Ok(item) => {
                let again = IpRange::parse(&item.range.to_string()).map(|again| again.range);
                prop_assert_eq!(again, Ok(item.range));
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn the_canonical_form_is_read_back_and_is_the_only_one(ip in any_ip()) {
        let text = ip.to_string();
        prop_assert_eq!(Ip::parse_canonical(&text), Ok(ip));
        prop_assert_eq!(Ip::from_number(ip.family(), ip.number()), Some(ip));
        let upper = text.to_uppercase();
        prop_assert_eq!(Ip::parse(&upper), Ok(ip));
        prop_assert_eq!(Ip::parse_canonical(&upper).is_ok(), upper == text);
    }

    #[test]
    fn object_names_are_dns_labels_and_differ_for_different_addresses(
        ips in prop::collection::btree_set(any_ip(), 0..60),
    ) {
        let names: BTreeSet<String> = ips.iter().map(|ip| ip.object_name()).collect();
        prop_assert_eq!(names.len(), ips.len());
        for name in names {
            prop_assert!(name.starts_with("ip-") && name.len() <= 63);
            prop_assert!(name.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()));
            prop_assert!(name.bytes().all(|b| b == b'-' || b.is_ascii_digit() || b.is_ascii_lowercase()));
        }
    }

    #[test]
    fn a_cidr_of_any_length_holds_its_power_of_two_or_is_refused(ip in any_ip(), length in 1u8..=128) {
        let bits = ip.family().bits();
        let host_bits = u32::from(bits.saturating_sub(length));
        let network = ip.number() >> host_bits << host_bits;
        match IpRange::parse(&format!("{ip}/{length}")) {
            Ok(item) => prop_assert_eq!(item.range.first(), ip.number()),
            // The proposal is the network, and it is accepted when it is written.
            Err(RangeError::HostBits { network: proposal, .. }) => {
                prop_assert_ne!(ip.number(), network);
                let item = IpRange::parse(&proposal.to_string());
                let range = item.map(|item| item.range);
                prop_assert!(range.as_ref().is_ok_and(|range| range.contains(ip)));
                prop_assert_eq!(range.as_ref().map(|range| range.first()), Ok(network));
                prop_assert_eq!(range.as_ref().map(|range| range.size()), Ok(1u128 << host_bits));
                prop_assert_eq!(range.map(|range| range.prefix_len()), Ok(Some(length)));
            }
            Err(RangeError::Prefix { max, .. }) => prop_assert!(max == bits && length > bits),
            Err(RangeError::Special { .. }) => {
                prop_assert!(IpRange::new(ip.family(), network, network + ((1 << host_bits) - 1)).is_none());
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }

    #[test]
    fn a_set_holds_what_a_plain_set_holds(
        steps in prop::collection::vec((any::<bool>(), small_range()), 0..12),
    ) {
        let (mut set, mut plain) = (RangeSet::new(), BTreeSet::new());
        for (insert, range) in steps {
            if insert {
                set.insert(range);
                plain.extend(members(range));
            } else {
                set.remove(range);
                plain.retain(|ip| !range.contains(*ip));
            }
            prop_assert_eq!(&model(&set), &plain);
        }
        let ranges: Vec<IpRange> = set.ranges().collect();
        prop_assert_eq!(&set, &RangeSet::from_ranges(ranges.iter().rev().copied()));
        for (left, right) in ranges.iter().zip(ranges.iter().skip(1)) {
            let apart = left.family() < right.family() || left.last() + 1 < right.first();
            prop_assert!(apart, "{left} and {right} are not merged");
        }
        for family in Family::ALL {
            let expected = of_family(&plain, family);
            prop_assert_eq!(set.size(family), expected.len() as u128);
            prop_assert_eq!(set.is_empty(family), expected.is_empty());
            prop_assert_eq!(set.first(family), expected.first().copied());
            for n in 0..=expected.len() {
                prop_assert_eq!(set.nth(family, n as u128), expected.get(n).copied());
            }
            for offset in 0..SPACE {
                let ip = ip(family, offset);
                let ordinal = expected.iter().position(|other| *other == ip);
                prop_assert_eq!(set.ordinal(ip), ordinal.map(|n| n as u128));
                prop_assert_eq!(set.contains(ip), plain.contains(&ip));
            }
        }
    }

    #[test]
    fn sets_combine_as_plain_sets_do(a in small_set(), b in small_set()) {
        let (plain_a, plain_b) = (model(&a), model(&b));
        prop_assert_eq!(model(&a.union(&b)), &plain_a | &plain_b);
        prop_assert_eq!(model(&a.intersect(&b)), &plain_a & &plain_b);
        prop_assert_eq!(model(&a.subtract(&b)), &plain_a - &plain_b);
        prop_assert_eq!(a.overlaps(&b), !plain_a.is_disjoint(&plain_b));
    }

    #[test]
    fn occupancy_finds_what_a_plain_set_finds(
        set in small_set(),
        steps in prop::collection::vec((prop::bool::weighted(0.8), small_ip()), 0..150),
        start in any::<u128>(),
    ) {
        let (mut used, mut plain) = (Occupancy::new(), BTreeSet::new());
        for (insert, ip) in steps {
            if insert {
                prop_assert_eq!(used.insert(ip), plain.insert(ip));
            } else {
                prop_assert_eq!(used.remove(ip), plain.remove(&ip));
            }
            prop_assert_eq!(used.len(), plain.len());
        }
        for family in Family::ALL {
            let wanted = of_family(&model(&set), family);
            let free = |ip: &&Ip| !plain.contains(*ip);
            let taken = wanted.iter().filter(|ip| plain.contains(*ip)).count();
            prop_assert_eq!(used.count_in(&set, family), taken as u128);
            prop_assert_eq!(used.first_free(&set, family), wanted.iter().find(free).copied());
            let starts = (0..wanted.len() as u128).chain([start]);
            for start in starts {
                let ordinal = start.checked_rem(wanted.len() as u128).unwrap_or(0);
                let turned = wanted.iter().cycle().skip(ordinal as usize).take(wanted.len());
                let expected = { turned }.find(free).copied();
                prop_assert_eq!(used.first_free_from(&set, family, start), expected);
            }
            for offset in 0..SPACE {
                let ip = ip(family, offset);
                prop_assert_eq!(used.contains(ip), plain.contains(&ip));
            }
        }
    }

    #[test]
    fn the_order_of_inserts_and_removes_leaves_no_trace(ips in prop::collection::vec(small_ip(), 0..80)) {
        let (mut forward, mut backward) = (Occupancy::new(), Occupancy::new());
        for ip in &ips {
            forward.insert(*ip);
        }
        for ip in ips.iter().rev() {
            backward.insert(*ip);
        }
        prop_assert_eq!(&forward, &backward);
        for ip in &ips {
            forward.remove(*ip);
        }
        prop_assert_eq!(forward, Occupancy::new());
    }
}

fn set(items: &[&str]) -> RangeSet {
    items
        .iter()
        .map(|item| IpRange::parse(item).unwrap().range)
        .collect()
}

#[test]
fn a_v6_slash_29_has_exactly_two_to_the_99_addresses() {
    let set = set(&["2001:db8::/29"]);
    assert_eq!(set.size(Family::V6), 1 << 99);
    assert_eq!(set.nth(Family::V6, 1 << 99), None);
    let last = set.nth(Family::V6, (1 << 99) - 1).unwrap();
    assert_eq!(last.to_string(), "2001:dbf:ffff:ffff:ffff:ffff:ffff:ffff");
    assert_eq!(set.ordinal(last), Some((1 << 99) - 1));
}

#[test]
fn offsets_around_63_and_64_bits_carry_into_the_upper_half() {
    let set = set(&["fc::/48"]);
    let cases = [
        (1u128 << 63, "fc::8000:0:0:0"),
        ((1 << 64) - 1, "fc::ffff:ffff:ffff:ffff"),
        (1 << 64, "fc:0:0:1::"),
    ];
    for (ordinal, text) in cases {
        let ip = Ip::parse(text).unwrap();
        assert_eq!(set.nth(Family::V6, ordinal), Some(ip));
        assert_eq!(set.ordinal(ip), Some(ordinal));
    }
}

#[test]
fn a_specific_address_in_the_middle_of_a_slash_64_is_taken_and_found_at_once() {
    let set = set(&["2001:db8::/64"]);
    let middle = Ip::parse("2001:db8::8000:0:0:1").unwrap();
    let mut used = Occupancy::new();
    assert!(used.insert(middle));
    let start = set.ordinal(middle).unwrap();
    let next = Ip::parse("2001:db8::8000:0:0:2").unwrap();
    assert_eq!(used.first_free_from(&set, Family::V6, start), Some(next));
    assert_eq!(used.count_in(&set, Family::V6), 1);
}

#[test]
fn prefixes_of_every_length_never_panic_and_are_never_falsely_exhausted() {
    for base in [
        "::",
        "::1",
        "2001:db8::",
        "4000::",
        "ff00::",
        "10.0.0.0",
        "128.0.0.0",
    ] {
        for length in 0..=129 {
            let Ok(item) = IpRange::parse(&format!("{base}/{length}")) else {
                continue;
            };
            let family = item.range.family();
            let set = RangeSet::from_ranges(item.usable(true));
            let free = Occupancy::new().first_free(&set, family);
            assert!(free.is_some(), "{base}/{length}");
            assert_eq!(free, set.first(family));
        }
    }
}

#[test]
fn ten_thousand_items_are_read_and_filled_to_the_last_address() {
    // Every other address, so that neither ranges nor runs merge.
    let items = (0..10_000u32).map(|n| std::net::Ipv4Addr::from(0x0a00_0000 + 2 * n).to_string());
    let set: RangeSet = items
        .map(|item| IpRange::parse(&item).unwrap().range)
        .collect();
    assert_eq!(set.ranges().count(), 10_000);
    let mut used = Occupancy::new();
    for n in (0..10_000).rev() {
        used.insert(set.nth(Family::V4, n).unwrap());
    }
    assert_eq!(used.count_in(&set, Family::V4), 10_000);
    assert_eq!(used.first_free(&set, Family::V4), None);
    assert_eq!(used.first_free_from(&set, Family::V4, 5_000), None);
    let freed = set.nth(Family::V4, 7_777).unwrap();
    used.remove(freed);
    assert_eq!(used.first_free(&set, Family::V4), Some(freed));
    assert_eq!(used.first_free_from(&set, Family::V4, 9_000), Some(freed));
}

#[test]
fn a_slash_16_is_handed_out_in_order_to_the_last_address() {
    let set = set(&["10.0.0.0/16"]);
    let mut used = Occupancy::new();
    for n in 0..set.size(Family::V4) {
        let ip = used.first_free(&set, Family::V4).unwrap();
        assert_eq!(set.ordinal(ip), Some(n));
        assert!(used.insert(ip));
    }
    assert_eq!(used.first_free(&set, Family::V4), None);
}
