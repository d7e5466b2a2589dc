use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use crate::api::Kind;
use crate::runtime::WorkQueue;
use crate::store::Revision;

const CLAIM: Kind = Kind::IPAddressClaim;
const ADDRESS: Kind = Kind::IPAddress;
const START: Duration = Duration::ZERO;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn keys_come_out_once_each_in_the_order_in_which_they_came() {
    let mut queue = WorkQueue::new();
    for key in [3, 1, 2, 1, 3] {
        queue.add(&key);
    }
    assert_eq!(queue.len(), 3);
    let out: Vec<_> = std::iter::from_fn(|| queue.next(START)).collect();
    assert_eq!(out, [3, 1, 2]);
}

#[test]
fn a_key_added_while_it_is_in_work_comes_out_again_when_it_is_done() {
    let mut queue = WorkQueue::new();
    queue.add(&1);
    assert_eq!(queue.next(START), Some(1));
    queue.add(&1);
    queue.add(&1);
    assert_eq!(queue.next(START), None, "never two workers on one key");
    queue.done(&1);
    assert_eq!(queue.next(START), Some(1));
    queue.done(&1);
    assert_eq!(queue.next(START), None);
    assert!(queue.is_idle() && !queue.is_known(&1));
}

#[test]
fn a_delayed_key_comes_out_at_its_earliest_time() {
    let mut queue = WorkQueue::new();
    queue.add_after(&1, ms(50));
    queue.add_after(&1, ms(20));
    queue.add_after(&1, ms(90));
    assert_eq!(queue.next_deadline(), Some(ms(20)));
    assert_eq!(queue.next(ms(19)), None);
    assert!(queue.is_known(&1));
    assert_eq!(queue.next(ms(20)), Some(1));
    assert_eq!(queue.next_deadline(), None, "the pass decides anew");
}

#[test]
fn a_fresh_add_overtakes_a_delay() {
    let mut queue = WorkQueue::new();
    queue.add_after(&1, ms(1_000));
    queue.add(&1);
    assert_eq!(queue.next(START), Some(1));
    queue.done(&1);
    assert_eq!(queue.next(ms(5_000)), None);
}

#[test]
fn a_key_that_fails_waits_twice_as_long_each_time_until_it_succeeds() {
    let mut queue = WorkQueue::new();
    let waits: Vec<_> = (0..4).map(|_| queue.retry(&1, START)).collect();
    assert_eq!(waits, [ms(5), ms(10), ms(20), ms(40)]);
    assert_eq!(queue.failures(&1), 4);
    assert!(!queue.is_idle());
    for _ in 0..20 {
        queue.retry(&1, START);
    }
    assert_eq!(queue.retry(&1, START), Duration::from_secs(300));
    queue.succeeded(&1);
    assert_eq!(queue.retry(&1, START), ms(5));
}

#[test]
fn the_first_repetition_after_a_lost_race_is_at_once() {
    let mut queue = WorkQueue::new();
    let waits: Vec<_> = (0..3).map(|_| queue.retry_soon(&1, START)).collect();
    assert_eq!(waits, [ms(0), ms(5), ms(10)]);
    assert_eq!(queue.next(START), Some(1));
}

#[test]
fn many_retries_at_once_are_spread_and_fresh_adds_are_not() {
    let mut queue = WorkQueue::new();
    let waits: Vec<_> = (0..1_100).map(|key| queue.retry(&key, START)).collect();
    assert!(waits[..1_000].iter().all(|w| *w == ms(5)));
    assert_eq!(waits[1_000], ms(10));
    assert_eq!(waits[1_099], ms(1_000));
    // Two seconds later the rate has caught up with them.
    assert_eq!(queue.retry(&5_000, ms(2_000)), ms(5));
    queue.add(&6_000);
    let out: BTreeSet<_> = std::iter::from_fn(|| queue.next(START)).collect();
    assert_eq!(out, [6_000].into());
}

