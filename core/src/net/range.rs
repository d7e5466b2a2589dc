//! A range of addresses and the items of a class's `addresses` and `exclude` lists.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::address::{Family, Ip, address_of, number_of, read_spelling};
use super::range_error::{PrefixProblem, RangeError};
use super::special::SpecialBlock;

/// An inclusive range of addresses of one family, in numbers.
///
/// Invariants: first <= last, both inside the family's space, and no address of a [`SpecialBlock`] inside, so every
/// number of a range is an [`Ip`]. Ordered IPv4 first, then by first address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpRange {
    family: Family,
    first: u128,
    last: u128,
}

/// How an item was written. `reserveFirstLast` acts on CIDR items only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemForm {
    /// `10.0.0.1`
    Single,
    /// `10.0.0.1-10.0.0.9`
    Dash,
    /// `10.0.0.0/24`, also with one address (`/32`, `/128`).
    Cidr,
}

/// One item of a list: its addresses and how it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParsedItem {
    /// All addresses of the item.
    pub range: IpRange,
    /// How it was written.
    pub form: ItemForm,
}

impl IpRange {
    /// The range from number `first` to number `last`, both inclusive; `None` if that breaks an invariant of the type
    /// (reversed, outside the family's space, or touching a [`SpecialBlock`]).
    pub fn new(family: Family, first: u128, last: u128) -> Option<Self> {
        let inside = address_of(family, last).is_some();
        let accepted = SpecialBlock::overlapping(family, first, last).is_none();
        (first <= last && inside && accepted).then_some(Self {
            family,
            first,
            last,
        })
    }

    /// Reads one item: an address, `first-last` (blanks around the dash are ignored), or a CIDR. Addresses may be
    /// spelled in any legal way.
    ///
    /// # Errors
    ///
    /// [`RangeError`]: among others a CIDR with host bits (the message proposes the network), prefix length 0, a
    /// reversed or mixed range, the short form `10.0.0.1-9`, a comma, and any range that holds an address of a
    /// [`SpecialBlock`], even in its middle.
    pub fn parse(item: &str) -> Result<ParsedItem, RangeError> {
        if item.trim().is_empty() {
            return Err(RangeError::Empty);
        }
        if item.contains(',') {
            let item = super::shown(item);
            return Err(RangeError::CommaList { item });
        }
        let (range, form) = if item.contains("://") {
            // Left to the address reader: the slashes are not those of a CIDR.
            (read_single(item, item)?, ItemForm::Single)
        } else if let Some((address, prefix)) = item.split_once('/') {
            (read_cidr(item, address, prefix)?, ItemForm::Cidr)
        } else if let Some((first, last)) = item.split_once('-') {
            (read_dash(item, first, last)?, ItemForm::Dash)
        } else {
            (read_single(item, item)?, ItemForm::Single)
        };
        Ok(ParsedItem { range, form })
    }

    /// The family of all addresses of the range.
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Number of the first address.
    pub const fn first(&self) -> u128 {
        self.first
    }

    /// Number of the last address, which belongs to the range.
    pub const fn last(&self) -> u128 {
        self.last
    }

    /// How many addresses: at least 1. Cannot overflow, since a range never is a whole family.
    pub const fn size(&self) -> u128 {
        self.last - self.first + 1
    }

    /// Whether the address is in the range.
    pub fn contains(&self, ip: Ip) -> bool {
        ip.family() == self.family && (self.first..=self.last).contains(&ip.number())
    }

    /// The prefix length in bits, if the range is exactly one CIDR; 32 or 128 for a single address.
    pub fn prefix_len(&self) -> Option<u8> {
        let size = self.size();
        let exact = size.is_power_of_two() && self.first.is_multiple_of(size);
        let host_bits = u8::try_from(size.trailing_zeros()).ok()?;
        exact.then(|| self.family.bits().saturating_sub(host_bits))
    }
}

/// The range of one address.
impl From<Ip> for IpRange {
    fn from(ip: Ip) -> Self {
        Self {
            family: ip.family(),
            first: ip.number(),
            last: ip.number(),
        }
    }
}

