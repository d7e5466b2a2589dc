use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::watch::Watchers;
use crate::api::{Key, Kind, Object};
use crate::store::{
    ContinueToken, Filter, ListOptions, ListPage, Revision, StoreError, WatchEvent, WatchFrom,
    WatchOptions,
};

/// What is kept under a key.
#[derive(Clone)]
pub(super) enum Stored {
    Object(Arc<Object>),
    Unreadable {
        uid: String,
        revision: Revision,
        reason: String,
    },
}

impl Stored {
    pub(super) fn readable(&self, key: &Key) -> Result<&Arc<Object>, StoreError> {
        match self {
            Stored::Object(object) => Ok(object),
            Stored::Unreadable { reason, .. } => Err(StoreError::Corrupt {
                key: key.clone(),
                reason: reason.clone(),
            }),
        }
    }
}

/// One write.
pub(super) struct Change {
    pub(super) revision: Revision,
    pub(super) key: Key,
    pub(super) before: Option<Stored>,
    pub(super) after: After,
}

/// What a write left behind.
pub(super) enum After {
    Kept(Stored),
    /// The last state, with the revision of the deletion.
    Gone(Arc<Object>),
}

/// Everything that the lock protects.
pub(super) struct State {
    /// The revision of the last write. Starts at 1, because Kubernetes clients read a revision of
    /// 0 as "any".
    pub(super) revision: u64,
    /// How many revisions of history are kept.
    pub(super) history: u64,
    pub(super) watch_buffer: usize,
    pub(super) objects: BTreeMap<Key, Stored>,
    pub(super) watchers: Watchers,
    /// The changes after `compacted`, oldest first.
    log: VecDeque<Change>,
    compacted: u64,
    last_events: BTreeMap<Kind, u64>,
}

impl State {
    pub(super) fn new(history: u64, watch_buffer: usize) -> State {
        State {
            revision: 1,
            history,
            watch_buffer,
            objects: BTreeMap::new(),
            watchers: Watchers::default(),
            log: VecDeque::new(),
            compacted: 1,
            last_events: BTreeMap::new(),
        }
    }

    /// The revision of the last event of a kind; that of the empty store if there was none.
    pub(super) fn last_event(&self, kind: Kind) -> u64 {
        self.last_events.get(&kind).copied().unwrap_or(1)
    }

    /// Stores a new state and returns it with its revision.
    pub(super) fn write(&mut self, mut object: Object) -> Object {
        let revision = self.next_revision();
        object.metadata.resource_version = Some(revision);
        let stored = Stored::Object(Arc::new(object.clone()));
        self.put(object.key(), revision, stored);
        object
    }

    /// Removes an object and returns its last state with the revision of the deletion.
    pub(super) fn remove(&mut self, mut last: Object) -> Object {
        let revision = self.next_revision();
        last.metadata.resource_version = Some(revision);
        let key = last.key();
        let before = self.objects.remove(&key);
        self.record(Change {
            revision,
            key,
            before,
            after: After::Gone(Arc::new(last.clone())),
        });
        last
    }

    pub(super) fn inject_unreadable(&mut self, key: &Key, uid: String, reason: &str) -> Revision {
        let revision = self.next_revision();
        let uid = match self.objects.get(key) {
            Some(Stored::Object(object)) => object.metadata.uid.clone(),
            Some(Stored::Unreadable { uid, .. }) => uid.clone(),
            None => uid,
        };
        let stored = Stored::Unreadable {
            uid,
            revision,
            reason: reason.to_owned(),
        };
        self.put(key.clone(), revision, stored);
        revision
    }

    fn next_revision(&self) -> Revision {
        Revision(self.revision + 1)
    }

    fn put(&mut self, key: Key, revision: Revision, stored: Stored) {
        let before = self.objects.insert(key.clone(), stored.clone());
        self.record(Change {
            revision,
            key,
            before,
            after: After::Kept(stored),
        });
    }

    fn record(&mut self, change: Change) {
        self.revision = change.revision.0;
        self.last_events.insert(change.key.kind, self.revision);
        self.watchers.push(&change, self.watch_buffer);
        self.log.push_back(change);
        self.trim();
    }

    pub(super) fn keep_history(&mut self, revisions: u64) {
        self.history = revisions;
        self.trim();
    }

    fn trim(&mut self) {
        self.compact(self.revision.saturating_sub(self.history));
    }

