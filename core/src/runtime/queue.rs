use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::timing::backoff;
use super::{Next, Pass};
use crate::api::Kind;
use crate::store::Revision;

/// The wait after the first failure of a key, doubled with each further one.
const BACKOFF_BASE: Duration = Duration::from_millis(5);
/// The longest wait of a key that fails.
const BACKOFF_CAP: Duration = Duration::from_secs(300);
/// All keys together: one retry in this time, once the burst is used up.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// All keys together: so many retries are not throttled.
const RETRY_BURST: u32 = 1000;

/// The keys that await a pass. No clock and no waiting of its own: methods that depend on time
/// take `now`, in monotonic time.
///
/// # Guarantees
/// * A key is never in work twice at once.
/// * A key that is added while it is in work is handed out again after [`done`](Self::done), once.
/// * A key that waits is in the queue once, however often it is added.
/// * Keys are handed out in the order in which they became ready.
/// * A key that rests (see [`hold`](Self::hold)) is not handed out before what it rests for was
///   reached; an add meanwhile is not forgotten.
/// * Retries wait (each key longer with each failure, all together by rate); fresh adds never do.
///
/// # Assumptions
/// * Each key that [`next`](Self::next) returned is given back by `done`.
#[derive(Debug)]
pub struct WorkQueue<K> {
    entries: BTreeMap<K, Entry>,
    ready: VecDeque<K>,
    due: BTreeSet<(Duration, K)>,
    held: BTreeMap<Kind, BTreeSet<(Revision, K)>>,
    reached: BTreeMap<Kind, Revision>,
    /// Retries so far, as the time up to which their rate is used up.
    retries_until: Duration,
    /// Entries that are not settled, see [`Entry::busy`].
    busy: usize,
}

/// What is known of a key; a key with nothing to say has no entry.
#[derive(Debug, Default)]
struct Entry {
    /// It is to be handed out.
    wanted: bool,
    /// It is in `ready`.
    queued: bool,
    in_work: bool,
    due: Option<Duration>,
    rests_for: BTreeMap<Kind, Revision>,
    failures: u32,
}

impl Entry {
    fn is_ready(&self) -> bool {
        self.wanted && !self.in_work && self.rests_for.is_empty()
    }

    fn busy(&self) -> bool {
        self.wanted || self.in_work || self.failures > 0 || !self.rests_for.is_empty()
    }

    fn is_blank(&self) -> bool {
        !self.busy() && !self.queued && self.due.is_none()
    }
}

impl<K: Ord + Clone> WorkQueue<K> {
    /// An empty queue.
    pub fn new() -> WorkQueue<K> {
        WorkQueue {
            entries: BTreeMap::new(),
            ready: VecDeque::new(),
            due: BTreeSet::new(),
            held: BTreeMap::new(),
            reached: BTreeMap::new(),
            retries_until: Duration::ZERO,
            busy: 0,
        }
    }

    /// Asks for a pass over the key, as soon as it may be handed out.
    pub fn add(&mut self, key: &K) {
        self.change(key, |entry| entry.wanted = true);
    }

    /// Asks for a pass over the key at that time, unless it is handed out before: every pass
    /// decides anew whether it wants another one later.
    pub fn add_after(&mut self, key: &K, at: Duration) {
        let due = self.entries.get(key).and_then(|e| e.due);
        if due.is_none_or(|due| at < due) {
            self.set_due(key, Some(at));
        }
    }

    /// Asks for another pass after a failed one; returns how long it will wait.
    pub fn retry(&mut self, key: &K, now: Duration) -> Duration {
        self.retry_from(key, now, 0)
    }

    /// Asks for another pass after one that was overtaken by somebody else's write: the first
    /// repetition is free, further ones wait as after failures. Returns the wait.
    pub fn retry_soon(&mut self, key: &K, now: Duration) -> Duration {
        self.retry_from(key, now, 1)
    }

    fn retry_from(&mut self, key: &K, now: Duration, free: u32) -> Duration {
        let failures = self.change(key, |entry| {
            entry.failures = entry.failures.saturating_add(1);
            entry.failures
        });
        self.retries_until = self.retries_until.max(now).saturating_add(RETRY_INTERVAL);
        let throttle = self
            .retries_until
            .saturating_sub(now)
            .saturating_sub(RETRY_INTERVAL.saturating_mul(RETRY_BURST));
        let wait = backoff(BACKOFF_BASE, BACKOFF_CAP, failures.saturating_sub(free)).max(throttle);
        self.add_after(key, now.saturating_add(wait));
        wait
    }

    /// The last pass over the key was a success: its failures are forgotten.
    pub fn succeeded(&mut self, key: &K) {
        self.change(key, |entry| entry.failures = 0);
    }

