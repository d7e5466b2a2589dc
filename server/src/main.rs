//! ipledger.
fn main() {}
