//! The Store contract in one SQLite file (design page 3, "SQLite").
//!
//! # Guarantees
//! * A write is answered when it is on disk (WAL, `synchronous=FULL`). Writes that wait at the same
//!   time share one transaction and one sync; each still succeeds or fails alone.
//! * A caller that gives up cannot disturb a transaction.
//! * Several processes may work on one file: each sees the watch events of the others.
//! * When the file is deleted or replaced while it is open, everything gets `Unavailable` from then
//!   on; see [`SqliteStore::health`].
//! * A watch is cut off only when it has fallen behind the history that is kept (`Expired`); it
//!   never gets `TooSlow`, because it keeps no queue.
//!
//! # Assumptions
//! * The file is on a local volume. SQLite's locks do not work on most network file systems.
//!
//! # Caveats
//! * When even the COMMIT fails with an I/O error, the answer is `OutcomeUnknown`: the commit record
//!   may be in the file.

mod backup;
mod batch;
mod compact;
mod error;
mod event;
mod feed;
mod identity;
mod jump;
mod list;
mod open;
mod options;
mod poll;
mod prepare;
mod read;
mod readers;
mod schema;
mod session;
mod shared;
mod span;
mod upgrade;
mod watch;
mod writer;

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, Part, Preconditions, ReadAt, Revision, Store,
    StoreError, WatchOptions, WatchStream,
};
use sqlx::ConnectOptions as _;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::batch::{Done, Request};
use crate::feed::Feed;
use crate::identity::Identity;
use crate::readers::{Readers, connect_options};
use crate::session::Session;
use crate::shared::{Shared, apart};
use crate::writer::{Command, Reply, Writer};

pub use backup::{Copied, CopyError, backup, restore};
pub use open::OpenError;
pub use options::{Options, Stats};

/// A ledger in one SQLite file. Dropping it ends its tasks and watches; [`SqliteStore::close`] does
/// so in order.
pub struct SqliteStore {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Command>,
    /// Until it is closed.
    poller: Mutex<Option<JoinHandle<()>>>,
}

impl SqliteStore {
    /// Opens the file at `path`, creating it (for this user only) if it does not exist. Needs a
    /// Tokio runtime, in which the tasks of the store then run.
    ///
    /// # Errors
    /// Whatever is wrong with the file, told apart; it is then as it was before.
    pub async fn open(path: &Path, options: &Options) -> Result<SqliteStore, OpenError> {
        let opened = open::open(path, options).await?;
        let path = opened.path;
        let identity = Identity::of(&path).map_err(|e| open::io_failure(&path, &e))?;
        let identity = Arc::new(identity);
        let poller = connect_options(&path, options.busy_timeout)
            .read_only(true)
            .connect()
            .await;
        let poller = poller.map_err(|e| open::failure(&path, &e))?;
        let shared = Arc::new(Shared {
            options: options.clone(),
            readers: Readers::new(&path, options.busy_timeout, identity.clone()),
            feed: Feed::new(opened.revision),
            stats: options::Counters::default(),
            identity: identity.clone(),
        });
        let (queue, commands) = mpsc::channel(writer::QUEUE);
        let session = Session::new(&path, options.clone(), opened.writer, identity);
        let writer = Writer::new(shared.clone(), session, commands, opened.revision);
        tokio::spawn(writer.run());
        let poller = tokio::spawn(poll::run(shared.clone(), poller));
        Ok(SqliteStore {
            shared,
            queue,
            poller: Mutex::new(Some(poller)),
        })
    }

    /// Ends the watches, finishes the writes that wait, brings everything into the main file and
    /// closes it. Later calls get `Unavailable`.
    ///
    /// # Errors
    /// `Unavailable` if the file cannot be closed in order. Nothing is lost then either.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.shared.feed.close();
        self.shared.readers.close().await;
        let poller = self
            .poller
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(poller) = poller {
            // It fails only when the runtime ends anyway.
            let _ = poller.await;
        }
        // Last, because the last one to close clears the files beside the main one away.
        self.send(Command::Close).await
    }

    /// Forgets the history up to and with this revision (at most the current one), and returns the
    /// revision after which the history then starts. Older watches and continue tokens get
    /// `Expired`.
    ///
    /// # Errors
    /// `Unavailable`; a part may then be forgotten.
    pub async fn compact_to(&self, revision: Revision) -> Result<Revision, StoreError> {
        self.send(|reply| Command::Compact(revision, reply)).await
    }

    /// Whether the database file is still the one that was opened. Once it was deleted or replaced,
    /// watches end and every call gets `Unavailable`, until the process is started again.
    ///
    /// # Errors
    /// What happened and what to do, for people.
    pub fn health(&self) -> Result<(), String> {
        self.shared.identity.known().map_err(|lost| lost.0)
    }

    /// What the store has done since it was opened.
    pub fn stats(&self) -> Stats {
        let stats = &self.shared.stats;
        Stats {
            writes: stats.writes.load(Relaxed),
            commits: stats.commits.load(Relaxed),
            events_compacted: stats.events_compacted.load(Relaxed),
            compaction_failures: stats.compaction_failures.load(Relaxed),
        }
    }

    async fn write(&self, request: Request) -> Result<Done, StoreError> {
        let key = request.key();
        let (reply, answer) = oneshot::channel();
        let sent = self
            .queue
            .send(Command::Write(Box::new(request), reply))
            .await;
        sent.map_err(|_| error::closed())?;
        // The writer ends without an answer only together with the runtime.
        answer.await.unwrap_or_else(|_| {
            Err(StoreError::OutcomeUnknown {
                key,
                reason: "the store has ended before it answered".to_owned(),
            })
        })
    }

    async fn send<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.queue
            .send(command(reply))
            .await
            .map_err(|_| error::closed())?;
        answer.await.unwrap_or_else(|_| Err(error::closed()))
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.shared.feed.close();
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        apart(self.shared.clone().get(key.clone(), at)).await
    }

    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        apart(list::list(self.shared.clone(), kind, options.clone())).await
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        Ok(self.write(Request::Create(object)).await?.object)
    }

    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        Ok(self.write(Request::Update(object, part)).await?.object)
    }

    async fn delete(
        &self,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        let done = self
            .write(Request::Delete(key.clone(), preconditions.clone()))
            .await?;
        Ok(if done.gone {
            Deletion::Gone(done.object)
        } else {
            Deletion::Finalizing(done.object)
        })
    }

    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        apart(watch::open(self.shared.clone(), kind, options.clone())).await
    }

    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        apart(self.shared.clone().barrier(kind)).await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "sqlite",
            durable: true,
            cheap_barrier: true,
            max_object_bytes: self.shared.options.max_object_bytes,
            history_revisions: self.shared.options.history_min_revisions,
            shared: true,
            leases: false,
            names_unreadable: true,
            selects_any_field: true,
        }
    }
}
