//! `ipledger delete`.

use std::time::Duration;

use ipledger_core::api::{Key, Object};
use tokio::time::{Instant, sleep};

use super::client::{Client, ClientError, Deleted};
use super::exit::{CliError, Exit};
use super::output::{Terminal, key_name};

const POLL: Duration = Duration::from_millis(100);

/// Deletes objects in order, and waits until they are gone if `wait` gives a limit.
///
/// # Errors
/// Everything was reported; the exit code is that of the first object that failed. If none failed,
/// that a report could not be written.
pub(super) async fn run(
    client: &Client,
    keys: &[Key],
    wait: Option<Duration>,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let mut first = Exit::Ok;
    let mut fail = |terminal: &mut Terminal, error: CliError| {
        terminal.error(&error);
        if first == Exit::Ok {
            first = error.exit();
        }
    };
    let mut marked = Vec::new();
    for key in keys {
        match client.delete(key).await {
            Ok(Deleted::Gone) => terminal.report(key, "deleted"),
            Ok(Deleted::Marked(object)) if wait.is_some() => marked.push((key, object)),
            Ok(Deleted::Marked(object)) => terminal.report(key, &waiting_for(&object)),
            Err(error) => {
                let object = key_name(key);
                fail(terminal, CliError::Object { object, error });
            }
        }
    }
    let limit = wait.unwrap_or_default();
    let end = Instant::now() + limit;
    for (key, object) in marked {
        match gone(client, key, &object, end).await {
            Ok(None) => terminal.report(key, "deleted"),
            Ok(Some(left)) => {
                let message = format!(
                    "{} is still there after {}s: {}",
                    key_name(key),
                    limit.as_secs(),
                    waiting_for(&left)
                );
                fail(terminal, CliError::TimeOut(message));
            }
            Err(error) => {
                let object = key_name(key);
                fail(terminal, CliError::Object { object, error });
            }
        }
    }
    if first == Exit::Ok {
        terminal.reported()
    } else {
        Err(CliError::Reported(first))
    }
}

fn waiting_for(object: &Object) -> String {
    format!(
        "marked for deletion, waits for {}",
        object.metadata.finalizers.join(", ")
    )
}

/// Waits until this very object is gone; the object if it is still there at `end`.
async fn gone(
    client: &Client,
    key: &Key,
    marked: &Object,
    end: Instant,
) -> Result<Option<Object>, ClientError> {
    loop {
        match client.find(key).await? {
            Some(object) if object.metadata.uid == marked.metadata.uid => {
                if Instant::now() >= end {
                    return Ok(Some(object));
                }
            }
            _ => return Ok(None),
        }
        sleep(POLL).await;
    }
}
