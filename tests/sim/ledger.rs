//! The real ledger behind the simulation: the in-memory store, and the oracle that looks at every
//! revision of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use ipledger_core::api::{Key, Kind, Object, Resource, ResourceSpec};
use ipledger_core::store::{
    Deletion, ListOptions, ListPage, MemoryStore, Part, Preconditions, ReadAt, Revision, Store,
    StoreError, WatchOptions, WatchStream,
};

use crate::clock::Time;
use crate::desk::{Answer, Caller, Request};
use crate::oracle::{Oracle, Thing, Verb, Written};

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Tenant,
    Admin,
    /// Somebody who takes finalizers off or wipes a status, which nobody can prevent.
    Vandal,
    /// A driver of another make.
    Driver,
    /// Our range driver.
    Range,
    /// The binding core.
    Core,
}

/// The ledger. A clone is the same one.
#[derive(Clone)]
pub struct Ledger {
    store: MemoryStore,
    oracle: Arc<Mutex<Oracle>>,
    time: Time,
}

/// Everything in memory is ready at once.
fn now<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never()
        .expect("the in-memory store never waits")
}

impl Ledger {
    pub fn new(time: Time) -> Ledger {
        let last = AtomicU64::new(0);
        let clock = time.clone();
        let store = MemoryStore::new(
            move || clock.wall(0),
            move || format!("u{:04}", last.fetch_add(1, Ordering::Relaxed) + 1),
        );
        Ledger {
            store,
            oracle: Arc::default(),
            time,
        }
    }

    /// What is known and found wrong.
    pub fn oracle(&self) -> MutexGuard<'_, Oracle> {
        // Readable also after a panic, for the report.
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries the request of a pass out.
    pub fn execute(&self, who: Who, by: Caller, request: &Request) -> Answer {
        self.oracle().begin(by);
        let answer = self.carry_out(who, request);
        self.oracle().end(request, &answer);
        answer
    }

    fn carry_out(&self, who: Who, request: &Request) -> Answer {
        match request {
            Request::Get(key) => Answer::Object(self.get(key)),
            Request::List(kind, options) => Answer::Page(self.list(*kind, options)),
            Request::Barrier(kind) => Answer::Revision(now(self.store.barrier(*kind))),
            Request::Create(object) => Answer::Object(self.create(who, object.clone())),
            Request::Update(object, part) => {
                Answer::Object(self.update(who, object.clone(), *part))
            }
            Request::Delete(key, p) => Answer::Deletion(self.delete(who, key, p)),
        }
    }

    pub fn get(&self, key: &Key) -> Result<Object, StoreError> {
        now(self.store.get(key, ReadAt::Latest))
    }

    pub fn create(&self, who: Who, object: Object) -> Result<Object, StoreError> {
        let result = now(self.store.create(object));
        if let Ok(stored) = &result {
            self.saw(who, Verb::Create, stored, false);
        }
        result
    }

    pub fn update(&self, who: Who, object: Object, part: Part) -> Result<Object, StoreError> {
        let asked = object.revision();
        let result = now(self.store.update(object, part));
        if let Ok(stored) = &result {
            if stored.revision() == asked {
                self.oracle().idle_write(who, &stored.key(), part);
            } else {
                let gone = self.get(&stored.key()).is_err();
                self.saw(who, Verb::Update(part), stored, gone);
            }
        }
        result
    }

    pub fn delete(&self, who: Who, key: &Key, p: &Preconditions) -> Result<Deletion, StoreError> {
        let before = self.get(key).ok().and_then(|o| o.revision());
        let result = now(self.store.delete(key, p));
        let verb = Verb::Delete(p.clone());
        match &result {
            Ok(Deletion::Gone(last)) => self.saw(who, verb, last, true),
            Ok(Deletion::Finalizing(marked)) if marked.revision() != before => {
                self.saw(who, verb, marked, false);
            }
            _ => {}
        }
        result
    }

    fn saw(&self, who: Who, verb: Verb, stored: &Object, gone: bool) {
        let thing = Thing::decode(stored).expect("the simulation writes well-formed objects");
        let mut oracle = self.oracle();
        oracle.time = self.time.now();
        oracle.written(&Written {
            who,
            verb,
            revision: stored.revision().unwrap_or_default(),
            key: stored.key(),
            last: thing,
            gone,
        });
    }

    /// Creates a typed object; false if that is refused.
    pub fn add<S: ResourceSpec>(&self, who: Who, resource: &Resource<S>) -> bool {
        self.create(who, resource.to_object().expect("it can be written"))
            .is_ok()
    }

    /// Changes a typed object as it is now; false if it is not there or nothing changes.
    pub fn edit<S: ResourceSpec>(
        &self,
        who: Who,
        key: &Key,
        part: Part,
        change: impl FnOnce(&mut Resource<S>),
    ) -> bool {
        let Ok(object) = self.get(key) else {
            return false;
        };
        let mut resource = Resource::<S>::from_object(&object).expect("it is well-formed");
        change(&mut resource);
        let next = resource.to_object().expect("it can be written");
        next != object && self.update(who, next, part).is_ok()
    }

    /// Follows a kind.
    pub fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        now(self.store.watch(kind, options))
    }

    /// One page of the objects of a kind.
    pub fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        now(self.store.list(kind, options))
    }

    /// The first page of the objects of a kind as they are now.
    pub fn first_page(&self, kind: Kind, limit: usize) -> ListPage {
        let limit = Some(limit);
        let options = ListOptions {
            limit,
            ..ListOptions::default()
        };
        self.list(kind, &options).expect("a listing of now")
    }

    /// The newest revision.
    pub fn revision(&self) -> Revision {
        self.first_page(Kind::IPAddressClass, 1).revision
    }

    /// Tells every watch how far it is.
    pub fn bookmark_all(&self) {
        self.store.bookmark_all();
    }

    /// Forgets the whole history.
    pub fn compact(&self) {
        self.store.compact(self.revision());
    }
}
