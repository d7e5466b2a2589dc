use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::Clock;
use super::timing::within;
use crate::api::Kind;
use crate::mutant::{Mutant, active};
use crate::store::{Revision, Store, StoreError};

/// How far a controller's view of each kind has come. A handle: clones share one state, so that
/// it can be made first and be given to a reconciler and to the [`Controller`](super::Controller)
/// that runs it.
#[derive(Clone, Default)]
pub struct Progress {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The newest revision that was observed completely; no entry before the first listing.
    reached: Mutex<BTreeMap<Kind, Revision>>,
    moved: Notify,
}

impl Progress {
    /// Nothing was observed yet.
    pub fn new() -> Progress {
        Progress::default()
    }

    /// The revision up to which the kind was observed; `None` before its first listing.
    pub fn reached(&self, kind: Kind) -> Option<Revision> {
        self.lock().get(&kind).copied()
    }

    /// Everything of the kind up to this revision has been observed. Never goes back.
    pub fn advance(&self, kind: Kind, revision: Revision) {
        {
            let mut reached = self.lock();
            let held = reached.entry(kind).or_insert(revision);
            *held = revision.max(*held);
        }
        self.shared.moved.notify_waiters();
    }

    /// Returns when the kind was observed up to this revision.
    ///
    /// # Errors
    /// `Unavailable` if that takes longer than `timeout`: the view is behind, try again later.
    pub async fn wait_for(
        &self,
        kind: Kind,
        revision: Revision,
        clock: &dyn Clock,
        timeout: Duration,
    ) -> Result<(), StoreError> {
        let there =
            |reached: &BTreeMap<Kind, Revision>| reached.get(&kind).is_some_and(|r| *r >= revision);
        within(clock, timeout, self.until(there))
            .await
            .ok_or_else(|| {
                let now = match self.reached(kind) {
                    Some(r) => format!("revision {r}"),
                    None => "nothing".to_owned(),
                };
                StoreError::Unavailable {
                    reason: format!(
                        "the watch of {kind} has delivered {now} and not yet revision {revision} \
                     after {timeout:?}; try again later"
                    ),
                }
            })
    }

    /// Returns when everything of the kind that was committed before the call has been observed,
    /// so that what the view shows from then on is provably not older than the call.
    ///
    /// # Errors
    /// As [`Store::barrier`]; `Unavailable` if it all takes longer than `timeout`.
    pub async fn barrier(
        &self,
        store: &dyn Store,
        kind: Kind,
        clock: &dyn Clock,
        timeout: Duration,
    ) -> Result<(), StoreError> {
        let start = clock.monotonic();
        let revision = within(clock, timeout, store.barrier(kind))
            .await
            .unwrap_or_else(|| {
                Err(StoreError::Unavailable {
                    reason: format!("the store gave no barrier of {kind} within {timeout:?}"),
                })
            })?;
        if active(Mutant::BarrierUnawaited) {
            return Ok(());
        }
        let left = timeout.saturating_sub(clock.monotonic().saturating_sub(start));
        self.wait_for(kind, revision, clock, left).await
    }

    /// Returns when each of these kinds has been listed once.
    pub(super) async fn synced(&self, kinds: &[Kind]) {
        self.until(|reached| kinds.iter().all(|k| reached.contains_key(k)))
            .await;
    }

    /// Whether each of these kinds has been listed once.
    pub(super) fn is_synced(&self, kinds: &[Kind]) -> bool {
        let reached = self.lock();
        kinds.iter().all(|k| reached.contains_key(k))
    }

    async fn until(&self, there: impl Fn(&BTreeMap<Kind, Revision>) -> bool) {
        loop {
            // Made before looking: it hears from now on, also before it is awaited.
            let moved = self.shared.moved.notified();
            if there(&self.lock()) {
                return;
            }
            moved.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Kind, Revision>> {
        self.shared
            .reached
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
