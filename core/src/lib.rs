//! The domain of ipledger: what an address, a claim and a class are, how they are bound and
//! reclaimed, and what a store must do. Nothing here performs I/O, reads a clock or draws a
//! random number; those are injected, so that every decision can be replayed.
//!
//! * [`api`]: the kinds, their fields, conditions and names.
//! * [`net`]: address, range and range-set arithmetic.
//! * [`store`]: the `Store` contract, the object rules and the in-memory store.
//! * [`binding`]: the pure plans that bind, maintain and reclaim.
//! * [`runtime`]: cache, work queue and the loop that carries plans out.

pub mod api;
pub mod binding;
#[doc(hidden)]
pub mod mutant;
pub mod net;
pub mod runtime;
pub mod store;
