//! `controller` and `driver`: one controller against a Kubernetes API, until a signal.

use super::args::ClusterArgs;
use super::exit::CliError;
use super::output::Terminal;
use super::serve::Signals;
use crate::kubernetes::{self, Component};

pub(super) async fn run(
    component: Component,
    args: ClusterArgs,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    terminal.detach();
    let mut signals = Signals::new()?;
    let cluster = ipledger_store_kube::Cluster {
        kubeconfig: args.kubeconfig,
        context: args.context,
    };
    // That nobody reads the output is no reason not to work.
    let _ = terminal.line(&format!("the {} works; ctrl-C stops", component.name()));
    Ok(kubernetes::run(component, &cluster, signals.next()).await?)
}
