//! Stores that are not linearizable, each of which the histories must find out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, MemoryStore, Part, Preconditions, ReadAt,
    Revision, Store, StoreError, WatchOptions, WatchStream,
};
use ipledger_tests::random::Random;
use libtest_mimic::Trial;

use crate::broken_store::{BrokenStore, Fault};
use crate::linear::{Faults, histories};

/// How many histories may pass before it is found out.
const HISTORIES: usize = 500;

#[derive(Clone, Copy, PartialEq)]
enum Lie {
    /// Reads show the state before the last write.
    StaleReads,
    /// Updates are acknowledged and not made.
    LosesUpdates,
    /// Writes are acknowledged before they are made.
    AcknowledgesEarly,
    /// Writes that were made are reported as not made.
    DeniesWrites,
}

/// The in-memory store, which lies now and then.
struct Liar {
    inner: MemoryStore,
    lie: Lie,
    random: Mutex<Random>,
    before: Mutex<BTreeMap<Key, Object>>,
}

impl Liar {
    fn new(lie: Lie) -> Liar {
        Liar {
            inner: MemoryStore::default(),
            lie,
            random: Mutex::new(Random::new(7)),
            before: Mutex::default(),
        }
    }

    fn lies(&self, lie: Lie) -> bool {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        self.lie == lie && random.one_in(6)
    }

    fn denied<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if done.is_ok() && self.lies(Lie::DeniesWrites) {
            let reason = "nothing was written".to_owned();
            return Err(StoreError::Unavailable { reason });
        }
        done
    }
}

#[async_trait]
impl Store for Liar {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        if self.lies(Lie::StaleReads) {
            let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(object) = before.get(key) {
                return Ok(object.clone());
            }
        }
        self.inner.get(key, at).await
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        self.denied(self.inner.create(object).await)
    }

    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        let key = object.key();
        if let Ok(now) = self.inner.get(&key, ReadAt::Latest).await {
            let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            before.insert(key, now);
        }
        let lost = self.lies(Lie::LosesUpdates);
        let early = self.lies(Lie::AcknowledgesEarly);
        if !lost && !early {
            return self.denied(self.inner.update(object, part).await);
        }
        // As it would be answered.
        let mut written = object.clone();
        let revision = object.revision().unwrap_or_default();
        written.metadata.resource_version = Some(Revision(revision.0 + 1));
        if early {
            let inner = self.inner.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                inner.update(object, part).await
            });
        }
        Ok(written)
    }

    async fn delete(
        &self,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        self.denied(self.inner.delete(key, preconditions).await)
    }

    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        self.inner.list(kind, options).await
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

/// A trial for each of them.
pub(crate) fn trials() -> Vec<Trial> {
    let liar = |what, lie| found_out(what, Arc::new(Liar::new(lie)));
    let broken = |what, fault| found_out(what, Arc::new(BrokenStore::new(fault)));
    vec![
        liar("reads_what_is_no_longer_so", Lie::StaleReads),
        liar("loses_updates_that_it_acknowledged", Lie::LosesUpdates),
        liar("acknowledges_before_it_writes", Lie::AcknowledgesEarly),
        liar("says_that_nothing_was_written", Lie::DeniesWrites),
        broken(
            "overwrites_what_the_caller_has_not_seen",
            Fault::IgnoresRevision,
        ),
        broken("creates_over_what_exists", Fault::CreateOverwrites),
        broken(
            "deletes_another_state_than_asked",
            Fault::IgnoresPreconditions,
        ),
    ]
}

fn found_out(what: &str, store: Arc<dyn Store>) -> Trial {
    let name = format!("linear::a_store_is_found_out_that::{what}");
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        match runtime.block_on(histories(vec![store], Faults::default(), 5, HISTORIES)) {
            Err(_) => Ok(()),
            Ok(tally) => Err(format!("all are linearizable: {tally:?}").into()),
        }
    })
}
