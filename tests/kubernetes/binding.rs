//! The real program against the API server: the binding core and the range driver, each a process under
//! the account of the chart; one of each, and two of each that both work.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cases;
use crate::cluster::{Cluster, TEAM, claim, eventually, list};
use crate::installation::Installation;

cases![Installed:
    claims_are_bound_shown_and_given_back,
    many_claims_are_bound_and_nothing_twice,
    the_core_goes_on_when_servers_fail_under_load,
];

const QUICKSTART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/quickstart.yaml");

pub(crate) fn items(cluster: &Cluster, kind: &str) -> Vec<Value> {
    let list: Value =
        serde_json::from_str(&cluster.ctl(&["get", kind, "-A", "-o", "json"])).unwrap();
    list["items"].as_array().unwrap().clone()
}

pub(crate) fn apply_quickstart(cluster: &Cluster) {
    cluster.ctl(&["apply", "-f", QUICKSTART]);
}

/// For a ledger at rest: every IP has one object, a bound claim has one address of each family that it
/// asks for, and no address is held but those that a claim reports. Two drivers at work may each make one
/// for a claim in the same moment; the core then puts the second aside.
pub(crate) fn assert_nothing_is_held_twice(cluster: &Installation) {
    let mut held = BTreeMap::new();
    for address in items(cluster, "ipaddr") {
        let holder = &address["spec"]["claimRef"]["uid"];
        let aside = &address["metadata"]["annotations"]["local.sdn.cozystack.io/parked-for"];
        if aside.is_string() && aside == holder && cluster.each() > 1 {
            continue;
        }
        let text = address["spec"]["address"].as_str().unwrap().to_owned();
        let before = held.insert(text.clone(), address["spec"]["claimRef"]["uid"].clone());
        assert_eq!(before, None, "{text} has two objects");
    }
    for claim in items(cluster, "ipaddrclaim") {
        let (name, uid) = (&claim["metadata"]["name"], &claim["metadata"]["uid"]);
        let addresses = claim["status"]["addresses"].as_array();
        for address in addresses.into_iter().flatten() {
            let text = address["address"].as_str().unwrap();
            assert_eq!(
                held.remove(text).as_ref(),
                Some(uid),
                "{name} reports {text}"
            );
        }
        let wanted = match (&claim["status"]["phase"], &claim["spec"]["family"]) {
            (phase, _) if phase != "Bound" => continue,
            (_, family) if family == "Dual" => 2,
            _ => 1,
        };
        assert_eq!(addresses.map(Vec::len), Some(wanted), "{name}");
    }
    held.retain(|_, uid| !uid.is_null());
    assert!(held.is_empty(), "held, and reported by nobody: {held:?}");
}

/// The resource version of each object of ours.
pub(crate) fn versions(cluster: &Cluster) -> BTreeMap<String, Value> {
    let all = ["ipaddrclass", "ipaddr", "ipaddrclaim"].map(|kind| items(cluster, kind));
    let versions = all.concat().into_iter().map(|object| {
        let metadata = &object["metadata"];
        (
            format!("{} {}", object["kind"], metadata["name"]),
            metadata["resourceVersion"].clone(),
        )
    });
    versions.collect()
}

/// Waits until nothing is written any more, and what there is then.
pub(crate) fn at_rest(cluster: &Cluster) -> BTreeMap<String, Value> {
    let mut now = versions(cluster);
    eventually("nothing is written any more", || {
        // Longer than what follows the last `Bound` may wait, such as the capacity of a class.
        std::thread::sleep(Duration::from_millis(1500));
        let before = std::mem::replace(&mut now, versions(cluster));
        before == now
    });
    now
}

