use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::gated::Gated;
use super::{Clock, PausedClock, claim};
use crate::api::{IPAddressClaim, Key, Kind};
use crate::runtime::{
    Change, Controller, ControllerError, ControllerOptions, Pass, Progress, Reconciler,
};
use crate::store::{MemoryStore, Part, Revision, Store, StoreExt};

pub(super) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// What a test wants done in a pass: it is told the key and the number of the pass over it.
type Act = Box<dyn Fn(String, usize) -> BoxFuture<'static, Pass<String>> + Send + Sync>;

/// A reconciler of claims by name that writes down what it sees.
pub(super) struct Probe {
    pub(super) clock: Arc<PausedClock>,
    act: Act,
    progress: Progress,
    /// `pass NAME`, `end NAME`, `see NAME OLD->NEW` (revisions), each with its millisecond.
    notes: Mutex<Vec<(u128, String)>>,
    /// The claims as the changes tell them.
    pub(super) view: Mutex<BTreeMap<String, Arc<IPAddressClaim>>>,
    passes: Mutex<BTreeMap<String, usize>>,
}

impl Probe {
    fn note(&self, note: String) {
        let at = self.clock.monotonic().as_millis();
        self.notes.lock().unwrap().push((at, note));
    }

    pub(super) fn notes(&self) -> Vec<(u128, String)> {
        self.notes.lock().unwrap().clone()
    }

    /// When passes over this key began.
    pub(super) fn passes(&self, name: &str) -> Vec<u128> {
        let wanted = format!("pass {name}");
        self.notes()
            .into_iter()
            .filter(|(_, note)| *note == wanted)
            .map(|(at, _)| at)
            .collect()
    }
}

#[async_trait]
impl Reconciler for Probe {
    type Key = String;

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::IPAddress, Kind::IPAddressClaim]
    }

    fn observe(&self, change: &Change) -> Vec<String> {
        let Change::Claim { key, old, new } = change else {
            return vec![];
        };
        assert_ne!(key.name, "poison", "a claim that the observer cannot bear");
        let revision = new.as_ref().and_then(|c| c.metadata.resource_version);
        if let (Some(reached), Some(new)) = (self.progress.reached(key.kind), revision) {
            assert!(
                reached < new,
                "nothing counts as reached before it was observed"
            );
        }
        let mut view = self.view.lock().unwrap();
        let before = match new {
            Some(new) => view.insert(key.name.clone(), Arc::clone(new)),
            None => view.remove(&key.name),
        };
        assert_eq!(&before, old, "each change starts where the last one ended");
        let revision = |c: &Option<Arc<IPAddressClaim>>| {
            let revision = c.as_ref().and_then(|c| c.metadata.resource_version);
            revision.map_or("-".to_owned(), |r| r.to_string())
        };
        self.note(format!(
            "see {} {}->{}",
            key.name,
            revision(old),
            revision(new)
        ));
        vec![key.name.clone()]
    }

    async fn reconcile(&self, key: &String) -> Pass<String> {
        let number = {
            let mut passes = self.passes.lock().unwrap();
            let number = passes.entry(key.clone()).or_default();
            *number += 1;
            *number
        };
        self.note(format!("pass {key}"));
        let pass = (self.act)(key.clone(), number).await;
        self.note(format!("end {key}"));
        pass
    }

    fn all_keys(&self) -> Vec<String> {
        self.view.lock().unwrap().keys().cloned().collect()
    }
}

/// A controller at work over a gated in-memory store.
pub(super) struct Bench {
    pub(super) clock: Arc<PausedClock>,
    pub(super) store: Arc<Gated>,
    pub(super) probe: Arc<Probe>,
    pub(super) controller: Arc<Controller<Probe>>,
    pub(super) stop: oneshot::Sender<()>,
    pub(super) running: JoinHandle<Result<(), ControllerError>>,
}

pub(super) struct Setup {
    pub(super) clock: Arc<PausedClock>,
    pub(super) store: Arc<Gated>,
    pub(super) progress: Progress,
    pub(super) options: ControllerOptions,
}

impl Setup {
    pub(super) fn new() -> Setup {
        Setup {
            clock: PausedClock::new(),
            store: Arc::new(Gated::open(MemoryStore::default())),
            progress: Progress::new(),
            options: ControllerOptions {
                resync: None,
                ..ControllerOptions::default()
            },
        }
    }

    pub(super) async fn create(&self, name: &str) {
        create(&*self.store, name).await;
    }

    pub(super) fn start<F, T>(self, act: F) -> Bench
    where
        F: Fn(String, usize) -> T + Send + Sync + 'static,
        T: Future<Output = Pass<String>> + Send + 'static,
    {
        let probe = Arc::new(Probe {
            clock: Arc::clone(&self.clock),
            progress: self.progress.clone(),
            act: Box::new(move |key, number| act(key, number).boxed()),
            notes: Mutex::default(),
            view: Mutex::default(),
            passes: Mutex::default(),
        });
        let controller = Controller::new(
            "test",
            Arc::clone(&self.store) as Arc<dyn Store>,
            Arc::clone(&probe),
            Arc::clone(&self.clock) as Arc<dyn Clock>,
            self.progress,
            self.options,
        );
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        Bench {
            running: tokio::spawn(Arc::clone(&controller).run(shutdown)),
            clock: self.clock,
            store: self.store,
            probe,
            controller,
            stop,
        }
    }
}

pub(super) async fn create(store: &dyn Store, name: &str) {
    let mut object = claim(name, "", 0);
    object.metadata.resource_version = None;
    store.create(object).await.unwrap();
}

/// Writes something new into a claim; returns the revision.
pub(super) async fn touch(store: &dyn Store, name: &str, value: &str) -> Revision {
    let mark = |claim: &mut IPAddressClaim| {
        claim
            .metadata
            .annotations
            .insert("touched".to_owned(), value.to_owned());
        true
    };
    let written = store
        .update_with(&Key::claim("n", name), Part::Main, mark)
        .await
        .unwrap();
    written.unwrap().metadata.resource_version.unwrap()
}
