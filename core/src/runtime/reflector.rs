use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use super::timing::{backoff, within};
use super::{Clock, Listing};
use crate::api::Kind;
use crate::store::{ListOptions, Revision, Store, StoreError, WatchEvent, WatchFrom, WatchOptions};

/// Objects a page of the listing.
const PAGE: usize = 500;
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

/// Follows one kind of a store for ever: a listing, then a watch from its revision, resumed from
/// the last revision seen whenever the stream ends, and a new listing when the store's history no
/// longer reaches back that far.
pub(super) struct Reflector<S> {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) kind: Kind,
    pub(super) sink: Arc<S>,
}

/// How a stream has ended.
struct Ended {
    /// The last revision that it has delivered.
    last: Revision,
    /// Whether it was of use, so that nothing speaks against the next one.
    progress: bool,
    cause: Result<(), StoreError>,
}

impl<S: Sink> Reflector<S> {
    /// Runs until it is dropped.
    pub(super) async fn run(self) -> Infallible {
        let kind = self.kind;
        let mut newest = Revision::default();
        let mut failures = 0_u32;
        // Some stores cannot keep a long listing's revision alive over its pages.
        let mut page = Some(PAGE);
        'list: loop {
            match self.list(page, newest).await {
                Ok(listing) => {
                    newest = listing.revision();
                    page = Some(PAGE);
                    self.sink.replace(kind, listing);
                }
                Err(error) => {
                    tracing::warn!(%kind, %error, "a listing failed and is repeated");
                    if matches!(error, StoreError::Expired { .. }) {
                        page = None;
                    }
                    self.pause(&mut failures).await;
                    continue;
                }
            }
            loop {
                let ended = self.follow(newest).await;
                newest = ended.last;
                if ended.progress {
                    failures = 0;
                }
                match ended.cause {
                    Ok(()) if ended.progress => continue,
                    Ok(()) => {}
                    Err(error @ StoreError::Expired { .. }) => {
                        tracing::info!(%kind, %error, "the watch has fallen out of the history");
                        self.pause(&mut failures).await;
                        continue 'list;
                    }
                    Err(error) => {
                        tracing::warn!(%kind, %error, "the watch broke and is resumed");
                    }
                }
                self.pause(&mut failures).await;
            }
        }
    }

    /// Reads all pages, or all in one page.
    async fn list(&self, page: Option<usize>, newest: Revision) -> Result<Listing, StoreError> {
        let mut options = ListOptions {
            limit: page,
            ..ListOptions::default()
        };
        let mut listing: Option<Listing> = None;
        loop {
            let page = self
                .bounded("list", self.store.list(self.kind, &options))
                .await?;
            options.continue_token = page.continue_token.clone();
            listing = Some(match listing {
                None => Listing::new(page)?,
                Some(mut listing) => {
                    listing.add(page)?;
                    listing
                }
            });
            if options.continue_token.is_none()
                && let Some(listing) = listing
            {
                return if listing.revision() < newest {
                    Err(StoreError::Unavailable {
                        reason: format!(
                            "the store shows {} at revision {}, older than revision {newest} that \
                             it has shown before; if its data were set back, restart this process",
                            self.kind,
                            listing.revision()
                        ),
                    })
                } else {
                    Ok(listing)
                };
            }
        }
    }

    /// Passes on what comes after a revision until the stream ends or falls silent.
    async fn follow(&self, after: Revision) -> Ended {
        let opened = self.clock.monotonic();
        let mut last = after;
        let cause = self.pass_on(&mut last).await;
        let age = self.clock.monotonic().saturating_sub(opened);
        Ended {
            last,
            progress: last > after || age >= BACKOFF_CAP,
            cause,
        }
    }

    async fn pass_on(&self, last: &mut Revision) -> Result<(), StoreError> {
        let options = WatchOptions::all(WatchFrom::After(*last));
        let mut stream = self
            .bounded("watch", self.store.watch(self.kind, &options))
            .await?;
        while let Some(Some(event)) = within(&*self.clock, SILENCE, stream.next()).await {
            let event = event?;
            *last = event.revision().max(*last);
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
