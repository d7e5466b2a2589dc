//! `ipledger serve`: starts the server, applies manifests through its own API, shows what becomes
//! of their claims, and serves until it is told to stop.

use std::cell::Cell;
use std::path::PathBuf;

use ipledger_core::api::{Key, Kind};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::client::Client;
use super::exit::{CliError, Exit};
use super::manifest::{self, Check, Document};
use super::output::Terminal;
use super::{apply, live};
use crate::serve::{ServeError, ServeOptions, Server};

/// Serves until a signal. With errors in the manifests nothing is started or written.
///
/// # Errors
/// A manifest is wrong, the server cannot start, or a part of it failed. After a stop: that some
/// of the manifests' objects were refused, or not applied yet.
pub(super) async fn run(
    options: ServeOptions,
    manifests: &[PathBuf],
    namespace: &str,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    // Whoever holds the output up must not hold up the signals.
    terminal.detach();
    let documents = check(manifests, namespace, terminal)?;
    let mut signals = Signals::new()?;
    let mut server = Server::start(&options).await?;
    let client = Client::new(&format!("http://{}", server.address()))?;
    let announce = format!(
        "serving {} from {}; ctrl-C stops",
        client.server(),
        options.ledger
    );
    // How applying ended; `None` while it goes on.
    let applied = Cell::new(documents.is_empty().then_some(Exit::Ok));
    let front = async {
        apply_documents(&client, &documents, &applied, terminal).await;
        if let Err(error) = present(&client, &documents, terminal).await {
            terminal.error(&error);
        }
        terminal.warnings(&client);
        // That nobody reads the output is no reason not to serve.
        let _ = terminal.line(&announce);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = signals.next() => {}
        error = server.failed() => return Err(error.into()),
        () = front => {}
    }
    tokio::select! {
        biased;
        () = signals.next() => return Err(CliError::Reported(Exit::Interrupted)),
        result = server.stop() => result?,
    }
    match applied.get() {
        Some(Exit::Ok) => Ok(()),
        Some(exit) => Err(CliError::Reported(exit)),
        None => {
            terminal.warn("stopped before all objects of the manifests were applied");
            Err(CliError::Reported(Exit::Other))
        }
    }
}

/// The documents of all manifests, if there is no error in any.
pub(super) fn check(
    manifests: &[PathBuf],
    namespace: &str,
    terminal: &mut Terminal,
) -> Result<Vec<Document>, CliError> {
    let mut documents = Vec::new();
    let mut failed = false;
    for document in manifest::load(manifests, namespace, Check::Creation) {
        match document {
            Ok(document) => documents.push(document),
            Err(e) => {
                terminal.error(&CliError::Manifest(e));
                failed = true;
            }
        }
    }
    if failed {
        return Err(CliError::Reported(Exit::Usage));
    }
    manifest::note_ignored(&documents, terminal);
    Ok(documents)
}

/// Applies the documents and keeps how that ended for the end of the process.
pub(super) async fn apply_documents(
    client: &Client,
    documents: &[Document],
    applied: &Cell<Option<Exit>>,
    terminal: &mut Terminal,
) {
    let exit = match apply::apply_all(client, documents, false, terminal).await {
        // That nobody reads the reports is no reason not to serve.
        Ok(()) | Err(CliError::Output(_)) => Exit::Ok,
        Err(error) => {
            terminal.error(&error);
            terminal.warn(&format!(
                "some objects of the manifests were refused (see above); the server goes on \
                 without them and ends with exit code {} when it is stopped",
                error.exit()
            ));
            error.exit()
        }
    };
    applied.set(Some(exit));
}

/// Shows the claims of the documents until they are settled.
async fn present(
    client: &Client,
    documents: &[Document],
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let keys = documents.iter().map(|d| d.object.key());
    let claims: std::collections::BTreeSet<Key> = keys
        .filter(|key| key.kind == Kind::IPAddressClaim)
        .collect();
    if claims.is_empty() {
        return Ok(());
    }
    terminal.print("\n")?;
    live::show(client, claims, terminal).await?;
    terminal.print("\n")
}

/// What tells a process to stop.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Signals, ServeError> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).map_err(ServeError::Signals)?,
            interrupt: signal(SignalKind::interrupt()).map_err(ServeError::Signals)?,
        })
    }

    /// Returns at the next one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