fn claims_are_bound_shown_and_given_back(cluster: &mut Installation) {
    apply_quickstart(cluster);
    let wait = [
        "wait",
        "--for=condition=Bound",
        "--timeout=60s",
        "ipaddrclaim",
    ];
    cluster.ctl(&[&wait[..], &["web", "dual", "mail"]].concat());
    let table = cluster.ctl(&["get", "ipaddrclaim"]);
    let row = |name: &str| -> Vec<&str> {
        let row = table.lines().find(|l| l.starts_with(name)).unwrap();
        row.split_whitespace().collect()
    };
    assert_eq!(
        row("mail")[..5],
        ["mail", "Bound", "IPv4", "static", "203.0.113.7"]
    );
    let dual = row("dual")[4].to_owned();
    let (four, six) = dual.split_once(',').unwrap();
    assert!(
        four.starts_with("192.0.2.") && six.starts_with("2001:db8::"),
        "{dual}"
    );
    assert!(table.lines().all(|l| l.len() <= 120), "{table}");
    eventually("the claim that nobody can serve says why", || {
        cluster
            .ctl(&["get", "ipaddrclaim", "unservable", "-o", "wide"])
            .contains("FamilyUnavailable")
    });
    cluster.ctl(&["delete", "ipaddrclaim", "--all", "--timeout=60s"]);
    eventually(
        "what the range gave is given back, the rest is kept",
        || {
            let left = items(cluster, "ipaddr");
            let phases: Vec<_> = left
                .iter()
                .map(|a| (&a["spec"]["address"], &a["status"]["phase"]))
                .collect();
            phases == [(&json!("203.0.113.7"), &json!("Released"))]
        },
    );
}

/// So many claims of the class of the quickstart, of every family in turn.
fn many(name: &str, count: usize) -> Value {
    let claims: Vec<Value> = (0..count)
        .map(|n| {
            let family = ["IPv4", "IPv6", "Dual"][n % 3];
            let spec = json!({"className": "standard", "family": family});
            claim(&format!("{name}-{n}"), spec)
        })
        .collect();
    list(&claims)
}

fn wait_all_bound(cluster: &Cluster) {
    let wait = ["wait", "--for=condition=Bound", "--timeout=60s"];
    cluster.ctl(&[&wait[..], &["ipaddrclaim", "--all", "-n", TEAM]].concat());
}

fn many_claims_are_bound_and_nothing_twice(cluster: &mut Installation) {
    apply_quickstart(cluster);
    cluster.apply(&many("c", 40).to_string());
    wait_all_bound(cluster);
    at_rest(cluster);
    assert_nothing_is_held_twice(cluster);
}

/// The server and its etcd are killed, and then etcd comes back from a copy that has forgotten every
/// revision of before, while claims come in.
fn the_core_goes_on_when_servers_fail_under_load(cluster: &mut Installation) {
    apply_quickstart(cluster);
    let faults: [fn(&mut Cluster); 3] = [
        |cluster| {
            cluster.kill();
            cluster.start_again();
        },
        |cluster| {
            cluster.etcd_mut().kill();
            cluster.etcd_mut().start_again();
        },
        |cluster| {
            cluster.kill();
            cluster.etcd_mut().restore_ahead(10_000);
            cluster.start_again();
        },
    ];
    let folder = tempfile::tempdir().unwrap();
    for (n, fault) in faults.into_iter().enumerate() {
        let file = folder.path().join("claims");
        std::fs::write(&file, many(&format!("c-{n}"), 15).to_string()).unwrap();
        let mut apply = cluster.kubectl(&["apply", "--server-side", "-f"]);
        apply.arg(&file);
        std::thread::scope(|scope| {
            let applied = scope.spawn(move || {
                eventually("the claims are taken", || {
                    apply.output().unwrap().status.success()
                });
            });
            let started = format!("c-{n}-0");
            let one = ["get", "ipaddrclaim", &started, "-n", TEAM];
            eventually("the first claim is there", || {
                cluster.kubectl(&one).output().unwrap().status.success()
            });
            fault(cluster);
            applied.join().unwrap();
        });
        cluster.wait_until_served();
        wait_all_bound(cluster);
    }
    at_rest(cluster);
    assert_nothing_is_held_twice(cluster);
    assert_eq!(items(cluster, "ipaddrclaim").len(), 45 + 4);
}