#[test]
fn a_key_rests_until_everything_that_it_wrote_was_reached() {
    let mut queue = WorkQueue::new();
    queue.add(&1);
    queue.next(START);
    queue.hold(
        &1,
        &[
            (CLAIM, Revision(5)),
            (ADDRESS, Revision(7)),
            (ADDRESS, Revision(6)),
        ],
    );
    queue.done(&1);
    queue.add(&1);
    assert_eq!(queue.next(START), None);
    assert!(!queue.is_idle());
    queue.reached(CLAIM, Revision(9));
    queue.reached(ADDRESS, Revision(6));
    assert_eq!(queue.next(START), None);
    queue.reached(ADDRESS, Revision(7));
    assert_eq!(queue.next(START), Some(1));
}

#[test]
fn a_key_does_not_rest_for_what_was_reached_before() {
    let mut queue = WorkQueue::new();
    queue.reached(CLAIM, Revision(5));
    queue.add(&1);
    queue.hold(&1, &[(CLAIM, Revision(5))]);
    assert_eq!(queue.next(START), Some(1));
}

#[test]
fn a_key_that_rests_and_is_not_wanted_is_not_handed_out_afterwards() {
    let mut queue = WorkQueue::new();
    queue.add(&1);
    queue.next(START);
    queue.hold(&1, &[(CLAIM, Revision(5))]);
    queue.done(&1);
    assert!(queue.is_known(&1) && !queue.is_idle());
    queue.reached(CLAIM, Revision(5));
    assert_eq!(queue.next(START), None);
    assert!(!queue.is_known(&1) && queue.is_idle());
}

#[test]
fn a_key_put_to_rest_while_it_waits_is_passed_over() {
    let mut queue = WorkQueue::new();
    queue.add(&1);
    queue.add(&2);
    queue.hold(&1, &[(CLAIM, Revision(5))]);
    assert_eq!(queue.next(START), Some(2));
    assert_eq!(queue.next(START), None);
    queue.reached(CLAIM, Revision(5));
    assert_eq!(queue.next(START), Some(1));
}

/// The queue as its documentation describes it, without order and without speed.
#[derive(Default)]
struct Model {
    wanted: BTreeSet<u8>,
    in_work: BTreeSet<u8>,
    due: BTreeMap<u8, Duration>,
    rests: Vec<(u8, Kind, Revision)>,
    reached: BTreeMap<Kind, Revision>,
    failures: BTreeMap<u8, u32>,
}

impl Model {
    fn rests(&self, key: u8) -> bool {
        self.rests.iter().any(|(k, kind, revision)| {
            *k == key && self.reached.get(kind).is_none_or(|r| r < revision)
        })
    }

    fn may_come_out(&self, now: Duration) -> BTreeSet<u8> {
        let due = self
            .due
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(key, _)| key);
        let keys = self.wanted.iter().chain(due).copied();
        keys.filter(|k| !self.in_work.contains(k) && !self.rests(*k))
            .collect()
    }

    fn delay(&mut self, key: u8, at: Duration) {
        let due = self.due.entry(key).or_insert(at);
        *due = at.min(*due);
    }

    fn is_idle(&self) -> bool {
        let resting = self.rests.iter().any(|(key, ..)| self.rests(*key));
        self.wanted.is_empty() && self.in_work.is_empty() && self.failures.is_empty() && !resting
    }
}

#[derive(Clone, Debug)]
enum Op {
    Add(u8),
    AddAfter(u8, u64),
    Next,
    Hold(u8, Kind, u64),
    Reached(Kind, u64),
    /// The pass in work that is so many places behind the first ends.
    Done(usize, End),
    Wait(u64),
}

#[derive(Clone, Copy, Debug)]
enum End {
    Succeeded,
    Failed,
    Overtaken,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..5_u8;
    let kind = prop_oneof![Just(CLAIM), Just(ADDRESS)];
    let end = prop_oneof![
        Just(End::Succeeded),
        Just(End::Failed),
        Just(End::Overtaken)
    ];
    prop_oneof![
        3 => key.clone().prop_map(Op::Add),
        1 => (key.clone(), 0..30_u64).prop_map(|(k, t)| Op::AddAfter(k, t)),
        4 => Just(Op::Next),
        2 => (key, kind.clone(), 1..20_u64).prop_map(|(k, kind, r)| Op::Hold(k, kind, r)),
        2 => (kind, 1..20_u64).prop_map(|(kind, r)| Op::Reached(kind, r)),
        4 => (0..5_usize, end).prop_map(|(n, end)| Op::Done(n, end)),
        1 => (0..20_u64).prop_map(Op::Wait),
    ]
}

