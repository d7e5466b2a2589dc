//! `ipledger import`: a new ledger with the objects of an export.
//!
//! | question | file |
//! |---|---|
//! | is the file a whole export? | `file.rs` |
//! | would the core change what is imported? | `check.rs` |
//! | how do bindings survive new uids? | `remap.rs` |
//! | what is written, and in which order? | `load.rs` |

mod check;
mod file;
mod load;
mod remap;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipledger_store_sqlite::{CopyError, Options, SqliteStore, restore};

use super::exit::{CliError, Exit};
use super::export::counted;
use super::output::Terminal;
use crate::serve::ServeError;

/// How often the progress line is drawn again.
const REDRAW: Duration = Duration::from_millis(100);

/// What to import, and where to.
pub(super) struct Request<'a> {
    /// The export.
    pub(super) file: &'a Path,
    /// The ledger file to make.
    pub(super) db: &'a Path,
    /// Only check the file and say what would be done.
    pub(super) dry_run: bool,
    /// Import although the core will change some of it.
    pub(super) accept_changes: bool,
}

/// Makes a ledger file from an export. It appears under its name when it is complete, so that no
/// server can work on a part of it; after a crash the same command goes on.
///
/// # Errors
/// The file is no whole export; the core would change what is imported; the ledger exists or
/// cannot be written.
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
    if request.db.exists() {
        return Err(CopyError::Exists {
            path: request.db.to_owned(),
        }
        .into());
    }
    let what = counted(&objects);
    if request.dry_run {
        return terminal.line(&format!(
            "{} can be imported: {what} (dry run)",
            request.file.display()
        ));
    }
    let partial = partial(request.db);
    if partial.exists() {
        terminal.note(&format!(
            "going on with {}, which an earlier import has left",
            partial.display()
        ));
    }
    let store = SqliteStore::open(&partial, &Options::default()).await;
    let store = store.map_err(ServeError::Open)?;
    let mut progress = Progress::new(objects.len(), terminal);
    let loaded = load::load(&store, &objects, |done| progress.show(done)).await;
    progress.end();
    let closed = store.close().await;
    loaded.map_err(|e| failed(e, &partial))?;
    closed?;
    // As a copy, the ledger goes on under revisions that the exported one has not used.
    let (_, start) = restore(&partial, request.db, &Options::default()).await?;
    for left in ["", "-wal", "-shm"] {
        let mut path = partial.clone().into_os_string();
        path.push(left);
        let _ = std::fs::remove_file(path);
    }
    terminal.line(&format!(
        "{} holds {what}; it starts at revision {start}",
        request.db.display()
    ))
}

/// The ledger before it is complete.
fn partial(db: &Path) -> PathBuf {
    let mut path = db.as_os_str().to_owned();
    path.push(".import");
    path.into()
}

fn failed(error: load::LoadError, partial: &Path) -> CliError {
    CliError::Ledger {
        exit: match error {
            load::LoadError::Store(_) => Exit::Unavailable,
            load::LoadError::Foreign { .. } | load::LoadError::Interfered { .. } => Exit::Conflict,
        },
        message: format!(
            "{error}; what is done so far is in {}, and the same command goes on from there",
            partial.display()
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
