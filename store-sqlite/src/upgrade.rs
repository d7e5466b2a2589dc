//! Which schema a file has, and how an older one is brought to the present schema: all steps in one
//! transaction, so that it is either of the present schema or as it was.

use std::path::Path;

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::open::{OpenError, failure};
use crate::schema;

/// The schema that these steps end with.
fn last(steps: &[&str]) -> i64 {
    i64::try_from(steps.len()).unwrap_or(i64::MAX)
}

/// The schema of the database, if it is ours or empty. Inside a transaction.
pub(crate) async fn identify(
    path: &Path,
    connection: &mut SqliteConnection,
    steps: &[&str],
) -> Result<i64, OpenError> {
    let fail = |e: sqlx::Error| failure(path, &e);
    let mut pragma = async |sql: &'static str| -> Result<i64, sqlx::Error> {
        sqlx::query(sql)
            .fetch_one(&mut *connection)
            .await?
            .try_get(0)
    };
    let id = pragma("PRAGMA application_id").await.map_err(fail)?;
    let version = pragma("PRAGMA user_version").await.map_err(fail)?;
    let tables = pragma("SELECT count(*) FROM sqlite_schema")
        .await
        .map_err(fail)?;
    if id == 0 && tables == 0 {
        return Ok(schema::EMPTY);
    }
    if id != schema::APPLICATION_ID {
        return Err(OpenError::OtherApplication {
            path: path.to_owned(),
            // Stored as 32 bits, read with a sign.
            application_id: u32::from_ne_bytes(i32::try_from(id).unwrap_or(0).to_ne_bytes()),
        });
    }
    let supported = last(steps);
    if version > supported {
        return Err(OpenError::NewerSchema {
            path: path.to_owned(),
            found: version,
            supported,
        });
    }
    if version <= schema::EMPTY {
        return Err(OpenError::Damaged {
            path: path.to_owned(),
            verdict: format!("its schema version is {version}"),
        });
    }
    Ok(version)
}

/// Takes the steps that the file has not taken yet; whether there were any. Inside a transaction
/// that holds the write lock.
pub(crate) async fn upgrade(
    path: &Path,
    connection: &mut SqliteConnection,
    steps: &[&str],
) -> Result<bool, OpenError> {
    let found = identify(path, connection, steps).await?;
    let to = last(steps);
    if found == to {
        return Ok(false);
    }
    let taken = usize::try_from(found).unwrap_or(0);
    let left = steps.iter().skip(taken).copied().map(str::to_owned);
    let id = schema::APPLICATION_ID;
    let identity = format!("PRAGMA application_id = {id}; PRAGMA user_version = {to}");
    for sql in left.chain([identity]) {
        let step = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *connection);
        step.await.map_err(|e| match failure(path, &e) {
            OpenError::Failed { path, reason } if found > schema::EMPTY => OpenError::Upgrade {
                path,
                from: found,
                to,
                reason,
            },
            other => other,
        })?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use sqlx::{ConnectOptions as _, Connection as _};

    use super::*;
    use crate::open::open_with;
    use crate::options::Options;
    use crate::readers::connect_options;

    /// A ledger of schema 1 as it was written by the first version.
    const SCHEMA_1: &str = include_str!("../tests/fixtures/schema1.sql");
    const BY_UID: &str = "CREATE INDEX objects_by_uid ON objects (uid)";
    const NOTES: &str = "ALTER TABLE objects ADD COLUMN note TEXT NOT NULL DEFAULT 'none'; \
        CREATE TABLE notes (id INTEGER PRIMARY KEY) STRICT";

    struct Ledger {
        _folder: tempfile::TempDir,
        path: std::path::PathBuf,
    }

    impl Ledger {
        async fn schema_1() -> Ledger {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("ledger.db");
            std::fs::write(&path, "").unwrap();
            let ledger = Ledger {
                _folder: folder,
                path,
            };
            ledger.run(SCHEMA_1).await;
            ledger
        }

        async fn run(&self, sql: &'static str) {
            let options = connect_options(&self.path, std::time::Duration::ZERO);
            let mut connection = options.connect().await.unwrap();
            sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }

        async fn open(&self, steps: &[&str]) -> Result<u64, OpenError> {
            let opened = open_with(&self.path, &Options::default(), steps).await?;
            opened.writer.close().await.unwrap();
            Ok(opened.revision)
        }

        async fn number(&self, sql: &'static str) -> Result<i64, sqlx::Error> {
            let options = connect_options(&self.path, std::time::Duration::ZERO);
            let mut connection = options.connect().await.unwrap();
            let number = sqlx::query(sql).fetch_one(&mut connection).await?.get(0);
            connection.close().await.unwrap();
            Ok(number)
        }
    }

    fn with(more: &[&'static str]) -> Vec<&'static str> {
        [schema::STEPS, more].concat()
    }

    #[tokio::test]
    async fn an_older_ledger_takes_the_steps_that_it_has_not_taken() {
        let ledger = Ledger::schema_1().await;
        let revision = ledger.open(schema::STEPS).await.unwrap();
        assert_eq!(ledger.open(&with(&[BY_UID])).await, Ok(revision));
        assert_eq!(ledger.number("PRAGMA user_version").await.unwrap(), 2);
        // The step of before would fail if it were taken again.
        assert_eq!(ledger.open(&with(&[BY_UID, NOTES])).await, Ok(revision));
        assert_eq!(ledger.number("PRAGMA user_version").await.unwrap(), 3);
        let noted = "SELECT count(*) FROM objects WHERE note = 'none'";
        let all = ledger.number(schema::COUNT).await.unwrap();
        assert_eq!(ledger.number(noted).await.unwrap(), all);
        assert!(all > 0);
        let e = ledger.open(schema::STEPS).await.unwrap_err();
        assert!(matches!(e, OpenError::NewerSchema { found: 3, .. }), "{e}");
    }

    #[tokio::test]
    async fn a_new_file_takes_all_steps() {
        let ledger = Ledger::schema_1().await;
        std::fs::write(&ledger.path, "").unwrap();
        ledger.open(&with(&[BY_UID, NOTES])).await.unwrap();
        assert_eq!(ledger.number("PRAGMA user_version").await.unwrap(), 3);
        assert_eq!(
            ledger.number("SELECT count(*) FROM notes").await.unwrap(),
            0
        );
    }

    #[tokio::test]
    async fn a_step_that_fails_leaves_the_ledger_as_it_was() {
        let ledger = Ledger::schema_1().await;
        let revision = ledger.open(schema::STEPS).await.unwrap();
        let before = std::fs::read(&ledger.path).unwrap();
        let steps = with(&[BY_UID, "INSERT INTO counters VALUES ('revision', 9)", NOTES]);
        let e = ledger.open(&steps).await.unwrap_err();
        let OpenError::Upgrade { from: 1, to: 4, .. } = e else {
            panic!("{e}")
        };
        assert!(e.to_string().contains("left as it is"), "{e}");
        assert_eq!(std::fs::read(&ledger.path).unwrap(), before);
        assert_eq!(ledger.open(schema::STEPS).await, Ok(revision));
    }

    #[tokio::test]
    async fn two_that_upgrade_a_ledger_at_once_both_succeed() {
        let steps = with(&[BY_UID, NOTES]);
        for _ in 0..10 {
            let ledger = Ledger::schema_1().await;
            let (a, b) = tokio::join!(ledger.open(&steps), ledger.open(&steps));
            assert_eq!(a.unwrap(), b.unwrap());
        }
    }
}
