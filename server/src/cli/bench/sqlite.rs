//! The SQLite store, and the rows that it writes without it.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use ipledger_core::store::Store;
use ipledger_store_sqlite::{Options, SqliteStore};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::{mpsc, oneshot};

use super::subject::{Probe, Row, Subject};
use crate::cli::exit::{CliError, Exit};

/// Callers that wait for the probe's queue at most.
const QUEUE: usize = 1_024;
/// Rows in one transaction at most.
const MAX_BATCH: usize = 512;

const INSERT_EVENT: &str = "INSERT INTO events \
     (revision, kind, op, namespace, name, time, previous, body, before) \
     VALUES (?1, 'IPAddress', ?2, '', ?3, 1, ?4, ?5, ?6)";
const INSERT_OBJECT: &str = "INSERT INTO objects (kind, namespace, name, uid, revision, body) \
     VALUES ('IPAddress', '', ?1, ?2, ?3, ?4)";
const UPDATE_OBJECT: &str = "UPDATE objects SET uid = ?2, revision = ?3, body = ?4 \
     WHERE kind = 'IPAddress' AND namespace = '' AND name = ?1";
const SET_REVISION: &str = "UPDATE counters SET value = ?1 WHERE name = 'revision'";

/// SQLite on a local file.
pub(super) struct Sqlite;

#[async_trait]
impl Subject for Sqlite {
    fn name(&self) -> String {
        "sqlite, WAL, synchronous=FULL".to_owned()
    }

    async fn open(&self, folder: &Path) -> Result<Arc<dyn Store>, CliError> {
        let opened = SqliteStore::open(&folder.join("bench.db"), &Options::default()).await;
        Ok(Arc::new(opened?))
    }

    /// One connection that drains a queue: what waits shares a transaction, one statement for the
    /// event and one for the object.
    async fn probe(&self, folder: &Path) -> Result<Arc<dyn Probe>, CliError> {
        let path = folder.join("probe.db");
        // The same tables.
        let made = SqliteStore::open(&path, &Options::default()).await;
        made?.close().await?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .synchronous(SqliteSynchronous::Full)
            .disable_statement_logging();
        let connection = options.connect().await.map_err(|e| failed(&e))?;
        let (queue, rows) = mpsc::channel(QUEUE);
        tokio::spawn(drain(connection, rows));
        Ok(Arc::new(Queue(queue)))
    }
}

type Waiting = (Row, oneshot::Sender<Result<(), String>>);

struct Queue(mpsc::Sender<Waiting>);

impl Queue {
    async fn write(&self, row: Row) -> Result<(), CliError> {
        let ended = |_| "the probe has ended".to_owned();
        let (reply, written) = oneshot::channel();
        let result = match self.0.send((row, reply)).await {
            Ok(()) => written.await.map_err(|e| ended(e.to_string())),
            Err(e) => Err(ended(e.to_string())),
        };
        result.and_then(|written| written).map_err(failure)
    }
}

#[async_trait]
impl Probe for Queue {
    async fn create(&self, row: Row) -> Result<(), CliError> {
        self.write(row).await
    }

    async fn update(&self, row: Row) -> Result<(), CliError> {
        self.write(row).await
    }
}

async fn drain(mut connection: SqliteConnection, mut rows: mpsc::Receiver<Waiting>) {
    let mut revision = 1;
    while let Some(first) = rows.recv().await {
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH
            && let Ok(next) = rows.try_recv()
        {
            batch.push(next);
        }
        let written = write(&mut connection, &batch, &mut revision).await;
        let written = written.map_err(|e| e.to_string());
        for (_, reply) in batch {
            // Whoever has gone does not want to know.
            let _ = reply.send(written.clone());
        }
    }
    // It is thrown away anyway.
    let _ = connection.close().await;
}

async fn write(
    connection: &mut SqliteConnection,
    batch: &[Waiting],
    revision: &mut i64,
) -> Result<(), sqlx::Error> {
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut *connection)
        .await?;
    for (row, _) in batch {
        *revision += 1;
        let is_update = row.before.is_some();
        sqlx::query(INSERT_EVENT)
            .bind(*revision)
            .bind(if is_update { 2 } else { 1 })
            .bind(row.name.as_str())
            .bind(is_update.then_some(1))
            .bind(row.body.as_str())
            .bind(row.before.as_deref())
            .execute(&mut *connection)
            .await?;
        let object = if is_update {
            UPDATE_OBJECT
        } else {
            INSERT_OBJECT
        };
        sqlx::query(object)
            .bind(row.name.as_str())
            .bind(row.uid.as_str())
            .bind(*revision)
            .bind(row.body.as_str())
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query(SET_REVISION)
        .bind(*revision)
        .execute(&mut *connection)
        .await?;
    sqlx::query("COMMIT").execute(connection).await.map(|_| ())
}

fn failed(error: &sqlx::Error) -> CliError {
    failure(error.to_string())
}

fn failure(reason: String) -> CliError {
    CliError::Ledger {
        exit: Exit::Unavailable,
        message: format!("the probe cannot write: {reason}"),
    }
}
