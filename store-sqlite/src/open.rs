//! Opening a file: every way in which it can be the wrong one is told apart, and a file that is not
//! ours is not touched.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions, Connection, Row};
use tokio::time::Instant;

use crate::error::Fault;
use crate::options::Options;
use crate::readers::connect_options;
use crate::session::{connect, run};
use crate::upgrade::{identify, upgrade};
use crate::{jump, read, schema};

/// How often it is tried again while another process holds the file.
const RETRY: Duration = Duration::from_millis(10);

/// Every SQLite file has at least one page, of at least so many bytes.
const SMALLEST: u64 = 512;

/// Why a database cannot be opened. Whatever it was, the file is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder does not exist.
    #[error("the folder of the database {path} does not exist; create it, or choose another path")]
    NoFolder {
        /// The file asked for.
        path: PathBuf,
    },
    /// The path names something that cannot be a database, for example a folder.
    #[error("{path} cannot be a database: {reason}; choose another path")]
    NotAFile {
        /// The path asked for.
        path: PathBuf,
        /// What it is.
        reason: String,
    },
    /// The file is not there or empty, but a log is: making a new database would delete it.
    #[error(
        "{log} is there, but the database that it belongs to is not at {path}; the log may hold the \
         last writes to it: put that file back, or move the log away, too"
    )]
    LeftLog {
        /// The file asked for.
        path: PathBuf,
        /// What is beside it.
        log: PathBuf,
    },
    /// The file is something else than an SQLite database.
    #[error(
        "{path} is not a database; it was left as it is: choose another path, or move the file away"
    )]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The file is a database of another application.
    #[error(
        "{path} is a database of another application (application id {application_id}); it was \
         left as it is: choose another path"
    )]
    OtherApplication {
        /// The file.
        path: PathBuf,
        /// The id in its header; 0 if it has none.
        application_id: u32,
    },
    /// The file was written by a newer version of ipledger.
    #[error(
        "{path} has schema {found}, this version of ipledger knows {supported}; it was left as it \
         is: use the version that wrote it, or a newer one"
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema that can be opened.
        supported: i64,
    },
    /// The file or its folder cannot be written.
    #[error(
        "the database {path} cannot be written ({reason}); make the file, its folder and its \
         volume writable for this user"
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What refused.
        reason: String,
    },
    /// Another process holds the file.
    #[error(
        "another process has held the database {path} for {} ms; end it, or wait for it, and try \
         again",
        waited.as_millis()
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The content is damaged.
    #[error(
        "the database {path} is damaged ({verdict}); it was left as it is: keep a copy of it with \
         its -wal file, and restore a backup"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the check found.
        verdict: String,
    },
    /// No space is left.
    #[error("no space is left for the database {path}; free space on its volume")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file is of an older schema and could not be brought to the present one.
    #[error(
        "the database {path} cannot be brought from schema {from} to {to} ({reason}); it was left \
         as it is: use the version that wrote it, and report this"
    )]
    Upgrade {
        /// The file.
        path: PathBuf,
        /// Its schema.
        from: i64,
        /// The present schema.
        to: i64,
        /// What happened.
        reason: String,
    },
    /// Everything else.
    #[error("the database {path} cannot be opened: {reason}")]
    Failed {
        /// The file.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
}

/// An opened file.
pub(crate) struct Opened {
    /// Absolute.
    pub(crate) path: PathBuf,
    pub(crate) writer: SqliteConnection,
    /// The revision of the last write.
    pub(crate) revision: u64,
}

/// Opens the file, creating it if it is not there, and waits while another process holds it.
pub(crate) async fn open(path: &Path, options: &Options) -> Result<Opened, OpenError> {
    open_with(path, options, schema::STEPS).await
}

