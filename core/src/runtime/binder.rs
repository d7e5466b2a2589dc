use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::cache::Around;
use super::{Cache, Change, Clock, EventSink, Next, Pass, Progress, Reconciler};
use crate::api::{Key, Kind, Resource, ResourceSpec};
use crate::binding::{Facts, Need, Plan, Step, Write, address, claim};
use crate::store::{Deletion, ErrorClass, Part, ReadAt, Revision, Store, StoreError, StoreExt};

/// What a pass of the binding core is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// A claim, with the addresses that name it.
    Claim(Key),
    /// An address without a living claim, by object name.
    Address(String),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Claim(key) => key.fmt(f),
            Work::Address(name) => Key::address(name).fmt(f),
        }
    }
}

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

/// What executing a plan gave.
#[derive(Default)]
struct Outcome {
    wrote: Vec<(Kind, Revision)>,
    failure: Option<StoreError>,
    /// Revision of each address object that was written.
    addresses: BTreeMap<String, Revision>,
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

    /// Decides what a pass does, as far as the facts go, and keeps the addresses that it picks
    /// from other passes. `None`: a pick was lost to another pass.
    fn step(
        &self,
        work: &Work,
        facts: &mut Facts,
        asked: &Option<Around>,
    ) -> Option<(Step, Vec<String>)> {
        let mut cache = self.cache();
        if asked.as_ref().is_some_and(|a| *a != cache.around(work)) {
            facts.forget_reads();
        }
        let facts = &*facts;
        let step = match work {
            Work::Claim(key) => self.step_claim(&mut cache, key, facts),
            Work::Address(name) if cache.group_of(name).is_some() => Step::nothing(),
            Work::Address(name) => self.step_address(&mut cache, name, facts),
        };
        let mut picks = Vec::new();
        if let (Step::Do(plan), Work::Claim(key)) = (&step, work) {
            for write in &plan.writes {
                if let Write::Address {
                    object,
                    part: Part::Main,
                } = write
                    && cache.is_free(&object.metadata.name)
                    && object.spec.claim_ref.is_some()
                {
                    picks.push(object.metadata.name.clone());
                    if !cache.pick(&object.metadata.name, key) {
                        picks.pop();
                        for name in &picks {
                            cache.settle_pick(name, None);
                        }
                        return None;
                    }
                }
            }
        }
        Some((step, picks))
    }

    fn step_claim(&self, cache: &mut Cache, key: &Key, facts: &Facts) -> Step {
        match claim::plan(&cache.claim_view(key, facts, self.clock.now())) {
            Step::Do(plan) if plan == Plan::default() => {}
            decided => return decided,
        }
        // Only once the claim itself is settled: most of what its addresses need comes with it.
        let (mut all, mut needs) = (Plan::default(), Vec::new());
        for name in cache.group(key) {
            match self.step_address(cache, &name, facts) {
                Step::Do(plan) => all.extend(plan),
                Step::Need(more) => needs.extend(more),
            }
        }
        if needs.is_empty() {
            Step::Do(all)
        } else {
            Step::Need(needs)
        }
    }

    fn step_address(&self, cache: &mut Cache, name: &str, facts: &Facts) -> Step {
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        match cache.address_view(name, facts, now, monotonic, self.options.grace) {
            Some(view) => address::plan(&view),
            None => Step::nothing(),
        }
    }

    /// Fetches what a decision needs.
    ///
    /// What is read proves something about what was known when it was asked for, and about nothing
    /// that is observed later: `asked` records that state, and once it moves, all is read again.
    async fn prove(
        &self,
        work: &Work,
        needs: Vec<Need>,
        facts: &mut Facts,
        asked: &mut Option<Around>,
    ) -> Result<(), StoreError> {
        for need in &needs {
            if let Need::Barrier(kind) = need {
                let timeout = self.options.barrier_timeout;
                self.progress
                    .barrier(&*self.store, *kind, &*self.clock, timeout)
                    .await?;
                facts.barriers.insert(*kind);
            }
        }
        let around = self.cache().around(work);
        if asked.as_ref().is_some_and(|a| *a != around) {
            facts.forget_reads();
        }
        *asked = Some(around);
        for need in needs {
            match need {
                Need::Barrier(_) => {}
                Need::Read(key) => match key.kind {
                    Kind::IPAddressClaim => {
                        let claim = self.read(&key).await?;
                        facts.claims.insert(key, claim);
                    }
                    Kind::IPAddress => {
                        let address = self.read(&key).await?;
                        facts.addresses.insert(key.name, address);
                    }
                    Kind::IPAddressClass => {
                        let class = self.read(&key).await?;
                        facts.classes.insert(key.name, class);
                    }
                },
            }
        }
        Ok(())
    }

