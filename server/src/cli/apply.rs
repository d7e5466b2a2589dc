//! `ipledger apply`: make objects as manifests say.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use ipledger_core::api::{Kind, Object, names};
use ipledger_drivers::range;
use tokio::time::{Instant, sleep};

use super::client::{Client, ClientError, Status};
use super::exit::{CliError, Exit, client_exit};
use super::manifest::{self, Check, Document};
use super::merge;
use super::output::{Terminal, key_name};

/// A write that loses that many races in a row is given up.
const RACES: usize = 8;
/// How long an object of the same name that is being deleted gets to go.
const FAREWELL: Duration = Duration::from_secs(5);
/// Objects of one kind that are applied at the same time.
const AT_ONCE: usize = 16;
const POLL: Duration = Duration::from_millis(50);

/// What was done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Created,
    Configured,
    Unchanged,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Outcome::Created => "created",
            Outcome::Configured => "configured",
            Outcome::Unchanged => "unchanged",
        }
    }
}

/// Applies the manifests of these files. Documents with errors are reported and not sent, the
/// others are applied.
///
/// # Errors
/// Everything was reported; the exit code is that of a manifest error if there was one, else that
/// of the first object that failed.
pub(super) async fn run(
    client: &Client,
    files: &[PathBuf],
    namespace: &str,
    dry_run: bool,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let mut documents = Vec::new();
    let mut exit = Exit::Ok;
    for document in manifest::load(files, namespace, Check::Creation) {
        match document {
            Ok(document) => documents.push(document),
            Err(e) => {
                terminal.error(&CliError::Manifest(e));
                exit = Exit::Usage;
            }
        }
    }
    manifest::note_ignored(&documents, terminal);
    let applied = apply_all(client, &documents, dry_run, terminal).await;
    match (exit, applied) {
        (Exit::Ok, result) => result,
        (exit, _) => Err(CliError::Reported(exit)),
    }
}

/// Applies documents in order and warns of classes that their drivers will refuse. When the server
/// cannot be reached or refuses the caller, what was not begun yet is reported as not tried.
///
/// # Errors
/// Everything was reported; the exit code is that of the first object that failed. If none failed,
/// that a report could not be written.
pub(crate) async fn apply_all(
    client: &Client,
    documents: &[Document],
    dry_run: bool,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let mut first = Exit::Ok;
    let hopeless = AtomicBool::new(false);
    // Objects of one kind do not lean on each other; those of another may.
    for run in documents.chunk_by(|a, b| a.object.kind == b.object.kind) {
        let mut results = stream::iter(run)
            .map(|document| {
                let hopeless = &hopeless;
                async move {
                    if hopeless.load(Ordering::Relaxed) {
                        return (document, None);
                    }
                    let result = apply_one(client, &document.object, dry_run).await;
                    if result.as_ref().is_err_and(stops_all) {
                        hopeless.store(true, Ordering::Relaxed);
                    }
                    (document, Some(result))
                }
            })
            .buffered(AT_ONCE);
        while let Some((document, result)) = results.next().await {
            let key = document.object.key();
            match result {
                None => terminal.report(&key, "not tried"),
                Some(Ok(outcome)) => {
                    let suffix = if dry_run { " (dry run)" } else { "" };
                    terminal.report(&key, &format!("{}{suffix}", outcome.as_str()));
                    if let Some(objection) = objection(&document.object) {
                        terminal.warn(&format!("{}: {objection}", key_name(&key)));
                    }
                }
                Some(Err(error)) => {
                    for error in located(document, error) {
                        terminal.error(&error);
                        if first == Exit::Ok {
                            first = error.exit();
                        }
                    }
                }
            }
        }
    }
    if first == Exit::Ok {
        terminal.reported()
    } else {
        Err(CliError::Reported(first))
    }
}

/// Whether what stopped one object will stop the others, too.
fn stops_all(error: &ClientError) -> bool {
    matches!(client_exit(error), Exit::Unavailable | Exit::Unauthorised)
}

/// An answer of the server about fields is shown with the lines of the fields.
fn located(document: &Document, error: ClientError) -> Vec<CliError> {
    match &error {
        ClientError::Status(status) if status.code == 422 && !status.causes.is_empty() => {
            let causes = status.causes.iter();
            causes
                .map(|cause| CliError::Manifest(document.error(cause)))
                .collect()
        }
        _ => vec![CliError::Object {
            object: key_name(&document.object.key()),
            error,
        }],
    }
}

/// What is being deleted cannot be changed into what the manifest wants, and would be gone soon
/// if it were left alone.
fn still_there(live: &Object) -> ClientError {
    ClientError::Status(Status {
        code: 409,
        reason: "Conflict".to_owned(),
        message: format!(
            "is being deleted and waits for {}; apply again when it is gone",
            live.metadata.finalizers.join(", ")
        ),
        causes: Vec::new(),
    })
}

async fn apply_one(
    client: &Client,
    manifest: &Object,
    dry_run: bool,
) -> Result<Outcome, ClientError> {
    let key = manifest.key();
    let mut races = 0;
    let end = Instant::now() + if dry_run { Duration::ZERO } else { FAREWELL };
    loop {
        let result = match client.find(&key).await? {
            Some(live) if live.metadata.is_deleting() => {
                if Instant::now() >= end {
                    return Err(still_there(&live));
                }
                sleep(POLL).await;
                continue;
            }
            None => {
                let created = client.create(&merge::created(manifest), dry_run).await;
                created.map(|_| Outcome::Created)
            }
            Some(live) => {
                let changed =
                    merge::changed(manifest, &live).map_err(|reason| ClientError::Protocol {
                        server: client.server(),
                        reason,
                    })?;
                match changed {
                    None => return Ok(Outcome::Unchanged),
                    Some(object) => {
                        let replaced = client.replace(&object, dry_run).await;
                        replaced.map(|_| Outcome::Configured)
                    }
                }
            }
        };
        match result {
            Err(e) if e.code() == 409 && races < RACES => races += 1,
            // It went between the read and the write: it is to be created.
            Err(e) if e.code() == 404 && races < RACES => races += 1,
            other => return other,
        }
    }
}

/// What the driver of a class will say against its parameters, as far as it can be known here: the
/// API takes them as they are.
fn objection(object: &Object) -> Option<String> {
    let spec = object.fields.get("spec")?;
    if object.kind != Kind::IPAddressClass || spec.get("provisioner")?.as_str()? != range::NAME {
        return None;
    }
    let error = range::Parameters::parse(spec.get("parameters")).err()?;
    Some(format!("{}: {error}", names::reason::INVALID_PARAMETERS))
}
