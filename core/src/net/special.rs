//! Blocks of addresses that are never in the ledger.

use std::fmt;

use super::Family;

/// A kind of address that can never be claimed: it names no single host on a network.
///
/// Binding rule R1 names them. Anything else is accepted, on purpose: private, link-local, documentation and class E
/// (240.0.0.0/4) addresses are all in use as pools somewhere, and the ledger does not route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpecialBlock {
    /// `0.0.0.0` and `::`: "no address".
    Unspecified,
    /// `0.0.0.0/8` without its first address: "this network" (RFC 1122), a source before a host has an address.
    /// Rule R1 does not name it; it is refused because no stack accepts it as a destination, so a claim bound to such
    /// an address would look healthy and never carry traffic.
    ThisNetwork,
    /// `127.0.0.0/8` and `::1`: never leaves the host.
    Loopback,
    /// `224.0.0.0/4` and `ff00::/8`: names a group.
    Multicast,
    /// `255.255.255.255`: names everybody.
    Broadcast,
    /// `::ffff:0:0/96`: a second spelling of an IPv4 address, which would let one IP have two ledger entries.
    Mapped,
}

/// Every refused block: family, first and last number, kind. Small blocks come before larger neighbours, so that the
/// most telling name is found first.
const BLOCKS: [(Family, u128, u128, SpecialBlock); 9] = [
    (Family::V4, 0, 0, SpecialBlock::Unspecified),
    (Family::V4, 1, 0x00ff_ffff, SpecialBlock::ThisNetwork),
    (Family::V4, 0x7f00_0000, 0x7fff_ffff, SpecialBlock::Loopback),
    (
        Family::V4,
        0xffff_ffff,
        0xffff_ffff,
        SpecialBlock::Broadcast,
    ),
    (
        Family::V4,
        0xe000_0000,
        0xefff_ffff,
        SpecialBlock::Multicast,
    ),
    (Family::V6, 0, 0, SpecialBlock::Unspecified),
    (Family::V6, 1, 1, SpecialBlock::Loopback),
    (
        Family::V6,
        0xffff_0000_0000,
        0xffff_ffff_ffff,
        SpecialBlock::Mapped,
    ),
    (Family::V6, 0xff << 120, u128::MAX, SpecialBlock::Multicast),
];

impl SpecialBlock {
    /// The block that overlaps the inclusive range `first..=last` of `family`, if any; the first of the table when
    /// several do.
    pub(super) fn overlapping(family: Family, first: u128, last: u128) -> Option<Self> {
        BLOCKS
            .iter()
            .find(|(of, from, to, _)| *of == family && first <= *to && *from <= last)
            .map(|(_, _, _, kind)| *kind)
    }

    /// What is accepted instead, as the end of an error message.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Mapped => "write the plain IPv4 form, without ::ffff:",
            _ => "only addresses that one host or service can hold are accepted",
        }
    }
}

/// The kind with its extent, as used inside a sentence: `loopback (127.0.0.0/8, ::1)`.
impl fmt::Display for SpecialBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "unspecified (0.0.0.0, ::)",
            Self::ThisNetwork => "\"this network\" (0.0.0.0/8)",
            Self::Loopback => "loopback (127.0.0.0/8, ::1)",
            Self::Multicast => "multicast (224.0.0.0/4, ff00::/8)",
            Self::Broadcast => "broadcast (255.255.255.255)",
            Self::Mapped => "IPv4-mapped (::ffff:0:0/96)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_each_family_are_refused_so_that_a_successor_never_overflows() {
        for family in Family::ALL {
            let end = u128::MAX >> (128 - family.bits());
            assert!(SpecialBlock::overlapping(family, 0, 0).is_some());
            assert!(SpecialBlock::overlapping(family, end, end).is_some());
        }
    }

    #[test]
    fn a_range_that_spans_a_refused_block_overlaps_it() {
        let spanning = SpecialBlock::overlapping(Family::V4, 0x7e00_0001, 0x8000_0001);
        assert_eq!(spanning, Some(SpecialBlock::Loopback));
    }

    #[test]
    fn class_e_and_link_local_are_not_refused() {
        assert_eq!(
            SpecialBlock::overlapping(Family::V4, 0xf000_0000, 0xffff_fffe),
            None
        );
        assert_eq!(
            SpecialBlock::overlapping(Family::V6, 0xfe80 << 112, 0xfe80 << 112),
            None
        );
    }
}
