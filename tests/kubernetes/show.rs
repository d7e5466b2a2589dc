//! What kubectl shows of our kinds.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::cases;
use crate::cluster::{Cluster, claim, eventually};

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
    for (name, definition) in cluster.definitions() {
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        eventually("the texts are published", || {
            let asked = cluster.kubectl(&["explain", &name]).output();
            asked.unwrap().status.success()
        });
        let explained = explain(&cluster, &name, schema);
        assert!(explained >= 10, "{name}: {explained} fields");
    }
}

/// Asks for the fields of an object, and of the objects in it: each has its text, in words that are
/// those of the definition (Kubernetes itself has some for what every object has). How many there are.
fn explain(cluster: &Cluster, path: &str, schema: &Value) -> usize {
    let inner = if schema["type"] == "array" {
        &schema["items"]
    } else {
        schema
    };
    let Some(fields) = inner["properties"].as_object() else {
        return 0;
    };
    let said = cluster.ctl(&["explain", path]);
    let said = said.split_once("FIELDS:").map_or("", |(_, fields)| fields);
    let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut name = "";
    for line in said.lines() {
        if let Some((field, _)) = line.split_once('\t') {
            name = field.trim();
            texts.insert(name, Vec::new());
        } else if !line.starts_with("  enum:") {
            texts
                .entry(name)
                .or_default()
                .extend(line.split_whitespace());
        }
    }
    let mut explained = 0;
    for (field, schema) in fields {
        let text = texts
            .get(&**field)
            .map(|words| words.join(" "))
            .unwrap_or_default();
        match schema["description"].as_str() {
            Some(own) => assert_eq!(text, own.split_whitespace().collect::<Vec<_>>().join(" ")),
            None => {
                assert!(
                    ["apiVersion", "kind", "metadata"].contains(&&**field),
                    "{path}.{field}"
                );
                assert!(text.len() > 20, "{path}.{field}: {text}");
            }
        }
        explained += 1 + explain(cluster, &format!("{path}.{field}"), schema);
    }
    explained
}

async fn a_claim_is_shown_with_phase_and_all_its_addresses(cluster: Arc<Cluster>) {
    cluster.create(&claim("shown", json!({"family": "Dual"})));
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
