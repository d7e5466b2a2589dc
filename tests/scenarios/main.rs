//! Situations in which comparable systems went wrong, played with the shipped binding core and range
//! driver over the ledger in memory, in every order in which they can hear of what has happened.
//!
//! Unlike the simulation, a scenario says what happens and what must come of it; only the order is
//! left open. One file for each sort of situation.

// A helper of a test that cannot go on fails the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;
mod crashes;
mod deletion;
mod edits;
mod exhaustion;
mod order;
mod prebound;
mod process;
mod races;
mod restart;
mod world;
