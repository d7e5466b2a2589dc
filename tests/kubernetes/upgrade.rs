//! The chart comes and goes: an upgrade over older definitions keeps every object, and an uninstallation
//! in the order of docs/kubernetes.md leaves nothing behind.

use std::path::Path;

use ipledger_tests::kubernetes::succeed;
use serde_json::{Value, json};

use crate::binding::items;
use crate::cases;
use crate::chart::{self, CHART, RELEASE, SYSTEM, helm};
use crate::cluster::{Cluster, TEAM, address, claim, class, eventually};
use crate::installation::{Installation, Replicas};

cases![Own:
    objects_of_older_definitions_outlive_an_upgrade,
    the_order_of_an_uninstallation_leaves_nothing_stuck,
];

const OLDER: &str = include_str!("older-definitions.yaml");
const KINDS: [&str; 3] = ["ipaddrclass", "ipaddr", "ipaddrclaim"];
const RANGE: &str = "range.drivers.local.sdn.cozystack.io";
const GROUP: &str = "local.sdn.cozystack.io";

fn create(cluster: &Cluster, objects: &[Value]) {
    for object in objects {
        cluster.create(object);
    }
}

/// A copy of the chart as it was with the older definitions.
fn older_chart(into: &Path) {
    fn copy(from: &Path, into: &Path) {
        std::fs::create_dir_all(into).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = into.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &to);
            } else {
                std::fs::copy(entry.path(), to).unwrap();
            }
        }
    }
    copy(Path::new(CHART), into);
    std::fs::write(into.join("files/crds.yaml"), OLDER).unwrap();
}

/// What of every object must not change.
fn kept(cluster: &Cluster) -> Vec<Value> {
    let all = KINDS.into_iter().flat_map(|kind| items(cluster, kind));
    let kept = all.map(|o| {
        let (spec, status) = (&o["spec"], &o["status"]);
        let fields = [
            "provisioner",
            "parameters",
            "address",
            "className",
            "claimRef",
            "addressName",
        ];
        let spec: Vec<&Value> = fields.iter().map(|field| &spec[field]).collect();
        json!({"kind": o["kind"], "name": o["metadata"]["name"], "uid": o["metadata"]["uid"],
            "finalizers": o["metadata"]["finalizers"], "spec": spec,
            "phase": status["phase"], "addresses": status["addresses"]})
    });
    kept.collect()
}

fn objects_of_older_definitions_outlive_an_upgrade(replicas: Replicas) {
    let mut cluster = Cluster::bare();
    let folder = tempfile::tempdir().unwrap();
    older_chart(folder.path());
    chart::release(&cluster, "install", folder.path(), &[]);
    cluster.wait_until_served();
    cluster.start_manager();
    let mut cluster = Installation::of(cluster);
    cluster.start(replicas);
    let ranges = json!({"addresses": ["192.0.2.0/28", "2001:db8::/64"]});
    create(
        &cluster,
        &[
            class(
                "lan",
                json!({"provisioner": RANGE, "reclaimPolicy": "Delete", "parameters": ranges}),
            ),
            class("static", json!({"provisioner": "example.com/none"})),
            address(
                "ip-203-0-113-7",
                json!({"address": "203.0.113.7", "className": "static"}),
            ),
            // What the definitions of today refuse.
            address(
                "printer",
                json!({"address": "2001:DB8::00AA", "className": "static"}),
            ),
            claim(
                "both",
                json!({"family": "Dual", "addressName": "ip-203-0-113-8", "className": "static"}),
            ),
            claim("web", json!({"className": "lan"})),
            claim("dual", json!({"className": "lan", "family": "Dual"})),
            claim("mail", json!({"addressName": "ip-203-0-113-7"})),
        ],
    );
    let bound = ["web", "dual", "mail"];
    cluster.wait_bound(TEAM, &bound);
    eventually("what cannot be bound says why", || {
        let claims = items(&cluster, "ipaddrclaim");
        let both = claims.iter().find(|c| c["metadata"]["name"] == "both");
        both.unwrap()["status"]["conditions"]
            .to_string()
            .contains("InvalidSpec")
    });
    let before = kept(&cluster);
    let claims = items(&cluster, "ipaddrclaim");
    assert!(
        claims.iter().all(|c| c["status"]["addressText"].is_null()),
        "it is pruned"
    );
    cluster.stop();

    chart::release(&cluster, "upgrade", Path::new(CHART), &[]);
    let definition = format!("crd/ipaddressclaims.{GROUP}");
    let served = cluster.ctl(&["get", &definition, "-o", "json"]);
    assert!(served.contains("addressText"), "{served}");
    cluster.start(replicas);
    assert_eq!(kept(&cluster), before);
    // A claim that is bound now shows the core that the new fields are kept.
    create(&cluster, &[claim("new", json!({"className": "lan"}))]);
    cluster.wait_bound(TEAM, &["new", "web", "dual", "mail"]);
    eventually("the new fields are written", || {
        let claims = items(&cluster, "ipaddrclaim").into_iter();
        let full = claims.filter(|c| c["status"]["addressText"].is_string());
        full.count() == bound.len() + 1
    });
    // Every object can be written, also one that could not be made any more.
    for kind in KINDS {
        cluster.ctl(&["label", kind, "--all", "upgraded=yes", "-A"]);
    }
    let spelling = address(
        "printer",
        json!({"address": "2001:DB8::00AB", "className": "static"}),
    );
    for (arguments, object, message) in [
        (
            &["create", "--dry-run=server"][..],
            claim("new", json!({"family": "IPv5"})),
            "IPv5",
        ),
        (&["replace", "--dry-run=server"], spelling, "canonical form"),
        (
            &["replace", "--dry-run=server"],
            claim("web", json!({"className": "static"})),
            "while the claim is Bound or Lost",
        ),
    ] {
        let (taken, said) = cluster.send(arguments, &object);
        assert!(!taken && said.contains(message), "{said}");
    }
    let after = kept(&cluster);
    let lost: Vec<_> = before.iter().filter(|o| !after.contains(o)).collect();
    assert!(lost.is_empty(), "{lost:#?}");
    cluster.clear();
}

