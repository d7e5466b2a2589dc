//! Watches. Each is a task that follows the server's watch and fills a bounded queue.
//!
//! The server ends every watch after some minutes, and connections break: the task remembers the
//! last revision that it has passed on and opens the next one behind it. A slow reader holds the
//! task up, the server then cuts the connection, and the rest comes from the server's history.
//!
//! How far a watch without events has got, the server tells by bookmarks: one a minute, and one two
//! seconds before the end of a watch. So, when something is known to be committed that the watch has
//! not reached, it is opened anew for three seconds, and its bookmark comes after one.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use ipledger_core::api::{Key, Kind};
use ipledger_core::store::{
    ListOptions, ListPage, Revision, StoreError, WatchEvent, WatchFrom, WatchOptions, WatchStream,
};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::failure::{Failure, Status, unavailable};
use crate::health::Right;
use crate::lines::Lines;
use crate::path::{self, Query};
use crate::{Inner, wire};

/// Events that wait for a slow reader here; the others wait at the server.
const QUEUE: usize = 256;
/// Objects a page of what exists.
const PAGE: usize = 500;
/// How long the server's watches are asked to last.
const LONG: Duration = Duration::from_secs(290);
/// The shortest whose bookmark comes.
const SHORT: Duration = Duration::from_secs(3);
/// The events of a watch may be on their way; so long they are waited for.
const ON_ITS_WAY: Duration = Duration::from_millis(100);
/// A watch that is silent for so long, without a bookmark, is dead.
const SILENCE: Duration = Duration::from_secs(90);
/// A watch that ends sooner, and with nothing, is not opened again at once: something on the way may close
/// all of them.
const BRIEF: Duration = Duration::from_secs(1);
/// The wait before a watch is opened again, doubled each time that it does not get further.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

impl Inner {
    pub(crate) async fn watch(
        self: &Arc<Self>,
        kind: Kind,
        options: &WatchOptions,
    ) -> Result<WatchStream, StoreError> {
        let (queue, reader) = mpsc::channel(QUEUE);
        let mut follower = Follower {
            inner: self.clone(),
            kind,
            options: options.clone(),
            wanted: self.wanted(kind).subscribe(),
            position: Revision(0),
            sync_at: None,
            queue,
        };
        let (mut existing, mut opened) = (None, None);
        match options.from {
            WatchFrom::Start => existing = Some(follower.existing(None).await?),
            WatchFrom::After(at) => {
                let last = self.committed(kind).await?;
                // The server would leave out what comes until then.
                if at > last {
                    return Err(unavailable(format!(
                        "revision {at} is not reached yet; the last is {last}"
                    )));
                }
                follower.position = at;
                follower.sync_at = Some(last);
                let watch = follower.open().await;
                opened = Some(watch.map_err(|failure| failure.of_read(&of_kind(kind)))?);
            }
        }
        tokio::spawn(follower.run(existing, opened));
        let stream = futures::stream::unfold(reader, |mut reader| async {
            let event = reader.recv().await?;
            Some((event, reader))
        });
        Ok(stream.boxed())
    }
}

/// A watch of the server.
struct Opened {
    lines: Lines,
    /// Whether it was opened for its bookmark.
    short: bool,
}

struct Follower {
    inner: Arc<Inner>,
    kind: Kind,
    options: WatchOptions,
    /// Something is committed up to there, as far as this process knows.
    wanted: watch::Receiver<Revision>,
    /// Every event up to here was put into the queue.
    position: Revision,
    /// Until `Synced` was sent: what was committed before the watch was opened.
    sync_at: Option<Revision>,
    queue: mpsc::Sender<Result<WatchEvent, StoreError>>,
}

/// Why a watch of the server is not followed any more.
enum End {
    /// Nobody reads any more.
    Over,
    /// It is over in order, or lags behind: another one goes on.
    Again,
    /// It broke; another one may work.
    Broken(String),
    /// No other one can go on from here.
    Failed(StoreError),
}

impl Follower {
    async fn run(mut self, existing: Option<ListPage>, opened: Option<Opened>) {
        let mut closed = self.inner.closed.subscribe();
        let queue = self.queue.clone();
        tokio::select! {
            () = self.follow(existing, opened) => {}
            // Fails only when the store is gone.
            _ = closed.wait_for(|c| *c) => {}
            () = queue.closed() => {}
        }
        self.shows(None);
    }

