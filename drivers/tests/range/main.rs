//! The range driver at work: through its controller, on the store in memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod edges;
mod faults;
mod serving;
mod several;
mod status;
mod teardown;
mod world;
