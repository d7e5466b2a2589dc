//! The ipledger server.