/// Takes the next key and checks it against the model.
fn next(queue: &mut WorkQueue<u8>, model: &mut Model, now: Duration) -> Option<u8> {
    let possible = model.may_come_out(now);
    let key = queue.next(now);
    // What came due is wanted from now on, as if it had been added.
    let due: Vec<u8> = model
        .due
        .iter()
        .filter(|(_, at)| **at <= now)
        .map(|(k, _)| *k)
        .collect();
    for key in due {
        model.due.remove(&key);
        model.wanted.insert(key);
    }
    match key {
        None => assert!(possible.is_empty(), "lost: {possible:?}"),
        Some(key) => {
            assert!(possible.contains(&key), "{key} is not one of {possible:?}");
            model.wanted.remove(&key);
            model.due.remove(&key);
            model.in_work.insert(key);
        }
    }
    key
}

fn end(queue: &mut WorkQueue<u8>, model: &mut Model, key: u8, end: End, now: Duration) {
    match end {
        End::Succeeded => {
            queue.succeeded(&key);
            model.failures.remove(&key);
        }
        End::Failed | End::Overtaken => {
            let wait = match end {
                End::Failed => queue.retry(&key, now),
                _ => queue.retry_soon(&key, now),
            };
            *model.failures.entry(key).or_default() += 1;
            model.delay(key, now + wait);
        }
    }
    queue.done(&key);
    model.in_work.remove(&key);
}

proptest! {
    #[test]
    fn no_key_is_lost_or_worked_on_twice_or_handed_out_while_it_rests(
        ops in prop::collection::vec(op(), 0..200)
    ) {
        let mut queue = WorkQueue::new();
        let mut model = Model::default();
        let mut now = START;
        for op in ops {
            match op {
                Op::Add(key) => {
                    queue.add(&key);
                    model.wanted.insert(key);
                }
                Op::AddAfter(key, delay) => {
                    queue.add_after(&key, now + ms(delay));
                    model.delay(key, now + ms(delay));
                }
                Op::Next => {
                    next(&mut queue, &mut model, now);
                }
                Op::Hold(key, kind, revision) => {
                    queue.hold(&key, &[(kind, Revision(revision))]);
                    model.rests.push((key, kind, Revision(revision)));
                }
                Op::Reached(kind, revision) => {
                    queue.reached(kind, Revision(revision));
                    let reached = model.reached.entry(kind).or_default();
                    *reached = Revision(revision).max(*reached);
                }
                Op::Done(n, how) => {
                    if let Some(key) = model.in_work.iter().nth(n).copied() {
                        end(&mut queue, &mut model, key, how, now);
                    }
                }
                Op::Wait(t) => now += ms(t),
            }
            prop_assert_eq!(queue.next_deadline(), model.due.values().min().copied());
            prop_assert_eq!(queue.is_idle(), model.is_idle());
            for key in 0..5 {
                let known = model.wanted.contains(&key)
                    || model.in_work.contains(&key)
                    || model.due.contains_key(&key)
                    || model.rests(key);
                prop_assert_eq!(queue.is_known(&key), known, "key {}", key);
                let failures = model.failures.get(&key).copied().unwrap_or(0);
                prop_assert_eq!(queue.failures(&key), failures);
            }
        }
        // Once everything was reached and long after, every key comes out and nothing is left.
        for kind in [CLAIM, ADDRESS] {
            queue.reached(kind, Revision(100));
            model.reached.insert(kind, Revision(100));
        }
        now += Duration::from_secs(3_600);
        for key in model.in_work.clone() {
            end(&mut queue, &mut model, key, End::Succeeded, now);
        }
        while let Some(key) = next(&mut queue, &mut model, now) {
            end(&mut queue, &mut model, key, End::Succeeded, now);
        }
        prop_assert!(queue.is_idle() && queue.is_empty() && queue.next_deadline().is_none());
        prop_assert!((0..5).all(|key| !queue.is_known(&key)));
    }
}