/// Opens the file and brings it to the schema that these steps end with.
pub(crate) async fn open_with(
    path: &Path,
    options: &Options,
    steps: &[&str],
) -> Result<Opened, OpenError> {
    // An absolute path has no special meaning to SQLite, whatever its name.
    let path = std::path::absolute(path).map_err(|e| OpenError::NotAFile {
        path: path.to_owned(),
        reason: e.to_string(),
    })?;
    let began = Instant::now();
    loop {
        match attempt(&path, options, steps).await {
            Err(OpenError::Locked { .. }) if began.elapsed() < options.busy_timeout => {
                tokio::time::sleep(RETRY).await;
            }
            Err(OpenError::Locked { path, .. }) => {
                let waited = began.elapsed();
                return Err(OpenError::Locked { path, waited });
            }
            result => return result,
        }
    }
}

async fn attempt(path: &Path, options: &Options, steps: &[&str]) -> Result<Opened, OpenError> {
    let fail = |e: sqlx::Error| failure(path, &e);
    if look(path)? == Content::Something && !is_unfinished(path) {
        let mut probe = connect_options(path, Duration::ZERO)
            .read_only(true)
            .connect()
            .await
            .map_err(fail)?;
        let verdict = examine(path, &mut probe, options, steps).await;
        probe.close().await.map_err(fail)?;
        verdict?;
    }
    let mut writer = connect(path, options).await.map_err(fail)?;
    let revision = match prepare(path, &mut writer, options, steps).await {
        Ok(revision) => revision,
        Err(e) => {
            // Closing ends a transaction.
            let _ = writer.close().await;
            return Err(e);
        }
    };
    Ok(Opened {
        path: path.to_owned(),
        writer,
        revision,
    })
}

/// Whether whoever began to make this database was cut off before it held anything: the rollback
/// journal beside it takes the file back to no pages at all, as soon as it is opened for writing. (On
/// a connection that cannot write, SQLite refuses such a file. Ours has no journal later.)
fn is_unfinished(path: &Path) -> bool {
    /// https://www.sqlite.org/fileformat.html, section 3.
    const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    let mut header = [0; 20];
    let read = File::open(journal).and_then(|mut file| file.read_exact(&mut header));
    let pages_before = header.last_chunk::<4>();
    read.is_ok() && header.starts_with(&MAGIC) && pages_before == Some(&[0; 4])
}

/// What a file holds.
#[derive(PartialEq)]
enum Content {
    /// Nothing yet: it can become ours.
    Nothing,
    /// Something, whatever it is.
    Something,
}

/// Looks at the file from outside, and creates a missing one, for this user only (SQLite gives the
/// files beside it the same mode).
///
/// Closing a file drops all locks that this process has on it, also those of SQLite. So a file that
/// is there is not opened here, and a new one is closed before anyone else can find it.
fn look(path: &Path) -> Result<Content, OpenError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let fail = |e: std::io::Error| io_failure(path, &e);
    let not_a_file = |reason: String| OpenError::NotAFile {
        path: path.to_owned(),
        reason,
    };
    if path.to_str().is_none() {
        return Err(not_a_file("SQLite opens only names in UTF-8".to_owned()));
    }
    // Looked for first: another process that makes the database makes the log last.
    let log = left_log(path);
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            if let Ok(target) = std::fs::read_link(path) {
                let reason = format!("it is a link to {}, which is not there", target.display());
                return Err(not_a_file(reason));
            }
            refuse_left(path, log)?;
            return match create(path) {
                // Another process was faster.
                Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(fail(e)),
                _ => Ok(Content::Nothing),
            };
        }
        Err(e) => return Err(fail(e)),
    };
    if !metadata.is_file() {
        return Err(not_a_file("it is not a regular file".to_owned()));
    }
    if metadata.permissions().readonly() {
        return Err(OpenError::ReadOnly {
            path: path.to_owned(),
            reason: "the file is marked as read-only".to_owned(),
        });
    }
    match metadata.len() {
        0 => refuse_left(path, log).map(|()| Content::Nothing),
        // SQLite would take a file of one byte for an empty one.
        1..SMALLEST => Err(OpenError::NotADatabase {
            path: path.to_owned(),
        }),
        _ => Ok(Content::Something),
    }
}

/// The write-ahead log that stands beside the file, if it has anything in it.
fn left_log(path: &Path) -> Option<PathBuf> {
    // SQLite follows links to the database before it names the log.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut log = path.into_os_string();
    log.push("-wal");
    let log = PathBuf::from(log);
    std::fs::metadata(&log)
        .is_ok_and(|m| m.len() > 0)
        .then_some(log)
}

