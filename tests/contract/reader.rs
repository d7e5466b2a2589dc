//! Reads a watch and checks on every event the rules that hold for every watch.

use std::collections::BTreeSet;

use futures::StreamExt;
use ipledger_core::api::{Key, Kind};
use ipledger_core::store::{
    Revision, Store, StoreError, WatchEvent, WatchFrom, WatchOptions, WatchStream,
};

use crate::case::soon;

/// A watch under observation.
pub(crate) struct Reader {
    stream: WatchStream,
    /// Nothing at or before this revision may come any more.
    pub(crate) seen: Revision,
    synced: bool,
    /// What `WatchFrom::Start` brought before `Synced`, in any order.
    initial: Option<BTreeSet<(Key, Revision)>>,
}

impl Reader {
    /// Follows all claims.
    pub(crate) async fn claims(store: &dyn Store, from: WatchFrom) -> Reader {
        Reader::open(store, Kind::IPAddressClaim, &WatchOptions::all(from))
            .await
            .unwrap()
    }

    /// Follows all claims from now on.
    pub(crate) async fn claims_from_now(store: &dyn Store) -> Reader {
        let revision = crate::make::list_claims(store).await.revision;
        Reader::claims(store, WatchFrom::After(revision)).await
    }

    pub(crate) async fn open(
        store: &dyn Store,
        kind: Kind,
        options: &WatchOptions,
    ) -> Result<Reader, StoreError> {
        let stream = soon("opening a watch", store.watch(kind, options)).await?;
        let (seen, initial) = match options.from {
            WatchFrom::Start => (Revision(0), Some(BTreeSet::new())),
            WatchFrom::After(revision) => (revision, None),
        };
        Ok(Reader {
            stream,
            seen,
            synced: false,
            initial,
        })
    }

    /// The next item; `None` at the end of the stream.
    pub(crate) async fn item(&mut self) -> Option<Result<WatchEvent, StoreError>> {
        let item = soon("the next event", self.stream.next()).await;
        if let Some(Ok(event)) = &item {
            self.check(event);
        }
        item
    }

    fn check(&mut self, event: &WatchEvent) {
        let revision = event.revision();
        match event {
            WatchEvent::Synced(_) => {
                assert!(!self.synced, "Synced came twice");
                assert!(
                    revision >= self.seen,
                    "Synced({revision}) after {}",
                    self.seen
                );
                self.synced = true;
                self.initial = None;
            }
            WatchEvent::Bookmark(_) => {
                assert!(
                    revision >= self.seen,
                    "Bookmark({revision}) after {}",
                    self.seen
                );
            }
            _ => match &mut self.initial {
                Some(initial) => {
                    let new = initial.insert((key(event), revision));
                    assert!(new, "{event:?} came twice");
                    assert!(
                        !matches!(event, WatchEvent::Deleted(_)),
                        "{event:?} before Synced"
                    );
                }
                None => assert!(revision > self.seen, "{event:?} came after {}", self.seen),
            },
        }
        self.seen = self.seen.max(revision);
    }

    /// The next event of any sort.
    pub(crate) async fn event(&mut self) -> WatchEvent {
        match self.item().await {
            Some(Ok(event)) => event,
            other => panic!("an event is expected, not {other:?}"),
        }
    }

    /// The next event about an object.
    pub(crate) async fn change(&mut self) -> WatchEvent {
        loop {
            let event = self.event().await;
            if is_change(&event) {
                return event;
            }
        }
    }

    /// All events about objects up to `Synced`, and its revision.
    pub(crate) async fn synced(&mut self) -> (Vec<WatchEvent>, Revision) {
        let mut changes = Vec::new();
        loop {
            match self.event().await {
                WatchEvent::Synced(revision) => return (changes, revision),
                event if is_change(&event) => changes.push(event),
                _ => {}
            }
        }
    }

    /// All events about objects up to the first one that reaches this revision.
    pub(crate) async fn reach(&mut self, revision: Revision) -> Vec<WatchEvent> {
        let mut changes = Vec::new();
        while self.seen < revision {
            let event = self.event().await;
            if is_change(&event) {
                changes.push(event);
            }
        }
        changes
    }

    /// All events about objects up to the end of the stream, and the error that ended it, behind
    /// which nothing may follow.
    pub(crate) async fn end(&mut self) -> (Vec<WatchEvent>, Option<StoreError>) {
        let mut changes = Vec::new();
        loop {
            match self.item().await {
                Some(Ok(event)) if is_change(&event) => changes.push(event),
                Some(Ok(_)) => {}
                Some(Err(e)) => {
                    let next = self.item().await;
                    assert!(next.is_none(), "{next:?} came after the error {e}");
                    return (changes, Some(e));
                }
                None => return (changes, None),
            }
        }
    }
}

pub(crate) fn is_change(event: &WatchEvent) -> bool {
    !matches!(event, WatchEvent::Synced(_) | WatchEvent::Bookmark(_))
}

/// The object that an event is about.
pub(crate) fn key(event: &WatchEvent) -> Key {
    match event {
        WatchEvent::Applied(object) | WatchEvent::Deleted(object) => object.key(),
        WatchEvent::Unreadable { key, .. } => key.clone(),
        other => panic!("{other:?} is about no object"),
    }
}

/// Events in short: `+name` applied, `-name` deleted, `?name` unreadable.
pub(crate) fn told(events: &[WatchEvent]) -> Vec<String> {
    let sign = |event: &WatchEvent| match event {
        WatchEvent::Applied(_) => '+',
        WatchEvent::Deleted(_) => '-',
        _ => '?',
    };
    events
        .iter()
        .map(|e| format!("{}{}", sign(e), key(e).name))
        .collect()
}
