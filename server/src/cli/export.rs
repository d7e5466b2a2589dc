//! `ipledger export`: all objects of a ledger as they were at one moment, as lines of JSON.
//!
//! The first line is `{"ipledgerExport":1,"objects":N}`, each further one an object.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ipledger_core::api::{Kind, Object};
use ipledger_core::store::{ListOptions, Store};
use ipledger_store_sqlite::{CopyError, Options, SqliteStore, backup};
use serde::{Deserialize, Serialize};

use super::client::{Client, Scope};
use super::exit::CliError;
use super::folder::Folder;
use super::output::{Terminal, to_json_line};
use crate::ledger::{Ledger, Location};

/// The form of the lines.
pub(super) const VERSION: u32 = 1;
/// Objects asked for in one page of a list.
const PAGE: usize = 1_000;
/// How often the ledger is read until it stays the same, and the pause in between.
const READS: usize = 20;
const PAUSE: Duration = Duration::from_millis(200);

/// The first line.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Header {
    /// [`VERSION`].
    pub(super) ipledger_export: u32,
    /// How many lines follow.
    pub(super) objects: usize,
}

/// Where the objects are.
pub(super) enum Source {
    /// Behind a server.
    Server(Client),
    /// In a ledger, which may be in use.
    Ledger(Location),
}

/// Exports a ledger to a new file, or to standard output.
///
/// # Errors
/// The ledger cannot be read, or does not stay the same long enough; the file exists or cannot be
/// written.
pub(super) async fn run(
    source: Source,
    output: Option<&Path>,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let objects = match source {
        Source::Server(client) => at_one_moment(&Reading::Server(client)).await?,
        Source::Ledger(Location::File(db)) => of_file(&db).await?,
        Source::Ledger(other) => {
            let ledger = Ledger::open(&other).await?;
            let objects = at_one_moment(&Reading::Store(ledger.store())).await;
            ledger.close().await?;
            objects?
        }
    };
    let Some(path) = output else {
        for line in lines(&objects) {
            terminal.print(&line)?;
        }
        return Ok(());
    };
    write(path, &objects).map_err(|e| cannot_write(path, &e))?;
    terminal.line(&format!("{} holds {}", path.display(), counted(&objects)))
}

/// `2 ipaddressclasses, 5 ipaddresses, 3 ipaddressclaims`.
pub(super) fn counted(objects: &[Object]) -> String {
    let count = |kind| objects.iter().filter(|o| o.kind == kind).count();
    Kind::ALL
        .map(|kind| format!("{} {}", count(kind), kind.plural()))
        .join(", ")
}

/// A backup is a ledger at one moment, and reading it leaves the ledger itself alone.
async fn of_file(db: &Path) -> Result<Vec<Object>, CliError> {
    let folder = Folder::new("export")?;
    let copy = folder.path().join("ledger.db");
    backup(db, &copy, &Options::default()).await?;
    let store = SqliteStore::open(&copy, &Options::default()).await;
    let store = Arc::new(store?);
    let objects = at_one_moment(&Reading::Store(store.clone())).await;
    store.close().await?;
    objects
}

/// What can be listed.
pub(super) enum Reading {
    Server(Client),
    Store(Arc<dyn Store>),
}

impl Reading {
    async fn list(&self, kind: Kind) -> Result<Vec<Object>, CliError> {
        let store = match self {
            Reading::Server(client) => {
                return Ok(client.list(kind, &Scope::default()).await?.items);
            }
            Reading::Store(store) => store,
        };
        let mut options = ListOptions {
            limit: Some(PAGE),
            ..ListOptions::default()
        };
        let mut objects = Vec::new();
        loop {
            let page = store.list(kind, &options).await?;
            // Left out, it would be missed: what it holds would be taken for unused.
            if let Some(e) = page.corrupt.into_iter().next() {
                return Err(e.into());
            }
            objects.extend(page.items);
            options.continue_token = page.continue_token;
            if options.continue_token.is_none() {
                return Ok(objects);
            }
        }
    }

    async fn list_all(&self) -> Result<Vec<Object>, CliError> {
        let mut objects = Vec::new();
        for kind in Kind::ALL {
            objects.extend(self.list(kind).await?);
        }
        Ok(objects)
    }
}

/// All objects as they were at one moment. No store lists several kinds at one, so they are read
/// until two readings are the same: between the two, all of it was true.
pub(super) async fn at_one_moment(reading: &Reading) -> Result<Vec<Object>, CliError> {
    let mut last = reading.list_all().await?;
    for _ in 0..READS {
        let now = reading.list_all().await?;
        if now == last {
            return Ok(now);
        }
        last = now;
        tokio::time::sleep(PAUSE).await;
    }
    Err(CliError::TimeOut(
        "the ledger is written to all the time, so that its kinds cannot be read at one moment; \
         export a backup of it (`ipledger backup`, then `ipledger export --db`)"
            .to_owned(),
    ))
}

fn lines(objects: &[Object]) -> impl Iterator<Item = String> {
    let header = Header {
        ipledger_export: VERSION,
        objects: objects.len(),
    };
    let header = serde_json::to_value(header).unwrap_or_default();
    std::iter::once(to_json_line(&header))
        .chain(objects.iter().map(|o| to_json_line(&o.to_value())))
}

/// Writes a new file, for this user only.
fn write(path: &Path, objects: &[Object]) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let written = write_to(file, objects);
    if written.is_err() {
        // A part would be refused by an import anyway.
        let _ = std::fs::remove_file(path);
    }
    written
}

fn write_to(file: File, objects: &[Object]) -> std::io::Result<()> {
    let mut out = BufWriter::new(file);
    for line in lines(objects) {
        out.write_all(line.as_bytes())?;
    }
    out.into_inner()?.sync_all()
}

fn cannot_write(path: &Path, error: &std::io::Error) -> CliError {
    let path = path.to_owned();
    let error = match error.kind() {
        ErrorKind::AlreadyExists => CopyError::Exists { path },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => CopyError::Full { path },
        _ => CopyError::Target {
            path,
            reason: error.to_string(),
        },
    };
    error.into()
}
