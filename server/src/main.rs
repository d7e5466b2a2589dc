//! The `ipledger` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ipledger::cli::main()
}
