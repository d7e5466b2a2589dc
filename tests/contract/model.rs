//! Random operations on a backend and on the in-memory store, which must answer alike.
//!
//! Revisions and uids differ between the two, so that the model's are translated: each successful
//! write tells which of the backend's corresponds to which of the model's.

use std::collections::BTreeMap;

use ipledger_core::api::{Key, Kind, Object, Timestamp};
use ipledger_core::store::{
    Deletion, ListOptions, MemoryStore, Part, Preconditions, ReadAt, Revision, Store, StoreError,
    WatchEvent, WatchFrom, WatchOptions,
};
use serde_json::json;

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;
use crate::reader::Reader;

cases![
    random_operations_answer_as_the_model_does_with_seed_1,
    random_operations_answer_as_the_model_does_with_seed_2,
    random_operations_answer_as_the_model_does_with_seed_3,
    random_operations_answer_as_the_model_does_with_seed_4,
    random_operations_answer_as_the_model_does_across_compactions,
];

const STEPS: usize = 400;
const SELECTORS: [(&str, &str); 5] = [
    ("", ""),
    ("tier=gold", ""),
    ("tier notin (gold)", ""),
    ("", "spec.className=c-1"),
    ("tier", "status.phase!=Bound"),
];

async fn random_operations_answer_as_the_model_does_with_seed_1(l: Ledger) {
    Run::new(l, 1).await.run(false).await;
}

async fn random_operations_answer_as_the_model_does_with_seed_2(l: Ledger) {
    Run::new(l, 2).await.run(false).await;
}

async fn random_operations_answer_as_the_model_does_with_seed_3(l: Ledger) {
    Run::new(l, 3).await.run(false).await;
}

async fn random_operations_answer_as_the_model_does_with_seed_4(l: Ledger) {
    Run::new(l, 4).await.run(false).await;
}

async fn random_operations_answer_as_the_model_does_across_compactions(l: Ledger) {
    Run::new(l, 5).await.run(true).await;
}

/// xorshift64*: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

struct Run {
    ledger: Ledger,
    model: MemoryStore,
    random: Random,
    /// The model's revisions and the backend's.
    revisions: BTreeMap<Revision, Revision>,
    uids: BTreeMap<String, String>,
    /// Every state of every object that the model ever had.
    states: Vec<Object>,
    /// A watch for each selector, on the model and on the backend.
    watches: Vec<(Reader, Reader)>,
}

impl Run {
    async fn new(ledger: Ledger, seed: u64) -> Run {
        let model =
            MemoryStore::default().with_max_object_bytes(ledger.capabilities().max_object_bytes);
        let kind = Kind::IPAddressClaim;
        let at = list_claims(&model).await.revision;
        let real = list_claims(&*ledger.store).await.revision;
        let mut watches = Vec::new();
        for (label, field) in SELECTORS {
            let options = |from| WatchOptions {
                labels: labels(label),
                fields: fields(field),
                ..WatchOptions::all(from)
            };
            let from = |revision| options(WatchFrom::After(revision));
            watches.push((
                Reader::open(&model, kind, &from(at)).await.unwrap(),
                Reader::open(&*ledger.store, kind, &from(real))
                    .await
                    .unwrap(),
            ));
        }
        Run {
            ledger,
            model,
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            revisions: BTreeMap::from([(at, real)]),
            uids: BTreeMap::new(),
            states: Vec::new(),
            watches,
        }
    }

    async fn run(mut self, compacting: bool) {
        for step in 0..STEPS {
            match self.random.below(10) {
                0..=2 => self.create().await,
                3..=6 => self.update().await,
                7..=8 => self.delete().await,
                _ => self.list().await,
            }
            if step % 50 == 49 {
                self.read_watches().await;
            }
            if compacting && self.random.one_in(40) {
                let oldest = self.random.below(self.states.len().max(1));
                if let Some(at) = self.states.get(oldest).and_then(Object::revision) {
                    self.model.compact(at);
                    self.ledger.compact(self.revisions[&at]).await;
                }
            }
        }
        self.list_everything().await;
        self.read_watches().await;
        assert!(
            self.states.len() > STEPS / 4,
            "too few writes to prove anything"
        );
    }

