//! The Store contract on etcd (design page 3, "etcd"), and on kine, which speaks a part of etcd's
//! protocol over PostgreSQL, MySQL or SQLite.
//!
//! # Guarantees
//! * A write is one compare-and-swap of one key. It is answered when a majority has it on disk.
//! * The revision of an object is etcd's `mod_revision`; that of a deletion is the revision under
//!   which the object was taken away.
//! * A watch outlives a lost connection, a lost leader and a frozen member: it is opened again behind
//!   the last revision that it has delivered. It ends with `Expired` when etcd has compacted that
//!   revision, or was restored to an earlier one. It never gets `TooSlow`.
//! * Reads are linearizable, also those that need not be.
//! * Ledgers under different prefixes do not see each other.
//!
//! # Assumptions
//! * Only this adapter writes under the prefix. What others leave there that is no object is named
//!   as unreadable and hurts nobody.
//! * Somebody compacts etcd (`--auto-compaction-mode`, or the Kubernetes API server that it belongs
//!   to). This adapter does not, because that would be for every user of the cluster, so that it
//!   promises no length of history.
//!
//! # Caveats
//! * After a time-out a write is `OutcomeUnknown`: it may still land. Read the object again and
//!   decide by its uid or [`OPERATION`](ipledger_core::store::rules::OPERATION) annotation; to be
//!   sure that it does not land later, swap the object first.
//! * A watch from the start holds all objects of the kind in memory until they are read.
//! * A deletion is two writes, the second of which is not waited for (see `value.rs`).

mod election;
mod event;
mod failure;
mod import;
mod keys;
mod kv;
mod list;
mod members;
mod open;
mod options;
mod recent;
mod value;
mod watch;
mod write;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::runtime::Election;
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, Part, Preconditions, ReadAt, Revision, Store,
    StoreError, WatchOptions, WatchStream,
};

use crate::failure::unavailable;
use crate::keys::Keys;
use crate::members::Members;
use crate::value::Value;

pub use import::{Import, ImportError};
pub use open::OpenError;
pub use options::{Identity, Options, Tls, User};

/// What speaks the protocol at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Etcd,
    Kine,
}

/// What all watches of a store must hear.
#[derive(Clone, Copy, Debug)]
struct Signal {
    /// Something was committed under this revision, so that a watch before it is behind.
    committed: u64,
    /// The store is closed.
    closed: bool,
}

/// What the store and its watches have in common.
struct Inner {
    options: Options,
    keys: Keys,
    members: Members,
    server: Server,
    recent: recent::Recent,
    signals: tokio::sync::watch::Sender<Signal>,
    /// Of objects, that were committed.
    writes: AtomicU64,
    /// Why the last look at the cluster has failed.
    trouble: Mutex<Option<String>>,
}

/// A ledger in etcd. Dropping it ends its watches.
pub struct EtcdStore {
    inner: Arc<Inner>,
}

impl EtcdStore {
    /// Connects to the cluster. Needs a Tokio runtime, in which the tasks of the store then run.
    ///
    /// # Errors
    /// Whatever is wrong with the options, the cluster or the user, told apart.
    pub async fn open(options: Options) -> Result<EtcdStore, OpenError> {
        let inner = open::open(options).await?;
        tokio::spawn(probe(inner.clone()));
        Ok(EtcdStore { inner })
    }

    /// Ends the watches; later calls get `Unavailable`.
    pub fn close(&self) {
        self.inner.signals.send_modify(|s| s.closed = true);
    }

    /// How a process of this name takes part in the election of the one that leads. On kine all lead.
    ///
    /// A process takes the place of an earlier one of its name at once, so a name must be one of its own.
    pub fn election(&self, name: impl Into<String>) -> Arc<dyn Election> {
        Arc::new(election::Candidate::new(
            Arc::clone(&self.inner),
            name.into(),
        ))
    }

    /// Keeps all others from working on the ledger, so that it can be filled.
    ///
    /// # Errors
    /// A server works on it; the cluster did not do it.
    pub async fn begin_import(&self, name: &str) -> Result<Import, ImportError> {
        Import::begin(Arc::clone(&self.inner), name).await
    }

