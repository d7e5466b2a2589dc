//! How far the history is known in this process, and its newest events in memory, parsed once for
//! all watches.
//!
//! A watch keeps nothing but its position. What is no longer here it reads from the file, so that a
//! slow reader costs no memory and is cut off only when compaction overtakes it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipledger_core::api::Kind;
use tokio::sync::{Notify, watch};

use crate::event::Event;

/// How many events are kept in memory.
pub(crate) const MAX_EVENTS: usize = 4_096;
/// How many bytes of bodies they may have.
const MAX_BYTES: usize = 32 << 20;

/// What wakes the watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Every event up to this revision can be delivered.
    pub(crate) revision: u64,
    /// Whether the store has ended.
    pub(crate) closed: bool,
}

#[derive(Debug)]
struct Recent {
    /// All events after this revision and up to the tail are here.
    start: u64,
    tail: u64,
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Up to which revision watches of a kind are to say with a bookmark that they have got there.
    asked: BTreeMap<Kind, u64>,
}

#[derive(Debug)]
pub(crate) struct Feed {
    recent: Mutex<Recent>,
    tail: watch::Sender<Tail>,
    /// Another process has written: its events are to be read from the file now.
    pub(crate) foreign: Notify,
}

impl Feed {
    pub(crate) fn new(revision: u64) -> Feed {
        Feed {
            recent: Mutex::new(Recent {
                start: revision,
                tail: revision,
                events: VecDeque::new(),
                bytes: 0,
                asked: BTreeMap::new(),
            }),
            tail: watch::Sender::new(Tail {
                revision,
                closed: false,
            }),
            foreign: Notify::new(),
        }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Tail> {
        self.tail.subscribe()
    }

    pub(crate) fn tail(&self) -> u64 {
        self.tail.borrow().revision
    }

    /// Adds the events after revision `from` and up to `to`. If the feed is not at `from`, events of
    /// another process lie between; the file is then read instead, in order.
    pub(crate) fn append(&self, from: u64, to: u64, events: Vec<Arc<Event>>) {
        let mut recent = self.recent();
        if recent.tail != from {
            drop(recent);
            self.foreign.notify_one();
            return;
        }
        for event in events {
            recent.bytes += event.size;
            recent.events.push_back(event);
        }
        while recent.events.len() > MAX_EVENTS || recent.bytes > MAX_BYTES {
            let Some(oldest) = recent.events.pop_front() else {
                break;
            };
            recent.bytes -= oldest.size;
            recent.start = oldest.revision;
        }
        recent.tail = to;
        self.publish(to);
    }

    /// Moves on to a revision without its events; the watches read them from the file.
    pub(crate) fn jump(&self, to: u64) {
        let mut recent = self.recent();
        if to > recent.tail {
            recent.events.clear();
            recent.bytes = 0;
            recent.start = to;
            recent.tail = to;
            self.publish(to);
        }
    }

    fn publish(&self, revision: u64) {
        self.tail.send_modify(|tail| tail.revision = revision);
    }

    /// At most `max` events of a kind after a revision, and the revision up to which that is all;
    /// `None` if they are not in memory.
    pub(crate) fn after(
        &self,
        revision: u64,
        kind: Kind,
        max: usize,
    ) -> Option<(Vec<Arc<Event>>, u64)> {
        let recent = self.recent();
        if revision < recent.start {
            return None;
        }
        let first = recent.events.partition_point(|e| e.revision <= revision);
        let of_kind = recent.events.range(first..).filter(|e| e.key.kind == kind);
        let events: Vec<Arc<Event>> = of_kind.take(max).cloned().collect();
        let end = match events.last() {
            Some(last) if events.len() == max => last.revision,
            _ => recent.tail,
        };
        Some((events, end))
    }

    /// Asks the watches of a kind to say that they have reached a revision, if they have not yet.
    pub(crate) fn ask(&self, kind: Kind, revision: u64) {
        let mut recent = self.recent();
        let asked = recent.asked.entry(kind).or_default();
        if *asked < revision {
            *asked = revision;
            drop(recent);
            self.tail.send_modify(|_| ());
        }
    }

    /// What [`Feed::ask`] was last told for a kind.
    pub(crate) fn asked(&self, kind: Kind) -> u64 {
        self.recent().asked.get(&kind).copied().unwrap_or(0)
    }

    /// Ends every watch, and whatever else follows the feed.
    pub(crate) fn close(&self) {
        self.tail.send_modify(|tail| tail.closed = true);
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Op, State};
    use ipledger_core::api::Key;

    fn event(revision: u64, kind: Kind, size: usize) -> Arc<Event> {
        Arc::new(Event {
            revision,
            key: Key::cluster(kind, "a"),
            op: Op::Updated,
            after: State::raw(Vec::new()),
            before: None,
            size,
        })
    }

    fn revisions(found: Option<(Vec<Arc<Event>>, u64)>) -> Option<(Vec<u64>, u64)> {
        found.map(|(events, end)| (events.iter().map(|e| e.revision).collect(), end))
    }

    #[test]
    fn a_watch_gets_the_events_of_its_kind_after_its_position() {
        let feed = Feed::new(10);
        let (ip, class) = (Kind::IPAddress, Kind::IPAddressClass);
        let events = (11..=16)
            .map(|r| event(r, if r % 2 == 0 { ip } else { class }, 1))
            .collect();
        feed.append(10, 16, events);
        assert_eq!(revisions(feed.after(12, ip, 9)), Some((vec![14, 16], 16)));
        assert_eq!(revisions(feed.after(10, ip, 2)), Some((vec![12, 14], 14)));
        assert_eq!(revisions(feed.after(16, ip, 9)), Some((vec![], 16)));
        assert_eq!(revisions(feed.after(9, ip, 9)), None);
    }

    #[test]
    fn events_behind_a_gap_are_left_to_the_file() {
        let feed = Feed::new(10);
        feed.append(11, 12, vec![event(12, Kind::IPAddress, 1)]);
        assert_eq!(feed.tail(), 10);
        feed.jump(12);
        assert_eq!(feed.tail(), 12);
        assert_eq!(revisions(feed.after(10, Kind::IPAddress, 9)), None);
        feed.jump(11);
        assert_eq!(feed.tail(), 12);
    }

    #[test]
    fn the_memory_is_bounded_by_number_and_by_bytes() {
        let feed = Feed::new(0);
        let many = MAX_EVENTS as u64 + 5;
        feed.append(
            0,
            many,
            (1..=many).map(|r| event(r, Kind::IPAddress, 1)).collect(),
        );
        assert_eq!(revisions(feed.after(4, Kind::IPAddress, 1)), None);
        assert!(feed.after(5, Kind::IPAddress, 1).is_some());
        let big = vec![event(many + 1, Kind::IPAddress, MAX_BYTES + 1)];
        feed.append(many, many + 1, big);
        assert_eq!(revisions(feed.after(many, Kind::IPAddress, 1)), None);
        assert_eq!(
            revisions(feed.after(many + 1, Kind::IPAddress, 1)),
            Some((vec![], many + 1))
        );
    }
}