    /// The server has shown everything up to here; `None`: it shows nothing for now.
    fn shows(&self, revision: Option<Revision>) {
        let WatchOptions {
            namespace,
            labels,
            fields,
            ..
        } = &self.options;
        if namespace.is_none() && *labels == Default::default() && *fields == Default::default() {
            self.inner.shown(self.kind).send_replace(revision);
        }
    }

    async fn follow(&mut self, existing: Option<ListPage>, mut opened: Option<Opened>) {
        if let Some(first) = existing
            && let Err(End::Failed(e)) = self.replay(first).await
        {
            let _ = self.queue.send(Err(e)).await;
            return;
        }
        let mut wait = FIRST_WAIT;
        loop {
            let (before, began) = (self.position, Instant::now());
            let end = match opened.take() {
                Some(opened) => self.read(opened).await,
                None => self.one_watch().await,
            };
            self.shows(None);
            match end {
                End::Over => return,
                End::Again if self.position > before || began.elapsed() >= BRIEF => {
                    wait = FIRST_WAIT;
                }
                End::Again => {
                    sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
                End::Failed(e) => {
                    let _ = self.queue.send(Err(e)).await;
                    return;
                }
                End::Broken(reason) => {
                    tracing::debug!(kind = %self.kind, position = %self.position, reason,
                        "a watch is opened again");
                    if self.position > before {
                        wait = FIRST_WAIT;
                    }
                    sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
            }
        }
    }

    /// Passes on what exists, page by page.
    async fn replay(&mut self, mut page: ListPage) -> Result<(), End> {
        let revision = page.revision;
        loop {
            for object in page.items {
                self.send(WatchEvent::Applied(Arc::new(object))).await?;
            }
            for error in page.corrupt {
                if let StoreError::Corrupt { key, reason } = error {
                    self.send(unreadable(key, revision, reason)).await?;
                }
            }
            let Some(token) = page.continue_token else {
                self.position = revision;
                return self.send(WatchEvent::Synced(revision)).await;
            };
            page = self.existing(Some(token)).await.map_err(End::Failed)?;
        }
    }

    async fn existing(&self, continue_token: Option<String>) -> Result<ListPage, StoreError> {
        let options = ListOptions {
            namespace: self.options.namespace.clone(),
            labels: self.options.labels.clone(),
            fields: self.options.fields.clone(),
            limit: Some(PAGE),
            continue_token,
        };
        self.inner.list(self.kind, &options).await
    }

    /// Opens one watch of the server behind the position and follows it as long as it goes.
    async fn one_watch(&mut self) -> End {
        let last = match self.inner.committed(self.kind).await {
            Ok(last) => last,
            Err(e @ StoreError::Forbidden { .. }) => return End::Failed(e),
            Err(e) => return End::Broken(e.to_string()),
        };
        if last < self.position {
            return End::Failed(StoreError::Expired {
                reason: format!(
                    "the server was set back to before revision {}",
                    self.position
                ),
            });
        }
        match self.open().await {
            Ok(opened) => self.read(opened).await,
            Err(Failure::NotDone(reason) | Failure::Unknown(reason)) => End::Broken(reason),
            Err(failure) => match failure.of_read(&of_kind(self.kind)) {
                // Such as a kind that is not served for a moment.
                StoreError::Unavailable { reason } => End::Broken(reason),
                e => End::Failed(e),
            },
        }
    }

    async fn open(&self) -> Result<Opened, Failure> {
        let short = self.is_behind();
        let lasting = if short { SHORT } else { LONG };
        let path = path::of_kind(self.kind, self.options.namespace.as_deref());
        let query = Query::new(path)
            .selecting(&self.options.labels, &self.options.fields)
            .with("watch", "1")
            .with("allowWatchBookmarks", "true")
            .with("resourceVersion", &self.position.to_string())
            .with("timeoutSeconds", &lasting.as_secs().to_string());
        let lines = self.inner.lines(query.into_path()).await;
        let health = self.inner.caller.health();
        health.allowed(Right::Watch(self.kind), &lines);
        Ok(Opened {
            lines: lines?,
            short,
        })
    }

    async fn read(&mut self, opened: Opened) -> End {
        let Opened { mut lines, short } = opened;
        if let Err(end) = self.sync_if_reached().await {
            return end;
        }
        let mut wanted = self.wanted.clone();
        let mut hurry_at = None;
        loop {
            if short || !self.is_behind() {
                hurry_at = None;
            } else if hurry_at.is_none() {
                hurry_at = Some(Instant::now() + ON_ITS_WAY);
            }
            let hurry = sleep_until(hurry_at.unwrap_or_else(Instant::now));
            tokio::select! {
                biased;
                line = timeout(SILENCE, lines.next()) => match line {
                    Ok(Ok(Some(line))) => {
                        if let Err(end) = self.take(line).await {
                            return end;
                        }
                    }
                    Ok(Ok(None)) => return End::Again,
                    Ok(Err(reason)) => return End::Broken(reason),
                    Err(_) => return End::Broken(format!("silent for {SILENCE:?}")),
                },
                Ok(()) = wanted.changed() => {}
                () = hurry, if hurry_at.is_some() => return End::Again,
            }
        }
    }

    fn is_behind(&self) -> bool {
        self.position < self.sync_at.unwrap_or_default().max(*self.wanted.borrow())
    }

    async fn take(&mut self, mut line: Value) -> Result<(), End> {
        let object = line["object"].take();
        match line["type"].as_str() {
            Some("ERROR") => Err(of_error(self.kind, object)),
            Some("BOOKMARK") => match wire::revision_of(&object) {
                Some(revision) => self.reached(revision).await,
                None => Err(End::Broken("a bookmark without a revision".to_owned())),
            },
            Some(kind @ ("ADDED" | "MODIFIED" | "DELETED")) => {
                self.pass(kind == "DELETED", object).await
            }
            other => Err(End::Broken(format!("an event of the type {other:?}"))),
        }
    }

    async fn pass(&mut self, deleted: bool, value: Value) -> Result<(), End> {
        let revision = wire::revision_of(&value);
        let revision =
            revision.ok_or_else(|| End::Broken("an event without revision".to_owned()))?;
        if revision <= self.position {
            return Ok(());
        }
        self.shows(Some(revision));
        if let Some(sync_at) = self.sync_at.filter(|at| revision > *at) {
            // `Synced` comes before what was written after the watch was opened.
            self.sync(sync_at).await?;
        }
        let event = match wire::read(self.kind, value) {
            Ok(object) if deleted => WatchEvent::Deleted(Arc::new(object)),
            Ok(object) => WatchEvent::Applied(Arc::new(object)),
            Err(StoreError::Corrupt { key, reason }) => unreadable(key, revision, reason),
            Err(e) => return Err(End::Failed(e)),
        };
        self.send(event).await?;
        self.position = revision;
        self.sync_if_reached().await
    }

    /// There are no more events up to here.
    async fn reached(&mut self, revision: Revision) -> Result<(), End> {
        if revision > self.position {
            self.position = revision;
            // Until then, `Synced` will tell it.
            if self.sync_at.is_none() {
                self.send(WatchEvent::Bookmark(revision)).await?;
            }
        }
        self.sync_if_reached().await
    }

    async fn sync_if_reached(&mut self) -> Result<(), End> {
        match self.sync_at {
            Some(sync_at) if self.position >= sync_at => self.sync(self.position).await,
            _ => Ok(()),
        }
    }

    async fn sync(&mut self, revision: Revision) -> Result<(), End> {
        self.sync_at = None;
        self.send(WatchEvent::Synced(revision)).await
    }

    async fn send(&mut self, event: WatchEvent) -> Result<(), End> {
        if self.queue.capacity() == 0 {
            // What the server shows from now on waits for the reader.
            self.shows(None);
        }
        self.queue.send(Ok(event)).await.map_err(|_| End::Over)
    }
}

/// "Too old" comes as an answer, and also as an event of a watch that was opened.
fn of_error(kind: Kind, object: Value) -> End {
    let status: Status = serde_json::from_value(object).unwrap_or_default();
    match Failure::of_answer(status) {
        Failure::NotDone(reason) | Failure::Unknown(reason) => End::Broken(reason),
        failure => End::Failed(failure.of_read(&of_kind(kind))),
    }
}

fn unreadable(key: Key, revision: Revision, reason: String) -> WatchEvent {
    WatchEvent::Unreadable {
        key,
        revision,
        reason,
    }
}

/// What errors of a whole watch are about.
fn of_kind(kind: Kind) -> Key {
    Key::cluster(kind, "")
}
