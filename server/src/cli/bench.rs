//! `ipledger bench`: measures this machine on throw-away ledgers, or in a Kubernetes cluster. Each run
//! prints the size of its work, is bounded in it, and leaves nothing behind.
//!
//! A further backend for `bench store` is one more implementation of `subject::Subject`.

mod bind;
#[cfg(feature = "kube")]
mod cluster;
#[cfg(feature = "etcd")]
mod etcd;
mod machine;
mod place;
mod sqlite;
mod store;
mod subject;

use std::time::Duration;

#[cfg(feature = "kube")]
pub(super) use bind::bind_in_cluster;
pub(super) use bind::{BindSize, Source, bind};
pub(super) use store::{StoreSize, store};

/// That percentile of sorted durations, in milliseconds.
fn milliseconds(sorted: &[Duration], percent: usize) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = sorted.get(last * percent / 100).copied();
    at.unwrap_or_default().as_secs_f64() * 1e3
}
