//! The read-only connections.
//!
//! Not the pool of `sqlx`: that one asks the connection's thread for a sign of life whenever a
//! connection comes back, and panics when one comes back outside of a runtime.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ipledger_core::store::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard, Semaphore, SemaphorePermit};

use crate::error::{closed, unavailable};
use crate::identity::Identity;

/// Readers work in parallel with each other and with the writer.
const READERS: usize = 4;

/// How every connection is opened; pragmas come on top.
pub(crate) fn connect_options(path: &Path, busy_timeout: Duration) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(busy_timeout)
        .foreign_keys(true)
        // A page of a listing comes in one piece instead of row by row between two threads.
        .row_buffer_size(1_024)
        .disable_statement_logging()
}

/// A few connections, opened when they are needed.
pub(crate) struct Readers {
    options: SqliteConnectOptions,
    permits: Semaphore,
    slots: [Mutex<Option<SqliteConnection>>; READERS],
    identity: Arc<Identity>,
}

impl Readers {
    pub(crate) fn new(path: &Path, busy_timeout: Duration, identity: Arc<Identity>) -> Readers {
        Readers {
            options: connect_options(path, busy_timeout).read_only(true),
            permits: Semaphore::new(READERS),
            slots: Default::default(),
            identity,
        }
    }

    /// A connection, when one is free. Each statement on it sees everything that was committed
    /// before it began. Whoever gives up while a statement runs does no harm: the next user's
    /// statement waits for its end.
    pub(crate) async fn get(&self) -> Result<Reader<'_>, StoreError> {
        let permit = self.permits.acquire().await.map_err(|_| closed())?;
        self.identity.check()?;
        // As many slots as permits, so one is free.
        let Some(mut slot) = self.slots.iter().find_map(|slot| slot.try_lock().ok()) else {
            return Err(no_slot());
        };
        if slot.is_none() {
            let connected = self.options.connect().await;
            // Perhaps it is another file that was opened.
            self.identity.check()?;
            *slot = Some(connected.map_err(|e| unavailable(self.path(), &e))?);
        }
        Ok(Reader {
            connection: MutexGuard::try_map(slot, Option::as_mut).map_err(|_| no_slot())?,
            _permit: permit,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.options.get_filename()
    }

    /// Waits for the readers at work, and closes.
    pub(crate) async fn close(&self) {
        self.permits.close();
        for slot in &self.slots {
            if let Some(connection) = slot.lock().await.take()
                && let Err(e) = connection.close().await
            {
                tracing::warn!(error = %e, "a reading connection did not close well");
            }
        }
    }
}

fn no_slot() -> StoreError {
    StoreError::Internal {
        reason: "no reading connection is free".to_owned(),
    }
}

/// A borrowed connection.
pub(crate) struct Reader<'a> {
    // Given back before the permit, so that whoever gets the permit finds it.
    connection: MappedMutexGuard<'a, SqliteConnection>,
    _permit: SemaphorePermit<'a>,
}

impl Deref for Reader<'_> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for Reader<'_> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}
