//! The real program from the outside: command line, API, files and signals.

// A helper of a test that cannot go on fails the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
#[cfg(feature = "etcd")]
mod bench_store;
#[cfg(feature = "etcd")]
mod etcd_start;
mod files;
mod ledger;
mod lifecycle;
#[cfg(feature = "etcd")]
mod moving;
#[cfg(feature = "etcd")]
mod servers;
