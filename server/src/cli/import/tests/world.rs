//! A ledger with the real binding core and range driver on it, and what is compared of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use ipledger_core::api::{
    ClaimPhase, ClaimRef, IPAddress, IPAddressClaim, IPAddressClass, Key, Kind, Object,
    ReclaimPolicy, Timestamp, find_condition, names,
};
use ipledger_core::net::Ip;
use ipledger_core::runtime::{
    Binder, BinderOptions, Clock, Controller, ControllerOptions, LogEvents, Progress, Reconciler,
};
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, MemoryStore, Part, Preconditions, ReadAt,
    Revision, Store, StoreError, StoreExt, WatchOptions, WatchStream,
};
use ipledger_drivers::range::{self, RangeDriver};
use serde_json::{Value, json};
use tokio::sync::watch as flag;

use crate::cli::export::{Reading, at_one_moment};
use crate::clock::SystemClock;

/// Long enough for a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_millis(1_200);

/// A store that counts and names its writes, and fails as told.
pub(super) struct Watched {
    inner: Arc<dyn Store>,
    pub(super) writes: Mutex<Vec<String>>,
    /// Writes that still succeed.
    left: AtomicU64,
    /// Whether the first write that fails is done all the same.
    loses_answer: bool,
}

impl Watched {
    pub(super) fn new(inner: Arc<dyn Store>) -> Arc<Watched> {
        Watched::failing(inner, u64::MAX, false)
    }

    pub(super) fn failing(inner: Arc<dyn Store>, after: u64, loses_answer: bool) -> Arc<Watched> {
        Arc::new(Watched {
            inner,
            writes: Mutex::default(),
            left: AtomicU64::new(after),
            loses_answer,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.writes.lock().unwrap().len()
    }

    async fn write<T>(
        &self,
        key: Key,
        what: &str,
        write: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let died = StoreError::OutcomeUnknown {
            key: key.clone(),
            reason: "the process died".to_owned(),
        };
        let take = |left: u64| left.checked_sub(1);
        let admitted = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if admitted.is_ok() {
            self.writes.lock().unwrap().push(format!("{what} {key}"));
            return write.await;
        }
        if self.loses_answer {
            let _ = write.await;
        }
        Err(died)
    }
}

#[async_trait]
impl Store for Watched {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        self.inner.get(key, at).await
    }
    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        self.inner.list(kind, options).await
    }
    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        let key = object.key();
        self.write(key, "create", self.inner.create(object)).await
    }
    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        let key = object.key();
        let what = format!("{part:?} of");
        self.write(key, &what, self.inner.update(object, part))
            .await
    }
    async fn delete(&self, key: &Key, p: &Preconditions) -> Result<Deletion, StoreError> {
        self.write(key.clone(), "delete", self.inner.delete(key, p))
            .await
    }
    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        self.inner.watch(kind, options).await
    }
    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        self.inner.barrier(kind).await
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}

/// An empty ledger in memory with time and uids of its own.
pub(super) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(
        || Timestamp::from(SystemTime::now()),
        || uuid::Uuid::new_v4().to_string(),
    ))
}

