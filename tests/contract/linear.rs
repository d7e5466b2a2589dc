//! Short histories of callers that work on one or two objects at once, each checked for
//! linearizability. Some answers are lost, some callers give up.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use ipledger_core::api::Object;
use ipledger_core::store::{Deletion, Part, Preconditions, ReadAt, Store, StoreError};
use ipledger_tests::random::Random;
use serde_json::json;
use tokio::task::JoinSet;

use crate::backend::Ledger;
use crate::case::cases;
use crate::linear_checker::{Answer, Call, KEYS, Op, Version, check};
use crate::linear_faults::Connection;
use crate::make::*;

cases![
    histories_of_concurrent_callers_are_linearizable,
    histories_with_lost_answers_are_linearizable,
    histories_with_callers_that_give_up_are_linearizable,
    histories_of_two_clients_with_every_fault_are_linearizable,
];

/// In so many histories of a case with faults at least, there is a call of which its caller does not know
/// whether it happened. (The three together are the 1,000 that are promised of each backend.)
const UNSURE: usize = 334;
/// How many run at one time.
const AT_ONCE: usize = 4;

/// What goes wrong in a history.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Of so many writes one has no answer, is late or is lost; 0 for none.
    pub(crate) one_in: usize,
    /// Whether callers give up now and then.
    pub(crate) give_up: bool,
}

async fn histories_of_concurrent_callers_are_linearizable(l: Ledger) {
    all_hold(vec![l.store.clone()], Faults::default(), 1, 250).await;
}

async fn histories_with_lost_answers_are_linearizable(l: Ledger) {
    let faults = Faults {
        one_in: 4,
        give_up: false,
    };
    all_hold(vec![l.store.clone()], faults, 2, 470).await;
}

async fn histories_with_callers_that_give_up_are_linearizable(l: Ledger) {
    let faults = Faults {
        one_in: 0,
        give_up: true,
    };
    // Where calls are quick, few callers give up in time.
    all_hold(vec![l.store.clone()], faults, 3, 650).await;
}

async fn histories_of_two_clients_with_every_fault_are_linearizable(l: Ledger) {
    let faults = Faults {
        one_in: 6,
        give_up: true,
    };
    let other = l.second_client().await.unwrap_or(l.store.clone());
    all_hold(vec![l.store.clone(), other], faults, 4, 470).await;
}

async fn all_hold(stores: Vec<Arc<dyn Store>>, faults: Faults, seed: u64, n: usize) {
    match histories(stores, faults, seed, n).await {
        Err(e) => panic!("{e}"),
        Ok(tally) => {
            println!("{n} histories of seed {seed}: {tally:?}");
            let enough = tally.calls > 8 * n && tally.overlapping > 2 * n;
            let unknown = if faults.one_in > 0 || faults.give_up {
                tally.unsure >= UNSURE && tally.happened > n / 10
            } else {
                // A real server may fall silent by itself, now and then.
                tally.unknown < n / 10
            };
            assert!(enough && unknown, "they prove little: {tally:?}");
        }
    }
}

/// Runs so many histories, several at one time.
///
/// # Errors
/// The first that is not linearizable.
pub(crate) async fn histories(
    stores: Vec<Arc<dyn Store>>,
    faults: Faults,
    seed: u64,
    n: usize,
) -> Result<Tally, String> {
    let mut random = Random::new(seed);
    let new = |number| History::new(&stores, faults, number, &mut random);
    let runs: Vec<_> = (0..n).map(new).map(History::run).collect();
    let mut made = stream::iter(runs).buffer_unordered(AT_ONCE);
    let mut tally = Tally::default();
    while let Some((number, calls)) = made.next().await {
        tally.add(&calls);
        check(calls).map_err(|e| format!("history {number} of seed {seed}: {e}"))?;
    }
    Ok(tally)
}

/// When a caller gives up.
enum Patience {
    Endless,
    Time(Duration),
    /// After so many looks at how the call is getting on, one right after the other.
    Polls(usize),
}

