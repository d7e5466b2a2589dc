//! The real program against the API server: the binding core and the range driver, each a process under
//! the account of the chart; one of each, and two of each that both work.

use serde_json::{Value, json};

use crate::cases;
use crate::cluster::{Cluster, TEAM, claim, eventually};
use crate::installation::Installation;

cases![Installed:
    claims_are_bound_shown_and_given_back,
    many_claims_are_bound_and_nothing_twice,
    the_core_goes_on_after_the_server_was_restarted,
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

/// Every IP has one object, every address that a bound claim reports is held by it, and a claim has one
/// of each family that it asks for.
pub(crate) fn assert_nothing_is_held_twice(cluster: &Cluster) {
    let mut held = std::collections::BTreeMap::new();
    for address in items(cluster, "ipaddr") {
        let claim = &address["spec"]["claimRef"];
        let text = address["spec"]["address"].as_str().unwrap().to_owned();
        let before = held.insert(text.clone(), claim["uid"].clone());
        assert_eq!(before, None, "{text} has two objects");
    }
    for claim in items(cluster, "ipaddrclaim") {
        let (name, uid) = (&claim["metadata"]["name"], &claim["metadata"]["uid"]);
        let addresses = claim["status"]["addresses"].as_array();
        for address in addresses.into_iter().flatten() {
            let text = address["address"].as_str().unwrap();
            assert_eq!(&held[text], uid, "{name} reports {text}");
        }
        let wanted = if claim["spec"]["family"] == "Dual" {
            2
        } else {
            1
        };
        if name.as_str().unwrap().starts_with("c-") {
            assert_eq!(addresses.map(Vec::len), Some(wanted), "{name}");
        }
    }
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

fn many_claims_are_bound_and_nothing_twice(cluster: &mut Installation) {
    apply_quickstart(cluster);
    let claims: Vec<Value> = (0..40)
        .map(|n| {
            let family = ["IPv4", "IPv6", "Dual"][n % 3];
            claim(
                &format!("c-{n}"),
                json!({"className": "standard", "family": family}),
            )
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": claims});
    cluster.apply(&list.to_string());
    let wait = [
        "wait",
        "--for=condition=Bound",
        "--timeout=60s",
        "ipaddrclaim",
        "--all",
        "-n",
        TEAM,
    ];
    cluster.ctl(&wait);
    assert_nothing_is_held_twice(cluster);
}

fn the_core_goes_on_after_the_server_was_restarted(cluster: &mut Installation) {
    apply_quickstart(cluster);
    let wait = [
        "wait",
        "--for=condition=Bound",
        "--timeout=60s",
        "ipaddrclaim",
    ];
    cluster.ctl(&[&wait[..], &["web", "dual", "mail"]].concat());
    let before = items(cluster, "ipaddr").len();
    cluster.kill();
    cluster.start_again();
    cluster.wait_until_served();
    let (taken, said) = cluster.send(&["create"], &claim("late", json!({})));
    assert!(taken, "{said}");
    cluster.ctl(&[&wait[..], &["late", "-n", TEAM]].concat());
    assert_eq!(items(cluster, "ipaddr").len(), before + 1);
}