/// A ledger at work.
pub(super) struct World {
    pub(super) store: Arc<Watched>,
    binder: Arc<Controller<Binder>>,
    driver: Arc<Controller<RangeDriver>>,
    stop: flag::Sender<bool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl World {
    pub(super) fn start(store: Arc<dyn Store>) -> World {
        let store = Watched::new(store);
        let shared: Arc<dyn Store> = store.clone();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let progress = Progress::new();
        let binder = Binder::new(
            shared.clone(),
            clock.clone(),
            progress.clone(),
            Arc::new(LogEvents),
            BinderOptions::default(),
        );
        let driver = RangeDriver::new(shared.clone(), clock.clone());
        let options = ControllerOptions {
            resync: None,
            ..ControllerOptions::default()
        };
        let binder = Controller::new(
            "core",
            shared.clone(),
            Arc::new(binder),
            clock.clone(),
            progress,
            options.clone(),
        );
        let driver = Controller::new(
            "range",
            shared,
            Arc::new(driver),
            clock,
            Progress::new(),
            options,
        );
        let stop = flag::channel(false).0;
        let tasks = vec![run(&binder, &stop), run(&driver, &stop)];
        World {
            store,
            binder,
            driver,
            stop,
            tasks,
        }
    }

    /// Returns when a claim is bound.
    pub(super) async fn bound(&self, name: &str) {
        let began = Instant::now();
        let hand = Hand(&*self.store);
        while hand.find_claim(name).await.phase() != Some(ClaimPhase::Bound) {
            assert!(began.elapsed() < PATIENCE, "{name} is not bound");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Returns when nothing is left to do, and nothing was written for longer than the driver
    /// waits with the status of a class.
    pub(super) async fn settle(&self) {
        let (began, mut quiet) = (Instant::now(), Instant::now());
        let mut last = self.store.count();
        while quiet.elapsed() < QUIET {
            assert!(began.elapsed() < PATIENCE, "it does not come to rest");
            self.binder.wait_synced().await;
            self.driver.wait_synced().await;
            for kind in Kind::ALL {
                self.binder.barrier(kind).await.unwrap();
                self.driver.barrier(kind).await.unwrap();
            }
            let now = self.store.count();
            if now != last || !self.binder.is_idle() || !self.driver.is_idle() {
                (last, quiet) = (now, Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) async fn stop(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

fn run<R: Reconciler>(
    controller: &Arc<Controller<R>>,
    stop: &flag::Sender<bool>,
) -> tokio::task::JoinHandle<()> {
    let mut stopped = stop.subscribe();
    let run = Arc::clone(controller).run(async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    });
    tokio::spawn(async move { run.await.unwrap() })
}

/// What people and drivers do to a ledger.
pub(super) struct Hand<'a>(pub(super) &'a dyn Store);

impl Hand<'_> {
    pub(super) async fn class(&self, name: &str, policy: ReclaimPolicy, parameters: Option<Value>) {
        let mut class = IPAddressClass::default();
        class.metadata.name = name.to_owned();
        class.spec.provisioner = match parameters {
            Some(_) => range::NAME.to_owned(),
            None => "example.com/none".to_owned(),
        };
        class.spec.reclaim_policy = policy;
        class.spec.parameters = parameters;
        self.0.create_resource(&class).await.unwrap();
    }

    pub(super) async fn claim(&self, name: &str, spec: Value) -> IPAddressClaim {
        let mut claim = IPAddressClaim::default();
        claim.metadata.namespace = "a".to_owned();
        claim.metadata.name = name.to_owned();
        claim.spec = serde_json::from_value(spec).unwrap();
        self.0.create_resource(&claim).await.unwrap()
    }

    /// A static address of class `hand`.
    pub(super) async fn address(&self, ip: &str, edit: impl FnOnce(&mut IPAddress)) {
        let mut address = IPAddress::default();
        address.metadata.name = Ip::parse(ip).unwrap().object_name();
        address.spec.address = ip.to_owned();
        address.spec.class_name = "hand".to_owned();
        edit(&mut address);
        self.0.create_resource(&address).await.unwrap();
    }

    /// A claim that names a static address of its own.
    pub(super) async fn named(&self, name: &str, ip: &str) {
        self.address(ip, |_| ()).await;
        self.claim(
            name,
            json!({"addressName": Ip::parse(ip).unwrap().object_name()}),
        )
        .await;
    }

    pub(super) async fn find_claim(&self, name: &str) -> IPAddressClaim {
        let found = self.0.find(&Key::claim("a", name), ReadAt::Latest).await;
        found.unwrap().unwrap()
    }

    pub(super) async fn edit(
        &self,
        ip: &str,
        part: Part,
        edit: impl Fn(&mut IPAddress) + Send + Sync,
    ) {
        let change = |address: &mut IPAddress| {
            edit(address);
            true
        };
        let changed = self.0.update_with(&key(ip), part, change).await;
        changed.unwrap();
    }

    pub(super) async fn edit_claim(
        &self,
        name: &str,
        edit: impl Fn(&mut IPAddressClaim) + Send + Sync,
    ) {
        let change = |claim: &mut IPAddressClaim| {
            edit(claim);
            true
        };
        let key = Key::claim("a", name);
        self.0.update_with(&key, Part::Main, change).await.unwrap();
    }

    pub(super) async fn delete(&self, key: &Key) {
        self.0.delete(key, &Preconditions::default()).await.unwrap();
    }

    pub(super) async fn delete_claim(&self, name: &str) {
        self.delete(&Key::claim("a", name)).await;
    }

    /// Takes an address away although it carries finalizers. Once it is marked, nobody can add one.
    pub(super) async fn force_delete(&self, ip: &str) {
        self.delete(&key(ip)).await;
        self.edit(ip, Part::Main, |a| a.metadata.finalizers.clear())
            .await;
    }
}

pub(super) fn key(ip: &str) -> Key {
    Key::address(Ip::parse(ip).unwrap().object_name())
}

pub(super) fn names_claim(name: &str, uid: &str) -> Option<ClaimRef> {
    Some(ClaimRef {
        namespace: "a".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..ClaimRef::default()
    })
}

pub(super) async fn objects(store: &Arc<dyn Store>) -> Vec<Object> {
    at_one_moment(&Reading::Store(store.clone())).await.unwrap()
}

/// Asserts that two ledgers are the same in all that a store does not give itself: uids of claims
/// are compared as their names, generations as whether a condition is of the present one.
pub(super) fn assert_same(new: &[Object], old: &[Object]) {
    let (new, old) = (essence(new), essence(old));
    assert_eq!(new.len(), old.len());
    for (new, old) in new.iter().zip(&old) {
        assert_eq!(new, old);
    }
}

fn essence(objects: &[Object]) -> Vec<String> {
    let claims = objects.iter().filter(|o| o.kind == Kind::IPAddressClaim);
    let uids: Vec<(&str, String)> = claims
        .map(|c| {
            (
                c.metadata.uid.as_str(),
                format!("uid-of-{}", c.metadata.name),
            )
        })
        .collect();
    let one = |object: &Object| {
        let mut object = object.clone();
        let generation = object.metadata.generation;
        let status = object.fields.get_mut("status");
        let conditions = status.and_then(|s| s.get_mut("conditions"));
        for condition in conditions
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let observed = condition["observedGeneration"].as_u64();
            condition["observedGeneration"] = json!(observed == Some(generation));
        }
        let metadata = &mut object.metadata;
        let is_deleting = metadata.is_deleting();
        metadata.uid = String::new();
        metadata.generation = 0;
        metadata.resource_version = None;
        metadata.creation_timestamp = None;
        metadata.deletion_timestamp = is_deleting.then_some(Timestamp::from_unix(0));
        let mut text = object.to_value().to_string();
        for (uid, name) in &uids {
            text = text.replace(uid, name);
        }
        text
    };
    objects.iter().map(one).collect()
}

/// `name phase reason addresses` of each claim, and `IP phase holder` of each address.
pub(super) fn summary(objects: &[Object]) -> Vec<String> {
    let line = |object: &Object| match object.kind {
        Kind::IPAddressClaim => {
            let claim = IPAddressClaim::from_object(object).unwrap();
            let phase = claim.phase().map_or("-", ClaimPhase::as_str);
            let bound = find_condition(claim.conditions(), names::condition::BOUND);
            let reason = bound.map_or("-", |c| c.reason.as_str());
            let text = claim.status.as_ref().map_or("", |s| &s.address_text);
            let text = if text.is_empty() { "-" } else { text };
            format!("{} {phase} {reason} {text}", claim.metadata.name)
        }
        _ => {
            let address = IPAddress::from_object(object).unwrap();
            let phase = address.phase().map_or("-", |p| p.as_str());
            let holder = address.spec.claim_ref.map_or("-".to_owned(), |r| r.name);
            format!("{} {phase} {holder}", address.spec.address)
        }
    };
    let of_kinds = objects.iter().filter(|o| o.kind != Kind::IPAddressClass);
    of_kinds.map(line).collect()
}
