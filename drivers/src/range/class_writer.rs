//! Writes class status: only if it changes, at most once a second a class, and without harm on
//! servers that do not keep it.

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

pub(super) struct ClassWriter {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// When a class may be written again, in monotonic time.
    not_before: Mutex<BTreeMap<String, Duration>>,
    /// Whether it was said that the server does not keep the status.
    complained: AtomicBool,
}

impl ClassWriter {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> ClassWriter {
        ClassWriter {
            store,
            clock,
            not_before: Mutex::new(BTreeMap::new()),
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
        let left = self.not_before().get(name).map(|t| t.saturating_sub(now));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Pass {
                next: Next::After(left),
                ..Pass::settled()
            };
        }
        let Some(report) = report() else {
            self.not_before().remove(name);
            return Pass::settled();
        };
        let status = report.status(self.clock.now());
        if report.object.status.as_ref() == Some(&status) {
            return Pass::settled();
        }
        self.rest(name, PACE);
        let mut class = IPAddressClass::clone(&report.object);
        class.status = Some(status);
        self.write(report, class).await
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
        self.rest(name, REFUSED_PACE);
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

    fn rest(&self, name: &str, pace: Duration) {
        let until = self.clock.monotonic().saturating_add(pace);
        self.not_before().insert(name.to_owned(), until);
    }

    fn not_before(&self) -> MutexGuard<'_, BTreeMap<String, Duration>> {
        self.not_before
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
