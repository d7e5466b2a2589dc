//! A ledger in memory with drivers on it. The tests play the core.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ipledger_core::api::{
    ClaimFamily, ClaimPhase, IPAddress, IPAddressClaim, IPAddressClass, Key, Kind, Timestamp, names,
};
use ipledger_core::runtime::{Clock, Controller, ControllerOptions, Progress};
use ipledger_core::store::{Part, Preconditions, ReadAt, Store, StoreExt};
use ipledger_drivers::range::{NAME, RangeDriver};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::faults::FaultyStore;

/// The time of the runtime: paused time moves on when nothing else can.
pub struct RuntimeClock(Instant);

#[async_trait]
impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(1_800_000_000 + self.0.elapsed().as_secs())
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// A running driver.
pub struct Running {
    pub controller: Arc<Controller<RangeDriver>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap();
    }
}

#[derive(Clone)]
pub struct World {
    pub store: FaultyStore,
    clock: Arc<RuntimeClock>,
}

impl World {
    pub fn new() -> World {
        World {
            store: FaultyStore::default(),
            clock: Arc::new(RuntimeClock(Instant::now())),
        }
    }

    /// Starts a driver that has no resync, so that nothing is found but by its event.
    pub fn drive(&self) -> Running {
        let store: Arc<dyn Store> = Arc::new(self.store.clone());
        let driver = Arc::new(RangeDriver::new(store.clone(), self.clock.clone()));
        let options = ControllerOptions {
            resync: None,
            ..ControllerOptions::default()
        };
        let controller = Controller::new(
            "range",
            store,
            driver,
            self.clock.clone(),
            Progress::default(),
            options,
        );
        let (stop, stopped) = oneshot::channel::<()>();
        let run = controller.clone().run(async move { drop(stopped.await) });
        let task = tokio::spawn(async move { run.await.unwrap() });
        Running {
            controller,
            stop,
            task,
        }
    }

    /// Returns when all drivers have seen everything, have nothing to do, and nothing was written
    /// in between.
    pub async fn settled(&self, drivers: &[Running]) {
        for _ in 0..10_000 {
            let before = self.store.writes();
            for driver in drivers {
                driver.controller.wait_synced().await;
                for kind in Kind::ALL {
                    driver.controller.barrier(kind).await.unwrap();
                }
            }
            let idle = drivers.iter().all(|driver| driver.controller.is_idle());
            if idle && self.store.writes() == before {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the drivers do not come to rest");
    }

    pub async fn class(&self, name: &str, parameters: Value) {
        let mut class = IPAddressClass::default();
        class.metadata.name = name.to_owned();
        class.spec.provisioner = NAME.to_owned();
        class.spec.parameters = Some(parameters);
        self.store.create_resource(&class).await.unwrap();
    }

    pub async fn edit_class(&self, name: &str, edit: impl FnMut(&mut IPAddressClass) + Send) {
        let mut edit = edit;
        let change = |class: &mut IPAddressClass| {
            edit(class);
            true
        };
        self.store
            .update_with(&Key::class(name), Part::Main, change)
            .await
            .unwrap();
    }

    pub async fn parameters(&self, name: &str, parameters: Value) {
        self.edit_class(name, |class| {
            class.spec.parameters = Some(parameters.clone())
        })
        .await;
    }

    /// A claim as it is when the core has resolved and stamped it.
    pub async fn claim(&self, name: &str, family: ClaimFamily, class: &str) -> IPAddressClaim {
        let mut claim = IPAddressClaim::default();
        claim.metadata.namespace = "a".to_owned();
        claim.metadata.name = name.to_owned();
        claim
            .metadata
            .annotations
            .insert(names::PROVISIONER.to_owned(), NAME.to_owned());
        claim.spec.family = family;
        self.store.create_resource(&claim).await.unwrap();
        self.phase(name, ClaimPhase::Pending, class).await
    }

    pub async fn claim4(&self, name: &str) -> IPAddressClaim {
        self.claim(name, ClaimFamily::IPv4, "c").await
    }

    pub async fn phase(&self, name: &str, phase: ClaimPhase, class: &str) -> IPAddressClaim {
        let change = |claim: &mut IPAddressClaim| {
            let status = claim.status.get_or_insert_default();
            status.phase = Some(phase);
            status.class_name = class.to_owned();
            true
        };
        let key = Key::claim("a", name);
        self.store
            .update_with(&key, Part::Status, change)
            .await
            .unwrap()
            .unwrap()
    }

    pub async fn get_class(&self, name: &str) -> IPAddressClass {
        self.store
            .find(&Key::class(name), ReadAt::Latest)
            .await
            .unwrap()
            .unwrap()
    }

    pub async fn get_claim(&self, name: &str) -> IPAddressClaim {
        self.store
            .find(&Key::claim("a", name), ReadAt::Latest)
            .await
            .unwrap()
            .unwrap()
    }

    /// What the driver says of a claim: its reason, or nothing.
    pub async fn reason(&self, name: &str) -> String {
        let said = self.get_claim(name).await.provisioning_status();
        said.map(|s| s.reason).unwrap_or_default()
    }

    pub async fn delete(&self, key: &Key) {
        self.store
            .delete(key, &Preconditions::default())
            .await
            .unwrap();
    }

    pub async fn addresses(&self) -> Vec<IPAddress> {
        self.store.list_all().await.unwrap()
    }

    /// All address objects as `IP claim`, in order.
    pub async fn holders(&self) -> Vec<String> {
        let line = |a: &IPAddress| {
            let claim = a.spec.claim_ref.as_ref().map_or("-", |r| r.name.as_str());
            format!("{} {claim}", a.spec.address)
        };
        let mut lines: Vec<String> = self.addresses().await.iter().map(line).collect();
        lines.sort();
        lines
    }
}
