//! Copies of a ledger: a backup of one that is in use, and a ledger from a backup.
//!
//! # Guarantees
//! * A copy shows the ledger at one moment, whatever is written meanwhile, and was checked.
//! * It appears under its name when it is whole and on disk, and never in place of another file.
//! * It is readable by this user only.
//! * A ledger that is opened from a copy, restored or just moved into place, goes on under
//!   revisions of its own: watches and continue tokens from before get `Expired`.
//!
//! # Assumptions
//! * The clock is not set back between two restores of one backup.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ipledger_core::store::Revision;
use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

use crate::error::Fault;
use crate::open::{self, OpenError};
use crate::options::Options;
use crate::readers::connect_options;
use crate::session::run;
use crate::{jump, read, schema};

/// What a copy holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The last revision of the ledger that it was made from.
    pub revision: Revision,
    /// How many objects.
    pub objects: u64,
    /// The size of the file.
    pub bytes: u64,
}

/// Why a copy cannot be made. There is then no new file, and the ledger is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// There is nothing to copy.
    #[error("there is no ledger at {path}; name the file of one")]
    NoLedger {
        /// The file asked for.
        path: PathBuf,
    },
    /// Something is there already.
    #[error("{path} exists, and is not overwritten; choose another path, or move it away")]
    Exists {
        /// What is there: the file, or what SQLite has left beside it.
        path: PathBuf,
    },
    /// What is to be copied, or the copy, cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The copy cannot be written.
    #[error("{path} cannot be written: {reason}; make its folder writable, or choose another path")]
    Target {
        /// The copy.
        path: PathBuf,
        /// What refused.
        reason: String,
    },
    /// No space is left for the copy.
    #[error("no space is left for {path}; free space on its volume, or choose another path")]
    Full {
        /// The copy.
        path: PathBuf,
    },
    /// Everything else.
    #[error("{from} cannot be copied to {to}: {reason}")]
    Failed {
        /// The ledger.
        from: PathBuf,
        /// The copy.
        to: PathBuf,
        /// What happened.
        reason: String,
    },
}

/// Copies the ledger in `from`, which may be in use, to the new file `to`.
///
/// While it runs, the write-ahead log of a busy ledger grows.
///
/// # Errors
/// `from` is no sound ledger; `to` exists or cannot be written.
pub async fn backup(from: &Path, to: &Path, options: &Options) -> Result<Copied, CopyError> {
    let (copy, copied) = copy(from, to, options).await?;
    copy.publish(to).await?;
    Ok(copied)
}

/// Makes the new ledger `to` from the backup in `from`. Any copy of a ledger will do: also one that
/// was not made by [`backup`], with the `-wal` file that belongs to it.
///
/// Returns what was copied and the revision that the new ledger starts with.
///
/// # Errors
/// `from` is no sound ledger; `to` exists or cannot be written.
pub async fn restore(
    from: &Path,
    to: &Path,
    options: &Options,
) -> Result<(Copied, Revision), CopyError> {
    let (copy, copied) = copy(from, to, options).await?;
    let opened = open::open(&copy.0, options).await?;
    let closed = opened.writer.close().await;
    closed.map_err(|e| open::failure(&copy.0, &e))?;
    copy.publish(to).await?;
    Ok((copied, Revision(opened.revision)))
}

/// A copy under a name for the meantime; removed unless it is published.
struct Partial(PathBuf);

async fn copy(from: &Path, to: &Path, options: &Options) -> Result<(Partial, Copied), CopyError> {
    refuse_existing(to)?;
    let mut source = open_source(from, options).await?;
    let partial = Partial::create(to)?;
    let copied = fill(&mut source, &partial, options).await;
    // It was only read from.
    let _ = source.close().await;
    let copied = copied.map_err(|e| match Fault::of(&e) {
        Fault::Full => CopyError::Full {
            path: to.to_owned(),
        },
        Fault::ReadOnly | Fault::CannotOpen => CopyError::Target {
            path: to.to_owned(),
            reason: e.to_string(),
        },
        Fault::Damaged => open::failure(from, &e).into(),
        _ => CopyError::Failed {
            from: from.to_owned(),
            to: to.to_owned(),
            reason: e.to_string(),
        },
    })?;
    Ok((partial, copied))
}

