//! Every CEL rule of the definitions has a bad input that it refuses with its message. (Which inputs are
//! bad in detail is in `definitions`.)

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cases;
use crate::cluster::{Cluster, TEAM, address, claim, class};

cases![Shared: no_rule_is_without_a_refusal];

/// The rules at a schema and below it, each with its path and message.
fn rules(schema: &Value, path: &str, into: &mut Vec<(String, String)>) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let at = rule["fieldPath"].as_str().map(|own| format!("{path}{own}"));
        let message = rule["message"].as_str().unwrap().to_owned();
        into.push((at.unwrap_or_else(|| path.to_owned()), message));
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        rules(inner, &format!("{path}.{name}"), into);
    }
    if schema.get("items").is_some() {
        rules(&schema["items"], &format!("{path}[]"), into);
    }
}

/// One bad input for each rule of the definitions; a rule without one fails the case.
async fn no_rule_is_without_a_refusal(cluster: Arc<Cluster>) {
    let ip = |text: &str, source: Value| {
        let name = format!("ip-{}", text.replace(['.', ':'], "-"));
        address(
            &name,
            json!({"address": text, "className": "public", "source": source}),
        )
    };
    let taken_from_class = json!({"fromClass": {}});
    let good = ip("192.0.2.20", taken_from_class.clone());
    let renamed = |text: &str| {
        let mut other = good.clone();
        other["spec"]["address"] = json!(text);
        other
    };
    let of = |name: &str| class("ruled", json!({"provisioner": name}));
    let wanted = json!({"className": "public", "family": "IPv4"});
    let asks = |field: &str, value: &str| {
        let mut spec = wanted.clone();
        spec[field] = json!(value);
        claim("ruled", spec)
    };
    // What there is before, in which phase, and what is written then.
    type Row = (Option<(Value, &'static str)>, Value);
    let rows: [(&str, &str, Row); 12] = [
        (
            "ipaddressclasses",
            ".spec.provisioner",
            (Some((of("a.example.org"), "")), of("b.example.org")),
        ),
        (
            "ipaddresses",
            "",
            (None, address("web", good["spec"].clone())),
        ),
        (
            "ipaddresses",
            ".spec",
            (
                Some((good.clone(), "")),
                ip("192.0.2.20", json!({"providerRef": {"id": "x"}})),
            ),
        ),
        (
            "ipaddresses",
            ".spec.address",
            (Some((good.clone(), "")), renamed("192.0.2.21")),
        ),
        (
            "ipaddresses",
            ".spec.address",
            (None, ip("2001:DB8::1", taken_from_class.clone())),
        ),
        (
            "ipaddresses",
            ".spec.address",
            (None, ip("127.0.0.1", taken_from_class)),
        ),
        (
            "ipaddresses",
            ".spec.source",
            (None, ip("192.0.2.20", json!({}))),
        ),
        (
            "ipaddressclaims",
            ".spec",
            (
                None,
                claim(
                    "ruled",
                    json!({"family": "Dual", "addressName": "ip-192-0-2-1"}),
                ),
            ),
        ),
        (
            "ipaddressclaims",
            ".spec.className",
            (
                Some((claim("ruled", wanted.clone()), "Bound")),
                asks("className", "x"),
            ),
        ),
        (
            "ipaddressclaims",
            ".spec.family",
            (
                Some((claim("ruled", wanted.clone()), "Lost")),
                asks("family", "IPv6"),
            ),
        ),
        (
            "ipaddressclaims",
            ".spec.addressName",
            (
                Some((claim("ruled", wanted.clone()), "Bound")),
                asks("addressName", "ip-192-0-2-1"),
            ),
        ),
        (
            "ipaddressclaims",
            ".spec.className",
            (
                Some((claim("ruled", wanted.clone()), "Lost")),
                claim("ruled", json!({"family": "IPv4"})),
            ),
        ),
    ];
    let mut left: Vec<(String, String, String)> = Vec::new();
    for (name, definition) in cluster.definitions() {
        let mut all = Vec::new();
        rules(
            &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            "",
            &mut all,
        );
        let kind = name.split('.').next().unwrap().to_owned();
        left.extend(
            all.into_iter()
                .map(|(path, message)| (kind.clone(), path, message)),
        );
    }
    assert!(left.len() >= 11, "{left:?}");
    for (kind, path, (before, after)) in rows {
        if let Some((object, phase)) = &before {
            cluster.create(object);
            if !phase.is_empty() {
                let patch = json!({"status": {"phase": phase}}).to_string();
                let name = object["metadata"]["name"].as_str().unwrap();
                let what = ["patch", "ipaddrclaim", name, "-n", TEAM, "--type=merge"];
                cluster.ctl(&[&what[..], &["--subresource=status", "-p", &patch]].concat());
            }
        }
        let verb = if before.is_some() {
            "replace"
        } else {
            "create"
        };
        let (taken, said) = cluster.send(&[verb], &after);
        assert!(!taken, "{after}");
        // The rule of names says which name it is to be.
        let broken = |message: &str| {
            said.contains(message)
                || message.starts_with("the name of an address object")
                    && said.contains("metadata.name must be ip-")
        };
        assert!(
            said.contains(path.trim_start_matches('.')),
            "{path}: {said}"
        );
        left.retain(|(k, p, message)| !(k == kind && p == path && broken(message)));
        if let Some((object, _)) = before {
            let (deleted, said) = cluster.send(&["delete"], &object);
            assert!(deleted, "{said}");
        }
    }
    assert!(
        left.is_empty(),
        "these rules have refused nothing: {left:#?}"
    );
}
