//! `controller` and `driver`: one controller against a Kubernetes API, until a signal.

use ipledger_core::runtime::BinderOptions;

use super::args::ControllerArgs;
use super::exit::{CliError, Exit};
use super::output::Terminal;
use super::serve::Signals;
use crate::kubernetes::{self, Component, ControllerOptions, Lease};

pub(super) async fn run(
    component: Component,
    args: ControllerArgs,
    binding: BinderOptions,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    terminal.detach();
    let mut signals = Signals::new()?;
    let duration = args.lease_duration;
    let options = ControllerOptions {
        component,
        cluster: args.cluster.into(),
        listen: args.listen,
        lease: args.lease.map(|name| Lease { name, duration }),
        binding,
    };
    let mut server = kubernetes::start(&options).await?;
    // That nobody reads the output is no reason not to work.
    let _ = terminal.line(&format!(
        "the {} works, health and metrics are at http://{}; ctrl-C stops",
        component.name(),
        server.address()
    ));
    tokio::select! {
        biased;
        () = signals.next() => {}
        error = server.failed() => return Err(error.into()),
    }
    tokio::select! {
        biased;
        () = signals.next() => Err(CliError::Reported(Exit::Interrupted)),
        result = server.stop() => Ok(result?),
    }
}