    fn key(&mut self) -> Key {
        Key::claim(
            self.random.pick(&["team-a", "team-b"]),
            self.random.pick(&["a", "b", "c"]),
        )
    }

    /// Random contents for an object.
    fn contents(&mut self, mut object: Object) -> Object {
        if self.random.one_in(2) {
            object = object.label("tier", self.random.pick(&["gold", "silver"]));
        }
        if self.random.one_in(4) {
            object.metadata.labels.clear();
        }
        if self.random.one_in(3) {
            object = object.hold(self.random.pick(&[HOLD, ALSO]));
        }
        if self.random.one_in(12) {
            object = object.label("tier", "no label value");
        }
        if self.random.one_in(2) {
            object = object.asking(self.random.pick(&["c-1", "c-2"]));
        }
        if self.random.one_in(4) {
            object = object.field("extension", json!({"n": self.random.below(3)}));
        }
        if self.random.one_in(2) {
            object = object.phase(self.random.pick(&["Pending", "Bound"]));
        }
        object
    }

    async fn create(&mut self) {
        let key = self.key();
        let object = self.contents(claim_in(&key.namespace, &key.name));
        let model = self.model.create(object.clone()).await;
        let real = self.ledger.store.create(object).await;
        self.compare(model, real);
    }

    async fn update(&mut self) {
        let Some(base) = self.base().await else {
            return;
        };
        let mut next = self.contents(base);
        if self.random.one_in(3) {
            next = next.release(HOLD).release(ALSO);
        }
        if self.random.one_in(6) {
            next.metadata.uid.clear();
        }
        if self.random.one_in(30) {
            next.metadata.resource_version = None;
        }
        let part = self.random.pick(&[Part::Main, Part::Status]);
        let model = self.model.update(next.clone(), part).await;
        let real = self.ledger.store.update(self.real(next), part).await;
        self.compare(model, real);
    }

    /// Mostly the present state of an object, sometimes an old one.
    async fn base(&mut self) -> Option<Object> {
        if self.random.one_in(5) && !self.states.is_empty() {
            return Some(self.random.pick(&self.states));
        }
        let key = self.key();
        self.model.get(&key, ReadAt::Latest).await.ok()
    }

    async fn delete(&mut self) {
        let key = self.key();
        let mut model = Preconditions::default();
        if self.random.one_in(3) && !self.states.is_empty() {
            let seen = self.random.pick(&self.states);
            if self.random.one_in(2) {
                model.uid = Some(seen.metadata.uid.clone());
            } else {
                model.revision = seen.revision();
            }
        }
        let real = Preconditions {
            uid: model.uid.as_ref().map(|u| self.uids[u].clone()),
            revision: model.revision.map(|r| self.revisions[&r]),
        };
        let model = self.model.delete(&key, &model).await;
        let real = self.ledger.store.delete(&key, &real).await;
        let gone = |r: &Result<Deletion, StoreError>| matches!(r, Ok(Deletion::Gone(_)));
        assert_eq!(gone(&model), gone(&real));
        let object = |d| match d {
            Deletion::Gone(object) | Deletion::Finalizing(object) => object,
        };
        self.compare(model.map(object), real.map(object));
    }

    /// Compares two answers and learns which revision and uid of one are which of the other.
    fn compare(&mut self, model: Result<Object, StoreError>, real: Result<Object, StoreError>) {
        match (model, real) {
            (Ok(model), Ok(real)) => {
                self.revisions.insert(revision(&model), revision(&real));
                self.uids
                    .insert(model.metadata.uid.clone(), real.metadata.uid.clone());
                assert_eq!(timeless(self.real(model.clone())), timeless(real));
                self.states.push(model);
            }
            (Err(model), Err(real)) => self.compare_errors(model, real),
            (model, real) => panic!("the model says {model:?}, the backend {real:?}"),
        }
    }

    fn compare_errors(&self, model: StoreError, real: StoreError) {
        match (model, real) {
            (
                StoreError::AlreadyExists {
                    key: a,
                    uid: b,
                    operation: c,
                },
                StoreError::AlreadyExists {
                    key,
                    uid,
                    operation,
                },
            ) => assert_eq!((a, &self.uids[&b], c), (key, &uid, operation)),
            (
                StoreError::PreconditionFailed { key: a, .. },
                StoreError::PreconditionFailed { key, .. },
            ) => {
                assert_eq!(a, key);
            }
            (model, real) => assert_eq!(model, real),
        }
    }

