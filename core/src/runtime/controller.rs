use std::any::Any;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

use super::reflector::{Reflector, Sink};
use super::{Change, Clock, Listing, Mirror, Next, Pass, Progress, Reconciler, WorkQueue};
use crate::api::Kind;
use crate::store::{Store, StoreError, WatchEvent};

/// How a controller works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerOptions {
    /// Passes at once, at least one.
    pub workers: usize,
    /// How often every key gets a pass although nothing has changed: a safety net. `None`: never.
    pub resync: Option<Duration>,
    /// How long [`Controller::barrier`] waits for the watch.
    pub barrier_timeout: Duration,
}

impl Default for ControllerOptions {
    fn default() -> ControllerOptions {
        ControllerOptions {
            // Most of a pass is waiting for the store. With half as many, claims that come as fast as an
            // API server takes them from 16 callers outran the binding: p99 16 s for 10,000 where it is 2 s.
            workers: 128,
            resync: Some(Duration::from_secs(600)),
            barrier_timeout: Duration::from_secs(30),
        }
    }
}

/// What a controller has done since it was made, and where it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerStats {
    /// Passes that were finished, however they ended.
    pub passes: u64,
    /// Passes that failed.
    pub failures: u64,
    /// Passes that lost a race and were repeated.
    pub conflicts: u64,
    /// Passes that only the periodic resync had asked for and that wrote something. More than
    /// zero says that a change went unnoticed.
    pub resync_found_work: u64,
    /// Keys that are ready for a pass.
    pub queue_length: usize,
    /// Whether every kind has been listed once.
    pub synced: bool,
}

#[derive(Default)]
struct Counters {
    passes: AtomicU64,
    failures: AtomicU64,
    conflicts: AtomicU64,
    resync_found_work: AtomicU64,
}

/// Why a controller ended although nobody stopped it. Both are faults of ipledger; the process
/// should end and be started again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A pass panicked.
    #[error("controller {controller}: the pass over {key} panicked: {message}")]
    PassPanicked {
        /// The controller's name.
        controller: String,
        /// The key of the pass.
        key: String,
        /// What the panic said.
        message: String,
    },
    /// A task of the controller ended.
    #[error("controller {controller}: a task ended that never should: {reason}")]
    TaskEnded {
        /// The controller's name.
        controller: String,
        /// How it ended.
        reason: String,
    },
}

/// Runs a [`Reconciler`] over a store: follows its kinds, queues the keys that changes concern and
/// carries out passes. What it promises to the reconciler stands there.
///
/// # Guarantees
/// * It does nothing before each kind was listed.
/// * A stop lets the passes in work finish and starts no new one.
/// * Dropping the future of [`run`](Self::run) ends everything that it has started.
///
/// # Assumptions
/// * It is run once, within a tokio runtime.
pub struct Controller<R: Reconciler> {
    name: String,
    store: Arc<dyn Store>,
    reconciler: Arc<R>,
    clock: Arc<dyn Clock>,
    progress: Progress,
    options: ControllerOptions,
    /// Held while its changes are observed, so that they are observed in order. Taken before `desk`.
    mirror: Mutex<Mirror>,
    desk: Mutex<Desk<R::Key>>,
    /// Wakes the one task that hands out keys.
    desk_changed: Notify,
    counters: Counters,
}

/// The queue, and which of its keys nothing but a resync has asked for.
struct Desk<K> {
    queue: WorkQueue<K>,
    resynced: BTreeSet<K>,
}

/// A pass that has come to its end, one way or the other.
struct Finished<K> {
    key: K,
    from_resync: bool,
    result: Result<Pass<K>, Box<dyn Any + Send>>,
}

impl<R: Reconciler> Controller<R> {
    /// A controller that is not running yet. `progress` may be given to the reconciler, too.
    pub fn new(
        name: impl Into<String>,
        store: Arc<dyn Store>,
        reconciler: Arc<R>,
        clock: Arc<dyn Clock>,
        progress: Progress,
        options: ControllerOptions,
    ) -> Arc<Controller<R>> {
        Arc::new(Controller {
            name: name.into(),
            store,
            reconciler,
            clock,
            progress,
            options,
            mirror: Mutex::new(Mirror::new()),
            desk: Mutex::new(Desk {
                queue: WorkQueue::new(),
                resynced: BTreeSet::new(),
            }),
            desk_changed: Notify::new(),
            counters: Counters::default(),
        })
    }

