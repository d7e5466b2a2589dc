//! The store as the core sees it: it counts, and it fails as told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, MemoryStore, Part, Preconditions, ReadAt,
    Revision, Store, StoreError, WatchOptions, WatchStream,
};

/// What happens to the writes of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// This many writes succeed, then none.
    CrashAfter(u64),
    /// The write after this many is applied and its answer is lost; then none succeeds.
    LoseAnswerAfter(u64),
}

/// The store as the core sees it: counts and records its writes, and fails as told.
pub struct Watched {
    pub inner: MemoryStore,
    pub fault: Mutex<Fault>,
    pub writes: Mutex<Vec<(Key, &'static str)>>,
    pub reads: AtomicU64,
    /// Whether the server drops our additions to a claim's status, as one with foreign schemas.
    pub prunes: AtomicBool,
}

impl Watched {
    fn admit(&self, key: &Key, what: &'static str) -> Result<bool, StoreError> {
        let mut writes = self.writes.lock().unwrap();
        let done = writes.len() as u64;
        let fault = *self.fault.lock().unwrap();
        let refused = StoreError::Unavailable {
            reason: "the process died".to_owned(),
        };
        match fault {
            Fault::CrashAfter(n) if done >= n => return Err(refused),
            Fault::LoseAnswerAfter(n) if done > n => return Err(refused),
            _ => {}
        }
        writes.push((key.clone(), what));
        Ok(matches!(fault, Fault::LoseAnswerAfter(n) if done == n))
    }

    fn answer<T>(key: &Key, lost: bool, result: Result<T, StoreError>) -> Result<T, StoreError> {
        match result {
            Ok(_) if lost => Err(StoreError::OutcomeUnknown {
                key: key.clone(),
                reason: "the connection broke".to_owned(),
            }),
            result => result,
        }
    }
}

#[async_trait]
impl Store for Watched {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.get(key, at).await
    }
    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        self.inner.list(kind, options).await
    }
    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        panic!("the core never creates an address: {}", object.key())
    }
    async fn update(&self, mut object: Object, part: Part) -> Result<Object, StoreError> {
        let key = object.key();
        if self.prunes.load(Ordering::Relaxed)
            && let Some(status) = object
                .fields
                .get_mut("status")
                .and_then(|s| s.as_object_mut())
        {
            status.remove("addressText");
            status.remove("lostAddresses");
        }
        let what = match part {
            Part::Main => "main",
            Part::Status => "status",
        };
        let lost = self.admit(&key, what)?;
        Watched::answer(&key, lost, self.inner.update(object, part).await)
    }
    async fn delete(&self, key: &Key, p: &Preconditions) -> Result<Deletion, StoreError> {
        assert!(
            p.uid.is_some() && p.revision.is_some(),
            "a delete says which object it means"
        );
        let lost = self.admit(key, "delete")?;
        Watched::answer(key, lost, self.inner.delete(key, p).await)
    }
    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        self.inner.watch(kind, options).await
    }
    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        self.inner.barrier(kind).await
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}
