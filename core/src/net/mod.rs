//! Address, range and range-set arithmetic: everything ipledger knows about IP numbers, without I/O.
//!
//! | to ... | use |
//! |---|---|
//! | read `spec.address`, derive an object's name | [`Ip`] |
//! | read one item of a class's `addresses` or `exclude` | [`IpRange::parse`] |
//! | hold what a class may hand out | [`RangeSet`] |
//! | find the first free address | [`Occupancy`] |
//!
//! One invariant carries the module: an [`Ip`], and every number inside an [`IpRange`], is an address that the ledger
//! accepts (see [`SpecialBlock`] for those it never does). Both ends of each family's space are among the refused
//! ones, so a size always fits a `u128` and "the address after this one" never overflows.

mod address;
mod address_error;
mod occupancy;
mod range;
mod range_error;
mod set;
mod special;

pub use address::{Family, Ip};
pub use address_error::AddressError;
pub use occupancy::Occupancy;
pub use range::{IpRange, ItemForm, ParsedItem};
pub use range_error::{PrefixProblem, RangeError};
pub use set::RangeSet;
pub use special::SpecialBlock;

/// Longest piece of a caller's text that an error repeats, in characters.
const SHOWN_CHARS: usize = 64;

/// The caller's text as an error repeats it: errors end up in conditions and events, which must stay short whatever
/// was typed.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((cut, _)) => format!("{}...", text.get(..cut).unwrap_or_default()),
        None => text.to_owned(),
    }
}
