//! An API server that serves our definitions, as they are checked in.

use std::io::Write as _;
use std::ops::{Deref, DerefMut};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipledger_store_kube::{KubeStore, Options};
use ipledger_tests::kubernetes::{ADMIN, Answer, Kubernetes, succeed};
use ipledger_tests::program::PATIENCE;
use serde_json::{Value, json};

use crate::chart::SYSTEM;

const DEFINITIONS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../deploy/chart/ipledger/files/crds.yaml"
);
pub(crate) const TEAM: &str = "team-a";

pub(crate) struct Cluster {
    server: Kubernetes,
    /// Of so many answers a case has seen that they deny what it had taken away.
    meant: usize,
}

impl Deref for Cluster {
    type Target = Kubernetes;

    fn deref(&self) -> &Kubernetes {
        &self.server
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut Kubernetes {
        &mut self.server
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_nothing_was_denied();
        }
    }
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        let cluster = Cluster::bare();
        cluster.define();
        cluster
    }

    /// One that does not know our kinds.
    pub(crate) fn bare() -> Cluster {
        let cluster = Cluster {
            server: Kubernetes::start().expect("it is built"),
            meant: 0,
        };
        succeed(&mut cluster.kubectl(&["create", "namespace", TEAM]));
        cluster
    }

    pub(crate) fn define(&self) {
        self.apply(&std::fs::read_to_string(DEFINITIONS).unwrap());
        self.wait_until_served();
    }

    /// Our definitions as the server has them, by name.
    pub(crate) fn definitions(&self) -> Vec<(String, Value)> {
        let list: Value = serde_json::from_str(&self.ctl(&["get", "crd", "-o", "json"])).unwrap();
        let all = list["items"].as_array().unwrap().iter();
        let all = all.map(|d| {
            (
                d["metadata"]["name"].as_str().unwrap().to_owned(),
                d.clone(),
            )
        });
        let all: Vec<_> = all.collect();
        assert_eq!(all.len(), 3);
        all
    }

    pub(crate) async fn store(&self, patience: Duration) -> Arc<KubeStore> {
        self.store_of(ADMIN, patience).await
    }

    /// As this user; a call may take so long.
    pub(crate) async fn store_of(&self, user: &str, patience: Duration) -> Arc<KubeStore> {
        let options = Options {
            request_timeout: patience,
            ..Options::default()
        };
        let cluster = ipledger_store_kube::Cluster {
            kubeconfig: Some(self.kubeconfig(user)),
            context: None,
        };
        let config = cluster.config().await.unwrap();
        Arc::new(KubeStore::open(config, options).unwrap())
    }

    /// `kubectl` that must succeed; what it printed.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        succeed(&mut self.kubectl(arguments))
    }

    /// No component of the chart has tried what its account may not. (kubectl has, where a case tries it
    /// on purpose with the token of one.)
    pub(crate) fn assert_nothing_was_denied(&self) {
        let answers = self.audit().into_iter().skip(self.meant);
        let denied: Vec<Answer> = answers.filter(is_denied_to_us).collect();
        assert!(denied.is_empty(), "{denied:#?}");
    }

    /// What was denied until now was denied on purpose.
    pub(crate) fn denials_were_meant(&mut self) {
        self.meant = self.audit().len();
    }

    /// Creates an object, which must be taken.
    pub(crate) fn create(&self, object: &Value) {
        let (taken, said) = self.send(&["create"], object);
        assert!(taken, "{said}");
    }

    /// Waits until these claims of a namespace are bound.
    pub(crate) fn wait_bound(&self, namespace: &str, names: &[&str]) {
        let wait = ["wait", "--for=condition=Bound", "--timeout=60s", "-n"];
        self.ctl(&[&wait[..], &[namespace, "ipaddrclaim"], names].concat());
    }

    /// Sends an object to kubectl, which may fail: whether it did not, and what it said.
    pub(crate) fn send(&self, arguments: &[&str], object: &Value) -> (bool, String) {
        self.send_text(arguments, &object.to_string())
    }

    /// Sends manifests to kubectl, as [`Cluster::send`].
    pub(crate) fn send_text(&self, arguments: &[&str], manifests: &str) -> (bool, String) {
        let mut child = self
            .kubectl(arguments)
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(manifests.as_bytes()).unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }
}

fn is_denied_to_us(answer: &Answer) -> bool {
    answer.is_denial() && !answer.program.starts_with("kubectl")
}

/// Waits until it holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub(crate) fn claim(name: &str, spec: Value) -> Value {
    object(
        "IPAddressClaim",
        json!({"name": name, "namespace": TEAM}),
        spec,
    )
}

pub(crate) fn address(name: &str, spec: Value) -> Value {
    object("IPAddress", json!({"name": name}), spec)
}

pub(crate) fn class(name: &str, spec: Value) -> Value {
    object("IPAddressClass", json!({"name": name}), spec)
}

fn object(kind: &str, metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": kind, "metadata": metadata,
        "spec": spec})
}

/// The role that a driver of somebody else brings with it, and that its account of this name has it.
pub(crate) fn driver_role(account: &str) -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    let object = |kind: &str| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": account}});
    let may = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let ours = "local.sdn.cozystack.io";
    let read = ["get", "list", "watch"];
    let write = [&read[..], &["create", "delete", "patch", "update"]].concat();
    let mut role = object("ClusterRole");
    role["rules"] = json!([
        may(ours, &["ipaddresses"], &write),
        may(
            ours,
            &["ipaddresses/status", "ipaddressclasses/status"],
            &["get", "patch", "update"]
        ),
        may(
            ours,
            &["ipaddressclaims"],
            &["get", "list", "watch", "patch", "update"]
        ),
        may(ours, &["ipaddressclasses"], &read),
        may("", &["services"], &read),
    ]);
    let mut binding = object("ClusterRoleBinding");
    binding["roleRef"] = json!({"apiGroup": group, "kind": "ClusterRole", "name": account});
    let account = json!({"kind": "ServiceAccount", "name": account, "namespace": SYSTEM});
    binding["subjects"] = json!([account]);
    [role, binding]
}

/// Objects to be applied at once.
pub(crate) fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}
