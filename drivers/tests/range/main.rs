//! The range driver at work: through its controller, on the store in memory.

mod faults;
mod serving;
mod several;
mod status;
mod teardown;
mod world;
