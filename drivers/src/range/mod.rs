//! The range driver: the ledger of record for `fromClass` addresses (design page 4, D1-D8).
//!
//! | question | file |
//! |---|---|
//! | what may a class say? | `parameters.rs` |
//! | which IPs are taken, and by what? | `holdings.rs` |
//! | who gets which address, who waits, who is woken? | `ledger.rs`, `waiting.rs` |
//! | which classes share addresses? | `shared_ranges.rs` |
//! | which claims are served, and what is written for them? | `decide.rs` |
//! | when may a deleted address be given out again? | `teardown.rs` |
//! | what does the class's status say? | `class_status.rs` |
//! | how is all this carried out on a store? | `driver.rs` |
//!
//! # Guarantees
//! * Creation decides: an IP is handed out by creating the one object whose name it gives, so any
//!   number of these drivers may run at once, without a leader.
//! * An IP that has an address object of any class, spelling or name is not handed out.
//! * An edit of a class never renumbers or touches an address that exists.
//! * A class without another holder of its addresses hands out every address before a claim is
//!   told `PoolExhausted`, and a waiting claim is woken by the event that can help it.
//!
//! # Assumptions
//! * Revisions of claims and addresses are observed through one controller, which calls
//!   [`Reconciler::reconcile`](ipledger_core::runtime::Reconciler::reconcile) only after the
//!   initial state of every kind was observed.
//!
//! # Caveats
//! * Drivers that see the ledger at different moments may both create an address for one claim
//!   (never the same IP for two claims). The core parks the surplus one (R7). With equal views they
//!   choose alike, so that this is rare.

mod class_status;
mod class_writer;
mod decide;
mod driver;
mod holdings;
mod ledger;
mod parameters;
#[cfg(test)]
mod samples;
mod shared_ranges;
mod teardown;
mod waiting;

pub use driver::{RangeDriver, RangeKey};
pub use parameters::{Order, ParameterError, Parameters};
pub use teardown::Rest;

/// The driver's name: the `spec.provisioner` of its classes and the stamp on its claims.
pub const NAME: &str = "range.drivers.local.sdn.cozystack.io";

/// The driver's finalizer on each address that it creates (seed 000 §7.4).
pub const FINALIZER: &str = "range.drivers.local.sdn.cozystack.io/teardown";

/// Address annotation: how long the IP rests after its release, such as `1h`. Copied from the
/// class when the address is created, so that a later edit or deletion of the class changes
/// nothing (D5).
pub const REUSE_AFTER: &str = "range.drivers.local.sdn.cozystack.io/reuse-after";

/// Address annotation: the time at which the IP may be handed out again, in RFC 3339. Written when
/// nothing but this driver holds the object any more (D5), and written again only if it lies farther
/// ahead than a whole cool-down, as after a clock that was wrong.
pub const REUSABLE_AT: &str = "range.drivers.local.sdn.cozystack.io/reusable-at";

/// Condition types that this driver sets.
pub mod condition {
    /// Class: whether its parameters can be used.
    pub const READY: &str = "Ready";
    /// Class: addresses of it lie outside its ranges (D3). Absent otherwise.
    pub const OUT_OF_RANGE: &str = "OutOfRange";
    /// Class: it shares addresses with an older class of this driver. Absent otherwise.
    pub const OVERLAP: &str = "Overlap";
    /// Address: it is released and rests before its IP is handed out again (D5).
    pub const COOLING_DOWN: &str = "CoolingDown";
}
