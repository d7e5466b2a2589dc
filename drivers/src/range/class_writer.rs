//! Writes class status: only if it changes, at most once a second a class, ever more rarely while
//! that fails, and without harm on servers that do not keep it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipledger_core::api::IPAddressClass;
use ipledger_core::runtime::{Clock, Next, Pass};
use ipledger_core::store::{Part, ReadAt, Store, StoreError};

use super::RangeKey;
use super::class_status::ClassReport;
use super::driver::failed;

/// Between two writes to one class.
const PACE: Duration = Duration::from_secs(1);
/// Until the next attempt where the server does not keep the status.
const REFUSED_PACE: Duration = Duration::from_secs(60);
/// At most so long until the next attempt after writes that failed.
const FAILED_PACE: Duration = Duration::from_secs(60);

pub(super) struct ClassWriter {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    rests: Mutex<BTreeMap<String, Rest>>,
    /// Whether it was said that the server does not keep the status.
    complained: AtomicBool,
}

/// After an attempt to write a class.
struct Rest {
    /// When the class may be written again, in monotonic time.
    until: Duration,
    /// If the attempt has failed.
    failure: Option<Failure>,
}

struct Failure {
    reason: String,
    /// How long the class rests after it.
    pace: Duration,
}

impl ClassWriter {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> ClassWriter {
        ClassWriter {
            store,
            clock,
            rests: Mutex::new(BTreeMap::new()),
            complained: AtomicBool::new(false),
        }
    }

    /// One pass over a class. The report is asked for only if a write is possible now.
    pub(super) async fn pass(
        &self,
        name: &str,
        report: impl FnOnce() -> Option<ClassReport> + Send,
    ) -> Pass<RangeKey> {
        let now = self.clock.monotonic();
        let left = self.rests().get(name).map(|r| r.until.saturating_sub(now));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return again_after(left);
        }
        let Some(report) = report() else {
            self.rests().remove(name);
            return Pass::settled();
        };
        let status = report.status(self.clock.now());
        if report.object.status.as_ref() == Some(&status) {
            return Pass::settled();
        }
        let earlier = self.rest(name, PACE, None).and_then(|rest| rest.failure);
        let mut class = IPAddressClass::clone(&report.object);
        class.status = Some(status);
        let pass = self.write(report, class).await;
        match pass.next {
            Next::Failed(reason) => self.failed(name, reason, earlier),
            _ => pass,
        }
    }

    /// The next attempt is made later, ever more so. The controller's back-off alone would not do:
    /// the passes that changes of addresses cause are not held up by it. The controller hears of
    /// each reason once, so that a disk that stays full is not reported again and again.
    fn failed(&self, name: &str, reason: String, earlier: Option<Failure>) -> Pass<RangeKey> {
        let doubled = earlier.as_ref().map(|e| e.pace.saturating_mul(2));
        let pace = doubled.map_or(PACE, |pace| pace.min(FAILED_PACE));
        let known = earlier.is_some_and(|e| e.reason == reason);
        let failure = Failure {
            reason: reason.clone(),
            pace,
        };
        self.rest(name, pace, Some(failure));
        if known {
            tracing::debug!(
                class = name,
                reason,
                ?pace,
                "the status is not written still"
            );
            return again_after(pace);
        }
        Pass {
            next: Next::Failed(reason),
            ..Pass::settled()
        }
    }

    async fn write(&self, mut report: ClassReport, class: IPAddressClass) -> Pass<RangeKey> {
        let name = class.metadata.name.clone();
        let stored = match class.to_object() {
            Ok(object) => self.store.update(object, Part::Status).await,
            Err(e) => Err(e.into()),
        };
        let stored = match stored {
            Ok(stored) => stored,
            Err(e @ StoreError::NotFound { .. }) => {
                // Gone, or a server that has classes but no status for them.
                return match self.store.get(&class.key(), ReadAt::Latest).await {
                    Ok(_) => self.refused(&name, &e.to_string()),
                    Err(e) => failed(&e),
                };
            }
            Err(e @ StoreError::Forbidden { .. }) => return self.refused(&name, &e.to_string()),
            Err(e) => return failed(&e),
        };
        match IPAddressClass::from_object(&stored) {
            Ok(seen) => {
                report.object = Arc::new(seen);
                if report.object.status != Some(report.status(self.clock.now())) {
                    return self.refused(&name, "it does not keep the fields of the status");
                }
            }
            Err(e) => return failed(&e.into()),
        }
        Pass {
            wrote: stored
                .revision()
                .map(|r| (stored.kind, r))
                .into_iter()
                .collect(),
            ..Pass::settled()
        }
    }

    /// The class goes on being served without a status.
    fn refused(&self, name: &str, reason: &str) -> Pass<RangeKey> {
        self.rest(name, REFUSED_PACE, None);
        if !self.complained.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                class = name,
                reason,
                "the server does not take the status of classes: apply the current \
                 CustomResourceDefinitions and permissions; addresses are handed out all the same"
            );
        }
        Pass::settled()
    }

    /// Lets a class rest, and returns what it rested for before.
    fn rest(&self, name: &str, pace: Duration, failure: Option<Failure>) -> Option<Rest> {
        let until = self.clock.monotonic().saturating_add(pace);
        let rest = Rest { until, failure };
        self.rests().insert(name.to_owned(), rest)
    }

    fn rests(&self) -> MutexGuard<'_, BTreeMap<String, Rest>> {
        self.rests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn again_after(left: Duration) -> Pass<RangeKey> {
    Pass {
        next: Next::After(left),
        ..Pass::settled()
    }
}
