//! The pure plans that bind, maintain and reclaim (seed 000 §4-§6, design page 2).
//!
//! A plan is a function from a *view* (an object, what is known of its neighbours, and which of
//! that was read at `Latest`) to an ordered list of writes. Every prefix of the list leaves the
//! ledger safe, so that a crash after any write is only a delay. A plan over a settled object is
//! empty.
//!
//! The parts are [`claim`] (§4, all eight steps, and what to do with surplus addresses),
//! [`address`] (§5, all six steps) and [`reclaim`] (§6).

pub mod address;
mod assign;
pub mod claim;
mod class;
mod held;
mod plan;
pub mod reclaim;
mod status;
mod surplus;
mod view;

pub use class::{ClassLookup, Resolution, resolve};
pub use held::{is_matchable, is_valid};
pub use plan::{Event, EventKind, Need, Plan, Step, Write};
pub use view::{AddressView, ClaimView, Facts, Seen};
