//! What kubectl shows of our kinds.

use std::sync::Arc;

use serde_json::json;

use crate::cases;
use crate::cluster::{Cluster, claim};

cases![Shared:
    every_kind_is_found_by_each_of_its_names,
    every_field_is_explained,
    a_claim_is_shown_with_phase_and_all_its_addresses,
];

async fn every_kind_is_found_by_each_of_its_names(cluster: Arc<Cluster>) {
    for name in [
        "ipaddr",
        "ipaddrclaim",
        "ipaddrclass",
        "ipaddresses.local.sdn.cozystack.io",
        "ipaddressclaims.local.sdn.cozystack.io",
        "ipaddressclasses.local.sdn.cozystack.io",
        "ipledger",
    ] {
        cluster.ctl(&["get", name, "-A"]);
    }
}

async fn every_field_is_explained(cluster: Arc<Cluster>) {
    for resource in [
        "ipaddrclass",
        "ipaddresses.local.sdn.cozystack.io",
        "ipaddrclaim",
    ] {
        let all = cluster.ctl(&["explain", resource, "--recursive"]);
        let own = all.split("FIELDS:").nth(1).unwrap();
        let mut path: Vec<&str> = Vec::new();
        let mut explained = 0;
        for line in own.lines().filter(|l| l.contains('\t')) {
            let depth = (line.len() - line.trim_start().len()) / 2 - 1;
            path.truncate(depth);
            path.push(line.split_whitespace().next().unwrap());
            // The rest is explained by Kubernetes.
            if ["spec", "status"].contains(&path[0]) {
                let text = cluster.ctl(&["explain", &format!("{resource}.{}", path.join("."))]);
                let text = text.split("DESCRIPTION:").nth(1).unwrap().trim_start();
                assert!(!text.starts_with("<empty>"), "{resource} {path:?}");
                explained += 1;
            }
        }
        assert!(explained >= 10, "{resource}: {explained}\n{all}");
    }
}

async fn a_claim_is_shown_with_phase_and_all_its_addresses(cluster: Arc<Cluster>) {
    let (taken, said) = cluster.send(&["create"], &claim("shown", json!({"family": "Dual"})));
    assert!(taken, "{said}");
    let status = json!({"status": {
        "phase": "Bound", "className": "public", "addressText": "192.0.2.1,2001:db8::1",
        "addresses": [
            {"name": "ip-192-0-2-1", "address": "192.0.2.1"},
            {"name": "ip-2001-db8--1", "address": "2001:db8::1"},
        ],
        "conditions": [{"type": "Bound", "status": "True", "reason": "Bound", "message": "m"}],
    }})
    .to_string();
    let subject = ["ipaddrclaim", "shown", "-n", "team-a"];
    let patch = ["--type=merge", "--subresource=status", "-p", &status];
    cluster.ctl(&[&["patch"], &subject[..], &patch].concat());
    let table = cluster.ctl(&[&["get"], &subject[..], &["--no-headers"]].concat());
    let cells: Vec<_> = table.split_whitespace().collect();
    let wanted = ["shown", "Bound", "Dual", "public", "192.0.2.1,2001:db8::1"];
    assert_eq!(cells[..5], wanted, "{table}");
    cluster.ctl(
        &[
            &["wait", "--for=condition=Bound", "--timeout=10s"],
            &subject[..],
        ]
        .concat(),
    );
    let selected = ["--field-selector", "status.phase=Bound", "-o", "name"];
    let named = cluster.ctl(&[&["get", "ipaddrclaim", "-n", "team-a"], &selected[..]].concat());
    assert_eq!(named.trim(), "ipaddressclaim.local.sdn.cozystack.io/shown");
}