/// The shortest item that reads back as this range: an address, a CIDR if it is exactly one, else `first-last`.
impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(first), Some(last)) = (
            address_of(self.family, self.first),
            address_of(self.family, self.last),
        ) else {
            // Excluded by the type's invariant.
            return Err(fmt::Error);
        };
        match self.prefix_len() {
            _ if self.first == self.last => write!(f, "{first}"),
            Some(prefix) => write!(f, "{first}/{prefix}"),
            None => write!(f, "{first}-{last}"),
        }
    }
}

impl ParsedItem {
    /// The addresses that may be handed out. With `reserve_first_last` a CIDR item loses its first and last address,
    /// unless it has only one or two (/31, /32, /127, /128). `None` if nothing is left; that is so for no item that
    /// [`IpRange::parse`] returns.
    pub fn usable(&self, reserve_first_last: bool) -> Option<IpRange> {
        let range = self.range;
        if !reserve_first_last || self.form != ItemForm::Cidr || range.size() <= 2 {
            return Some(range);
        }
        IpRange::new(range.family, range.first + 1, range.last - 1)
    }
}

/// Reads `text`, a part of `item`, as one address.
fn read_ip(item: &str, text: &str) -> Result<Ip, RangeError> {
    Ip::parse(text).map_err(|error| RangeError::Address {
        item: super::shown(item),
        error,
    })
}

fn read_single(item: &str, text: &str) -> Result<IpRange, RangeError> {
    read_ip(item, text).map(IpRange::from)
}

/// Checks a range whose ends are in order and inside the family's space.
fn accept(item: &str, family: Family, first: u128, last: u128) -> Result<IpRange, RangeError> {
    match SpecialBlock::overlapping(family, first, last) {
        Some(block) => Err(RangeError::Special {
            item: super::shown(item),
            block,
        }),
        None => Ok(IpRange {
            family,
            first,
            last,
        }),
    }
}

fn read_dash(item: &str, first: &str, last: &str) -> Result<IpRange, RangeError> {
    // Only the blanks around the dash are ignored: those around the whole item are refused, as they are for a single
    // address and a CIDR.
    const BLANKS: [char; 2] = [' ', '\t'];
    let shown = || super::shown(item);
    let first = first.trim_end_matches(BLANKS);
    let last = last.trim_start_matches(BLANKS);
    if first.is_empty() {
        return Err(RangeError::MissingStart { item: shown() });
    }
    if last.is_empty() {
        return Err(RangeError::MissingEnd { item: shown() });
    }
    let start = read_ip(item, first)?;
    if is_short_form(start.family(), last) {
        let full = complete(start, last)
            .filter(|end| start <= *end)
            .map(|end| format!("{start}-{end}"));
        return Err(RangeError::ShortForm {
            item: shown(),
            full,
        });
    }
    let end = read_ip(item, last)?;
    if start.family() != end.family() {
        return Err(RangeError::MixedFamily {
            item: shown(),
            first: start.family(),
            last: end.family(),
        });
    }
    if start > end {
        return Err(RangeError::Reversed {
            item: shown(),
            first: start,
            last: end,
        });
    }
    accept(item, start.family(), start.number(), end.number())
}

/// Whether the end of a dash range is only the tail of an address: one to three decimal octets, or one IPv6 group.
fn is_short_form(family: Family, end: &str) -> bool {
    match family {
        Family::V4 => {
            end.split('.').count() < 4
                && end
                    .split('.')
                    .all(|octet| !octet.is_empty() && octet.bytes().all(|b| b.is_ascii_digit()))
        }
        Family::V6 => end.len() <= 4 && end.bytes().all(|b| b.is_ascii_hexdigit()),
    }
}

/// The address that a short form stands for: `start` with its tail replaced.
fn complete(start: Ip, tail: &str) -> Option<Ip> {
    let number = match start.addr() {
        IpAddr::V4(v4) => {
            let mut octets = v4.octets();
            for (octet, text) in octets.iter_mut().rev().zip(tail.rsplit('.')) {
                *octet = text.parse().ok()?;
            }
            u128::from(u32::from_be_bytes(octets))
        }
        IpAddr::V6(_) => {
            (start.number() & !0xffff) | u128::from(u16::from_str_radix(tail, 16).ok()?)
        }
    };
    Ip::from_number(start.family(), number)
}

