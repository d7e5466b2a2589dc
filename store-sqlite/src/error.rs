//! What an error of SQLite means for us.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;

use ipledger_core::store::StoreError;

/// The kinds of failure that need different words and deeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Another process holds a lock.
    Busy,
    /// No space, or `max_page_count` is reached.
    Full,
    /// File, folder or volume cannot be written.
    ReadOnly,
    /// The file, or one beside it, cannot be opened or created.
    CannotOpen,
    /// The operating system reported an error of reading or writing.
    Io,
    /// The content is damaged.
    Damaged,
    /// It is no database at all.
    NotADatabase,
    /// Everything else: a fault of ours.
    Other,
}

/// The primary and the extended result code, if SQLite reported the error.
pub(crate) fn codes(error: &sqlx::Error) -> Option<(u32, u32)> {
    let extended: u32 = error.as_database_error()?.code()?.parse().ok()?;
    Some((extended & 0xff, extended))
}

impl Fault {
    pub(crate) fn of(error: &sqlx::Error) -> Fault {
        // https://www.sqlite.org/rescode.html
        match codes(error) {
            // 15: a race for the lock of the write-ahead log, lost many times.
            Some((5 | 6 | 15, _)) => Fault::Busy,
            Some((13, _)) => Fault::Full,
            Some((8, _)) => Fault::ReadOnly,
            Some((14, _)) => Fault::CannotOpen,
            Some((10, _)) => Fault::Io,
            Some((11, _)) => Fault::Damaged,
            Some((26, _)) => Fault::NotADatabase,
            Some(_) => Fault::Other,
            None => match error {
                sqlx::Error::Io(_) => Fault::Io,
                _ => Fault::Other,
            },
        }
    }

    /// Whether a COMMIT that failed like this has certainly written nothing. After an I/O error
    /// the commit record may be in the file and come to life when it is read the next time.
    pub(crate) fn is_certain_at_commit(self) -> bool {
        matches!(self, Fault::Busy | Fault::Full | Fault::ReadOnly)
    }
}

/// The error of an operation that wrote nothing.
pub(crate) fn unavailable(file: &Path, error: &sqlx::Error) -> StoreError {
    let path = file.display();
    let reason = match Fault::of(error) {
        Fault::Busy => {
            format!("another process holds the database {path}; nothing was written, try again")
        }
        Fault::Full => format!(
            "no space is left for the database {path}: free space on its volume; nothing was \
             written, nothing is lost, and reading goes on"
        ),
        Fault::ReadOnly => format!(
            "the database {path} is read-only: make the file, its folder and its volume \
             writable; nothing was written, nothing is lost, and reading goes on ({error})"
        ),
        Fault::CannotOpen => format!(
            "the database {path} cannot be written: make the file, its folder and its volume \
             writable; nothing was written, nothing is lost, and reading goes on ({error})"
        ),
        Fault::Io => format!(
            "reading or writing the database {path} failed: {}; nothing was written ({error})",
            disk_advice(file)
        ),
        Fault::Damaged | Fault::NotADatabase => format!(
            "the database {path} is damaged: stop every process that uses it, keep a copy, and \
             restore a backup; nothing was written ({error})"
        ),
        Fault::Other => {
            return StoreError::Internal {
                reason: format!("the database {path}: {error}"),
            };
        }
    };
    StoreError::Unavailable { reason }
}

/// What to do after an error of the disk, of which SQLite tells no more than that there was one. A volume
/// that the system has made read-only, because it no longer trusts it, is told apart by trying.
pub(crate) fn disk_advice(database: &Path) -> &'static str {
    // A file of its own: SQLite's locks would end with a second descriptor of the database.
    let name = format!(".ipledger-probe-{}", std::process::id());
    let probe = database.with_file_name(name);
    let tried = OpenOptions::new().write(true).create_new(true).open(&probe);
    match tried {
        Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => {
            "its volume is read-only; look into the system log for the reason, check the disk, and \
             make the volume writable again"
        }
        Err(_) => "check the disk and the system log",
        Ok(_) => {
            let _ = std::fs::remove_file(probe);
            "check the disk and the system log"
        }
    }
}

/// The error of every operation after the end of the store.
pub(crate) fn closed() -> StoreError {
    StoreError::Unavailable {
        reason: "the store is closed; nothing was written".to_owned(),
    }
}

/// The error for a revision before the start of the history.
pub(crate) fn expired(revision: u64, compacted: u64) -> StoreError {
    StoreError::Expired {
        reason: format!("{revision} is asked for, the history starts at {compacted}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readers::connect_options;
    use sqlx::{AssertSqlSafe, ConnectOptions as _};

    /// The error that a statement on the file really gives.
    async fn error(path: &Path, read_only: bool, statements: &str) -> sqlx::Error {
        let options = connect_options(path, std::time::Duration::ZERO);
        let mut connection = options.read_only(read_only).connect().await.unwrap();
        let sql = AssertSqlSafe(statements.to_owned());
        sqlx::raw_sql(sql)
            .execute(&mut connection)
            .await
            .unwrap_err()
    }

    #[tokio::test]
    async fn each_failure_is_told_apart_and_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let text = folder.path().join("b.db");
        std::fs::write(&path, "").unwrap();
        std::fs::write(&text, "no database at all ".repeat(100)).unwrap();
        let fill = "PRAGMA max_page_count = 2; CREATE TABLE a (b); \
                    INSERT INTO a VALUES (randomblob(9999))";
        let cases = [
            (
                error(&path, true, "CREATE TABLE a (b)").await,
                Fault::ReadOnly,
                "writable",
            ),
            (error(&path, false, fill).await, Fault::Full, "free space"),
            (
                error(&text, false, "SELECT * FROM a").await,
                Fault::NotADatabase,
                "backup",
            ),
        ];
        for (error, fault, advice) in cases {
            assert_eq!(Fault::of(&error), fault, "{error}");
            let told = unavailable(&path, &error);
            assert!(matches!(told, StoreError::Unavailable { .. }), "{told:?}");
            assert!(told.to_string().contains(advice), "{told}");
        }
        let fault_of_ours = error(&path, false, "SELECT nonsense").await;
        assert!(matches!(
            unavailable(&path, &fault_of_ours),
            StoreError::Internal { .. }
        ));
    }
}
