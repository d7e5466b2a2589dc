//! The stream of one watch.
//!
//! It keeps its position and one chunk of events, nothing more: events come from the feed while
//! they are there, else from the file. So no reader is too slow for memory; one that falls behind
//! the start of the history gets `Expired`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use ipledger_core::api::Kind;
use ipledger_core::store::{
    Filter, Revision, StoreError, WatchEvent, WatchFrom, WatchOptions, WatchStream,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::event::{self, Event, unreadable};
use crate::feed::Tail;
use crate::read::{self, Stored};
use crate::readers::Reader;
use crate::shared::{Shared, apart};
use crate::span::{Name, Span};

/// How many objects or events a watch takes from the file at once.
const CHUNK: usize = 128;

struct Watcher {
    shared: Arc<Shared>,
    filter: Filter,
    tail: watch::Receiver<Tail>,
    /// What is still to be listed, last one first.
    existing: Vec<(u64, Name)>,
    /// Everything up to this revision was looked at.
    position: u64,
    /// The last revision that the reader was told.
    told: u64,
    /// The revision at which the watch was opened, until `Synced` was delivered.
    sync_at: Option<u64>,
    ready: VecDeque<WatchEvent>,
    bookmark_after: Instant,
}

/// Opens a watch.
pub(crate) async fn open(
    shared: Arc<Shared>,
    kind: Kind,
    options: WatchOptions,
) -> Result<WatchStream, StoreError> {
    let mut reader = shared.readers.get().await?;
    let (opened_at, position, existing) = match options.from {
        WatchFrom::Start => {
            let span = Span::of_namespace(options.namespace.as_deref());
            let names = read::names(&mut reader, kind, &span).await;
            let (revision, mut existing) = names.map_err(|e| shared.fail(&e))?;
            existing.sort_unstable_by(|a, b| b.cmp(a));
            (revision, revision, existing)
        }
        WatchFrom::After(revision) => {
            let counters = read::counters(&mut reader, None).await;
            let counters = counters.map_err(|e| shared.fail(&e))?;
            counters.check_reached(revision.0)?;
            counters.check_kept(revision.0)?;
            (counters.revision, revision.0, Vec::new())
        }
    };
    drop(reader);
    if opened_at > shared.feed.tail() {
        shared.feed.foreign.notify_one();
    }
    let watcher = Watcher {
        tail: shared.feed.subscribe(),
        shared,
        filter: Filter::of_watch(kind, &options),
        existing,
        position,
        told: 0,
        sync_at: Some(opened_at),
        ready: VecDeque::new(),
        bookmark_after: Instant::now(),
    };
    let stream = stream::unfold(Some(watcher), |watcher| async {
        let mut watcher = watcher?;
        match watcher.next().await {
            Ok(event) => event.map(|event| (Ok(event), Some(watcher))),
            // A read that the end of the store cut short is no error of the watch.
            Err(_) if watcher.tail.borrow().closed => None,
            Err(e) => Some((Err(e), None)),
        }
    });
    Ok(stream.boxed())
}

impl Watcher {
    /// The next event; `None` when the store has ended.
    async fn next(&mut self) -> Result<Option<WatchEvent>, StoreError> {
        loop {
            let tail = *self.tail.borrow_and_update();
            if tail.closed {
                return Ok(None);
            }
            if let Some(event) = self.ready.pop_front() {
                self.told = event.revision().0;
                self.bookmark_after = Instant::now() + self.bookmark_interval();
                return Ok(Some(event));
            }
            if !self.existing.is_empty() {
                self.list().await?;
            } else if let Some(revision) = self.sync_at.take_if(|at| *at <= self.position) {
                self.ready.push_back(WatchEvent::Synced(Revision(revision)));
            } else if self.position < tail.revision {
                self.follow(tail.revision).await?;
            } else if self.sync_at.is_none() && self.owes_bookmark() {
                self.ready
                    .push_back(WatchEvent::Bookmark(Revision(self.position)));
            } else {
                self.wait().await;
            }
        }
    }

    fn bookmark_interval(&self) -> Duration {
        self.shared.options.bookmark_interval
    }

    fn owes_bookmark(&self) -> bool {
        self.told < self.position
            && (self.told < self.shared.feed.asked(self.filter.kind)
                || Instant::now() >= self.bookmark_after)
    }

    /// Until the feed moves, or a bookmark is due.
    async fn wait(&mut self) {
        let bookmark = self.told < self.position && self.sync_at.is_none();
        tokio::select! {
            biased;
            // The sender lives in `shared`, so this does not fail.
            _ = self.tail.changed() => {}
            () = tokio::time::sleep_until(self.bookmark_after), if bookmark => {}
        }
    }

    /// The next chunk of what existed when the watch was opened, in the order of the revisions.
    async fn list(&mut self) -> Result<(), StoreError> {
        let rest = self.existing.len().saturating_sub(CHUNK);
        let chunk = self.existing.split_off(rest);
        let existed = existed(self.shared.clone(), self.filter.kind, chunk, self.position);
        for object in apart(existed).await? {
            self.ready.extend(existing(&self.filter, &object));
        }
        Ok(())
    }

    /// The next chunk of events.
    async fn follow(&mut self, tail: u64) -> Result<(), StoreError> {
        let kind = self.filter.kind;
        let (events, end) = match self.shared.feed.after(self.position, kind, CHUNK) {
            Some(found) => found,
            None => {
                let events = events(self.shared.clone(), kind, self.position, tail);
                apart(events).await?
            }
        };
        let sync_at = self.sync_at.unwrap_or(0);
        for event in &events {
            // `Synced` comes before what was written after the watch was opened.
            if event.revision > sync_at
                && let Some(revision) = self.sync_at.take()
            {
                self.ready.push_back(WatchEvent::Synced(Revision(revision)));
            }
            self.ready.extend(event::told(&self.filter, event));
        }
        self.position = end;
        Ok(())
    }
}

/// The objects of these names (last one first), as they were at a revision.
async fn existed(
    shared: Arc<Shared>,
    kind: Kind,
    chunk: Vec<(u64, Name)>,
    at: u64,
) -> Result<Vec<Stored>, StoreError> {
    let mut reader = shared.readers.get().await?;
    let now = read::named(&mut reader, kind, &chunk).await;
    let mut now = now.map_err(|e| shared.fail(&e))?;
    let mut objects = Vec::with_capacity(chunk.len());
    for (revision, name) in chunk.into_iter().rev() {
        match now.remove(&name) {
            Some(object) if object.revision == revision => objects.push(object),
            // Written since: what was it then?
            changed => {
                let span = Span::only(&name);
                let changed = changed.into_iter().collect();
                let then = read::rewind(&mut reader, kind, &span, at, changed).await;
                objects.extend(then.map_err(|e| shared.fail(&e))?);
                check_kept(&mut reader, &shared, kind, at).await?;
            }
        }
    }
    Ok(objects)
}

/// At most a chunk of events from the file after one revision and up to another, and the revision
/// up to which that is all.
async fn events(
    shared: Arc<Shared>,
    kind: Kind,
    after: u64,
    up_to: u64,
) -> Result<(Vec<Arc<Event>>, u64), StoreError> {
    let mut reader = shared.readers.get().await?;
    let events = read::events_of_kind(&mut reader, kind, (after, up_to), CHUNK).await;
    let events = events.map_err(|e| shared.fail(&e))?;
    check_kept(&mut reader, &shared, kind, after).await?;
    let end = match events.last() {
        Some(last) if events.len() == CHUNK => last.revision,
        _ => up_to,
    };
    Ok((events.into_iter().map(Arc::new).collect(), end))
}

/// Whether every event of a kind after a revision was in the history a moment ago, when it was
/// read.
async fn check_kept(
    reader: &mut Reader<'_>,
    shared: &Shared,
    kind: Kind,
    revision: u64,
) -> Result<(), StoreError> {
    let counters = read::counters(reader, Some(kind)).await;
    let counters = counters.map_err(|e| shared.fail(&e))?;
    counters.check_kept_of_kind(revision)
}

/// What an object that existed when the watch was opened is to it.
fn existing(filter: &Filter, object: &Stored) -> Option<WatchEvent> {
    match object.object(filter.kind) {
        Ok(object) => filter
            .selects(&object)
            .then_some(WatchEvent::Applied(object)),
        Err(reason) => Some(unreadable(
            &object.key(filter.kind),
            object.revision,
            &reason,
        )),
    }
}