    async fn read<S: ResourceSpec>(
        &self,
        key: &Key,
    ) -> Result<Option<Arc<Resource<S>>>, StoreError> {
        Ok(self
            .store
            .find::<S>(key, ReadAt::Latest)
            .await?
            .map(Arc::new))
    }

    /// Carries a plan out, up to the first failure.
    async fn execute(&self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        let mut revisions = BTreeMap::new();
        for write in &plan.writes {
            match self.write(write, &revisions).await {
                Ok(revision) => {
                    self.writes.fetch_add(1, Ordering::Relaxed);
                    let key = write.key();
                    outcome.wrote.push((key.kind, revision));
                    if key.kind == Kind::IPAddress {
                        outcome.addresses.insert(key.name.clone(), revision);
                    }
                    revisions.insert(key, revision);
                }
                Err(e) => {
                    tracing::debug!(object = %write.key(), error = %e, "a write did not succeed");
                    outcome.failure = Some(e);
                    return outcome;
                }
            }
        }
        for event in &plan.events {
            self.events.emit(event);
        }
        outcome
    }

    async fn write(
        &self,
        write: &Write,
        revisions: &BTreeMap<Key, Revision>,
    ) -> Result<Revision, StoreError> {
        let (mut object, part) = match write {
            Write::Claim { object, part } => (object.to_object()?, *part),
            Write::Address { object, part } => (object.to_object()?, *part),
            Write::DeleteAddress { key, preconditions } => {
                let mut preconditions = preconditions.clone();
                preconditions.revision = revisions.get(key).copied().or(preconditions.revision);
                let gone = self.store.delete(key, &preconditions).await?;
                let (Deletion::Finalizing(object) | Deletion::Gone(object)) = gone;
                return Ok(object.revision().unwrap_or_default());
            }
        };
        if let Some(revision) = revisions.get(&write.key()) {
            object.metadata.resource_version = Some(*revision);
        }
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
        let (mut facts, mut asked) = (Facts::default(), None);
        let mut pass = Pass::settled();
        // Each round proves what the last one asked for; a decision asks for little.
        for _ in 0..8 {
            let Some((step, picks)) = self.step(work, &mut facts, &asked) else {
                pass.next = Next::Again;
                return pass;
            };
            let plan = match step {
                Step::Need(needs) => match self.prove(work, needs, &mut facts, &mut asked).await {
                    Ok(()) => continue,
                    Err(e) => {
                        pass.next = Next::Failed(e.to_string());
                        break;
                    }
                },
                Step::Do(plan) => plan,
            };
            let outcome = self.execute(&plan).await;
            let mut cache = self.cache();
            if let Work::Claim(key) = work {
                for name in &picks {
                    match outcome.addresses.get(name) {
                        Some(at) => pass.wake.extend(cache.settle_pick(name, Some(*at))),
                        None => cache.give_back(name, key),
                    }
                }
                // One that tries again, after a while, keeps its turn: to wake others at once would go
                // round among them as fast as the store refuses, for as long as the view is old.
                let again = |e: &StoreError| e.class() != ErrorClass::Permanent;
                if !outcome.failure.as_ref().is_some_and(again) {
                    pass.wake.extend(cache.passed(key));
                }
            }
            pass.wrote = outcome.wrote;
            pass.next = match (outcome.failure, plan.again_after) {
                (Some(e), _) if e.class() == ErrorClass::Refresh => Next::Again,
                (Some(e), _) => Next::Failed(e.to_string()),
                (None, Some(after)) => Next::After(after),
                (None, None) => Next::Wait,
            };
            return pass;
        }
        if let Work::Claim(key) = work {
            pass.wake.extend(self.cache().passed(key));
        }
        if pass.next == Next::Wait {
            pass.next = Next::Again;
        }
        pass
    }

    fn all_keys(&self) -> Vec<Work> {
        self.cache().all()
    }
}
