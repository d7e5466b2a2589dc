//! The `ipledger` binary as a library: the HTTP API, the command line and the server that joins
//! them with the controllers.

pub mod api;
pub mod cli;
pub mod clock;
mod controllers;
#[cfg(feature = "kube")]
pub mod kubernetes;
pub mod ledger;
mod metrics;
pub mod serve;
