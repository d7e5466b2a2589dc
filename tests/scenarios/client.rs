//! The ledger as one process sees it: each of its requests is a step of its own, and the process may
//! die at any of its writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::poll_fn;
use ipledger_core::api::{Key, Kind, Object, Timestamp};
use ipledger_core::runtime::Clock;
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, MemoryStore, Part, Preconditions, ReadAt,
    Revision, Store, StoreError, WatchOptions, WatchStream,
};
use std::task::Poll;

/// How the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Its next write does not reach the ledger.
    BeforeTheWrite,
    /// Its next write is done, and it does not hear the answer.
    BeforeTheAnswer,
}

/// The ledger as one process sees it.
pub struct Client {
    ledger: MemoryStore,
    /// The process waits to be let on with a request, and not for its view.
    pub at_gate: AtomicBool,
    /// After so many more writes it dies like this.
    pub dies: Mutex<Option<(u64, Death)>>,
    pub is_dead: AtomicBool,
    /// What it has written, all lives of the process together.
    pub log: Arc<Mutex<Vec<String>>>,
    /// Each write of these loses its first race, as against another writer.
    pub races: Mutex<Option<Vec<String>>>,
}

impl Client {
    pub fn new(ledger: MemoryStore, log: Arc<Mutex<Vec<String>>>) -> Arc<Client> {
        Arc::new(Client {
            ledger,
            at_gate: AtomicBool::new(false),
            dies: Mutex::new(None),
            is_dead: AtomicBool::new(false),
            log,
            races: Mutex::new(None),
        })
    }

    /// Waits for the scheduler once.
    async fn gate(&self) {
        let mut passed = false;
        poll_fn(|_| {
            if std::mem::replace(&mut passed, true) {
                return Poll::Ready(());
            }
            self.at_gate.store(true, Ordering::Relaxed);
            Poll::Pending
        })
        .await;
    }

    /// Lets a write through, or dies with it; `Ok(true)` if it dies of the answer.
    async fn admit(&self, write: String, key: &Key) -> Result<bool, StoreError> {
        self.gate().await;
        if let Some(lost) = self.races.lock().unwrap().as_mut()
            && !lost.contains(&write)
        {
            lost.push(write);
            return Err(StoreError::Conflict { key: key.clone() });
        }
        let dies = {
            let mut dies = self.dies.lock().unwrap();
            match dies.as_mut() {
                Some((0, death)) => Some(*death),
                Some((left, _)) => {
                    *left -= 1;
                    None
                }
                None => None,
            }
        };
        if dies.is_some() {
            self.is_dead.store(true, Ordering::Relaxed);
        }
        if dies == Some(Death::BeforeTheWrite) {
            std::future::pending::<()>().await;
        }
        self.log.lock().unwrap().push(write);
        Ok(dies.is_some())
    }

    async fn answer<T>(&self, dies: bool, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if dies {
            std::future::pending::<()>().await;
        }
        answer
    }
}

#[async_trait]
impl Store for Client {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        self.gate().await;
        self.ledger.get(key, at).await
    }

    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        self.gate().await;
        self.ledger.list(kind, options).await
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        let key = object.key();
        let dies = self.admit(format!("create {key}"), &key).await?;
        self.answer(dies, self.ledger.create(object).await).await
    }

    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        let key = object.key();
        let dies = self.admit(format!("{part:?} {key}"), &key).await?;
        self.answer(dies, self.ledger.update(object, part).await)
            .await
    }

    async fn delete(
        &self,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        assert!(
            preconditions.uid.is_some() && preconditions.revision.is_some(),
            "a delete says which object it means"
        );
        let dies = self.admit(format!("delete {key}"), key).await?;
        self.answer(dies, self.ledger.delete(key, preconditions).await)
            .await
    }

    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        self.ledger.watch(kind, options).await
    }

    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        self.gate().await;
        self.ledger.barrier(kind).await
    }

    fn capabilities(&self) -> Capabilities {
        self.ledger.capabilities()
    }
}

/// Time that stands still until nothing else can happen.
#[derive(Default)]
pub struct Time(AtomicU64);

impl Time {
    pub fn advance_to(&self, at: Duration) {
        let millis = u64::try_from(at.as_millis()).unwrap() + 1;
        self.0.fetch_max(millis, Ordering::Relaxed);
    }
}

#[async_trait]
impl Clock for Time {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(1_800_000_000 + self.monotonic().as_secs())
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    async fn sleep(&self, duration: Duration) {
        let until = self.monotonic() + duration;
        poll_fn(|_| {
            if self.monotonic() >= until {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}
