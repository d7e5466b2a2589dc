//! Support for the tests that run the real program. A test that cannot go on fails by a panic.
#![allow(clippy::expect_used, clippy::panic)]

#[cfg(feature = "etcd")]
pub mod certificates;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod http;
#[cfg(feature = "etcd")]
pub mod kine;
#[cfg(feature = "kube")]
pub mod kubernetes;
#[cfg(feature = "etcd")]
pub mod load;
#[cfg(feature = "etcd")]
pub mod process;
pub mod program;
pub mod random;
pub mod relay;
#[cfg(feature = "etcd")]
pub mod tools;
pub mod watch;
