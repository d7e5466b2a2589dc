//! A cluster with the components of the chart and the driver of somebody else (tests/e2e/driver), which
//! brings a role of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ipledger_tests::program::{Server, free_port};
use ipledger_tests::tools;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binding::items;
use crate::chart::{self, SYSTEM};
use crate::cluster::{Cluster, TEAM, address, class, driver_role, eventually, list};
use crate::installation::Installation;

/// The name of the driver, as its classes give it.
const DRIVER: &str = "third-party.example.com";
/// Its account.
const ACCOUNT: &str = "acme-driver";
const GROUP: &str = "/apis/local.sdn.cozystack.io/v1alpha1";

pub(super) struct Site<'a> {
    pub(super) cluster: &'a Installation,
    kubeconfig: PathBuf,
    /// The driver's backend, and what else this test keeps in files.
    pub(super) folder: TempDir,
}

impl Site<'_> {
    /// The policies are in force, for this account too; no driver runs.
    pub(super) fn prepare(cluster: &Installation) -> Site<'_> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": SYSTEM}});
        let [role, binding] = driver_role(ACCOUNT);
        cluster.apply(&list(&[account, role, binding]).to_string());
        let kubeconfig = chart::account(cluster, ACCOUNT);
        eventually("the driver may work", || {
            let may = ["auth", "can-i", "create", "ipaddr", "--as"];
            let user = format!("system:serviceaccount:{SYSTEM}:{ACCOUNT}");
            let asked = cluster.kubectl(&[&may[..], &[&user]].concat()).output();
            asked.unwrap().status.success()
        });
        for (name, policy) in [("goes", "Delete"), ("stays", "Retain")] {
            let spec = json!({"provisioner": DRIVER, "reclaimPolicy": policy,
                "parameters": {"prefixes": ["192.0.2.0/25", "2001:db8::/120"]}});
            cluster.create(&class(name, spec));
        }
        Site {
            cluster,
            kubeconfig,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The driver at work, with these flags. All its copies share one backend.
    pub(super) fn driver(&self, flags: &[&str]) -> Server {
        let program = tools::folder("driver").expect("it is built: tests/tools/build driver");
        let port = free_port();
        let mut command = Command::new(program.join("driver"));
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.arg("--backend").arg(self.file("backend"));
        command.arg(format!("--listen=127.0.0.1:{port}"));
        command.arg("--poll=200ms").args(flags);
        Server::launch(command, port)
    }

    /// A file of this test.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of the driver's backend.
    pub(super) fn backend(&self, folder: &str, ip: &str) -> PathBuf {
        self.file("backend").join(folder).join(ip)
    }

    /// What the driver's backend has in one of its folders.
    pub(super) fn in_backend(&self, folder: &str) -> Vec<String> {
        let folder = std::fs::read_dir(self.file("backend").join(folder)).unwrap();
        let names = folder.map(|f| f.unwrap().file_name().to_string_lossy().into_owned());
        names.filter(|n| !n.starts_with('.')).collect()
    }

    pub(super) fn get(&self, kind: &str, name: &str) -> Value {
        let object = self
            .cluster
            .ctl(&["get", kind, name, "-n", TEAM, "-o", "json"]);
        serde_json::from_str(&object).unwrap()
    }

    /// The addresses that a claim reports: object and IP.
    pub(super) fn reported(&self, claim: &str) -> Vec<(String, String)> {
        let claim = self.get("ipaddrclaim", claim);
        let entries = claim["status"]["addresses"].as_array().cloned();
        let entries = entries.into_iter().flatten();
        entries
            .map(|e| (text(&e["name"]), text(&e["address"])))
            .collect()
    }

    pub(super) fn wait(&self, condition: &str, names: &[&str]) {
        let condition = format!("--for=condition={condition}");
        let wait = ["wait", &condition, "--timeout=60s", "-n", TEAM];
        self.cluster
            .ctl(&[&wait[..], &["ipaddrclaim"], names].concat());
    }

    pub(super) fn wait_until_all_are_bound(&self) {
        eventually("every claim is bound", || {
            let all = items(self.cluster, "ipaddrclaim");
            all.iter().all(|c| c["status"]["phase"] == "Bound")
        });
    }

    /// Waits until an address has this phase.
    pub(super) fn wait_phase(&self, address: &str, phase: &str) {
        eventually(&format!("{address} is {phase}"), || {
            self.get("ipaddr", address)["status"]["phase"] == phase
        });
    }

    /// Deletes every claim and address and waits until nothing is left of them, in the ledger and in
    /// the backend.
    pub(super) fn delete_all(&self) {
        let claims = format!("{GROUP}/namespaces/{TEAM}/ipaddressclaims");
        for all in [claims, format!("{GROUP}/ipaddresses")] {
            self.cluster.ctl(&["delete", "--raw", &all]);
            eventually("what is not kept goes", || {
                items(self.cluster, "ipaddrclaim").is_empty()
            });
        }
        eventually("nothing is left", || {
            items(self.cluster, "ipaddr").is_empty()
                && ["reserved", "pinned"]
                    .iter()
                    .all(|f| self.in_backend(f).is_empty())
        });
    }

    /// Waits until for so long nobody has written anything of the ledger, not even in vain.
    pub(super) fn wait_until_nothing_is_written(&self, long: Duration) {
        let written = || {
            requests(self.cluster, |r| {
                let verbs = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
                r.contains("group=\"local.sdn.cozystack.io\"")
                    && verbs.iter().any(|v| r.contains(&format!("verb=\"{v}\"")))
            })
        };
        eventually("they come to rest", || {
            let before = written();
            std::thread::sleep(long);
            written() == before
        });
    }

    /// Follows all claims or addresses from now on.
    pub(super) fn follow(&self, plural: &str) -> History {
        let file = self.file(plural);
        let path = format!("{GROUP}/{plural}?watch=true");
        let mut watch = self.cluster.kubectl(&["get", "--raw", &path]);
        let watch = watch.stdout(File::create(&file).unwrap());
        let watch = watch.stderr(Stdio::inherit()).spawn().unwrap();
        History { watch, file }
    }
}