    /// Works until `shutdown` is ready and the passes in work are finished.
    ///
    /// # Errors
    /// A pass or an observer panicked. It is logged, and the other passes in work are finished.
    pub async fn run(
        self: Arc<Self>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ControllerError> {
        let mut reflectors = JoinSet::new();
        for kind in self.reconciler.kinds() {
            let reflector = Reflector {
                store: Arc::clone(&self.store),
                clock: Arc::clone(&self.clock),
                kind: *kind,
                sink: Arc::clone(&self),
            };
            reflectors.spawn(reflector.run());
        }
        let mut passes = JoinSet::new();
        let mut result = self
            .hand_out(pin!(shutdown), &mut reflectors, &mut passes)
            .await;
        // The reflectors go on meanwhile: a pass may be waiting for a barrier.
        while let Some(joined) = passes.join_next().await {
            result = result.and(self.finish(joined));
        }
        reflectors.shutdown().await;
        if let Err(error) = &result {
            tracing::error!(controller = %self.name, %error, "the controller has ended");
        }
        result
    }

    /// Hands out keys until the stop or a panic.
    async fn hand_out(
        self: &Arc<Self>,
        mut shutdown: Pin<&mut (impl Future<Output = ()> + Send)>,
        reflectors: &mut JoinSet<Infallible>,
        passes: &mut JoinSet<Finished<R::Key>>,
    ) -> Result<(), ControllerError> {
        let workers = self.options.workers.max(1);
        let mut next_resync = None;
        loop {
            let now = self.clock.monotonic();
            let mut wake_at = None;
            if self.is_synced() {
                next_resync = self.resync_if_due(next_resync, now);
                while passes.len() < workers {
                    let Some((key, from_resync)) = self.desk().next(now) else {
                        break;
                    };
                    passes.spawn(Arc::clone(self).pass(key, from_resync));
                }
                // With all workers busy, whatever becomes due has to wait for one of them anyway.
                let due = self
                    .desk()
                    .queue
                    .next_deadline()
                    .filter(|_| passes.len() < workers);
                wake_at = due.into_iter().chain(next_resync).min();
            }
            let wake_up = async {
                match wake_at {
                    Some(at) => self.clock.sleep(at.saturating_sub(now)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                Some(ended) = reflectors.join_next() => return Err(self.task_ended(ended)),
                Some(joined) = passes.join_next() => self.finish(joined)?,
                () = self.desk_changed.notified() => {}
                () = wake_up => {}
            }
        }
    }

    async fn pass(self: Arc<Self>, key: R::Key, from_resync: bool) -> Finished<R::Key> {
        // The panic is caught so that its key is known; the reconciler is not used any more then.
        let result = AssertUnwindSafe(self.reconciler.reconcile(&key))
            .catch_unwind()
            .await;
        Finished {
            key,
            from_resync,
            result,
        }
    }

    /// Books what a pass did and gives its key back.
    fn finish(&self, joined: Result<Finished<R::Key>, JoinError>) -> Result<(), ControllerError> {
        let Finished {
            key,
            from_resync,
            result,
        } = joined.map_err(|e| self.task_ended(Err(e)))?;
        let pass = result.map_err(|panic| ControllerError::PassPanicked {
            controller: self.name.clone(),
            key: key.to_string(),
            message: message_of(&*panic),
        })?;
        count(&self.counters.passes);
        if from_resync && !pass.wrote.is_empty() {
            count(&self.counters.resync_found_work);
            tracing::warn!(controller = %self.name, %key, "a resync found work: a change went unnoticed");
        }
        let now = self.clock.monotonic();
        let mut desk = self.desk();
        let wait = desk.queue.book(&key, &pass, self.reconciler.kinds(), now);
        match &pass.next {
            Next::Wait | Next::After(_) => {}
            Next::Again => {
                count(&self.counters.conflicts);
                tracing::debug!(controller = %self.name, %key, ?wait, "overtaken, again");
            }
            Next::Failed(reason) => {
                count(&self.counters.failures);
                tracing::warn!(controller = %self.name, %key, %reason, ?wait, "a pass failed, again");
            }
        }
        for other in &pass.wake {
            desk.add(other);
        }
        Ok(())
    }

    /// Adds all keys when it is time to; returns when it is time again.
    fn resync_if_due(&self, due: Option<Duration>, now: Duration) -> Option<Duration> {
        let interval = self.options.resync?;
        match due {
            Some(at) if at > now => return due,
            Some(_) => {
                let keys = self.reconciler.all_keys();
                let mut desk = self.desk();
                for key in &keys {
                    desk.add_for_resync(key);
                }
            }
            None => {}
        }
        Some(now.saturating_add(interval))
    }

    fn observe(&self, changes: &[Change]) {
        for change in changes {
            let keys = self.reconciler.observe(change);
            let mut desk = self.desk();
            for key in &keys {
                desk.add(key);
            }
        }
    }

    /// What the mirror has of this kind was observed: keys that rested for it are free, and
    /// readers that wait for it go on.
    fn reached(&self, kind: Kind, mirror: &Mirror) {
        let revision = mirror.reached(kind);
        self.desk().queue.reached(kind, revision);
        self.progress.advance(kind, revision);
        self.desk_changed.notify_one();
    }

    /// Returns when every kind has been listed once and its objects were observed.
    pub async fn wait_synced(&self) {
        self.progress.synced(self.reconciler.kinds()).await;
    }

    /// Whether every kind was listed and nothing is to be done now; see [`WorkQueue::is_idle`].
    /// What the store has not delivered yet is not known here: take a [`barrier`](Self::barrier)
    /// first.
    pub fn is_idle(&self) -> bool {
        self.is_synced() && self.desk().queue.is_idle()
    }

    /// Returns when everything of the kind that was committed before the call was observed.
    ///
    /// # Errors
    /// As [`Progress::barrier`].
    pub async fn barrier(&self, kind: Kind) -> Result<(), StoreError> {
        self.progress
            .barrier(
                &*self.store,
                kind,
                &*self.clock,
                self.options.barrier_timeout,
            )
            .await
    }

    /// What it has done and where it stands.
    pub fn stats(&self) -> ControllerStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ControllerStats {
            passes: read(&self.counters.passes),
            failures: read(&self.counters.failures),
            conflicts: read(&self.counters.conflicts),
            resync_found_work: read(&self.counters.resync_found_work),
            queue_length: self.desk().queue.len(),
            synced: self.is_synced(),
        }
    }

    fn is_synced(&self) -> bool {
        self.progress.is_synced(self.reconciler.kinds())
    }

    fn task_ended(&self, ended: Result<Infallible, JoinError>) -> ControllerError {
        let reason = match ended {
            Ok(never) => match never {},
            Err(error) => match error.try_into_panic() {
                Ok(panic) => format!("it panicked: {}", message_of(&*panic)),
                Err(cancelled) => cancelled.to_string(),
            },
        };
        ControllerError::TaskEnded {
            controller: self.name.clone(),
            reason,
        }
    }

    fn mirror(&self) -> MutexGuard<'_, Mirror> {
        self.mirror.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn desk(&self) -> MutexGuard<'_, Desk<R::Key>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Reconciler> Sink for Controller<R> {
    fn replace(&self, kind: Kind, listing: Listing) {
        let mut mirror = self.mirror();
        let changes = mirror.replace(kind, listing);
        self.observe(&changes);
        self.reached(kind, &mirror);
    }

    fn event(&self, kind: Kind, event: &WatchEvent) {
        let mut mirror = self.mirror();
        let changes = mirror.apply(kind, event);
        self.observe(&changes);
        self.reached(kind, &mirror);
    }
}

impl<K: Ord + Clone> Desk<K> {
    fn add(&mut self, key: &K) {
        self.resynced.remove(key);
        self.queue.add(key);
    }

    /// A key that is known anyway has another reason for its next pass.
    fn add_for_resync(&mut self, key: &K) {
        if !self.queue.is_known(key) {
            self.resynced.insert(key.clone());
        }
        self.queue.add(key);
    }

    /// The next key, and whether only a resync has asked for it.
    fn next(&mut self, now: Duration) -> Option<(K, bool)> {
        let key = self.queue.next(now)?;
        let from_resync = self.resynced.remove(&key);
        Some((key, from_resync))
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