    /// How many passes over the key have failed in a row.
    pub fn failures(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |e| e.failures)
    }

    /// Lets the key rest until each of these was [`reached`](Self::reached) (now or in the past):
    /// what it has written must be seen before it is worked on again.
    pub fn hold(&mut self, key: &K, until: &[(Kind, Revision)]) {
        for (kind, revision) in until {
            let passed = self.reached.get(kind).is_some_and(|r| r >= revision);
            let known = self
                .entries
                .get(key)
                .and_then(|e| e.rests_for.get(kind).copied());
            if passed || known.is_some_and(|known| known >= *revision) {
                continue;
            }
            let held = self.held.entry(*kind).or_default();
            if let Some(known) = known {
                held.remove(&(known, key.clone()));
            }
            held.insert((*revision, key.clone()));
            self.change(key, |entry| entry.rests_for.insert(*kind, *revision));
        }
    }

    /// Everything of the kind up to this revision has been observed.
    pub fn reached(&mut self, kind: Kind, revision: Revision) {
        let reached = self.reached.entry(kind).or_insert(revision);
        *reached = revision.max(*reached);
        while let Some(held) = self.held.get_mut(&kind)
            && held.first().is_some_and(|(r, _)| *r <= revision)
            && let Some((_, key)) = held.pop_first()
        {
            self.change(&key, |entry| entry.rests_for.remove(&kind));
        }
    }

    /// The next key to work on, if one is ready.
    pub fn next(&mut self, now: Duration) -> Option<K> {
        while let Some((at, key)) = self.due.first()
            && *at <= now
        {
            let key = key.clone();
            self.add(&key);
            self.set_due(&key, None);
        }
        while let Some(key) = self.ready.pop_front() {
            let taken = self.change(&key, |entry| {
                entry.queued = false;
                // It may have been put to rest while it was waiting here.
                let taken = entry.rests_for.is_empty();
                if taken {
                    entry.wanted = false;
                    entry.in_work = true;
                }
                taken
            });
            if taken {
                self.set_due(&key, None);
                return Some(key);
            }
        }
        None
    }

    /// The time of the next delayed add or retry.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Books the end of a pass over a key that was handed out, and gives the key back: it rests
    /// until all that it wrote of these kinds was seen, and is wanted again as the pass says.
    /// Returns the wait before a repetition.
    pub fn book(
        &mut self,
        key: &K,
        pass: &Pass<K>,
        kinds: &[Kind],
        now: Duration,
    ) -> Option<Duration> {
        // What is not observed will never be seen to arrive.
        let wrote = pass.wrote.iter().filter(|(kind, _)| kinds.contains(kind));
        let wrote: Vec<_> = wrote.copied().collect();
        self.hold(key, &wrote);
        let wait = match &pass.next {
            Next::Wait => {
                self.succeeded(key);
                None
            }
            Next::After(wait) => {
                self.succeeded(key);
                self.add_after(key, now.saturating_add(*wait));
                None
            }
            Next::Again => Some(self.retry_soon(key, now)),
            Next::Failed(_) => Some(self.retry(key, now)),
        };
        self.done(key);
        wait
    }

    /// Gives back a key that was handed out.
    pub fn done(&mut self, key: &K) {
        self.change(key, |entry| entry.in_work = false);
    }

    /// How many keys are ready to be handed out.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether no key is ready to be handed out.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Whether the key is queued, in work, delayed, or rests. This is no reason to leave out an
    /// add that must not be lost: a pass in work may have looked already.
    pub fn is_known(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether nothing is to be done now: no key waits, rests, is in work or has failed. Delayed
    /// adds may be ahead.
    pub fn is_idle(&self) -> bool {
        self.busy == 0
    }

    fn set_due(&mut self, key: &K, at: Option<Duration>) {
        let old = self.change(key, |entry| std::mem::replace(&mut entry.due, at));
        if let Some(old) = old {
            self.due.remove(&(old, key.clone()));
        }
        if let Some(at) = at {
            self.due.insert((at, key.clone()));
        }
    }

    /// The one place where entries change, so that `ready` and `busy` cannot fall out of step.
    fn change<T>(&mut self, key: &K, change: impl FnOnce(&mut Entry) -> T) -> T {
        let mut entry = self.entries.remove(key).unwrap_or_default();
        self.busy -= usize::from(entry.busy());
        let result = change(&mut entry);
        self.busy += usize::from(entry.busy());
        if entry.is_ready() && !entry.queued {
            entry.queued = true;
            self.ready.push_back(key.clone());
        }
        if !entry.is_blank() {
            self.entries.insert(key.clone(), entry);
        }
        result
    }
}

impl<K: Ord + Clone> Default for WorkQueue<K> {
    fn default() -> WorkQueue<K> {
        WorkQueue::new()
    }
}
