//! The store in memory: deterministic (time and uids are injected, everything is ordered), the
//! model that the other backends are tested against, and the ledger of the simulation.
//!
//! A watch has a queue of its own, filled at the moment of the write under the one lock, so that
//! opening a watch and reading history are one step and every watch sees the same order.

mod state;
mod watch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::StreamExt;

use self::state::{State, Stored};
use self::watch::MemoryWatch;
use super::rules::{self, Birth, Outcome};
use super::{
    Capabilities, Deletion, ListOptions, ListPage, Part, Preconditions, ReadAt, Revision, Store,
    StoreError, WatchOptions, WatchStream,
};
use crate::api::{Key, Kind, Object, Timestamp};

/// How many revisions back a watch can start unless [`MemoryStore::with_history`] says otherwise.
const HISTORY: u64 = 10_000;
/// How many events wait for a slow watch unless [`MemoryStore::with_watch_buffer`] says otherwise.
const WATCH_BUFFER: usize = 16_384;
/// Largest object in bytes of JSON, as in etcd.
const MAX_OBJECT_BYTES: usize = 1_536 * 1_024;
/// Where the clock of the default store stands: 2026-01-01T00:00:00Z.
const DEFAULT_NOW: u64 = 1_767_225_600;

/// A ledger in memory. A clone is another client of the same ledger.
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    uids: Arc<dyn Fn() -> String + Send + Sync>,
    max_object_bytes: usize,
}

impl Default for MemoryStore {
    /// A store whose clock stands still and whose uids count up from
    /// `00000000-0000-4000-8000-000000000001`.
    fn default() -> MemoryStore {
        let last = AtomicU64::new(0);
        MemoryStore::new(
            || Timestamp::from_unix(DEFAULT_NOW),
            move || {
                let n = last.fetch_add(1, Ordering::Relaxed) + 1;
                format!("00000000-0000-4000-8000-{n:012}")
            },
        )
    }
}

impl MemoryStore {
    /// An empty store that takes time and uids from these functions. No uid may be given twice.
    pub fn new(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        uids: impl Fn() -> String + Send + Sync + 'static,
    ) -> MemoryStore {
        MemoryStore {
            state: Arc::new(Mutex::new(State::new(HISTORY, WATCH_BUFFER))),
            now: Arc::new(now),
            uids: Arc::new(uids),
            max_object_bytes: MAX_OBJECT_BYTES,
        }
    }

    /// Keeps the history of this many revisions.
    pub fn with_history(self, revisions: u64) -> MemoryStore {
        self.change(|state| state.keep_history(revisions));
        self
    }

    /// Cuts a watch off that has this many events waiting when one more comes.
    pub fn with_watch_buffer(self, events: usize) -> MemoryStore {
        self.change(|state| state.watch_buffer = events);
        self
    }

    /// Refuses objects with more bytes of JSON than this.
    pub fn with_max_object_bytes(mut self, bytes: usize) -> MemoryStore {
        self.max_object_bytes = bytes;
        self
    }

    /// Forgets the history up to and with this revision (at most the current one): older watches
    /// and continue tokens get `Expired`. Open watches go on.
    pub fn compact(&self, revision: Revision) {
        self.change(|state| state.compact(revision.0));
    }

    /// Moves the revision on without a write, as a restored backup does.
    pub fn advance_to(&self, revision: Revision) {
        self.change(|state| state.revision = state.revision.max(revision.0));
    }

    /// Ends every open watch at once; what it had not delivered must be asked for again.
    pub fn break_watches(&self) {
        self.change(|state| state.watchers.end_all());
    }

    /// Sends a bookmark with the current revision to every open watch that has not got one of it.
    pub fn bookmark_all(&self) {
        self.change(|state| state.watchers.bookmark_all(state.revision));
    }

    /// Stores something under this key that is no object, as a damaged disk or a foreign writer
    /// would, and returns the revision of that write. An object that was there keeps its uid.
    pub fn inject_unreadable(&self, key: &Key, reason: &str) -> Revision {
        let uid = (self.uids)();
        self.change(|state| state.inject_unreadable(key, uid, reason))
    }

    /// Works on the state, then wakes the watches that got something: a waker may run code that
    /// takes the lock again.
    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let (result, due) = {
            let mut state = self.lock();
            let result = act(&mut state);
            (result, state.watchers.take_due())
        };
        due.into_iter().for_each(std::task::Waker::wake);
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_found(key: &Key) -> StoreError {
    StoreError::NotFound { key: key.clone() }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        let state = self.lock();
        if let ReadAt::NotOlderThan(revision) = at {
            state.check_reached(revision)?;
        }
        let stored = state.objects.get(key).ok_or_else(|| not_found(key))?;
        Ok(Object::clone(stored.readable(key)?))
    }

    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        self.lock().list(kind, options)
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        let birth = Birth {
            uid: (self.uids)(),
            now: (self.now)(),
        };
        let key = object.key();
        let object = rules::create(object, birth)?;
        rules::check_size(&object, self.max_object_bytes)?;
        self.change(|state| match state.objects.get(&key) {
            Some(Stored::Object(current)) => Err(rules::already_exists(key, current)),
            Some(Stored::Unreadable { uid, .. }) => Err(StoreError::AlreadyExists {
                uid: uid.clone(),
                operation: None,
                key,
            }),
            None => Ok(state.write(object)),
        })
    }

    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        let key = object.key();
        self.change(|state| {
            let stored = state.objects.get(&key).ok_or_else(|| not_found(&key))?;
            let current = stored.readable(&key)?;
            match rules::update(current, object, part)? {
                Outcome::Unchanged => Ok(Object::clone(current)),
                Outcome::Write(next) => {
                    rules::check_size(&next, self.max_object_bytes)?;
                    Ok(state.write(next))
                }
                Outcome::Remove(last) => Ok(state.remove(last)),
            }
        })
    }

    async fn delete(
        &self,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        let now = (self.now)();
        self.change(|state| {
            let stored = state.objects.get(key).ok_or_else(|| not_found(key))?;
            let current = match stored {
                Stored::Object(current) => current,
                Stored::Unreadable { uid, revision, .. } => {
                    rules::check_preconditions(key, uid, Some(*revision), preconditions)?;
                    let last = rules::remains(key, uid);
                    return Ok(Deletion::Gone(state.remove(last)));
                }
            };
            Ok(match rules::delete(current, preconditions, now)? {
                Outcome::Unchanged => Deletion::Finalizing(Object::clone(current)),
                // Not measured: an object at the limit must be deletable.
                Outcome::Write(marked) => Deletion::Finalizing(state.write(marked)),
                Outcome::Remove(last) => Deletion::Gone(state.remove(last)),
            })
        })
    }

    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        let id = self.lock().watch(kind, options)?;
        Ok(MemoryWatch::new(self.state.clone(), id).boxed())
    }

    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        // A watch with a filter has perhaps not heard of the last event; it does now.
        Ok(self.change(|state| {
            let last = state.last_event(kind);
            state.watchers.bookmark(kind, last);
            Revision(last)
        }))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "memory",
            durable: false,
            cheap_barrier: true,
            max_object_bytes: self.max_object_bytes,
            history_revisions: self.lock().history,
            shared: false,
            leases: false,
            names_unreadable: true,
            selects_any_field: true,
        }
    }
}
