//! One address: how it is read, written and named.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::address_error::AddressError;
use super::special::SpecialBlock;

/// One address family. Ordered IPv4 first, which is the order in which both families of a claim are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4, 32 bits.
    V4,
    /// IPv6, 128 bits.
    V6,
}

impl Family {
    /// Both families, IPv4 first.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Width of an address in bits: 32 or 128.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The family of a standard-library address.
    pub(super) const fn of(address: &IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// `IPv4` or `IPv6`, the spelling of `spec.family`.
impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A valid unicast address as the ledger accepts it; binding rule R1's "one function that canonicalises".
///
/// Never one of [`SpecialBlock`]. Ordered IPv4 before IPv6, then numerically. Printed in canonical form: dotted
/// decimal, or RFC 5952 (lower case, longest run of zeros shortened).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ip(IpAddr);

impl Ip {
    /// Reads one address in any legal spelling (`2001:DB8:0::1` is accepted and becomes `2001:db8::1`).
    ///
    /// # Errors
    ///
    /// [`AddressError`], saying what is wrong, where and what to write instead: text that is no address, an octet with
    /// a leading zero (read as octal by some software, as decimal by other), a zone, brackets, a port, a prefix
    /// length, or an address of a [`SpecialBlock`].
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let address = read_spelling(text)?;
        let number = number_of(&address);
        match SpecialBlock::overlapping(Family::of(&address), number, number) {
            Some(block) => Err(AddressError::Special {
                input: super::shown(text),
                block,
            }),
            None => Ok(Self(address)),
        }
    }

    /// Reads one address that must be spelled in its canonical form, as `spec.address` asks on creation.
    ///
    /// # Errors
    ///
    /// Those of [`Ip::parse`], and [`AddressError::NotCanonical`], which carries the canonical form.
    pub fn parse_canonical(text: &str) -> Result<Self, AddressError> {
        let ip = Self::parse(text)?;
        if ip.to_string() == text {
            Ok(ip)
        } else {
            Err(AddressError::NotCanonical {
                input: super::shown(text),
                canonical: ip,
            })
        }
    }

    /// The address's family.
    pub const fn family(self) -> Family {
        Family::of(&self.0)
    }

    /// The address as a number: below 2^32 for IPv4, below 2^128 for IPv6.
    pub fn number(self) -> u128 {
        number_of(&self.0)
    }

    /// The address of `family` with this number; `None` if the number is outside the family's space or belongs to a
    /// [`SpecialBlock`].
    pub fn from_number(family: Family, number: u128) -> Option<Self> {
        if SpecialBlock::overlapping(family, number, number).is_some() {
            return None;
        }
        address_of(family, number).map(Self)
    }

    /// The name of the address's object: `ip-` and the canonical form with `.` and `:` turned into `-`, and `0`
    /// appended if that ends in `-` (`ip-203-0-113-7`, `ip-2001-db8--7`, `ip-2001-db8--0`).
    ///
    /// Always a DNS label (at most 42 of 63 characters), and different for different addresses: four groups without
    /// an empty one are IPv4, an IPv6 form has eight groups or an empty one, and the canonical form never writes the
    /// `0` that is appended here.
    pub fn object_name(self) -> String {
        let mut name = format!("ip-{}", self.0).replace(['.', ':'], "-");
        if name.ends_with('-') {
            name.push('0');
        }
        name
    }

    /// The address as the standard library's type.
    pub const fn addr(self) -> IpAddr {
        self.0
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Same as [`Ip::parse`]: strict about validity, lenient about spelling.
impl FromStr for Ip {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// Reads the spelling alone: the result may still belong to a [`SpecialBlock`], as the network of `0.0.0.0/0` does.
pub(super) fn read_spelling(text: &str) -> Result<IpAddr, AddressError> {
    let input = || super::shown(text);
    if text.is_empty() {
        return Err(AddressError::Empty);
    }
    if let Some((index, character)) = text.chars().enumerate().find(|(_, c)| !c.is_ascii()) {
        return Err(AddressError::NotAscii {
            input: input(),
            character,
            position: index + 1,
        });
    }
    // From the most to the least telling: a range with blanks around its dash is reported as a range.
    if text.contains(',') {
        return Err(AddressError::List { input: input() });
    }
    if text.contains("://") {
        return Err(AddressError::Url { input: input() });
    }
    if text.contains('/') {
        return Err(AddressError::Prefix { input: input() });
    }
    if text.contains('%') {
        return Err(AddressError::Zone { input: input() });
    }
    if text.contains('-') {
        return Err(AddressError::Range { input: input() });
    }
    if let Some(index) = text.find(|c: char| c.is_ascii_whitespace()) {
        return Err(AddressError::Whitespace {
            input: input(),
            position: index + 1,
        });
    }
    if text.contains(['[', ']']) {
        return Err(AddressError::Brackets { input: input() });
    }
    text.parse::<IpAddr>().map_err(|_| diagnose(text))
}

/// The most helpful error for a text that the parser refused.
fn diagnose(text: &str) -> AddressError {
    let input = super::shown(text);
    if let Some((host, port)) = text.split_once(':')
        && let Ok(address) = host.parse::<Ipv4Addr>()
        && port.bytes().all(|b| b.is_ascii_digit())
    {
        return AddressError::Port { input, address };
    }
    let octets = || text.split('.');
    let decimal = |octet: &str| !octet.is_empty() && octet.bytes().all(|b| b.is_ascii_digit());
    if octets().count() == 4
        && octets().all(decimal)
        && let Some(index) = octets().position(|octet| octet.len() > 1 && octet.starts_with('0'))
    {
        return AddressError::LeadingZero {
            input,
            octet: index + 1,
        };
    }
    AddressError::NotAnAddress { input }
}

/// The address as a number in its family's space.
pub(super) fn number_of(address: &IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(*v4)),
        IpAddr::V6(v6) => u128::from(*v6),
    }
}

/// The reverse of [`number_of`]; `None` outside the family's space.
pub(super) fn address_of(family: Family, number: u128) -> Option<IpAddr> {
    match family {
        Family::V4 => u32::try_from(number)
            .ok()
            .map(|bits| IpAddr::V4(Ipv4Addr::from(bits))),
        Family::V6 => Some(IpAddr::V6(Ipv6Addr::from(number))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        Ip::parse(text).unwrap().object_name()
    }

    #[test]
    fn object_names_are_those_of_the_contract() {
        assert_eq!(name("203.0.113.7"), "ip-203-0-113-7");
        assert_eq!(name("2001:db8::7"), "ip-2001-db8--7");
        assert_eq!(name("2001:db8::"), "ip-2001-db8--0");
        assert_eq!(name("1::"), "ip-1--0");
        assert_eq!(name("1:2:3:4:5:6:7::"), "ip-1-2-3-4-5-6-7-0");
    }

    #[test]
    fn every_spelling_of_one_address_is_one_address() {
        let spellings = ["2001:db8::1", "2001:DB8:0:0:0:0:0:1", "2001:0db8::0001"];
        for spelling in spellings {
            assert_eq!(Ip::parse(spelling).unwrap().to_string(), "2001:db8::1");
            assert_eq!(spelling.parse::<Ip>(), Ip::parse("2001:db8::1"));
        }
    }

    #[test]
    fn the_canonical_reader_refuses_another_spelling_and_gives_the_canonical_one() {
        assert!(Ip::parse_canonical("64:ff9b::a00:1").is_ok());
        let error = Ip::parse_canonical("64:ff9b::10.0.0.1").unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("canonical form is 64:ff9b::a00:1")
        );
    }

    #[test]
    fn ipv4_sorts_before_ipv6_and_each_family_numerically() {
        let mut ips = ["2001:db8::1", "9.0.0.1", "::2", "10.0.0.1"].map(|t| Ip::parse(t).unwrap());
        ips.sort();
        assert_eq!(
            ips.map(|ip| ip.to_string()),
            ["9.0.0.1", "10.0.0.1", "::2", "2001:db8::1"]
        );
    }

    #[test]
    fn each_refused_kind_names_itself_and_the_remedy() {
        let cases = [
            ("", "is empty"),
            (" ", "white space at position 1"),
            ("10.0.0.1\n", "white space at position 9"),
            ("10.0.0.1\u{a0}", "not ASCII"),
            ("10.0.0.1:80", "port: write 10.0.0.1"),
            ("[2001:db8::1]:80", "brackets"),
            ("010.0.0.1", "leading zero in octet 1"),
            ("10.0.0.007", "leading zero in octet 4"),
            ("fe80::1%eth-0", "zone id"),
            ("10.0.0.1 - 10.0.0.9", "not a range"),
            ("10.0.0.0/24", "prefix length"),
            ("http://10.0.0.1/", "URL"),
            ("0.1.2.3", "this network"),
            ("127.9.9.9", "loopback"),
            ("239.255.255.255", "multicast"),
            ("::ffff:10.0.0.1", "IPv4-mapped"),
            ("::ffff:0:0", "without ::ffff:"),
            ("10.1", "four decimal octets"),
        ];
        for (text, phrase) in cases {
            let message = Ip::parse(text).unwrap_err().to_string();
            assert!(message.contains(phrase), "{text:?}: {message}");
        }
    }

    #[test]
    fn unusual_unicast_addresses_are_accepted() {
        for text in [
            "240.0.0.1",
            "255.255.255.254",
            "169.254.0.1",
            "fe80::1",
            "::2",
        ] {
            assert!(Ip::parse_canonical(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn an_error_repeats_only_the_beginning_of_a_huge_text() {
        let message = Ip::parse(&"1".repeat(1_000_000)).unwrap_err().to_string();
        assert!(message.len() < 300);
    }

    #[test]
    fn numbers_outside_the_family_or_refused_give_no_address() {
        assert_eq!(Ip::from_number(Family::V4, 1 << 32), None);
        assert_eq!(Ip::from_number(Family::V4, 0xffff_ffff), None);
        assert_eq!(Ip::from_number(Family::V6, u128::MAX), None);
        let ip = Ip::from_number(Family::V4, 0x0a00_0001);
        assert_eq!(ip, Ip::parse("10.0.0.1").ok());
        assert_eq!(ip.map(Ip::number), Some(0x0a00_0001));
    }
}