/// Steps 2 to 4 of the documentation.
fn delete_all(cluster: &Installation) {
    let all = ["--all", "--timeout=60s"];
    let claims = format!("ipaddressclaims.{GROUP}");
    cluster.ctl(&[&["delete", &claims, "--all-namespaces"][..], &all].concat());
    let addresses = format!("ipaddresses.{GROUP}");
    cluster.ctl(&["delete", &addresses, "--all", "--wait=false"]);
    cluster.ctl(&[&["delete", &format!("ipaddressclasses.{GROUP}")][..], &all].concat());
    let told = |cluster: &Installation| {
        let output = cluster.check();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), told)
    };
    eventually("only what rests is left, and until when is said", || {
        let (code, told) = told(cluster);
        let of_rest = "(the range driver, until 20";
        code == Some(10) && told.lines().count() == 1 && told.contains(of_rest)
    });
    let no_rest = format!("{RANGE}/reuse-after-");
    cluster.ctl(&["annotate", &addresses, "--all", &no_rest]);
    eventually("nothing is held any more", || told(cluster).0 == Some(0));
}

fn ledger(cluster: &Cluster) {
    create(
        cluster,
        &[
            class(
                "goes",
                json!({"provisioner": RANGE, "reclaimPolicy": "Delete",
                "parameters": {"addresses": ["192.0.2.0/28", "2001:db8::/64"]}}),
            ),
            class(
                "stays",
                json!({"provisioner": RANGE, "reclaimPolicy": "Retain",
                "parameters": {"addresses": ["198.51.100.0/28"]}}),
            ),
            class(
                "rests",
                json!({"provisioner": RANGE, "reclaimPolicy": "Delete",
                "parameters": {"addresses": ["203.0.113.64/28"], "reuseAfter": "1h"}}),
            ),
            address(
                "ip-203-0-113-7",
                json!({"address": "203.0.113.7", "className": "stays"}),
            ),
            claim("rests", json!({"className": "rests"})),
            claim("dual", json!({"className": "goes", "family": "Dual"})),
            claim("stays", json!({"className": "stays"})),
            claim("left", json!({"className": "stays"})),
            claim("waits", json!({"className": "stays", "family": "IPv6"})),
        ],
    );
    cluster.wait_bound(TEAM, &["dual", "stays", "left", "rests"]);
    cluster.ctl(&["delete", "ipaddrclaim", "left", "-n", TEAM]);
    // A backend uses an address elsewhere.
    let held = cluster.ctl(&[
        "get",
        "ipaddrclaim",
        "stays",
        "-n",
        TEAM,
        "-o",
        "jsonpath={.status.addresses[0].name}",
    ]);
    let conflict = [
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"phase":"Conflict"}}"#,
    ];
    cluster.ctl(&[&["patch", "ipaddr", &held][..], &conflict].concat());
}

fn the_order_of_an_uninstallation_leaves_nothing_stuck(replicas: Replicas) {
    let mut cluster = Installation::new();
    cluster.start(replicas);
    ledger(&cluster);
    let held = cluster.check();
    assert_eq!(held.status.code(), Some(10), "{held:?}");
    let told = String::from_utf8_lossy(&held.stdout);
    for line in [
        "IPAddressClaim team-a/stays: local.sdn.cozystack.io/claim-protection (the binding core)",
        "local.sdn.cozystack.io/address-protection (the binding core)",
        "range.drivers.local.sdn.cozystack.io/teardown (the range driver)",
        "range.drivers.local.sdn.cozystack.io/teardown (the range driver, 1h after the release)",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    // Somebody begins at the end. The objects stay, and what is deleted of them waits ...
    cluster.stop();
    let uninstall = |cluster: &Cluster| {
        succeed(helm(cluster).args(["uninstall", RELEASE, "-n", SYSTEM]));
    };
    uninstall(&cluster);
    let delete = ["delete", "ipaddrclaim", "--all", "-n", TEAM, "--wait=false"];
    cluster.ctl(&delete);
    assert_eq!(cluster.check().status.code(), Some(10));
    // ... until the chart is there again.
    chart::release(&cluster, "install", Path::new(CHART), &[]);
    cluster.start(replicas);
    delete_all(&cluster);
    cluster.stop();
    uninstall(&cluster);
    let ours = "app.kubernetes.io/name=ipledger";
    let mut kinds = vec![
        "clusterroles",
        "clusterrolebindings",
        "validatingadmissionpolicies",
    ];
    kinds.extend([
        "validatingadmissionpolicybindings",
        "roles",
        "rolebindings",
        "deployments",
    ]);
    kinds.extend(["serviceaccounts", "poddisruptionbudgets"]);
    let left = cluster.ctl(&["get", &kinds.join(","), "-A", "-l", ours, "-o", "name"]);
    assert_eq!(left, "");
    let crds = ["delete", "crd", "-l", ours, "--timeout=60s"];
    let deleted = cluster.ctl(&crds);
    assert_eq!(deleted.lines().count(), 3, "{deleted}");
    cluster.ctl(&["delete", "namespace", SYSTEM, TEAM, "--timeout=60s"]);
}
