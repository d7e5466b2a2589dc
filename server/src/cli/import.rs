//! `ipledger import`: a new ledger, in a file or in etcd, with the objects of an export.
//!
//! | question | file |
//! |---|---|
//! | is the file a whole export? | `file.rs` |
//! | would the core change what is imported? | `check.rs` |
//! | how do bindings survive new uids? | `remap.rs` |
//! | what is written, and in which order? | `load.rs` |
//! | how are servers kept away from a ledger in etcd? | `etcd.rs` |

mod check;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod load;
mod remap;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipledger_core::api::Object;
use ipledger_core::store::Store;
use ipledger_store_sqlite::{CopyError, Options, SqliteStore, restore};

use super::exit::{CliError, Exit};
use super::export::counted;
use super::output::Terminal;
use crate::ledger::Location;

/// How often the progress line is drawn again.
const REDRAW: Duration = Duration::from_millis(100);

/// What to import, and where to.
pub(super) struct Request<'a> {
    /// The export.
    pub(super) file: &'a Path,
    /// The ledger to make.
    pub(super) to: &'a Location,
    /// Only check the file and say what would be done.
    pub(super) dry_run: bool,
    /// Import although the core will change some of it.
    pub(super) accept_changes: bool,
}

/// Makes a ledger from an export. No server can work on a part of it; after a crash the same command
/// goes on.
///
/// # Errors
/// The file is no whole export; the core would change what is imported; the ledger exists or
/// cannot be written; somebody works on it.
pub(super) async fn run(request: Request<'_>, terminal: &mut Terminal) -> Result<(), CliError> {
    let objects = file::read(request.file)?;
    let findings = check::findings(&objects);
    for finding in &findings {
        terminal.warn(finding);
    }
    if !findings.is_empty() && !request.accept_changes {
        return Err(CliError::Usage(format!(
            "{} objects lean on what is not in {}, and would not stay as they are; nothing was \
             written: export again when the ledger is at rest, or accept it with --accept-changes",
            findings.len(),
            request.file.display()
        )));
    }
    if let Location::File(db) = request.to
        && db.exists()
    {
        let path = db.to_owned();
        return Err(CopyError::Exists { path }.into());
    }
    let what = counted(&objects);
    if request.dry_run {
        return terminal.line(&format!(
            "{} can be imported: {what} (dry run)",
            request.file.display()
        ));
    }
    let start = match request.to {
        Location::File(db) => into_file(db, &objects, terminal).await?,
        #[cfg(feature = "etcd")]
        Location::Etcd(location) => etcd::import(location, &objects, terminal).await?,
        #[cfg(not(feature = "etcd"))]
        Location::Etcd(_) => return Err(crate::ledger::not_built().into()),
    };
    terminal.line(&format!("{} holds {what}; {start}", request.to))
}

/// Makes a ledger file, which appears under its name when it is complete.
async fn into_file(
    db: &Path,
    objects: &[Object],
    terminal: &mut Terminal,
) -> Result<String, CliError> {
    let partial = partial(db);
    if partial.exists() {
        terminal.note(&format!(
            "going on with {}, which an earlier import has left",
            partial.display()
        ));
    }
    let store = SqliteStore::open(&partial, &Options::default()).await?;
    let loaded = with_progress(&store, objects, terminal).await;
    let closed = store.close().await;
    loaded.map_err(|e| failed(&e, &partial.display()))?;
    closed?;
    // As a copy, the ledger goes on under revisions that the exported one has not used.
    let (_, start) = restore(&partial, db, &Options::default()).await?;
    for left in ["", "-wal", "-shm"] {
        let mut path = partial.clone().into_os_string();
        path.push(left);
        let _ = std::fs::remove_file(path);
    }
    Ok(format!("it starts at revision {start}"))
}

async fn with_progress(
    store: &dyn Store,
    objects: &[Object],
    terminal: &mut Terminal,
) -> Result<(), load::LoadError> {
    let mut progress = Progress::new(objects.len(), terminal);
    let loaded = load::load(store, objects, |done| progress.show(done)).await;
    progress.end();
    loaded
}

/// The ledger before it is complete.
fn partial(db: &Path) -> PathBuf {
    let mut path = db.as_os_str().to_owned();
    path.push(".import");
    path.into()
}

fn failed(error: &load::LoadError, partial: &dyn std::fmt::Display) -> CliError {
    CliError::Ledger {
        exit: match error {
            load::LoadError::Store(_) => Exit::Unavailable,
            load::LoadError::Foreign { .. } | load::LoadError::Interfered { .. } => Exit::Conflict,
        },
        message: format!(
            "{error}; what is done so far is in {partial}, and the same command goes on from there"
        ),
    }
}

/// A line on a terminal that says how far the work has come.
struct Progress<'a> {
    total: usize,
    terminal: &'a mut Terminal,
    drawn: Option<Instant>,
}

impl Progress<'_> {
    fn new(total: usize, terminal: &mut Terminal) -> Progress<'_> {
        Progress {
            total,
            terminal,
            drawn: None,
        }
    }

    fn show(&mut self, done: usize) {
        if !self.terminal.interactive || self.drawn.is_some_and(|at| at.elapsed() < REDRAW) {
            return;
        }
        self.drawn = Some(Instant::now());
        let line = format!("\r\x1b[Kimporting: {done} of {} objects", self.total);
        // Whoever does not see it misses nothing that counts.
        let _ = self.terminal.print(&line);
    }

    fn end(self) {
        if self.drawn.is_some() {
            let _ = self.terminal.print("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests;
