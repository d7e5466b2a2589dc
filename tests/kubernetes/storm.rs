//! Claims that come and go while the cluster fails around the controllers: all are bound in the end, no
//! address twice, and nothing is left over.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use ipledger_core::api::{
    ClaimPhase, IPAddress, IPAddressClaim, Key, Kind, Object, Resource, ResourceSpec,
};
use ipledger_core::store::{ErrorClass, ListOptions, Preconditions, Store, StoreError};
use ipledger_store_kube::KubeStore;
use ipledger_tests::kubernetes::ADMIN;
use ipledger_tests::program::{Server, signal};
use ipledger_tests::relay::Relay;
use ipledger_tests::{etcd, http};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::cases;
use crate::cluster::{Cluster, TEAM, claim, class, stored};
use crate::controllers;

cases![Alone:
    cut_connections_lose_and_double_nothing,
    a_killed_api_server_loses_and_doubles_nothing,
    a_killed_etcd_loses_and_doubles_nothing,
    a_history_that_was_compacted_away_loses_and_doubles_nothing,
];

/// What the storm has done to the ledger is made good by then.
const PATIENCE: Duration = Duration::from_secs(90);
const CALL: Duration = Duration::from_secs(3);
/// Between two claims.
const PACE: Duration = Duration::from_millis(40);

/// Controllers whose connections go through a relay, and a tenant who goes on creating claims.
struct Storm {
    cluster: Cluster,
    relay: Relay,
    core: Server,
    driver: Server,
    store: Arc<KubeStore>,
    created: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    tenant: JoinHandle<()>,
}

impl Storm {
    async fn begin(cluster: Cluster) -> Storm {
        let relay = Relay::start(cluster.port());
        let kubeconfig = through(&cluster, &relay);
        let core = controllers::start(&kubeconfig, &["controller"]);
        let driver = controllers::start(&kubeconfig, &["driver", "range"]);
        let store = cluster.store(CALL).await;
        let parameters = json!({"addresses": ["198.18.0.0/23"]});
        let provisioner = "range.drivers.local.sdn.cozystack.io";
        let spec = json!({"provisioner": provisioner, "reclaimPolicy": "Delete", "parameters": parameters});
        store.create(stored(class("storm", spec))).await.unwrap();
        let (created, over) = (Arc::default(), Arc::default());
        let tenant = tokio::spawn(create(
            store.clone(),
            Arc::clone(&created),
            Arc::clone(&over),
        ));
        Storm {
            cluster,
            relay,
            core,
            driver,
            store,
            created,
            over,
            tenant,
        }
    }

    /// So many claims more have come.
    async fn more(&self, claims: usize) {
        let end = self.created.load(SeqCst) + claims;
        let until = Instant::now() + PATIENCE;
        while self.created.load(SeqCst) < end {
            assert!(Instant::now() < until, "no claims can be created");
            sleep(PACE).await;
        }
    }

    /// Calm: everything that was asked for is there once, and goes when it is given back.
    async fn end(self) {
        self.end_with(|_| ()).await;
    }

    /// The same; the controllers are looked at before they stop.
    async fn end_with(self, look: impl Fn(&Server)) {
        self.over.store(true, SeqCst);
        self.tenant.await.unwrap();
        let claims = self.created.load(SeqCst);
        let held = settled(&self.store, claims).await;
        // What half of the tenants give back leaves the others alone.
        for (name, _) in held.iter().step_by(2) {
            let key = Key::claim(TEAM, name);
            self.store
                .delete(&key, &Preconditions::default())
                .await
                .unwrap();
        }
        let kept: BTreeMap<_, _> = held.iter().skip(1).step_by(2).collect();
        let left = settled(&self.store, kept.len()).await;
        assert!(left.iter().eq(kept), "{left:?}");
        for server in [self.core, self.driver] {
            look(&server);
            assert!(server.stop().success());
        }
    }
}

/// The administrator's kubeconfig, with the relay in the place of the server.
fn through(cluster: &Cluster, relay: &Relay) -> PathBuf {
    let own = std::fs::read_to_string(cluster.kubeconfig(ADMIN)).unwrap();
    let port = |port| format!("https://127.0.0.1:{port}");
    let own = own.replace(&port(cluster.port()), &port(relay.port()));
    let path = cluster.kubeconfig("through-the-relay");
    std::fs::write(&path, own).unwrap();
    path
}

