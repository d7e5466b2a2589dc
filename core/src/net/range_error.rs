//! What is wrong with a range item.

use std::fmt;

use ipnet::IpNet;
use thiserror::Error;

use super::address::{Family, Ip};
use super::address_error::AddressError;
use super::special::SpecialBlock;

/// Why a text is not a range item. `item` is the text, shortened if it is very long. Every message begins with the
/// item, so that it can be found in a list of thousands, and ends with what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RangeError {
    /// Nothing, or only white space.
    #[error("the range item is empty: write an address, first-last, or a CIDR, or delete the item")]
    Empty,
    /// Several items in one text.
    #[error("range item {item:?} has a comma: use list items, one range each")]
    CommaList {
        /// The text.
        item: String,
    },
    /// A dash range without its first address.
    #[error("range item {item:?} has no address before the dash: write first-last")]
    MissingStart {
        /// The text.
        item: String,
    },
    /// A dash range without its last address.
    #[error("range item {item:?} has no address after the dash: write first-last")]
    MissingEnd {
        /// The text.
        item: String,
    },
    /// A dash range whose end gives only the last part of an address (`10.0.0.1-9`).
    #[error("range item {item:?} uses the short form, which is not supported: write {}", full_form(full.as_deref()))]
    ShortForm {
        /// The text.
        item: String,
        /// What was most likely meant, in full; `None` if that is no valid range.
        full: Option<String>,
    },
    /// A dash range whose first address is behind its last one.
    #[error("range item {item:?}: start is after end: write {last}-{first}")]
    Reversed {
        /// The text.
        item: String,
        /// The address before the dash.
        first: Ip,
        /// The address after the dash.
        last: Ip,
    },
    /// A dash range from one family to the other.
    #[error(
        "range item {item:?} has mixed families ({first} to {last}): write one item for each family"
    )]
    MixedFamily {
        /// The text.
        item: String,
        /// Family before the dash.
        first: Family,
        /// Family after the dash.
        last: Family,
    },
    /// A dash and a slash in one item.
    #[error("range item {item:?} has both a dash and a prefix length: write first-last or a CIDR")]
    DashWithPrefix {
        /// The text.
        item: String,
    },
    /// What follows the slash is not a prefix length of the address's family.
    #[error(
        "range item {item:?}: the prefix length {problem}: write a number from 1 to {max} after the slash"
    )]
    Prefix {
        /// The text.
        item: String,
        /// What is wrong with it.
        problem: PrefixProblem,
        /// Longest prefix of the family, in bits: 32 or 128.
        max: u8,
    },
    /// Prefix length 0: a whole family. It is a typing error far more often than a wish, it holds every refused
    /// block, and 2^128 addresses would not fit a count.
    #[error(
        "range item {item:?} is the whole {family} space, which is refused by policy: write the networks that you own"
    )]
    WholeFamily {
        /// The text.
        item: String,
        /// The family.
        family: Family,
    },
    /// A CIDR whose address is not the first of its network. Never normalised silently: the reader would expect the
    /// range to begin at the address that is written there.
    #[error(
        "range item {item:?} has host bits set: did you mean {network}, or the single address {}?",
        network_host(item)
    )]
    HostBits {
        /// The text.
        item: String,
        /// The network that holds the address.
        network: IpNet,
    },
    /// A CIDR or dash range that holds addresses which are never in the ledger.
    #[error("range item {item:?} holds addresses that are {block}: {}", block.advice())]
    Special {
        /// The text.
        item: String,
        /// The refused block that it touches.
        block: SpecialBlock,
    },
    /// One of the item's addresses is wrong.
    #[error("range item {item:?}: {error}")]
    Address {
        /// The text.
        item: String,
        /// What is wrong with the address.
        error: AddressError,
    },
}

/// What is wrong with the text after the slash of a CIDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PrefixProblem {
    /// Nothing follows the slash.
    Missing,
    /// A minus sign.
    Negative,
    /// White space before, inside or after the number.
    Whitespace,
    /// Something other than decimal digits.
    NotANumber,
    /// A leading zero (`/08`).
    LeadingZero,
    /// More bits than an address of the family has.
    TooLong,
}

/// The problem as the end of "the prefix length ...".
impl fmt::Display for PrefixProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "is missing",
            Self::Negative => "is negative",
            Self::Whitespace => "has white space",
            Self::NotANumber => "is not a decimal number",
            Self::LeadingZero => "has a leading zero",
            Self::TooLong => "is too long",
        })
    }
}

fn full_form(full: Option<&str>) -> &str {
    full.unwrap_or("both addresses in full, the lower one first")
}

/// The part of a CIDR before its slash.
fn network_host(item: &str) -> &str {
    item.split('/').next().unwrap_or(item)
}
