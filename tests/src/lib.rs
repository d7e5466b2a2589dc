//! Support for the tests that run the real program. A test that cannot go on fails by a panic.
#![allow(clippy::expect_used, clippy::panic)]

pub mod http;
pub mod program;