async fn create(store: Arc<KubeStore>, created: Arc<AtomicUsize>, over: Arc<AtomicBool>) {
    while !over.load(SeqCst) {
        let n = created.load(SeqCst);
        let name = format!("claim-{n:04}");
        let object = stored(claim(&name, json!({"className": "storm"})));
        match store.create(object).await {
            // The answer to an earlier try was lost.
            Ok(_) | Err(StoreError::AlreadyExists { .. }) => created.store(n + 1, SeqCst),
            // The next try finds out whether it was done.
            Err(StoreError::OutcomeUnknown { .. }) => {}
            Err(e) => assert_eq!(e.class(), ErrorClass::Retry, "{e}"),
        }
        sleep(PACE).await;
    }
}

/// Waits until there are so many claims, all bound, and the addresses that they have and no other. The
/// IP of each claim.
async fn settled(store: &KubeStore, claims: usize) -> BTreeMap<String, String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = held(&all(store).await, &all(store).await, claims);
        match found {
            Ok(held) => return held,
            Err(open) => assert!(Instant::now() < until, "{open}"),
        }
        sleep(Duration::from_millis(200)).await;
    }
}

fn held(
    claims: &[IPAddressClaim],
    addresses: &[IPAddress],
    count: usize,
) -> Result<BTreeMap<String, String>, String> {
    if (claims.len(), addresses.len()) != (count, count) {
        let (claims, addresses) = (claims.len(), addresses.len());
        return Err(format!(
            "{count} wanted: {claims} claims, {addresses} addresses"
        ));
    }
    let mut held = BTreeMap::new();
    for claim in claims {
        let name = claim.metadata.name.clone();
        let status = claim.status.clone().unwrap_or_default();
        let of_claim = addresses.iter().filter(|a| {
            let holder = a.spec.claim_ref.as_ref();
            holder.is_some_and(|h| h.name == name && h.uid == claim.metadata.uid)
        });
        let ips: Vec<&String> = of_claim.map(|a| &a.spec.address).collect();
        let shown: Vec<&String> = status.addresses.iter().map(|a| &a.address).collect();
        if status.phase != Some(ClaimPhase::Bound) || ips.len() != 1 || ips != shown {
            return Err(format!(
                "{name} is {:?} with {ips:?}, shows {shown:?}",
                status.phase
            ));
        }
        held.insert(name, ips[0].clone());
    }
    Ok(held)
}

async fn all<S: ResourceSpec>(store: &KubeStore) -> Vec<Resource<S>> {
    let page = store.list(S::KIND, &ListOptions::default()).await.unwrap();
    let typed = |object: &Object| Resource::from_object(object).unwrap();
    page.items.iter().map(typed).collect()
}

async fn cut_connections_lose_and_double_nothing(cluster: Cluster) {
    let storm = Storm::begin(cluster).await;
    let mut cut = 0;
    for _ in 0..15 {
        storm.more(5).await;
        cut += storm.relay.cut();
    }
    assert!(cut >= 15, "{cut} connections were cut");
    storm.end().await;
}

async fn a_killed_api_server_loses_and_doubles_nothing(cluster: Cluster) {
    let mut storm = Storm::begin(cluster).await;
    for _ in 0..2 {
        storm.more(25).await;
        storm.cluster.kill();
        storm.cluster.start_again();
    }
    storm.more(25).await;
    storm.end().await;
}

async fn a_killed_etcd_loses_and_doubles_nothing(cluster: Cluster) {
    let mut storm = Storm::begin(cluster).await;
    for _ in 0..3 {
        storm.more(25).await;
        storm.cluster.etcd_mut().kill();
        storm.cluster.etcd_mut().start_again();
    }
    storm.more(25).await;
    storm.end().await;
}

/// The controllers sleep while claims come and the server forgets, and list all again when they wake.
async fn a_history_that_was_compacted_away_loses_and_doubles_nothing(cluster: Cluster) {
    let mut storm = Storm::begin(cluster).await;
    storm.more(25).await;
    let controllers = [storm.core.pid(), storm.driver.pid()];
    controllers.iter().for_each(|pid| signal(*pid, "STOP"));
    storm.more(25).await;
    let last = storm.store.barrier(Kind::IPAddressClaim).await.unwrap();
    storm.cluster.kill();
    etcd::compact(&storm.cluster.etcd().endpoint(), last.0).await;
    storm.cluster.start_again();
    controllers.iter().for_each(|pid| signal(*pid, "CONT"));
    storm.more(25).await;
    storm
        .end_with(|controller| {
            let metrics = http::text(controller.address(), "/metrics").unwrap();
            let expired = "ipledger_store_watch_failures_total{error=\"expired\"}";
            let row = metrics.lines().find(|l| l.starts_with(expired));
            assert!(row.is_some_and(|row| !row.ends_with(" 0")), "{metrics}");
        })
        .await;
}
