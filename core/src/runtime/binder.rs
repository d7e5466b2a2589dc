use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::{
    BindingPass, Cache, Change, Clock, EventSink, Found, Moment, Pass, Progress, Reconciler,
    Request, Work,
};
use crate::api::{Key, Kind, Resource, ResourceSpec};
use crate::binding::Write;
use crate::mutant::{Mutant, either};
use crate::store::{Deletion, Preconditions, ReadAt, Revision, Store, StoreError, StoreExt};

/// Settings of the binding core.
#[derive(Clone, Copy, Debug)]
pub struct BinderOptions {
    /// How long an address with policy `Delete` that was pre-bound without a uid waits for its
    /// claim to be created; zero means for ever (R4).
    pub grace: Duration,
    /// How long a pass waits for its view to become current.
    pub barrier_timeout: Duration,
}

impl Default for BinderOptions {
    fn default() -> BinderOptions {
        BinderOptions {
            grace: Duration::from_secs(600),
            barrier_timeout: Duration::from_secs(10),
        }
    }
}

/// The binding core as a controller's [`Reconciler`]: it builds views from the cache, lets the
/// pure plans decide, and carries their writes out.
pub struct Binder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    progress: Progress,
    events: Arc<dyn EventSink>,
    options: BinderOptions,
    cache: Mutex<Cache>,
    writes: AtomicU64,
}

impl Binder {
    /// A binding core over a store. `progress` is the one of the controller that runs it.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        progress: Progress,
        events: Arc<dyn EventSink>,
        options: BinderOptions,
    ) -> Binder {
        Binder {
            store,
            clock,
            progress,
            events,
            options,
            cache: Mutex::default(),
            writes: AtomicU64::new(0),
        }
    }

    /// How many writes the binding core has made so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    // The cache is valid after each of its methods, so a poisoned lock is usable.
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self) -> Moment {
        Moment {
            now: self.clock.now(),
            monotonic: self.clock.monotonic(),
            grace: self.options.grace,
        }
    }

    async fn barrier(&self, kind: Kind) -> Result<(), StoreError> {
        let timeout = self.options.barrier_timeout;
        self.progress
            .barrier(&*self.store, kind, &*self.clock, timeout)
            .await
    }

    async fn read(&self, key: &Key) -> Result<Found, StoreError> {
        Ok(match key.kind {
            Kind::IPAddressClass => Found::Class(self.find(key).await?),
            Kind::IPAddress => Found::Address(self.find(key).await?),
            Kind::IPAddressClaim => Found::Claim(self.find(key).await?),
        })
    }

    async fn find<S: ResourceSpec>(
        &self,
        key: &Key,
    ) -> Result<Option<Arc<Resource<S>>>, StoreError> {
        Ok(self
            .store
            .find::<S>(key, ReadAt::Latest)
            .await?
            .map(Arc::new))
    }

    async fn write(&self, write: &Write) -> Result<Revision, StoreError> {
        let (object, part) = match write {
            Write::Claim { object, part } => (object.to_object()?, *part),
            Write::Address { object, part } => (object.to_object()?, *part),
            Write::DeleteAddress { key, preconditions } => {
                let blind = Preconditions::default();
                let preconditions = either(Mutant::DeletesBlindly, preconditions, &blind);
                let gone = self.store.delete(key, preconditions).await?;
                let (Deletion::Finalizing(object) | Deletion::Gone(object)) = gone;
                return Ok(object.revision().unwrap_or_default());
            }
        };
        let stored = self.store.update(object, part).await?;
        Ok(stored.revision().unwrap_or_default())
    }
}

#[async_trait]
impl Reconciler for Binder {
    type Key = Work;

    fn kinds(&self) -> &'static [Kind] {
        &Kind::ALL
    }

    fn observe(&self, change: &Change) -> Vec<Work> {
        self.cache().observe(change)
    }

    async fn reconcile(&self, work: &Work) -> Pass<Work> {
        let mut pass = BindingPass::new(work.clone());
        loop {
            let request = pass.next(&mut self.cache(), self.moment());
            match request {
                Request::Barrier(kind) => match self.barrier(kind).await {
                    Ok(()) => pass.reached(),
                    Err(e) => pass.failed(e),
                },
                Request::Read(key) => match self.read(&key).await {
                    Ok(found) => pass.read(found),
                    Err(e) => pass.failed(e),
                },
                Request::Write(write) => match self.write(&write).await {
                    Ok(revision) => {
                        self.writes.fetch_add(1, Ordering::Relaxed);
                        pass.wrote(revision);
                    }
                    Err(e) => {
                        tracing::debug!(object = %write.key(), error = %e, "a write did not succeed");
                        pass.failed(e);
                    }
                },
                Request::Done(done, events) => {
                    events.iter().for_each(|event| self.events.emit(event));
                    return done;
                }
            }
        }
    }

    fn all_keys(&self) -> Vec<Work> {
        self.cache().all()
    }
}
