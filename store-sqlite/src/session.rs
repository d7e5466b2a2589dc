//! The one writing connection: transactions on it either commit or leave it as it was.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions, Connection, Error};
use tokio::time::Instant;

use crate::error::{Fault, codes};
use crate::identity::Identity;
use crate::options::Options;
use crate::readers::connect_options;

/// How often a writer that waits for another process looks whether the lock is free. SQLite itself
/// would soon look only every 100 ms, and rarely find the moment between two batches of a busy
/// writer.
const LOCK_POLL: Duration = Duration::from_millis(1);
/// When SQLite brings the write-ahead log into the main file, in pages, and begins it anew. It writes
/// over the old one then: a sync is quicker where a file does not grow.
const CHECKPOINT_PAGES: &str = "2000";
/// What the file of a log that was larger once is cut to when it is begun anew.
const LOG_BYTES: u64 = 16 << 20;
/// Readers can keep SQLite from beginning anew. A log that has grown by this many bytes is emptied as
/// soon as there is a moment without any.
const CHECKPOINT_BYTES: u64 = 32 << 20;

/// Opens a writing connection.
pub(crate) async fn connect(path: &Path, options: &Options) -> Result<SqliteConnection, Error> {
    let mut connect = connect_options(path, Duration::ZERO)
        .synchronous(sqlx::sqlite::SqliteSynchronous::Full)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", LOG_BYTES.to_string())
        .pragma("cache_size", "-16384");
    if let Some(pages) = options.max_page_count {
        connect = connect.pragma("max_page_count", pages.to_string());
    }
    connect.connect().await
}

pub(crate) struct Session {
    path: PathBuf,
    wal: PathBuf,
    options: Options,
    /// `None` after a failure that left it in an unknown state.
    connection: Option<SqliteConnection>,
    checkpoint_at: u64,
    identity: Arc<Identity>,
    /// Whether a file was lost and [`Session::rescue`] has run.
    rescued: bool,
}

impl Session {
    pub(crate) fn new(
        path: &Path,
        options: Options,
        connection: SqliteConnection,
        identity: Arc<Identity>,
    ) -> Session {
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        Session {
            path: path.to_owned(),
            wal: wal.into(),
            options,
            connection: Some(connection),
            checkpoint_at: CHECKPOINT_BYTES,
            identity,
            rescued: false,
        }
    }

    /// The connection, outside of a transaction.
    pub(crate) async fn connection(&mut self) -> Result<&mut SqliteConnection, Error> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                self.identity.check()?;
                let connection = connect(&self.path, &self.options).await?;
                // Perhaps it is another file that was opened.
                self.identity.check()?;
                connection
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// Begins a transaction that holds the write lock, waiting for another process if need be.
    pub(crate) async fn begin(
        &mut self,
        patience: Duration,
    ) -> Result<&mut SqliteConnection, Error> {
        if let Err(lost) = self.identity.check() {
            self.rescue().await;
            return Err(lost.into());
        }
        let deadline = Instant::now() + patience;
        let connection = self.connection().await?;
        loop {
            match run(connection, "BEGIN IMMEDIATE").await {
                Ok(()) => return Ok(connection),
                Err(e) if Fault::of(&e) == Fault::Busy && Instant::now() < deadline => {
                    tokio::time::sleep(LOCK_POLL).await;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Leaves a transaction without writing, whatever has happened in it.
    pub(crate) async fn roll_back(&mut self) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        match run(&mut connection, "ROLLBACK").await {
            Ok(()) => self.connection = Some(connection),
            // SQLite has rolled back by itself: "no transaction is active".
            Err(e) if codes(&e) == Some((1, 1)) => self.connection = Some(connection),
            Err(e) => {
                tracing::warn!(error = %e, "a roll-back failed; the connection is opened anew");
                // Closing it ends the transaction.
                let _ = connection.close().await;
            }
        }
    }

    /// Brings the write-ahead log into the main file if it has grown. While others read, as much
    /// as possible is done and the rest later.
    pub(crate) async fn checkpoint_if_large(&mut self) {
        let size = self.wal_size();
        if size < CHECKPOINT_BYTES {
            self.checkpoint_at = CHECKPOINT_BYTES;
        } else if size >= self.checkpoint_at {
            self.checkpoint().await;
            self.checkpoint_at = self.wal_size() + CHECKPOINT_BYTES;
        }
    }

    /// Once a file is lost: brings the write-ahead log into the main file that is open, so that this
    /// one holds everything, whatever has become of the log.
    async fn rescue(&mut self) {
        if !self.rescued && self.connection.is_some() {
            self.rescued = true;
            self.checkpoint().await;
        }
    }

    fn wal_size(&self) -> u64 {
        std::fs::metadata(&self.wal).map_or(0, |m| m.len())
    }

    async fn checkpoint(&mut self) {
        let checkpointed = match self.connection().await {
            Ok(connection) => run(connection, "PRAGMA wal_checkpoint(TRUNCATE)").await,
            Err(e) => Err(e),
        };
        if let Err(e) = checkpointed {
            tracing::warn!(error = %e, "a checkpoint failed; it is tried again later");
        }
    }

    /// Brings everything into the main file and closes.
    pub(crate) async fn close(mut self) -> Result<(), Error> {
        self.checkpoint().await;
        match self.connection.take() {
            Some(connection) => connection.close().await,
            None => Ok(()),
        }
    }
}

pub(crate) async fn run(connection: &mut SqliteConnection, sql: &'static str) -> Result<(), Error> {
    sqlx::query(sql).execute(connection).await.map(|_| ())
}
