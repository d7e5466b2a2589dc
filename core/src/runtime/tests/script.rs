use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::{Clock, PausedClock};
use crate::api::{Key, Kind, Object};
use crate::store::{
    Capabilities, Deletion, ListOptions, ListPage, Part, Preconditions, ReadAt, Revision, Store,
    StoreError, WatchEvent, WatchFrom, WatchOptions, WatchStream,
};

/// What a scripted stream does after its items.
#[derive(Clone, Copy)]
pub(super) enum Then {
    End,
    FallSilent,
}

/// A call that the store has got.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    List {
        limit: Option<usize>,
        token: Option<String>,
    },
    Watch(Revision),
}

type Items = Vec<Result<WatchEvent, StoreError>>;

/// A store whose answers to `list` and `watch` are written down beforehand. When they are used
/// up, a call gets no answer.
pub(super) struct Script {
    clock: Arc<PausedClock>,
    lists: Mutex<VecDeque<Result<ListPage, StoreError>>>,
    watches: Mutex<VecDeque<Result<(Items, Then), StoreError>>>,
    calls: Mutex<Vec<(Duration, Call)>>,
}

impl Script {
    pub(super) fn new(
        clock: &Arc<PausedClock>,
        lists: Vec<Result<ListPage, StoreError>>,
        watches: Vec<Result<(Items, Then), StoreError>>,
    ) -> Arc<Script> {
        Arc::new(Script {
            clock: Arc::clone(clock),
            lists: Mutex::new(lists.into()),
            watches: Mutex::new(watches.into()),
            calls: Mutex::default(),
        })
    }

    /// The calls so far, in order.
    pub(super) fn calls(&self) -> Vec<Call> {
        let calls = self.calls.lock().unwrap();
        calls.iter().map(|(_, call)| call.clone()).collect()
    }

    /// The times of the calls so far, in milliseconds from the start.
    pub(super) fn times(&self) -> Vec<u128> {
        let calls = self.calls.lock().unwrap();
        calls.iter().map(|(at, _)| at.as_millis()).collect()
    }

    fn note(&self, call: Call) {
        self.calls
            .lock()
            .unwrap()
            .push((self.clock.monotonic(), call));
    }
}

/// The next answer, or none, ever.
async fn answer<T>(script: &Mutex<VecDeque<T>>) -> T {
    let next = script.lock().unwrap().pop_front();
    match next {
        Some(next) => next,
        None => std::future::pending().await,
    }
}

pub(super) fn page(revision: u64, items: Vec<Object>, next: Option<&str>) -> ListPage {
    ListPage {
        items,
        revision: Revision(revision),
        continue_token: next.map(str::to_owned),
        corrupt: Vec::new(),
    }
}

pub(super) fn unavailable() -> StoreError {
    StoreError::Unavailable {
        reason: "as scripted".to_owned(),
    }
}

pub(super) fn expired() -> StoreError {
    StoreError::Expired {
        reason: "as scripted".to_owned(),
    }
}

#[async_trait]
impl Store for Script {
    async fn get(&self, _: &Key, _: ReadAt) -> Result<Object, StoreError> {
        Err(unavailable())
    }

    async fn list(&self, _: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        self.note(Call::List {
            limit: options.limit,
            token: options.continue_token.clone(),
        });
        answer(&self.lists).await
    }

    async fn create(&self, _: Object) -> Result<Object, StoreError> {
        Err(unavailable())
    }

    async fn update(&self, _: Object, _: Part) -> Result<Object, StoreError> {
        Err(unavailable())
    }

    async fn delete(&self, _: &Key, _: &Preconditions) -> Result<Deletion, StoreError> {
        Err(unavailable())
    }

    async fn watch(&self, _: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        let WatchFrom::After(revision) = options.from else {
            panic!("a listing comes first");
        };
        self.note(Call::Watch(revision));
        let (items, then) = answer(&self.watches).await?;
        let rest: BoxStream<'static, _> = match then {
            Then::End => stream::empty().boxed(),
            Then::FallSilent => stream::pending().boxed(),
        };
        Ok(stream::iter(items).chain(rest).boxed())
    }

    async fn barrier(&self, _: Kind) -> Result<Revision, StoreError> {
        std::future::pending().await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: "script",
            durable: false,
            cheap_barrier: false,
            max_object_bytes: 0,
            history_revisions: 0,
            shared: false,
            leases: false,
            names_unreadable: true,
            selects_any_field: true,
        }
    }
}
