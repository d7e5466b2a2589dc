//! A store with faults: answers that get lost, writes that are refused, a watch that lags.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, MemoryStore, Part, Preconditions, ReadAt,
    Revision, Store, StoreError, WatchOptions, WatchStream,
};
use tokio::sync::watch;

/// A write that a driver or a test is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    Create(Kind),
    Update(Kind, Part),
}

/// What happens to a write.
pub enum Fault {
    /// It is done, and the answer is lost.
    LoseAnswer,
    /// The answer is lost, and it is done so much later.
    ApplyLate(Duration),
    /// It is not done.
    Refuse(StoreError),
}

type Plan = Box<dyn FnMut(Write, &Key) -> Option<Fault> + Send>;

#[derive(Clone, Default)]
pub struct FaultyStore {
    pub inner: MemoryStore,
    plan: Arc<Mutex<Option<Plan>>>,
    lag: Arc<Mutex<Duration>>,
    held: Arc<watch::Sender<Option<Kind>>>,
    broken: Arc<watch::Sender<u64>>,
    writes: Arc<AtomicU64>,
}

impl FaultyStore {
    /// From now on, writes meet these faults.
    pub fn plan(&self, plan: impl FnMut(Write, &Key) -> Option<Fault> + Send + 'static) {
        *self.plan.lock().unwrap() = Some(Box::new(plan));
    }

    /// Watches that are opened from now on deliver each event so much later than the one before.
    pub fn lag(&self, lag: Duration) {
        *self.lag.lock().unwrap() = lag;
    }

    /// Open watches of this kind deliver nothing until they are released.
    pub fn hold_watches_of(&self, kind: Kind) {
        self.held.send_replace(Some(kind));
    }

    pub fn release_watches(&self) {
        self.held.send_replace(None);
    }

    /// Ends all watches, undelivered events included, and forgets the history.
    pub fn restart_watches(&self) {
        self.inner.compact(Revision(u64::MAX));
        self.inner.break_watches();
        self.broken.send_modify(|count| *count += 1);
        self.release_watches();
    }

    /// How many writes have changed something.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    fn fault(&self, write: Write, key: &Key) -> Option<Fault> {
        self.plan
            .lock()
            .unwrap()
            .as_mut()
            .and_then(|plan| plan(write, key))
    }

    async fn write(&self, write: Write, object: Object) -> Result<Object, StoreError> {
        let key = object.key();
        let lost = |key: Key| StoreError::OutcomeUnknown {
            key,
            reason: "the answer was lost".to_owned(),
        };
        match self.fault(write, &key) {
            None => self.apply(write, object).await,
            Some(Fault::Refuse(error)) => Err(error),
            Some(Fault::LoseAnswer) => {
                let _ = self.apply(write, object).await;
                Err(lost(key))
            }
            Some(Fault::ApplyLate(delay)) => {
                let store = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    let _ = store.apply(write, object).await;
                });
                Err(lost(key))
            }
        }
    }

    async fn apply(&self, write: Write, object: Object) -> Result<Object, StoreError> {
        let before = object.revision();
        let stored = match write {
            Write::Create(_) => self.inner.create(object).await?,
            Write::Update(_, part) => self.inner.update(object, part).await?,
        };
        if stored.revision() != before {
            self.writes.fetch_add(1, Ordering::SeqCst);
        }
        Ok(stored)
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        self.inner.get(key, at).await
    }

    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        self.inner.list(kind, options).await
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        self.write(Write::Create(object.kind), object).await
    }

    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        self.write(Write::Update(object.kind, part), object).await
    }

    async fn delete(
        &self,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.inner.delete(key, preconditions).await
    }

    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        let lag = *self.lag.lock().unwrap();
        let held = self.held.subscribe();
        let mut broken = self.broken.subscribe();
        let stream = self.inner.watch(kind, options).await?;
        let late = stream.then(move |event| {
            let mut held = held.clone();
            async move {
                if !lag.is_zero() {
                    tokio::time::sleep(lag).await;
                }
                let _ = held.wait_for(|held| *held != Some(kind)).await;
                event
            }
        });
        let late = late.take_until(async move { drop(broken.changed().await) });
        Ok(late.boxed())
    }

    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        self.inner.barrier(kind).await
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}
