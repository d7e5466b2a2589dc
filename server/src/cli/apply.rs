//! `ipledger apply`: make objects as manifests say.

use std::path::PathBuf;
use std::time::Duration;

use ipledger_core::api::{ConditionStatus, IPAddressClass, Key, Kind, Object, find_condition};
use ipledger_drivers::range;
use tokio::time::{Instant, sleep};

use super::client::{Client, ClientError};
use super::columns::explain;
use super::exit::{CliError, Exit};
use super::manifest::{self, Check, Document};
use super::merge;
use super::output::{Terminal, key_name};

/// A write that loses that many races in a row is given up.
const RACES: usize = 8;
/// How long the driver of a class gets to say what it thinks of the parameters.
const VERDICT: Duration = Duration::from_secs(2);
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
    let applied = apply_all(client, &documents, dry_run, terminal).await;
    match (exit, applied) {
        (Exit::Ok, result) => result,
        (exit, _) => Err(CliError::Reported(exit)),
    }
}

/// Applies documents in order and warns of classes that their drivers refuse.
///
/// # Errors
/// Everything was reported; the exit code is that of the first object that failed.
pub(crate) async fn apply_all(
    client: &Client,
    documents: &[Document],
    dry_run: bool,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let mut first = Exit::Ok;
    let mut classes = Vec::new();
    for document in documents {
        let key = document.object.key();
        match apply_one(client, &document.object, dry_run).await {
            Ok(outcome) => {
                let suffix = if dry_run { " (dry run)" } else { "" };
                terminal.report(&key, &format!("{}{suffix}", outcome.as_str()))?;
                if key.kind == Kind::IPAddressClass && !dry_run {
                    classes.push((key, outcome));
                }
            }
            Err(error) => {
                let error = located(document, error);
                terminal.error(&error);
                if first == Exit::Ok {
                    first = error.exit();
                }
                // Whatever stopped this one will stop the others, too.
                if matches!(first, Exit::Unavailable | Exit::Unauthorised) {
                    break;
                }
            }
        }
    }
    warn_of_classes(client, &classes, terminal).await;
    if first == Exit::Ok {
        Ok(())
    } else {
        Err(CliError::Reported(first))
    }
}

/// An answer of the server about a field is shown with the line of the field.
fn located(document: &Document, error: ClientError) -> CliError {
    if let ClientError::Status(status) = &error
        && status.code == 422
        && let [cause] = status.causes.as_slice()
    {
        return CliError::Manifest(document.error(cause));
    }
    CliError::Object {
        object: key_name(&document.object.key()),
        error,
    }
}

async fn apply_one(
    client: &Client,
    manifest: &Object,
    dry_run: bool,
) -> Result<Outcome, ClientError> {
    let key = manifest.key();
    let mut races = 0;
    loop {
        let result = match client.find(&key).await? {
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

/// Waits a moment for the drivers of classes that were written, and warns of each class that its
/// driver refuses. Nothing here fails the command: the objects are in the ledger.
async fn warn_of_classes(client: &Client, classes: &[(Key, Outcome)], terminal: &mut Terminal) {
    let end = Instant::now() + VERDICT;
    for (key, outcome) in classes {
        loop {
            let Ok(object) = client.get(key).await else {
                break;
            };
            let Ok(class) = IPAddressClass::from_object(&object) else {
                break;
            };
            let conditions = class.status.as_ref().map_or(&[][..], |s| &s.conditions);
            let generation = Some(class.metadata.generation);
            let verdict = find_condition(conditions, range::condition::READY)
                .filter(|c| c.observed_generation == generation);
            if let Some(ready) = verdict {
                if ready.status == ConditionStatus::False {
                    terminal.warn(&format!("{}: {}", key_name(key), explain(ready)));
                }
                break;
            }
            let may_come = class.spec.provisioner == range::NAME;
            if *outcome == Outcome::Unchanged || !may_come || Instant::now() >= end {
                break;
            }
            sleep(POLL).await;
        }
    }
}