fn refuse_left(path: &Path, log: Option<PathBuf>) -> Result<(), OpenError> {
    let path = path.to_owned();
    log.map_or(Ok(()), |log| Err(OpenError::LeftLog { path, log }))
}

fn create(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options.open(path).map(|_| ())
}

/// The schema of the file, if it is ours, of a schema that is known, and sound. On a connection that
/// cannot write, which is in a transaction afterwards.
pub(crate) async fn examine(
    path: &Path,
    connection: &mut SqliteConnection,
    options: &Options,
    steps: &[&str],
) -> Result<i64, OpenError> {
    // One view of the file: another process may just be making it a ledger.
    run(connection, "BEGIN")
        .await
        .map_err(|e| failure(path, &e))?;
    let found = identify(path, connection, steps).await?;
    if found == schema::EMPTY || !options.check_on_open {
        return Ok(found);
    }
    let verdict = sqlx::query("PRAGMA quick_check(3)")
        .fetch_all(connection)
        .await;
    let rows = verdict.map_err(|e| failure(path, &e))?;
    let lines: Vec<String> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
    if lines == ["ok"] {
        return Ok(found);
    }
    Err(OpenError::Damaged {
        path: path.to_owned(),
        verdict: lines.join("; ").replace('\n', " "),
    })
}

/// Brings the file into the form that we work on, and finds out on the way whether it can be
/// written. Two processes may do this at once.
async fn prepare(
    path: &Path,
    writer: &mut SqliteConnection,
    options: &Options,
    steps: &[&str],
) -> Result<u64, OpenError> {
    let fail = |e: sqlx::Error| failure(path, &e);
    let mode: String = sqlx::query("PRAGMA journal_mode = WAL")
        .fetch_one(&mut *writer)
        .await
        .and_then(|row| row.try_get(0))
        .map_err(fail)?;
    if mode != "wal" {
        return Err(OpenError::Failed {
            path: path.to_owned(),
            reason: format!(
                "its volume does not allow a write-ahead log (journal mode is `{mode}`); use a \
                 local volume"
            ),
        });
    }
    run(writer, "BEGIN IMMEDIATE").await.map_err(fail)?;
    let upgraded = upgrade(path, writer, steps).await?;
    let jumped = jump::jump_if_marked(writer, (options.now)()).await;
    let end = if jumped.map_err(fail)? || upgraded {
        "COMMIT"
    } else {
        "ROLLBACK"
    };
    run(writer, end).await.map_err(fail)?;
    Ok(read::counters(writer, None).await.map_err(fail)?.revision)
}

pub(crate) fn failure(path: &Path, error: &sqlx::Error) -> OpenError {
    let path = path.to_owned();
    match Fault::of(error) {
        Fault::Busy => OpenError::Locked {
            path,
            waited: Duration::ZERO,
        },
        Fault::Full => OpenError::Full { path },
        Fault::ReadOnly | Fault::CannotOpen => OpenError::ReadOnly {
            path,
            reason: error.to_string(),
        },
        Fault::Damaged => OpenError::Damaged {
            path,
            verdict: error.to_string(),
        },
        Fault::NotADatabase => OpenError::NotADatabase { path },
        Fault::Io => OpenError::Failed {
            path,
            reason: format!(
                "reading or writing it failed; if another process still works with it after the \
                 file or its -wal file was deleted or replaced, end that process first; otherwise \
                 check the disk and the system log ({error})"
            ),
        },
        Fault::Other => OpenError::Failed {
            path,
            reason: error.to_string(),
        },
    }
}

pub(crate) fn io_failure(path: &Path, error: &std::io::Error) -> OpenError {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => OpenError::NoFolder { path },
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => OpenError::ReadOnly {
            path,
            reason: error.to_string(),
        },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => OpenError::Full { path },
        ErrorKind::IsADirectory => OpenError::NotAFile {
            path,
            reason: "it is a folder".to_owned(),
        },
        _ => OpenError::Failed {
            path,
            reason: error.to_string(),
        },
    }
}
