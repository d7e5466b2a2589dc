//! The requests in flight between the processes and the ledger. A request waits until the
//! scheduler carries it out, and its answer waits until the scheduler delivers it, so that the
//! operations of several processes interleave in every way.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use ipledger_core::api::{Key, Kind, Object, Timestamp};
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, Part, Preconditions, ReadAt, Revision, Store,
    StoreError, WatchOptions, WatchStream,
};

/// What is asked of the ledger.
#[derive(Clone, Debug)]
pub enum Request {
    Get(Key),
    List(Kind, ListOptions),
    Barrier(Kind),
    Create(Object),
    Update(Object, Part),
    Delete(Key, Preconditions),
}

impl Request {
    pub fn is_write(&self) -> bool {
        matches!(
            self,
            Request::Create(_) | Request::Update(..) | Request::Delete(..)
        )
    }

    /// The object that it is about; the kind's name for those about many.
    pub fn key(&self) -> Key {
        match self {
            Request::Get(key) | Request::Delete(key, _) => key.clone(),
            Request::Create(object) | Request::Update(object, _) => object.key(),
            Request::List(kind, _) | Request::Barrier(kind) => Key::cluster(*kind, ""),
        }
    }
}

/// What the ledger answers.
#[derive(Clone, Debug)]
pub enum Answer {
    Object(Result<Object, StoreError>),
    Page(Result<ListPage, StoreError>),
    Deletion(Result<Deletion, StoreError>),
    Revision(Result<Revision, StoreError>),
}

impl Answer {
    /// The answer to a request that failed like this.
    pub fn failure(request: &Request, error: StoreError) -> Answer {
        match request {
            Request::Get(_) | Request::Create(_) | Request::Update(..) => {
                Answer::Object(Err(error))
            }
            Request::List(..) => Answer::Page(Err(error)),
            Request::Barrier(_) => Answer::Revision(Err(error)),
            Request::Delete(..) => Answer::Deletion(Err(error)),
        }
    }

    pub fn error(&self) -> Option<&StoreError> {
        match self {
            Answer::Object(r) => r.as_ref().err(),
            Answer::Page(r) => r.as_ref().err(),
            Answer::Deletion(r) => r.as_ref().err(),
            Answer::Revision(r) => r.as_ref().err(),
        }
    }
}

/// How far a process has seen each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight([Revision; Kind::ALL.len()]);

impl Sight {
    pub fn new(reached: impl Fn(Kind) -> Revision) -> Sight {
        Sight(Kind::ALL.map(reached))
    }

    pub fn of(&self, kind: Kind) -> Revision {
        let at = Kind::ALL.iter().position(|k| *k == kind);
        at.map(|at| self.0[at]).unwrap_or_default()
    }
}

/// Who asks: a process (by its number, and how often it has started) and the pass within which it
/// asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    pub process: usize,
    pub life: u64,
    /// When it has started.
    pub born: Duration,
    pub pass: u64,
    /// What it had seen when the pass began.
    pub since: Sight,
    /// What it has seen now.
    pub now: Sight,
    /// What its wall clock says.
    pub wall: Timestamp,
    /// Whether the process makes one pass at a time.
    pub alone: bool,
}