/// Neither the copy may be there, nor the log of another ledger of that name: SQLite would take it for
/// that of the copy.
fn refuse_existing(to: &Path) -> Result<(), CopyError> {
    let [file, logs @ ..] = FILES.map(|suffix| with_suffix(to, suffix));
    let is_log = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.len() > 0);
    let there = fs::symlink_metadata(&file).is_ok();
    match there
        .then_some(file)
        .or_else(|| logs.into_iter().find(is_log))
    {
        Some(path) => Err(CopyError::Exists { path }),
        None => Ok(()),
    }
}

/// A connection that cannot write, to a sound ledger.
async fn open_source(from: &Path, options: &Options) -> Result<SqliteConnection, CopyError> {
    let none = || CopyError::NoLedger {
        path: from.to_owned(),
    };
    let path = std::path::absolute(from).map_err(|_| none())?;
    if !fs::metadata(&path).is_ok_and(|m| m.is_file()) {
        return Err(none());
    }
    let fail = |e: sqlx::Error| CopyError::from(open::failure(&path, &e));
    let mut source = connect_options(&path, options.busy_timeout)
        .read_only(true)
        .connect()
        .await
        .map_err(fail)?;
    let found = open::examine(&path, &mut source, options, schema::STEPS).await?;
    run(&mut source, "ROLLBACK").await.map_err(fail)?;
    if found == schema::EMPTY {
        return Err(none());
    }
    Ok(source)
}

async fn fill(
    source: &mut SqliteConnection,
    partial: &Partial,
    options: &Options,
) -> Result<Copied, sqlx::Error> {
    // SQLite names files by UTF-8.
    let path = partial.0.to_str().ok_or(sqlx::Error::Configuration(
        "its path is not written in UTF-8".into(),
    ))?;
    sqlx::query("VACUUM INTO ?1")
        .bind(path)
        .execute(source)
        .await?;
    let mut copy = connect_options(&partial.0, options.busy_timeout)
        .connect()
        .await?;
    jump::mark(&mut copy).await?;
    let verdict: String = sqlx::query("PRAGMA quick_check(1)")
        .fetch_one(&mut copy)
        .await?
        .try_get(0)?;
    if verdict != "ok" {
        return Err(sqlx::Error::Protocol(format!(
            "the copy is damaged ({verdict}); check the disk"
        )));
    }
    let row = sqlx::query(schema::COUNT).fetch_one(&mut copy).await?;
    let copied = Copied {
        revision: Revision(read::counters(&mut copy, None).await?.revision),
        objects: read::number(&row, 0)?,
        bytes: fs::metadata(&partial.0)?.len(),
    };
    copy.close().await?;
    Ok(copied)
}

impl Partial {
    /// An empty file beside `to`, for this user only. SQLite fills it.
    fn create(to: &Path) -> Result<Partial, CopyError> {
        // An absolute path has no special meaning to SQLite, whatever its name.
        let to = std::path::absolute(to).map_err(|e| io_error(to, &e))?;
        let suffix = format!(".partial-{}", uuid::Uuid::new_v4());
        let partial = Partial(with_suffix(&to, &suffix));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(0o600);
        }
        match options.open(&partial.0) {
            Ok(_) => Ok(partial),
            Err(e) => Err(io_error(&to, &e)),
        }
    }

    /// Gives the copy its name, once it is on disk.
    async fn publish(self, to: &Path) -> Result<(), CopyError> {
        let path = to.to_owned();
        let published = tokio::task::spawn_blocking(move || self.link(&path)).await;
        let published = published.unwrap_or_else(|e| Err(std::io::Error::other(e)));
        published.map_err(|e| io_error(to, &e))
    }

    fn link(&self, to: &Path) -> std::io::Result<()> {
        File::open(&self.0)?.sync_all()?;
        match fs::hard_link(&self.0, to) {
            // A volume without links. A renamed file would take the place of another one.
            Err(e) if e.kind() != ErrorKind::AlreadyExists && !to.exists() => {
                fs::rename(&self.0, to)?;
            }
            linked => linked?,
        }
        let folder = to.parent().filter(|p| !p.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn io_error(to: &Path, error: &std::io::Error) -> CopyError {
    let path = to.to_owned();
    match error.kind() {
        ErrorKind::AlreadyExists => CopyError::Exists { path },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => CopyError::Full { path },
        _ => CopyError::Target {
            path,
            reason: error.to_string(),
        },
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Its other name, if it was published, stays.
        for suffix in FILES.into_iter().chain(["-shm"]) {
            let _ = fs::remove_file(with_suffix(&self.0, suffix));
        }
    }
}

/// The database, and the logs that SQLite may put beside it.
const FILES: [&str; 3] = ["", "-wal", "-journal"];

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
