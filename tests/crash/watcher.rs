//! A client that watches across every crash: it goes on from the last revision that it was told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipledger_tests::program::{api, wait_for};
use ipledger_tests::watch::Watch;
use serde_json::Value;

use crate::book::{Seen, Sort};

/// How long a watch may be silent. It is told how far it has got every two seconds.
const SILENCE: Duration = Duration::from_secs(20);

/// What a watch says of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) deleted: bool,
    pub(crate) seen: Seen,
}

pub(crate) struct Watcher {
    sort: Sort,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    /// Everything up to here.
    last: u64,
    /// Since somebody has taken them.
    events: Vec<Event>,
    /// The IPs of each claim that was ever told to be bound, by uid.
    bound: BTreeMap<String, Value>,
}

impl Watcher {
    /// A watcher of everything after this revision.
    pub(crate) fn after(sort: Sort, last: u64) -> Watcher {
        Watcher {
            sort,
            told: Mutex::new(Told {
                last,
                ..Told::default()
            }),
        }
    }

    pub(crate) fn sort(&self) -> Sort {
        self.sort
    }

    /// Everything up to here was told.
    pub(crate) fn last(&self) -> u64 {
        self.told().last
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches until the connection breaks after `over` was set.
    pub(crate) fn follow(&self, address: &str, over: &AtomicBool) {
        while !over.load(Ordering::SeqCst) {
            let last = self.told().last;
            let path = api(self.sort.path())
                + &format!("?watch=true&allowWatchBookmarks=true&resourceVersion={last}");
            match Watch::open(address, &path, SILENCE) {
                Ok(mut watch) => {
                    while let Some(event) = watch.next_event() {
                        self.told().note(&event);
                    }
                }
                Err(e) => assert!(over.load(Ordering::SeqCst), "{path}: {e}"),
            }
        }
    }

    /// Waits until it has been told everything up to a revision, and takes that.
    pub(crate) fn take_up_to(&self, revision: u64) -> Vec<Event> {
        wait_for("the watcher has caught up", || self.told().last >= revision);
        let mut told = self.told();
        let after = told.events.partition_point(|e| e.seen.revision <= revision);
        told.events.drain(..after).collect()
    }
}

impl Told {
    fn note(&mut self, event: &Value) {
        let seen = Seen::read(&event["object"]);
        let at = seen.revision;
        match event["type"].as_str() {
            Some("BOOKMARK") => assert!(at >= self.last, "{event} after {}", self.last),
            Some(kind @ ("ADDED" | "MODIFIED" | "DELETED")) => {
                assert!(at > self.last, "{event} after {}", self.last);
                self.check_binding(&seen, &event["object"]["status"]);
                let deleted = kind == "DELETED";
                self.events.push(Event { deleted, seen });
            }
            _ => panic!("after {}: {event}", self.last),
        }
        self.last = at;
    }

    /// What a tenant was told once stays true.
    fn check_binding(&mut self, seen: &Seen, status: &Value) {
        if status["phase"] != "Bound" || status["addresses"].is_null() {
            return;
        }
        let ips = &status["addresses"];
        let before = self
            .bound
            .entry(seen.uid.clone())
            .or_insert_with(|| ips.clone());
        assert_eq!(before, ips, "the addresses of {seen:?}");
    }
}

/// What a watch that was never broken says of a stretch of the history.
pub(crate) fn uninterrupted(address: &str, sort: Sort, from: u64, to: u64) -> Vec<Event> {
    let watcher = Watcher::after(sort, from);
    let path = api(sort.path()) + &format!("?watch=true&resourceVersion={from}");
    let mut watch = Watch::open(address, &path, SILENCE).unwrap();
    while watcher.told().last < to {
        let event = watch.next_event().expect("the watch goes on");
        watcher.told().note(&event);
    }
    watcher.take_up_to(to)
}

/// What is there after these events.
pub(crate) fn fold(objects: &mut BTreeMap<String, Seen>, events: &[Event]) {
    for Event { deleted, seen } in events {
        if *deleted {
            objects.remove(&seen.name);
        } else {
            objects.insert(seen.name.clone(), seen.clone());
        }
    }
}
