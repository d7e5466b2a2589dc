//! The stores that wrap another one, over the in-memory store: what holds for the inner one holds
//! for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ipledger_core::api::{Key, Timestamp};
use ipledger_core::runtime::{Clock, MeteredStore};
use ipledger_core::store::{Revision, Store};
use ipledger_tests::random::Random;

use crate::backend::{Backend, Hooks};
use crate::linear_faults::Connection;
use crate::memory::Memory;

/// A wrapper, and the name under which its cases run.
pub(crate) struct Wrapped {
    name: &'static str,
    wrap: fn(Arc<dyn Store>) -> Arc<dyn Store>,
}

/// Counts requests and times.
pub(crate) const METERED: Wrapped = Wrapped {
    name: "metered",
    wrap: |store| {
        Arc::new(MeteredStore::new(
            store,
            Arc::new(RealClock(Instant::now())),
        ))
    },
};

/// The connection of the fault tests, without faults: every request and answer is late.
pub(crate) const LATE: Wrapped = Wrapped {
    name: "late",
    wrap: |store| Arc::new(Connection::new(store, Random::new(7), 0)),
};

#[async_trait]
impl Backend for Wrapped {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn fresh(&self) -> Box<dyn Hooks> {
        let inner = Memory.fresh().await;
        let store = (self.wrap)(inner.store());
        let wrap = self.wrap;
        Box::new(WrappedHooks { inner, store, wrap })
    }
}

struct WrappedHooks {
    inner: Box<dyn Hooks>,
    store: Arc<dyn Store>,
    wrap: fn(Arc<dyn Store>) -> Arc<dyn Store>,
}

#[async_trait]
impl Hooks for WrappedHooks {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn watch_buffer(&self) -> usize {
        self.inner.watch_buffer()
    }

    async fn compact(&self, revision: Revision) -> Option<()> {
        self.inner.compact(revision).await
    }

    async fn jump(&mut self, to: Revision) {
        self.inner.jump(to).await;
    }

    async fn break_watches(&mut self) {
        self.inner.break_watches().await;
    }

    async fn damage(&self, key: &Key) -> Option<()> {
        self.inner.damage(key).await
    }

    async fn second_client(&self) -> Option<Arc<dyn Store>> {
        self.inner.second_client().await.map(self.wrap)
    }

    async fn restart(&mut self) -> Option<()> {
        self.inner.restart().await
    }
}

struct RealClock(Instant);

#[async_trait]
impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(0)
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
