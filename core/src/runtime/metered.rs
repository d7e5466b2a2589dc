use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures::Stream;

use super::Clock;
use crate::api::{Key, Kind, Object};
use crate::store::{
    Capabilities, Deletion, ListOptions, ListPage, Part, Preconditions, ReadAt, Revision, Store,
    StoreError, WatchEvent, WatchOptions, WatchStream,
};

/// What a store is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`Store::get`].
    Get,
    /// [`Store::list`]: one page.
    List,
    /// [`Store::create`].
    Create,
    /// [`Store::update`] of [`Part::Main`].
    Update,
    /// [`Store::update`] of [`Part::Status`].
    UpdateStatus,
    /// [`Store::delete`].
    Delete,
    /// [`Store::watch`]: until the stream is open, or refused.
    Watch,
    /// [`Store::barrier`].
    Barrier,
}

impl Operation {
    /// As a label of a metric: `get`, `list`, …, `update_status`.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Get => "get",
            Operation::List => "list",
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::UpdateStatus => "update_status",
            Operation::Delete => "delete",
            Operation::Watch => "watch",
            Operation::Barrier => "barrier",
        }
    }
}

/// How long something took, counted in buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// How many took at most [`Durations::BOUNDS`] at the same place; not cumulative. The last one
    /// counts what took longer than all bounds.
    pub buckets: [u64; 15],
    /// All together.
    pub sum: Duration,
}

impl Durations {
    /// The upper bounds of the buckets, in milliseconds: from what a page in memory takes to what
    /// a user no longer waits for.
    pub const BOUNDS: [u64; 14] = [
        1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000,
    ];

    pub(super) fn add(&mut self, taken: Duration) {
        let within = |bound: &u64| taken <= Duration::from_millis(*bound);
        let place = Durations::BOUNDS.iter().position(within);
        if let Some(bucket) = self
            .buckets
            .get_mut(place.unwrap_or(Durations::BOUNDS.len()))
        {
            *bucket += 1;
        }
        self.sum += taken;
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// What a [`MeteredStore`] has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Requests by what was asked and how it was answered: `ok`, [`StoreError::code`], or
    /// `cancelled` if the caller stopped waiting.
    pub requests: BTreeMap<(Operation, &'static str), u64>,
    /// How long the answers took, failed ones too. Those of a watch end when it is open.
    pub durations: BTreeMap<Operation, Durations>,
    /// Watches that are open now.
    pub open_watches: u64,
    /// Items that all watches have delivered, bookmarks included.
    pub watch_events: u64,
    /// Watches that ended with an error, by [`StoreError::code`].
    pub watch_failures: BTreeMap<&'static str, u64>,
}

type Shared = Arc<Mutex<StoreStats>>;

fn record(stats: &Shared, change: impl FnOnce(&mut StoreStats)) {
    change(&mut stats.lock().unwrap_or_else(PoisonError::into_inner));
}

/// A store that counts what another one is asked, and how it answers.
///
/// # Guarantees
/// * Nothing of what passes through is changed, held back or repeated: the contract of the store
///   below is that of this one.
#[derive(Clone)]
pub struct MeteredStore {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    stats: Shared,
}

impl MeteredStore {
    /// Counts what `store` is asked from now on; times are taken from `clock`.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> MeteredStore {
        MeteredStore {
            store,
            clock,
            stats: Shared::default(),
        }
    }

    /// What was seen so far.
    pub fn stats(&self) -> StoreStats {
        let stats = self.stats.lock();
        stats.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn ask<T>(
        &self,
        operation: Operation,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut asked = Asked {
            store: self,
            operation,
            since: self.clock.monotonic(),
            outcome: "cancelled",
        };
        let answer = answer.await;
        asked.outcome = match &answer {
            Ok(_) => "ok",
            Err(e) => e.code(),
        };
        answer
    }
}

/// A request on its way. It is counted when it is dropped, which a caller that stops waiting does too.
struct Asked<'a> {
    store: &'a MeteredStore,
    operation: Operation,
    since: Duration,
    outcome: &'static str,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let taken = self.store.clock.monotonic().saturating_sub(self.since);
        let (operation, outcome) = (self.operation, self.outcome);
        record(&self.store.stats, |stats| {
            *stats.requests.entry((operation, outcome)).or_default() += 1;
            stats.durations.entry(operation).or_default().add(taken);
        });
    }
}

#[async_trait]
impl Store for MeteredStore {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        self.ask(Operation::Get, self.store.get(key, at)).await
    }

    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        let answer = self.store.list(kind, options);
        self.ask(Operation::List, answer).await
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        self.ask(Operation::Create, self.store.create(object)).await
    }

    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        let operation = match part {
            Part::Main => Operation::Update,
            Part::Status => Operation::UpdateStatus,
        };
        self.ask(operation, self.store.update(object, part)).await
    }

    async fn delete(
        &self,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        let answer = self.store.delete(key, preconditions);
        self.ask(Operation::Delete, answer).await
    }

    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        let answer = self.store.watch(kind, options);
        let inner = self.ask(Operation::Watch, answer).await?;
        record(&self.stats, |stats| stats.open_watches += 1);
        Ok(Box::pin(MeteredWatch {
            inner,
            stats: Arc::clone(&self.stats),
        }))
    }

    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        let answer = self.store.barrier(kind);
        self.ask(Operation::Barrier, answer).await
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }
}

struct MeteredWatch {
    inner: WatchStream,
    stats: Shared,
}

impl Stream for MeteredWatch {
    type Item = Result<WatchEvent, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.inner.as_mut().poll_next(context);
        match &polled {
            Poll::Ready(Some(Ok(_))) => record(&self.stats, |stats| stats.watch_events += 1),
            Poll::Ready(Some(Err(e))) => record(&self.stats, |stats| {
                *stats.watch_failures.entry(e.code()).or_default() += 1;
            }),
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }
}

impl Drop for MeteredWatch {
    fn drop(&mut self) {
        record(&self.stats, |stats| stats.open_watches -= 1);
    }
}
