//! The binding core as it runs: plans, cache and executor over the in-memory store, one pass at a
//! time. One file for each part of the contract, one test for each step and rule.

// A helper of a test that cannot go on fails the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod address_steps;
mod claim_steps;
mod crashes;
mod identity_and_reclaim;
mod lost_and_parked;
mod one_address;
mod reclaim;
mod spec_and_stamp;
mod status_and_events;
mod store;
mod wake_ups;
mod wiped;
mod world;
