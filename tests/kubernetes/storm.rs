//! Claims that come and go while the network fails, or the controllers' place in the history: all are
//! bound in the end, no address twice, and nothing is left over. (Servers that fail are in `binding`.)

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;

use ipledger_tests::etcd;
use ipledger_tests::program::wait_for;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::binding::{assert_nothing_is_held_twice, at_rest, items};
use crate::cases;
use crate::cluster::{Cluster, TEAM, claim, class, list};
use crate::installation::Installation;

cases![Installed:
    cut_connections_lose_and_double_nothing,
    a_history_that_was_compacted_away_loses_and_doubles_nothing,
];

/// How many claims the tenant creates at once.
const BATCH: usize = 5;

/// A tenant who goes on creating claims, whatever becomes of the server.
struct Tenant {
    created: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tenant {
    fn begin(cluster: &Cluster) -> Tenant {
        let spec = json!({"provisioner": "range.drivers.local.sdn.cozystack.io",
            "reclaimPolicy": "Delete", "parameters": {"addresses": ["198.18.0.0/23"]}});
        cluster.create(&class("storm", spec));
        let (created, over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let file = cluster.kubeconfig("storm");
        let mut apply = cluster.kubectl(&["apply", "--server-side", "-f"]);
        apply.arg(&file);
        let (count, end) = (Arc::clone(&created), Arc::clone(&over));
        let work = move || {
            while !end.load(SeqCst) {
                let n = count.load(SeqCst);
                std::fs::write(&file, batch(n).to_string()).unwrap();
                // The next try finds out what of this one was done.
                if succeeds(&mut apply) {
                    count.store(n + BATCH, SeqCst);
                }
            }
        };
        let thread = Some(std::thread::spawn(work));
        Tenant {
            created,
            over,
            thread,
        }
    }

    /// Waits until so many claims more have come.
    fn more(&self, claims: usize) {
        let end = self.created.load(SeqCst) + claims;
        wait_for("claims can be created", || self.created.load(SeqCst) >= end);
    }

    /// How many claims there are now, and none will follow.
    fn end(mut self) -> usize {
        self.over.store(true, SeqCst);
        self.thread.take().expect("it runs").join().unwrap();
        self.created.load(SeqCst)
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
    }
}

fn batch(first: usize) -> Value {
    let claims = (first..first + BATCH).map(|n| claim(&name(n), json!({"className": "storm"})));
    list(&claims.collect::<Vec<_>>())
}

fn name(n: usize) -> String {
    format!("claim-{n:04}")
}

fn succeeds(command: &mut Command) -> bool {
    command.output().unwrap().status.success()
}

/// Calm: everything that was asked for is there once, and goes when it is given back.
fn calm(cluster: &Installation, claims: usize) {
    let held = held(cluster);
    assert_eq!(held.len(), claims);
    // What half of the tenants give back leaves the others alone.
    let given: Vec<&str> = held.keys().step_by(2).map(String::as_str).collect();
    let delete = ["delete", "ipaddrclaim", "-n", TEAM, "--timeout=60s"];
    cluster.ctl(&[&delete[..], &given].concat());
    let mut kept = held.clone();
    given
        .iter()
        .for_each(|name| assert!(kept.remove(*name).is_some()));
    assert_eq!(self::held(cluster), kept);
}

/// The IP of each claim, once all are bound and nothing happens any more.
fn held(cluster: &Installation) -> BTreeMap<String, String> {
    let wait = ["wait", "--for=condition=Bound", "--timeout=90s", "-n", TEAM];
    cluster.ctl(&[&wait[..], &["ipaddrclaim", "--all"]].concat());
    at_rest(cluster);
    assert_nothing_is_held_twice(cluster);
    let claims = items(cluster, "ipaddrclaim").into_iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let held = claims.map(|claim| {
        let entry = &claim["status"]["addresses"][0];
        (text(&claim["metadata"]["name"]), text(&entry["address"]))
    });
    held.collect()
}

fn cut_connections_lose_and_double_nothing(cluster: &mut Installation) {
    cluster.put_a_relay_between();
    let tenant = Tenant::begin(cluster);
    let mut cut = 0;
    for _ in 0..15 {
        tenant.more(BATCH);
        cut += cluster.cut();
    }
    assert!(cut >= 15, "{cut} connections were cut");
    let claims = tenant.end();
    calm(cluster, claims);
}

/// The controllers sleep while claims come and the server forgets, and list all again when they wake.
fn a_history_that_was_compacted_away_loses_and_doubles_nothing(cluster: &mut Installation) {
    let tenant = Tenant::begin(cluster);
    tenant.more(25);
    cluster.signal("STOP");
    tenant.more(25);
    let last = revision(cluster);
    cluster.kill();
    let endpoint = cluster.etcd().endpoint();
    tokio::task::block_in_place(|| Handle::current().block_on(etcd::compact(&endpoint, last)));
    cluster.start_again();
    cluster.signal("CONT");
    tenant.more(25);
    let claims = tenant.end();
    calm(cluster, claims);
    for component in cluster.components() {
        let expired = "ipledger_store_watch_failures_total{error=\"expired\"} ";
        let expired = component.metric(expired).is_some_and(|n| n != "0");
        // One whose term ended in its sleep has begun anew.
        let said = component.printed();
        let terms = said.matches("this server leads").count();
        assert!(expired || terms > 1, "{said}");
    }
}

/// Of the ledger as it is now.
fn revision(cluster: &Cluster) -> u64 {
    let one = "/apis/local.sdn.cozystack.io/v1alpha1/ipaddressclaims?limit=1";
    let list: Value = serde_json::from_str(&cluster.ctl(&["get", "--raw", one])).unwrap();
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    revision.parse().unwrap()
}