/// How far a request has come.
#[derive(Clone, Debug)]
pub enum State {
    /// On its way to the ledger.
    Asked,
    /// Carried out; the answer is on its way back.
    Applied(Answer),
    /// The answer has arrived.
    Answered(Answer),
    /// Nobody waits for it any more; it may still be carried out.
    Abandoned,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub struct Op {
    pub caller: Caller,
    pub request: Request,
    /// Which write of its pass it is, from 0; meaningless for reads.
    pub index: usize,
    pub state: State,
    /// It does not arrive before this moment of the schedule.
    pub not_before: u64,
}

/// All requests in flight.
#[derive(Clone, Default)]
pub struct Desk(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    ops: BTreeMap<u64, Op>,
    last: u64,
    caller: Caller,
    /// How many writes each pass in work has asked for.
    writes: BTreeMap<u64, usize>,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// What is asked from now on is asked within this pass.
    pub fn enter(&self, caller: Caller) {
        self.lock().caller = caller;
    }

    /// The pass has ended.
    pub fn leave(&self, pass: u64) {
        self.lock().writes.remove(&pass);
    }

    /// The numbers of the requests for which this holds, oldest first.
    pub fn find(&self, wanted: impl Fn(&Op) -> bool) -> Vec<u64> {
        self.lock()
            .ops
            .iter()
            .filter(|(_, op)| wanted(op))
            .map(|(id, _)| *id)
            .collect()
    }

    pub fn op(&self, id: u64) -> Op {
        self.lock().ops[&id].clone()
    }

    pub fn set(&self, id: u64, state: State) {
        if let Some(op) = self.lock().ops.get_mut(&id) {
            op.state = state;
        }
    }

    /// The caller goes on as if its outcome were unknown, while the request is still on its way.
    pub fn answer_and_abandon(&self, id: u64, answer: Answer, not_before: u64) {
        let mut inner = self.lock();
        let Some(op) = inner.ops.get_mut(&id) else {
            return;
        };
        let mut rest = op.clone();
        op.state = State::Answered(answer);
        rest.state = State::Abandoned;
        rest.not_before = not_before;
        inner.last += 1;
        let last = inner.last;
        inner.ops.insert(last, rest);
    }

    pub fn remove(&self, id: u64) {
        self.lock().ops.remove(&id);
    }

    fn ask(&self, request: Request) -> Asking {
        let mut inner = self.lock();
        let caller = inner.caller;
        let mut index = 0;
        if request.is_write() {
            let count = inner.writes.entry(caller.pass).or_default();
            index = *count;
            *count += 1;
        }
        inner.last += 1;
        let id = inner.last;
        inner.ops.insert(
            id,
            Op {
                caller,
                request,
                index,
                state: State::Asked,
                not_before: 0,
            },
        );
        Asking {
            desk: self.clone(),
            id,
            done: false,
        }
    }
}

/// Waits for an answer.
struct Asking {
    desk: Desk,
    id: u64,
    done: bool,
}

impl Future for Asking {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Answer> {
        let mut inner = self.desk.lock();
        let Some(Op {
            state: State::Answered(answer),
            ..
        }) = inner.ops.get(&self.id)
        else {
            return Poll::Pending;
        };
        let answer = answer.clone();
        inner.ops.remove(&self.id);
        drop(inner);
        self.done = true;
        Poll::Ready(answer)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut inner = self.desk.lock();
        // A write that nobody waits for any more may still reach the ledger.
        let lives_on = inner
            .ops
            .get(&self.id)
            .is_some_and(|op| matches!(op.state, State::Asked) && op.request.is_write());
        if !lives_on {
            inner.ops.remove(&self.id);
        } else if let Some(op) = inner.ops.get_mut(&self.id) {
            op.state = State::Abandoned;
        }
    }
}

/// The store as a process sees it.
pub struct Client(pub Desk);

fn wrong(answer: &Answer) -> StoreError {
    StoreError::Internal {
        reason: format!("the simulated ledger answered {answer:?}"),
    }
}

#[async_trait]
impl Store for Client {
    async fn get(&self, key: &Key, _: ReadAt) -> Result<Object, StoreError> {
        match self.0.ask(Request::Get(key.clone())).await {
            Answer::Object(result) => result,
            other => Err(wrong(&other)),
        }
    }

    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        match self.0.ask(Request::List(kind, options.clone())).await {
            Answer::Page(result) => result,
            other => Err(wrong(&other)),
        }
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        match self.0.ask(Request::Create(object)).await {
            Answer::Object(result) => result,
            other => Err(wrong(&other)),
        }
    }

    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        match self.0.ask(Request::Update(object, part)).await {
            Answer::Object(result) => result,
            other => Err(wrong(&other)),
        }
    }

    async fn delete(&self, key: &Key, p: &Preconditions) -> Result<Deletion, StoreError> {
        match self.0.ask(Request::Delete(key.clone(), p.clone())).await {
            Answer::Deletion(result) => result,
            other => Err(wrong(&other)),
        }
    }

    async fn watch(&self, _: Kind, _: &WatchOptions) -> Result<WatchStream, StoreError> {
        // The host of a process follows the ledger for it.
        Err(StoreError::Internal {
            reason: "a pass does not watch".to_owned(),
        })
    }

    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        match self.0.ask(Request::Barrier(kind)).await {
            Answer::Revision(result) => result,
            other => Err(wrong(&other)),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "simulated",
            durable: false,
            cheap_barrier: true,
            max_object_bytes: 1 << 20,
            history_revisions: 0,
            shared: true,
            leases: false,
            names_unreadable: true,
            selects_any_field: true,
        }
    }
}
