use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::Stream;

use super::lock;
use super::state::{After, Change, State, Stored};
use crate::api::{Key, Kind, Object};
use crate::store::{Filter, Revision, StoreError, WatchEvent};

impl Filter {
    /// What cannot be read matches every selector: it might be what is looked for.
    pub(super) fn matches(&self, stored: &Stored, key: &Key) -> bool {
        self.covers(key)
            && match stored {
                Stored::Object(o) => self.selects(o),
                Stored::Unreadable { .. } => true,
            }
    }

    /// What a change is to a watch with this filter.
    pub(super) fn event(&self, change: &Change) -> Option<WatchEvent> {
        let key = &change.key;
        let was = change.before.as_ref().filter(|b| self.matches(b, key));
        match &change.after {
            After::Kept(stored) if self.matches(stored, key) => Some(match stored {
                Stored::Object(object) => WatchEvent::Applied(object.clone()),
                Stored::Unreadable {
                    revision, reason, ..
                } => WatchEvent::Unreadable {
                    key: key.clone(),
                    revision: *revision,
                    reason: reason.clone(),
                },
            }),
            After::Kept(_) => was.map(|before| left(before, change)),
            After::Gone(last) => was.map(|_| WatchEvent::Deleted(last.clone())),
        }
    }
}

/// The object has left the selector: what the watch knew of it, at the revision of that change.
fn left(before: &Stored, change: &Change) -> WatchEvent {
    let mut last = match before {
        Stored::Object(object) => Object::clone(object),
        Stored::Unreadable { uid, .. } => crate::store::rules::remains(&change.key, uid),
    };
    last.metadata.resource_version = Some(change.revision);
    WatchEvent::Deleted(Arc::new(last))
}

/// The open watches, in the order in which they were opened.
#[derive(Default)]
pub(super) struct Watchers {
    open: BTreeMap<u64, Watcher>,
    last_id: u64,
    due: Vec<Waker>,
}

struct Watcher {
    filter: Filter,
    /// What was there when the watch was opened.
    backlog: VecDeque<WatchEvent>,
    /// What came since; bounded.
    live: VecDeque<WatchEvent>,
    /// The last revision that was put into a queue.
    seen: u64,
    /// The last revision up to which the queue is known to be complete: of `Synced` or a bookmark.
    marked: u64,
    waker: Option<Waker>,
    end: Option<End>,
}

#[derive(Clone, Copy)]
enum End {
    /// The stream ends at once.
    Broken,
    /// The queue was full: after what is in it comes an error.
    TooSlow,
}

impl Watchers {
    pub(super) fn open(
        &mut self,
        filter: Filter,
        backlog: VecDeque<WatchEvent>,
        revision: u64,
    ) -> u64 {
        self.last_id += 1;
        let watcher = Watcher {
            filter,
            backlog,
            live: VecDeque::new(),
            seen: revision,
            marked: revision,
            waker: None,
            end: None,
        };
        self.open.insert(self.last_id, watcher);
        self.last_id
    }

    /// Hands a change to every watch that it concerns.
    pub(super) fn push(&mut self, change: &Change, buffer: usize) {
        self.each(|watcher| {
            let Some(event) = watcher.filter.event(change) else {
                return false;
            };
            if watcher.live.len() < buffer {
                watcher.seen = change.revision.0;
                watcher.live.push_back(event);
            } else {
                watcher.end = Some(End::TooSlow);
            }
            true
        });
    }

    pub(super) fn bookmark_all(&mut self, revision: u64) {
        self.each(|w| w.marked < revision && w.bookmark(revision));
    }

    /// Tells watches of a kind that have not heard of this revision that they have reached it.
    pub(super) fn bookmark(&mut self, kind: Kind, revision: u64) {
        self.each(|w| w.filter.kind == kind && w.seen < revision && w.bookmark(revision));
    }

    pub(super) fn bookmark_older_than(&mut self, oldest: u64, revision: u64) {
        self.each(|w| w.seen < oldest && w.bookmark(revision));
    }

    pub(super) fn end_all(&mut self) {
        self.each(|watcher| {
            watcher.end = Some(End::Broken);
            watcher.backlog.clear();
            watcher.live.clear();
            true
        });
    }

    /// The wakers of the watches that have got something since the last call.
    pub(super) fn take_due(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.due)
    }

    /// Acts on every watch that has not ended, and wakes those for which the act says so.
    fn each(&mut self, mut act: impl FnMut(&mut Watcher) -> bool) {
        for watcher in self.open.values_mut().filter(|w| w.end.is_none()) {
            if act(watcher) {
                self.due.extend(watcher.waker.take());
            }
        }
    }
}

impl Watcher {
    /// Never refused for a full queue, but at most one at its end.
    fn bookmark(&mut self, revision: u64) -> bool {
        self.seen = revision;
        self.marked = revision;
        if let Some(WatchEvent::Bookmark(last)) = self.live.back_mut() {
            *last = Revision(revision);
        } else {
            self.live
                .push_back(WatchEvent::Bookmark(Revision(revision)));
        }
        true
    }

    fn next(&mut self) -> Poll<Option<Result<WatchEvent, StoreError>>> {
        if matches!(self.end, Some(End::Broken)) {
            return Poll::Ready(None);
        }
        if let Some(event) = self.backlog.pop_front().or_else(|| self.live.pop_front()) {
            return Poll::Ready(Some(Ok(event)));
        }
        match self.end.replace(End::Broken) {
            Some(_) => Poll::Ready(Some(Err(StoreError::TooSlow {
                resume: Revision(self.seen),
            }))),
            None => {
                self.end = None;
                Poll::Pending
            }
        }
    }
}

/// The stream of one watch.
pub(super) struct MemoryWatch {
    state: Arc<Mutex<State>>,
    id: u64,
}

impl MemoryWatch {
    pub(super) fn new(state: Arc<Mutex<State>>, id: u64) -> MemoryWatch {
        MemoryWatch { state, id }
    }
}

impl Stream for MemoryWatch {
    type Item = Result<WatchEvent, StoreError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = lock(&self.state);
        let Some(watcher) = state.watchers.open.get_mut(&self.id) else {
            return Poll::Ready(None);
        };
        let next = watcher.next();
        let old = match &next {
            Poll::Pending => watcher.waker.replace(cx.waker().clone()),
            Poll::Ready(_) => watcher.waker.take(),
        };
        // The old waker may own code that takes the lock when it goes.
        drop(state);
        drop(old);
        next
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        let closed = lock(&self.state).watchers.open.remove(&self.id);
        drop(closed);
    }
}
