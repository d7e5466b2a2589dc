use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use super::timing::{backoff, within};
use super::{Ask, Clock, Course, Listing};
use crate::api::Kind;
use crate::store::{Store, StoreError, WatchEvent, WatchOptions};

/// The wait after the first failure, doubled with each further one.
const BACKOFF_BASE: Duration = Duration::from_millis(50);
/// The longest wait. A stream that has lived as long does not count as a failure.
const BACKOFF_CAP: Duration = Duration::from_secs(5);
/// A stream that is silent for so long may be dead without saying so, and is replaced. A call
/// that takes so long is given up.
const SILENCE: Duration = Duration::from_secs(300);

/// Takes what a reflector sees, in order.
pub(super) trait Sink: Send + Sync + 'static {
    /// All objects of the kind; what is not in it is gone.
    fn replace(&self, kind: Kind, listing: Listing);
    /// One event after the last listing.
    fn event(&self, kind: Kind, event: &WatchEvent);
}

/// Follows one kind of a store for ever, as [`Course`] says.
pub(super) struct Reflector<S> {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) kind: Kind,
    pub(super) sink: Arc<S>,
}

/// How a stream has ended.
struct Ended {
    /// Whether it was of use, so that nothing speaks against the next one.
    progress: bool,
    cause: Result<(), StoreError>,
}

impl<S: Sink> Reflector<S> {
    /// Runs until it is dropped.
    pub(super) async fn run(self) -> Infallible {
        let kind = self.kind;
        let mut course = Course::new(kind);
        let mut failures = 0_u32;
        loop {
            match course.ask() {
                Ask::List(options) => {
                    let page = self.bounded("list", self.store.list(kind, &options)).await;
                    match page.and_then(|page| course.listed(page)) {
                        Ok(Some(listing)) => self.sink.replace(kind, listing),
                        Ok(None) => {}
                        Err(error) => {
                            tracing::warn!(%kind, %error, "a listing failed and is repeated");
                            course.failed(&error);
                            self.pause(&mut failures).await;
                        }
                    }
                }
                Ask::Watch(options) => {
                    let ended = self.follow(&options, &mut course).await;
                    if ended.progress {
                        failures = 0;
                    }
                    match ended.cause {
                        Ok(()) if ended.progress => continue,
                        Ok(()) => {}
                        Err(error) => {
                            tracing::warn!(%kind, %error, "the watch broke; it is resumed, or all is listed again");
                            course.failed(&error);
                        }
                    }
                    self.pause(&mut failures).await;
                }
            }
        }
    }

    /// Passes on what a stream delivers until it ends or falls silent.
    async fn follow(&self, options: &WatchOptions, course: &mut Course) -> Ended {
        let (opened, before) = (self.clock.monotonic(), course.newest());
        let cause = self.pass_on(options, course).await;
        let age = self.clock.monotonic().saturating_sub(opened);
        Ended {
            progress: course.newest() > before || age >= BACKOFF_CAP,
            cause,
        }
    }

    async fn pass_on(&self, options: &WatchOptions, course: &mut Course) -> Result<(), StoreError> {
        let mut stream = self
            .bounded("watch", self.store.watch(self.kind, options))
            .await?;
        while let Some(Some(event)) = within(&*self.clock, SILENCE, stream.next()).await {
            let event = event?;
            course.event(&event);
            self.sink.event(self.kind, &event);
        }
        Ok(())
    }

    async fn bounded<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        within(&*self.clock, SILENCE, call)
            .await
            .unwrap_or_else(|| {
                Err(StoreError::Unavailable {
                    reason: format!("{what} of {} gave no answer within {SILENCE:?}", self.kind),
                })
            })
    }

    async fn pause(&self, failures: &mut u32) {
        *failures = failures.saturating_add(1);
        self.clock
            .sleep(backoff(BACKOFF_BASE, BACKOFF_CAP, *failures))
            .await;
    }
}
