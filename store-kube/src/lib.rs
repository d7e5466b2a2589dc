//! The Store contract on the Kubernetes API (design page 3, "Kubernetes").
//!
//! # Guarantees
//! * No request is repeated by the client: a write is sent once, and after a lost connection, a
//!   time-out or a 5xx answer it is `OutcomeUnknown`.
//! * An object is absent only if the server says so of this object. A kind that is not served (its
//!   CRD is missing) is `Unavailable`, never an empty ledger.
//! * A deletion acts on the uid and the revision that were read.
//! * A watch outlives a lost connection and a restart of the server: it is opened again behind the
//!   last revision that it has delivered. It ends with `Expired` when the server no longer knows
//!   that one. It never gets `TooSlow`.
//! * An overloaded server (429) is left alone for as long as it asks, at most five minutes; those who
//!   waited come back spread over a second. The renewal of a lease waits only if it was refused itself.
//!
//! # Assumptions
//! * The CRDs of ipledger are installed, with their status subresource.
//! * A `resourceVersion` is a number that grows, as Kubernetes promises since 1.35 and has always
//!   kept with etcd.
//!
//! # Caveats
//! * What the schema of a CRD does not know is pruned by the server, whole numbers beyond 64 bits
//!   with sign are rounded, and field selectors work only where the CRD declares them.
//! * A page is in key order, but pages follow each other in the server's order, where namespace
//!   `a-b` comes before `a`.
//! * A watch without events may take two seconds to reach a barrier. One with a selector, whose last
//!   event was none of those that it selects, reaches it with the next write of anything in the
//!   cluster: the server does not tell it before.
//! * `metadata.managedFields` is not shown, and kept.

mod call;
mod events;
mod failure;
mod health;
mod lease;
mod lines;
mod list;
mod options;
mod path;
mod pause;
mod watch;
mod wire;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::runtime::{Election, EventSink};
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, Part, Preconditions, ReadAt, Revision, Store,
    StoreError, WatchOptions, WatchStream,
};
use tokio::sync::watch::Sender;

use crate::call::Caller;
use crate::failure::unavailable;

pub use lease::LeaseOptions;
pub use options::{Cluster, OpenError, Options};

/// What the store and its watches have in common.
struct Inner {
    caller: Caller,
    options: Options,
    /// For each kind, up to where something is known to be committed, which its watches must reach.
    wanted: [Sender<Revision>; Kind::ALL.len()],
    /// For each kind, up to where the server has shown it to a watch of the whole kind; `None` while
    /// there is none.
    shown: [Sender<Option<Revision>>; Kind::ALL.len()],
    closed: Sender<bool>,
    writes: AtomicU64,
}

impl Inner {
    fn wanted(&self, kind: Kind) -> &Sender<Revision> {
        of(kind, &self.wanted)
    }

    fn shown(&self, kind: Kind) -> &Sender<Option<Revision>> {
        of(kind, &self.shown)
    }
}

fn of<T>(kind: Kind, [class, address, claim]: &[T; Kind::ALL.len()]) -> &T {
    match kind {
        Kind::IPAddressClass => class,
        Kind::IPAddress => address,
        Kind::IPAddressClaim => claim,
    }
}

/// A ledger in a Kubernetes cluster. Dropping it ends its watches.
pub struct KubeStore {
    inner: Arc<Inner>,
}

impl KubeStore {
    /// Makes a client of a cluster; whether it answers is not tried. Needs a Tokio runtime, in which
    /// the tasks of the store then run.
    ///
    /// # Errors
    /// `Client`.
    pub fn open(mut config: kube::Config, options: Options) -> Result<KubeStore, OpenError> {
        // The client would send a write again after an answer that does not say that it failed.
        config.default_retry = false;
        // Sooner than a call, so that one which was never sent is known not to have been.
        config.connect_timeout = Some(options.request_timeout * 3 / 4);
        let client = kube::Client::try_from(config).map_err(|e| OpenError::Client(Box::new(e)))?;
        let inner = Inner {
            caller: Caller::new(client, options.request_timeout),
            options,
            wanted: Default::default(),
            shown: Default::default(),
            closed: Sender::new(false),
            writes: AtomicU64::new(0),
        };
        Ok(KubeStore {
            inner: Arc::new(inner),
        })
    }

    /// How this process stands for a lease in the same cluster.
    pub fn election(&self, options: LeaseOptions) -> Arc<dyn Election> {
        Arc::new(lease::Candidate::new(&self.inner, options))
    }

    /// Publishes what becomes of claims as Kubernetes Events of this controller, of which `instance` is
    /// one process; at most 128 characters each. Needs the right to `create` and `patch` `events` of
    /// `events.k8s.io`; without it they are in the log alone.
    pub fn events(&self, controller: &str, instance: &str) -> Arc<dyn EventSink> {
        let reporter = events::Reporter {
            controller: controller.to_owned(),
            instance: instance.to_owned(),
        };
        Arc::new(events::Events::start(Arc::clone(&self.inner), reporter))
    }

    /// Whether the API server answered the last call, and has not just denied a right without which
    /// nothing works; if not, what is wrong.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn health(&self) -> Result<(), String> {
        self.inner.caller.health().check()
    }

    /// Writes of objects that were answered with success since the store was opened.
    pub fn writes(&self) -> u64 {
        self.inner.writes.load(Relaxed)
    }

    /// Counts a write if it was done.
    fn counted<T>(&self, written: Result<T, StoreError>) -> Result<T, StoreError> {
        if written.is_ok() {
            self.inner.writes.fetch_add(1, Relaxed);
        }
        written
    }

    /// Ends the watches; later calls get `Unavailable`.
    pub fn close(&self) {
        self.inner.closed.send_replace(true);
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if *self.inner.closed.borrow() {
            return Err(unavailable("the store is closed".to_owned()));
        }
        Ok(())
    }
}

impl Drop for KubeStore {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl Store for KubeStore {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        self.check_open()?;
        self.inner.get(key, at).await
    }

    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        self.check_open()?;
        self.inner.list(kind, options).await
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        self.check_open()?;
        self.counted(self.inner.create(object).await)
    }

    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        self.check_open()?;
        self.counted(self.inner.update(object, part).await)
    }

    async fn delete(
        &self,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        self.check_open()?;
        self.counted(self.inner.delete(key, preconditions).await)
    }

    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        self.check_open()?;
        self.inner.watch(kind, options).await
    }

    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        self.check_open()?;
        let last = self.inner.committed(kind).await?;
        self.inner.wanted(kind).send_if_modified(|wanted| {
            let higher = last > *wanted;
            *wanted = last.max(*wanted);
            higher
        });
        Ok(last)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "kubernetes",
            durable: true,
            cheap_barrier: false,
            max_object_bytes: self.inner.options.max_object_bytes,
            history_revisions: 0,
            shared: true,
            // Those of `election` are the program's: nothing of the ledger hangs on one.
            leases: false,
            names_unreadable: false,
            selects_any_field: false,
        }
    }
}