    /// A state of the model in the terms of the backend.
    fn real(&self, mut object: Object) -> Object {
        let meta = &mut object.metadata;
        if let Some(uid) = self.uids.get(&meta.uid) {
            meta.uid.clone_from(uid);
        }
        meta.resource_version = meta.resource_version.map(|r| self.revisions[&r]);
        object
    }

    async fn list(&mut self) {
        let (label, field) = self.random.pick(&SELECTORS);
        let options = ListOptions {
            namespace: self.random.one_in(3).then(|| "team-a".to_owned()),
            labels: labels(label),
            fields: fields(field),
            limit: self.random.pick(&[None, Some(1), Some(2), Some(4)]),
            continue_token: None,
        };
        self.compare_lists(options).await;
    }

    async fn list_everything(&mut self) {
        for (label, field) in SELECTORS {
            let options = ListOptions {
                labels: labels(label),
                fields: fields(field),
                ..Default::default()
            };
            self.compare_lists(options).await;
        }
    }

    async fn compare_lists(&mut self, options: ListOptions) {
        let model = everything(&self.model, options.clone()).await;
        let real = everything(&*self.ledger.store, options).await;
        let model: Vec<_> = model.into_iter().map(|o| timeless(self.real(o))).collect();
        assert_eq!(model, real.into_iter().map(timeless).collect::<Vec<_>>());
    }

    async fn read_watches(&mut self) {
        let kind = Kind::IPAddressClaim;
        let model_barrier = self.model.barrier(kind).await.unwrap();
        let real_barrier = self.ledger.store.barrier(kind).await.unwrap();
        self.ledger.stir().await;
        let mut watches = std::mem::take(&mut self.watches);
        for (model, real) in &mut watches {
            let wanted = model.reach(model_barrier).await;
            let got = real.reach(real_barrier).await;
            assert_eq!(got.len(), wanted.len(), "{got:?} instead of {wanted:?}");
            for (got, wanted) in got.iter().zip(&wanted) {
                let (got, wanted) = (in_short(got), self.possible(in_short(wanted)));
                assert!(wanted.contains(&got), "{got:?} is none of {wanted:?}");
            }
        }
        self.watches = watches;
    }

    /// What the backend may tell for an event of the model. Of an object that is taken away by a write,
    /// the last state may be the one before that write.
    fn possible(&self, (applied, object): (bool, Object)) -> Vec<(bool, Object)> {
        let mut possible = vec![object.clone()];
        if !applied && object.metadata.is_deleting() {
            let same = |o: &&Object| o.metadata.uid == object.metadata.uid;
            let before = self.states.iter().filter(same).cloned();
            let before = before.filter(|o| o.revision() < object.revision());
            let before = before.max_by_key(Object::revision);
            possible.extend(before.map(|o| o.at(object.revision())));
        }
        let real = |o| (applied, timeless(self.real(o)));
        possible.into_iter().map(real).collect()
    }
}

/// An event as `true` and the object, or `false` and the last state of it.
fn in_short(event: &WatchEvent) -> (bool, Object) {
    match event {
        WatchEvent::Applied(object) => (true, timeless(Object::clone(object))),
        WatchEvent::Deleted(object) => (false, timeless(Object::clone(object))),
        other => panic!("{other:?}"),
    }
}

async fn everything(store: &dyn Store, mut options: ListOptions) -> Vec<Object> {
    let mut items = Vec::new();
    loop {
        let page = list(store, Kind::IPAddressClaim, &options).await;
        items.extend(page.items);
        options.continue_token = page.continue_token;
        if options.continue_token.is_none() {
            return items;
        }
    }
}

/// The clocks of the two differ; whether a time is set must not.
fn timeless(mut object: Object) -> Object {
    let meta = &mut object.metadata;
    for time in [&mut meta.creation_timestamp, &mut meta.deletion_timestamp] {
        *time = time.map(|_| Timestamp::from_unix(0));
    }
    object
}