impl Patience {
    /// `None` after giving up.
    async fn wait<T>(self, call: impl Future<Output = T>) -> Option<T> {
        match self {
            Patience::Endless => Some(call.await),
            Patience::Time(time) => tokio::time::timeout(time, call).await.ok(),
            Patience::Polls(mut left) => {
                let mut call = std::pin::pin!(call);
                poll_fn(|context| {
                    if left == 0 {
                        return Poll::Ready(None);
                    }
                    left -= 1;
                    context.waker().wake_by_ref();
                    call.as_mut().poll(context).map(Some)
                })
                .await
            }
        }
    }
}

/// What the calls of some histories were like.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    calls: usize,
    /// That began before the one before them was answered.
    overlapping: usize,
    unknown: usize,
    /// Of which was seen later that they happened.
    happened: usize,
    /// Histories with such a call.
    unsure: usize,
}

impl Tally {
    fn add(&mut self, calls: &[Call]) {
        let mut calls: Vec<_> = calls.iter().collect();
        calls.sort_by_key(|call| call.began);
        self.calls += calls.len();
        let overlap = |pair: &&[&Call]| pair[1].began < pair[0].answered;
        self.overlapping += calls.windows(2).filter(overlap).count();
        let unknown = calls.iter().filter(|c| c.answer == Answer::Unknown);
        self.unknown += unknown.clone().count();
        self.unsure += usize::from(unknown.clone().next().is_some());
        let seen = |value| {
            let version = |c: &&Call| matches!(&c.answer, Answer::Is(v) if v.value == value);
            calls.iter().copied().any(|c| version(&c))
        };
        let happened = unknown.filter(|c| match c.op {
            Op::Create { value } | Op::Update { value, .. } => seen(value),
            Op::Get | Op::Delete { .. } => false,
        });
        self.happened += happened.count();
    }
}

/// One history in the making.
struct History {
    number: usize,
    clients: Vec<Client>,
    record: Arc<Record>,
}

#[derive(Default)]
struct Record {
    clock: AtomicU64,
    values: AtomicU64,
    calls: Mutex<Vec<Call>>,
}

struct Client {
    store: Arc<dyn Store>,
    random: Random,
    record: Arc<Record>,
    names: [String; KEYS],
    calls: usize,
    give_up: bool,
    /// The objects as it last saw them.
    seen: [Option<Object>; KEYS],
}

impl History {
    fn new(
        stores: &[Arc<dyn Store>],
        faults: Faults,
        number: usize,
        random: &mut Random,
    ) -> History {
        let record = Arc::new(Record::default());
        let clients = 2 + random.below(3);
        let calls = 8 + random.below(13);
        let client = |n: usize| {
            let store = stores[n % stores.len()].clone();
            Client {
                store: Arc::new(Connection::new(store, random.fork(), faults.one_in)),
                random: random.fork(),
                record: record.clone(),
                names: std::array::from_fn(|key| format!("h-{number}-{key}")),
                calls: (calls + n) / clients,
                give_up: faults.give_up,
                seen: Default::default(),
            }
        };
        History {
            number,
            clients: (0..clients).map(client).collect(),
            record,
        }
    }

    /// Lets the clients work, and reads what is there at the end.
    async fn run(self) -> (usize, Vec<Call>) {
        let first = &self.clients[0];
        let mut last = Client {
            store: first.store.clone(),
            random: Random::new(self.number as u64),
            record: self.record.clone(),
            names: first.names.clone(),
            calls: 0,
            give_up: false,
            seen: Default::default(),
        };
        let mut tasks = JoinSet::new();
        for client in self.clients {
            tasks.spawn(client.work());
        }
        tasks.join_all().await;
        for key in 0..KEYS {
            last.call(key, Op::Get).await;
        }
        let calls = self.record.calls.lock();
        (
            self.number,
            calls.unwrap_or_else(PoisonError::into_inner).clone(),
        )
    }
}

