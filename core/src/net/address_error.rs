//! What is wrong with an address.

use std::net::Ipv4Addr;

use thiserror::Error;

use super::address::Ip;
use super::special::SpecialBlock;

/// Why a text is not an address that the ledger accepts. `input` is the text, shortened if it is very long; positions
/// count characters from 1.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Nothing was given.
    #[error(
        "the address is empty: write an IPv4 or IPv6 address, such as 192.0.2.10 or 2001:db8::10"
    )]
    Empty,
    /// A look-alike from outside ASCII: a full-width digit, a long dash, a no-break space.
    #[error(
        "{input:?} has {character:?} at position {position}, which is not ASCII: type it again with plain digits, letters, dots and colons"
    )]
    NotAscii {
        /// The text.
        input: String,
        /// The first character outside ASCII.
        character: char,
        /// Where it stands.
        position: usize,
    },
    /// Several addresses in one text.
    #[error("{input:?} has a comma: write one address only")]
    List {
        /// The text.
        input: String,
    },
    /// A URL.
    #[error("{input:?} is a URL: write only the address, without scheme, port and path")]
    Url {
        /// The text.
        input: String,
    },
    /// A prefix length or another part after a slash.
    #[error(
        "{input:?} has a prefix length: write only the address, without \"/\" and what follows"
    )]
    Prefix {
        /// The text.
        input: String,
    },
    /// A zone id; it has a meaning on one host only.
    #[error("{input:?} has a zone id: write only the address, without \"%\" and what follows")]
    Zone {
        /// The text.
        input: String,
    },
    /// A range where one address is asked for.
    #[error("{input:?} has a dash: write one address, not a range")]
    Range {
        /// The text.
        input: String,
    },
    /// White space before, inside or after the address.
    #[error("{input:?} has white space at position {position}: remove it")]
    Whitespace {
        /// The text.
        input: String,
        /// Where the first white space stands.
        position: usize,
    },
    /// Brackets as in a URL.
    #[error("{input:?} has brackets: write only the address, without \"[\" and \"]\"")]
    Brackets {
        /// The text.
        input: String,
    },
    /// A port after an IPv4 address.
    #[error("{input:?} has a port: write {address}")]
    Port {
        /// The text.
        input: String,
        /// The address in front of the port.
        address: Ipv4Addr,
    },
    /// An IPv4 octet with a leading zero, which is octal to some software and decimal to other.
    #[error(
        "{input:?} has a leading zero in octet {octet}, which some software reads as octal: write the octet in decimal without it"
    )]
    LeadingZero {
        /// The text.
        input: String,
        /// The octet, counted from 1.
        octet: usize,
    },
    /// An address that no single host can hold.
    #[error("{input:?} is {block}: {}", block.advice())]
    Special {
        /// The text.
        input: String,
        /// What it is.
        block: SpecialBlock,
    },
    /// A legal address, spelled another way than the one under which it is recorded.
    #[error("{input:?} is not spelled canonically: the canonical form is {canonical}")]
    NotCanonical {
        /// The text.
        input: String,
        /// The address; its `Display` is what to write.
        canonical: Ip,
    },
    /// Anything else.
    #[error(
        "{input:?} is not an address: write four decimal octets (192.0.2.10) or an IPv6 address (2001:db8::10)"
    )]
    NotAnAddress {
        /// The text.
        input: String,
    },
}