fn read_cidr(item: &str, address: &str, prefix: &str) -> Result<IpRange, RangeError> {
    let shown = || super::shown(item);
    // A dash that begins the prefix is a minus sign.
    if address.contains('-') || prefix.trim_start().find('-').is_some_and(|at| at > 0) {
        return Err(RangeError::DashWithPrefix { item: shown() });
    }
    let address = read_spelling(address).map_err(|error| RangeError::Address {
        item: shown(),
        error,
    })?;
    let family = Family::of(&address);
    let max = family.bits();
    let refuse = |problem| RangeError::Prefix {
        item: shown(),
        problem,
        max,
    };
    let length = read_prefix(prefix).map_err(refuse)?;
    let net = IpNet::new(address, length).map_err(|_| refuse(PrefixProblem::TooLong))?;
    if length == 0 {
        return Err(RangeError::WholeFamily {
            item: shown(),
            family,
        });
    }
    // The network is judged before the host bits, so that no network is proposed which would be refused next.
    let network = net.trunc();
    let (first, last) = (network.network(), network.broadcast());
    let range = accept(item, family, number_of(&first), number_of(&last))?;
    if address != first {
        return Err(RangeError::HostBits {
            item: shown(),
            network,
        });
    }
    Ok(range)
}

/// Reads the text after the slash.
fn read_prefix(text: &str) -> Result<u8, PrefixProblem> {
    if text.is_empty() {
        Err(PrefixProblem::Missing)
    } else if text.contains(char::is_whitespace) {
        Err(PrefixProblem::Whitespace)
    } else if text.starts_with('-') {
        Err(PrefixProblem::Negative)
    } else if !text.bytes().all(|b| b.is_ascii_digit()) {
        Err(PrefixProblem::NotANumber)
    } else if text.len() > 1 && text.starts_with('0') {
        Err(PrefixProblem::LeadingZero)
    } else {
        text.parse().map_err(|_| PrefixProblem::TooLong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(item: &str) -> ParsedItem {
        IpRange::parse(item).unwrap()
    }

    fn message(item: &str) -> String {
        IpRange::parse(item).unwrap_err().to_string()
    }

    #[test]
    fn a_range_prints_as_the_shortest_item_that_reads_back_as_itself() {
        let cases = [
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1-10.0.0.1", "10.0.0.1"),
            ("10.0.0.1/32", "10.0.0.1"),
            ("10.0.0.0 - 10.0.0.255", "10.0.0.0/24"),
            ("10.0.0.1-10.0.0.4", "10.0.0.1-10.0.0.4"),
            ("2001:DB8::10-2001:db8::1f", "2001:db8::10/124"),
            ("fd00::/120", "fd00::/120"),
        ];
        for (item, printed) in cases {
            let range = parse(item).range;
            assert_eq!(range.to_string(), printed);
            assert_eq!(parse(printed).range, range);
        }
    }

    #[test]
    fn first_and_last_are_reserved_only_in_cidr_items_with_more_than_two_addresses() {
        let cases = [
            ("10.0.0.0/29", 6),
            ("10.0.0.0/30", 2),
            ("10.0.0.0/31", 2),
            ("10.0.0.0/32", 1),
            ("2001:db8::/126", 2),
            ("2001:db8::/127", 2),
            ("2001:db8::/128", 1),
            ("10.0.0.0-10.0.0.7", 8),
            ("10.0.0.0", 1),
        ];
        for (item, reserved) in cases {
            let item = parse(item);
            assert_eq!(item.usable(false), Some(item.range));
            assert_eq!(item.usable(true).map(|r| r.size()), Some(reserved));
        }
        let usable = parse("10.0.0.0/29").usable(true).map(|r| r.to_string());
        assert_eq!(usable.as_deref(), Some("10.0.0.1-10.0.0.6"));
    }

    #[test]
    fn each_refusal_says_what_to_write_instead() {
        let cases = [
            ("  ", "is empty"),
            ("10.0.0.1,", "use list items"),
            (
                "192.168.100.200/28",
                "did you mean 192.168.100.192/28, or the single address 192.168.100.200",
            ),
            ("2001:db8::1/64", "did you mean 2001:db8::/64"),
            (
                "10.0.0.9-10.0.0.1",
                "start is after end: write 10.0.0.1-10.0.0.9",
            ),
            (
                "10.0.0.1-9",
                "short form, which is not supported: write 10.0.0.1-10.0.0.9",
            ),
            ("10.0.0.1-1.9", "write 10.0.0.1-10.0.1.9"),
            ("2001:db8::10-1f", "write 2001:db8::10-2001:db8::1f"),
            (
                "10.0.0.9-1",
                "short form, which is not supported: write both addresses in full",
            ),
            (
                "10.0.0.1-300",
                "short form, which is not supported: write both addresses in full",
            ),
            ("-10.0.0.1", "no address before the dash"),
            ("10.0.0.1-", "no address after the dash"),
            ("10.0.0.1-10.0.0.3-10.0.0.5", "not a range"),
            ("10.0.0.1-2001:db8::1", "mixed families (IPv4 to IPv6)"),
            ("10.0.0.1-10.0.0.9/24", "both a dash and a prefix length"),
            ("10.0.0.0/24-10.0.1.0/24", "both a dash and a prefix length"),
            ("10.0.0.0/", "prefix length is missing"),
            ("10.0.0.0/-1", "prefix length is negative"),
            ("10.0.0.0/ 24", "prefix length has white space"),
            ("10.0.0.0/08", "prefix length has a leading zero"),
            ("10.0.0.0/+8", "prefix length is not a decimal number"),
            (
                "10.0.0.0/255.255.255.0",
                "prefix length is not a decimal number",
            ),
            (
                "10.0.0.0/33",
                "prefix length is too long: write a number from 1 to 32",
            ),
            (
                "::/129",
                "prefix length is too long: write a number from 1 to 128",
            ),
            ("2001:db8::/99999999999", "prefix length is too long"),
            ("10.9.9.9/0", "refused by policy"),
            ("010.0.0.0/8", "leading zero in octet 1"),
            (" 10.0.0.0/8", "white space at position 1"),
            ("10.0.0.1 ", "white space at position 9"),
            ("http://10.0.0.1", "is a URL"),
        ];
        for (item, phrase) in cases {
            let message = message(item);
            assert!(message.contains(phrase), "{item:?}: {message}");
        }
    }

    #[test]
    fn a_range_with_a_refused_address_anywhere_inside_is_refused() {
        let cases = [
            ("126.0.0.1-128.0.0.1", "loopback"),
            ("127.0.0.5/24", "loopback"),
            ("0.0.0.0/1", "unspecified"),
            ("0.128.0.0/9", "this network"),
            ("223.0.0.0-240.0.0.1", "multicast"),
            ("255.255.255.0/24", "broadcast"),
            ("::/120", "unspecified"),
            ("::2-::1:0:0:0", "IPv4-mapped"),
            ("::ffff:10.0.0.0/120", "IPv4-mapped"),
            ("8000::/1", "multicast"),
        ];
        for (item, phrase) in cases {
            let message = message(item);
            assert!(message.contains(phrase), "{item:?}: {message}");
        }
    }

    #[test]
    fn class_e_may_be_a_pool() {
        assert_eq!(parse("240.0.0.0/5").range.size(), 1 << 27);
        assert!(message("240.0.0.0/4").contains("broadcast"));
    }

    #[test]
    fn a_range_is_built_from_numbers_only_within_its_invariants() {
        assert_eq!(
            IpRange::new(Family::V4, 0x0a00_0000, 0x0a00_00ff),
            Some(parse("10.0.0.0/24").range)
        );
        assert_eq!(IpRange::new(Family::V4, 0x0a00_0001, 0x0a00_0000), None);
        assert_eq!(IpRange::new(Family::V4, 1 << 32, 1 << 33), None);
        assert_eq!(IpRange::new(Family::V6, 0, u128::MAX), None);
    }
}