    /// Who has begun an import that is not complete; the ledger is not to be used then.
    ///
    /// # Errors
    /// `Unavailable`, `Forbidden`.
    pub async fn importing(&self) -> Result<Option<String>, StoreError> {
        let key = Key::cluster(Kind::IPAddressClass, "");
        let importing = self.inner.importing().await;
        importing.map_err(|failure| failure.of_read(&key))
    }

    /// Whether the cluster has answered when it was last looked at, which is done every
    /// [`Options::probe_interval`].
    ///
    /// # Errors
    /// What it said, for people.
    pub fn health(&self) -> Result<(), String> {
        let trouble = self.inner.trouble.lock();
        match &*trouble.unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(reason) => Err(format!(
                "etcd at {} does not work: {reason}",
                self.inner.options.endpoints.join(", ")
            )),
        }
    }

    /// Writes of objects that this store has committed since it was opened.
    pub fn writes(&self) -> u64 {
        self.inner.writes.load(Relaxed)
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.inner.signals.borrow().closed {
            return Err(unavailable("the store is closed".to_owned()));
        }
        Ok(())
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// Tells the watches, now and then, how far they should be by now, and notes whether the cluster works.
async fn probe(inner: Arc<Inner>) {
    let interval: Duration = inner.options.probe_interval;
    let mut signals = inner.signals.subscribe();
    let closed = signals.wait_for(|s| s.closed);
    tokio::select! {
        _ = closed => {}
        () = async {
            loop {
                tokio::time::sleep(interval).await;
                let looked = inner.committed(Kind::IPAddressClass).await;
                let trouble = looked.err().map(failure::Failure::said);
                let mut last = inner.trouble.lock().unwrap_or_else(PoisonError::into_inner);
                match (&*last, &trouble) {
                    (None, Some(reason)) => tracing::warn!(reason, "etcd does not work"),
                    (Some(_), None) => tracing::warn!("etcd works again"),
                    _ => {}
                }
                *last = trouble;
            }
        } => {}
    }
}

impl Inner {
    /// The last revision, which the watches are then asked to reach.
    async fn committed(&self, kind: Kind) -> Result<u64, failure::Failure> {
        let first = self.keys.range(kind, None).first;
        let last = kv::last_revision(&self.members, &first).await?;
        self.signals.send_if_modified(|signal| {
            let higher = last > signal.committed;
            signal.committed = signal.committed.max(last);
            higher
        });
        Ok(last)
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        self.check_open()?;
        let read = kv::get(&self.inner.members, &self.inner.keys.of(key)).await;
        let (raw, last) = read.map_err(|failure| failure.of_read(key))?;
        if let ReadAt::NotOlderThan(revision) = at
            && revision.0 > last
        {
            return Err(unavailable(format!(
                "revision {revision} is not reached yet; the last is {last}"
            )));
        }
        let raw = raw.ok_or_else(|| write::not_found(key))?;
        match Value::read(key, raw.revision, &raw.value) {
            Value::Object(object) => {
                self.inner.recent.put(&object, raw.value.len());
                Ok(Object::clone(&object))
            }
            Value::Gone(_) => Err(write::not_found(key)),
            Value::Unreadable { reason, .. } => Err(value::corrupt(key, &reason)),
        }
    }

    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        self.check_open()?;
        self.inner.list(kind, options).await
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        self.check_open()?;
        self.inner.create(object).await
    }

    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        self.check_open()?;
        self.inner.update(object, part).await
    }

    async fn delete(
        &self,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        self.check_open()?;
        self.inner.delete(key, preconditions).await
    }

    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        self.check_open()?;
        self.inner.watch(kind, options).await
    }

    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        self.check_open()?;
        let last = self.inner.committed(kind).await;
        Ok(Revision(last.map_err(|failure| {
            failure.of_read(&Key::cluster(kind, ""))
        })?))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: match self.inner.server {
                Server::Etcd => "etcd",
                Server::Kine => "kine",
            },
            durable: true,
            cheap_barrier: true,
            max_object_bytes: self.inner.options.max_object_bytes,
            history_revisions: 0,
            shared: true,
            // kine refuses to keep a lease alive.
            leases: self.inner.server == Server::Etcd,
            names_unreadable: true,
            selects_any_field: true,
        }
    }
}