    pub(super) fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
        while self
            .log
            .front()
            .is_some_and(|c| c.revision.0 <= self.compacted)
        {
            self.log.pop_front();
        }
        // A watch that has nothing to hear must not fall out of the history for that.
        self.watchers
            .bookmark_older_than(self.compacted, self.revision);
    }

    pub(super) fn check_reached(&self, revision: Revision) -> Result<(), StoreError> {
        if revision.0 <= self.revision {
            return Ok(());
        }
        Err(StoreError::Unavailable {
            reason: format!(
                "revision {revision} is not reached yet; the last is {}",
                self.revision
            ),
        })
    }

    fn check_kept(&self, revision: Revision) -> Result<(), StoreError> {
        if revision.0 >= self.compacted {
            return Ok(());
        }
        Err(StoreError::Expired {
            reason: format!(
                "{revision} is asked for, the history starts at {}",
                self.compacted
            ),
        })
    }

    /// Opens a watch and returns its number.
    pub(super) fn watch(&mut self, kind: Kind, options: &WatchOptions) -> Result<u64, StoreError> {
        let filter = Filter::of_watch(kind, options);
        let mut backlog = match options.from {
            WatchFrom::Start => self.existing(&filter),
            WatchFrom::After(revision) => {
                self.check_reached(revision)?;
                self.check_kept(revision)?;
                let first = self.log.partition_point(|c| c.revision <= revision);
                self.log
                    .range(first..)
                    .filter_map(|c| filter.event(c))
                    .collect()
            }
        };
        backlog.push_back(WatchEvent::Synced(Revision(self.revision)));
        Ok(self.watchers.open(filter, backlog, self.revision))
    }

    /// What exists, in the order of its revisions, as every other part of a watch.
    fn existing(&self, filter: &Filter) -> VecDeque<WatchEvent> {
        let mut events: Vec<WatchEvent> = kind_range(&self.objects, filter.kind)
            .filter_map(|(key, stored)| match stored {
                Stored::Object(object) => filter
                    .matches(stored, key)
                    .then(|| WatchEvent::Applied(object.clone())),
                Stored::Unreadable {
                    revision, reason, ..
                } => filter.matches(stored, key).then(|| WatchEvent::Unreadable {
                    key: key.clone(),
                    revision: *revision,
                    reason: reason.clone(),
                }),
            })
            .collect();
        events.sort_by_key(WatchEvent::revision);
        events.into()
    }

    pub(super) fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        let token = ContinueToken::of(options, kind)?;
        let revision = token
            .as_ref()
            .map_or(Revision(self.revision), |t| t.revision);
        if revision.0 > self.revision {
            return Err(ContinueToken::refused("is from another store"));
        }
        self.check_kept(revision)?;
        let filter = Filter::of_list(kind, options);
        let limit = options.limit.filter(|l| *l > 0).unwrap_or(usize::MAX);
        let mut page = ListPage {
            revision,
            ..ListPage::default()
        };
        let mut last: Option<Key> = None;
        let start = token.map(|t| t.after);
        for (key, stored) in self.at(kind, revision) {
            if start.as_ref().is_some_and(|s| *key <= *s) || !filter.matches(stored, key) {
                continue;
            }
            if page.items.len() == limit {
                page.continue_token = last.map(|after| ContinueToken { revision, after }.encode());
                break;
            }
            match stored.readable(key) {
                Ok(object) => page.items.push(Object::clone(object)),
                Err(e) => page.corrupt.push(e),
            }
            last = Some(key.clone());
        }
        Ok(page)
    }

    /// The objects of a kind as they were at a revision within the history: the present ones, with
    /// the later changes taken back, the newest first.
    fn at(&self, kind: Kind, revision: Revision) -> BTreeMap<&Key, &Stored> {
        let mut objects: BTreeMap<&Key, &Stored> = kind_range(&self.objects, kind).collect();
        let later = self.log.iter().rev().take_while(|c| c.revision > revision);
        for change in later.filter(|c| c.key.kind == kind) {
            match &change.before {
                Some(before) => objects.insert(&change.key, before),
                None => objects.remove(&change.key),
            };
        }
        objects
    }
}

fn kind_range(
    objects: &BTreeMap<Key, Stored>,
    kind: Kind,
) -> impl Iterator<Item = (&Key, &Stored)> {
    let first = Key::cluster(kind, "");
    objects
        .range((Bound::Included(first), Bound::Unbounded))
        .take_while(move |(key, _)| key.kind == kind)
}