/// How many requests the API server has answered, of those whose labels are like this.
fn requests(cluster: &Cluster, like: impl Fn(&str) -> bool) -> u64 {
    let text = cluster.ctl(&["get", "--raw", "/metrics"]);
    let lines = text.lines().filter_map(|line| {
        let (labels, count) = line
            .strip_prefix("apiserver_request_total")?
            .split_once("} ")?;
        like(labels).then(|| count.parse::<f64>().unwrap() as u64)
    });
    lines.sum()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Everything that happens to objects of one kind.
pub(super) struct History {
    watch: Child,
    file: PathBuf,
}

impl History {
    /// Every state that any of the objects was in, in order.
    pub(super) fn states(&self) -> Vec<Value> {
        let all = std::fs::read_to_string(&self.file).unwrap();
        let (whole, _) = all.rsplit_once('\n').unwrap_or_default();
        let events = whole.lines().map(|line| {
            let mut event: Value = serde_json::from_str(line).unwrap();
            event["object"].take()
        });
        events.collect()
    }
}

impl Drop for History {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.watch.kill();
        let _ = self.watch.wait();
    }
}

/// That no claim ever reported another address than its first, of either family, and no address of a
/// driver was ever given to another claim.
pub(super) fn nothing_changed_hands(claims: &History, addresses: &History) {
    let mut first = BTreeMap::new();
    let states = claims.states();
    assert!(!states.is_empty());
    for claim in states {
        let entries = claim["status"]["addresses"].as_array().cloned();
        for entry in entries.into_iter().flatten() {
            let is_six = text(&entry["address"]).contains(':');
            let key = (text(&claim["metadata"]["uid"]), is_six);
            let before = first.entry(key).or_insert_with(|| entry.clone());
            assert_eq!(*before, entry, "{claim}");
        }
    }
    let mut holders = BTreeMap::new();
    for address in addresses.states() {
        let holder = &address["spec"]["claimRef"]["uid"];
        if !holder.is_null() {
            let uid = text(&address["metadata"]["uid"]);
            let before = holders.entry(uid).or_insert_with(|| holder.clone());
            assert_eq!(before, holder, "{address}");
        }
    }
}

/// Works while addresses are defined as they are where the definitions are not ours: without rules.
pub(super) fn without_rules_of_addresses(cluster: &Cluster, work: impl FnOnce()) {
    let name = "ipaddresses.local.sdn.cozystack.io";
    let replace = |definition: &Value| {
        let (taken, said) = cluster.send(&["replace"], definition);
        assert!(taken, "{said}");
    };
    let definition = cluster.ctl(&["get", "crd", name, "-o", "json"]);
    let mut definition: Value = serde_json::from_str(&definition).unwrap();
    let metadata = definition["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    let mut without = definition.clone();
    drop_rules(&mut without["spec"]);
    replace(&without);
    work();
    replace(&definition);
    eventually("the rules are in force again", || {
        let printer = address(
            "printer",
            json!({"address": "192.0.2.99", "className": "goes"}),
        );
        !cluster.send(&["create", "--dry-run=server"], &printer).0
    });
}

fn drop_rules(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(drop_rules);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_rules),
        _ => {}
    }
}
