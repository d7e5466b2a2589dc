//! The real program from the outside: command line, API, files and signals.

mod bad_input;
mod files;
mod ledger;
mod lifecycle;