impl Client {
    async fn work(mut self) {
        for _ in 0..self.calls {
            // Mostly on one object, so that the callers meet.
            let key = usize::from(self.random.one_in(3));
            let op = self.choose(key);
            self.call(key, op).await;
        }
    }

    fn choose(&mut self, key: usize) -> Op {
        let value = self.record.values.fetch_add(1, SeqCst) + 1;
        let base = self.seen[key].as_ref().map(|o| version(o).value);
        let delete_of = if self.random.one_in(2) { base } else { None };
        match (self.random.below(10), base) {
            (0..=1, _) => Op::Get,
            (2..=6, Some(base)) => Op::Update { base, value },
            (2..=6, None) => Op::Create { value },
            (7, _) => Op::Create { value },
            (8, None) => Op::Get,
            _ => Op::Delete { base: delete_of },
        }
    }

    fn patience(&mut self) -> Patience {
        match self.random.below(9) {
            0 | 1 if self.give_up => Patience::Polls(self.random.below(16)),
            2 if self.give_up => {
                Patience::Time(Duration::from_millis(1 + self.random.below(4) as u64))
            }
            _ => Patience::Endless,
        }
    }

    /// Makes a call and records it, unless nothing is to be learnt from it.
    async fn call(&mut self, key: usize, op: Op) {
        let patience = self.patience();
        let tick = || self.record.clock.fetch_add(1, SeqCst);
        let began = tick();
        let result = patience.wait(self.ask(key, op)).await;
        let answered = tick();
        let answer = match result {
            Some(Ok(object)) => {
                let gone = matches!(op, Op::Delete { .. });
                let answer = Answer::Is(version(&object));
                self.seen[key] = (!gone).then_some(object);
                answer
            }
            Some(Err(StoreError::NotFound { .. })) => {
                self.seen[key] = None;
                Answer::Absent
            }
            Some(Err(StoreError::AlreadyExists { uid, .. })) => Answer::Exists(uid),
            Some(Err(StoreError::Conflict { .. } | StoreError::PreconditionFailed { .. })) => {
                Answer::Changed
            }
            // Nothing was written.
            Some(Err(StoreError::Unavailable { .. })) => return,
            Some(Err(StoreError::OutcomeUnknown { .. })) => Answer::Unknown,
            Some(Err(e)) => panic!("{op:?}: {e}"),
            None if op == Op::Get => return,
            None => Answer::Unknown,
        };
        let call = Call {
            key,
            op,
            answer,
            began,
            answered,
        };
        let mut calls = self.record.calls.lock();
        calls.as_mut().unwrap_or_else(|e| e.get_mut()).push(call);
    }

    async fn ask(&self, at: usize, op: Op) -> Result<Object, StoreError> {
        let key = key(&self.names[at]);
        let with = |object: Object, value| object.field("spec", json!({"value": value}));
        match op {
            Op::Get => self.store.get(&key, ReadAt::Latest).await,
            Op::Create { value } => self.store.create(with(claim(&key.name), value)).await,
            Op::Update { value, .. } => {
                let seen = self.seen[at]
                    .clone()
                    .expect("it is updated from what was seen");
                self.store.update(with(seen, value), Part::Main).await
            }
            Op::Delete { base } => {
                let seen = self.seen[at].as_ref().filter(|_| base.is_some());
                let preconditions = Preconditions {
                    uid: None,
                    revision: seen.and_then(Object::revision),
                };
                match self.store.delete(&key, &preconditions).await? {
                    Deletion::Gone(object) => Ok(object),
                    Deletion::Finalizing(object) => panic!("nobody holds {object:?}"),
                }
            }
        }
    }
}

fn version(object: &Object) -> Version {
    Version {
        value: object.fields["spec"]["value"].as_u64().expect("a value"),
        revision: revision(object).0,
        uid: object.metadata.uid.clone(),
    }
}
