//! Drivers of ipledger. A driver serves the claims that the core stamped with its name and uses
//! only the public contract (seed 000 §7): it works against any [`Store`](ipledger_core::store::Store),
//! and next to a core that is not ours.
//!
//! * [`range`]: carves addresses out of the ranges in a class's parameters.

pub mod range;
