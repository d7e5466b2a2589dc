//! `crds`: what a Kubernetes API server must know of the kinds.

use ipledger_core::api::{Kind, crd};

use super::exit::CliError;
use super::output::{Terminal, to_yaml};

const HEAD: &str = "# Made by `ipledger crds`; tests/run lint compares it.\n";

pub(super) fn run(terminal: &mut Terminal) -> Result<(), CliError> {
    let documents = Kind::ALL.map(|kind| format!("---\n{}", to_yaml(&crd::definition(kind))));
    terminal.print(&format!("{HEAD}{}", documents.concat()))
}
