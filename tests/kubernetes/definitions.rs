//! Each rule of the definitions refuses its bad input with its message.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cases;
use crate::cluster::{Cluster, address, claim, class};

cases![Shared:
    an_address_that_is_not_right_is_refused_with_what_to_write,
    an_address_object_needs_the_name_of_its_address,
    what_cannot_be_changed_is_refused,
    a_claim_of_a_specific_address_cannot_be_dual,
    the_spec_of_a_claim_is_frozen_once_it_is_bound,
    names_words_and_sizes_are_checked,
    what_is_left_out_gets_its_default,
    unknown_fields_are_named_and_pruned,
];

fn refused(cluster: &Cluster, object: &Value, with: &str) {
    let (taken, said) = cluster.send(&["create", "--dry-run=server"], object);
    assert!(
        !taken && said.contains(with),
        "{object}\n{said}\nwithout: {with}"
    );
}

fn taken(cluster: &Cluster, object: &Value) {
    let (taken, said) = cluster.send(&["create", "--dry-run=server"], object);
    assert!(taken, "{object}\n{said}");
}

async fn an_address_that_is_not_right_is_refused_with_what_to_write(cluster: Arc<Cluster>) {
    for (name, text, message) in [
        (
            "ip-2001-db8--1",
            "2001:DB8::1",
            "must be an IP address in its canonical form",
        ),
        (
            "ip-2001-db8--1",
            "2001:db8:0::1",
            "must be an IP address in its canonical form",
        ),
        ("ip-192-0-2-256", "192.0.2.256", "must be an IP address"),
        ("ip-192-0-2-01", "192.0.2.01", "must be an IP address"),
        ("ip-192-0-2-1", "192.0.2.1/32", "must be an IP address"),
        (
            "ip---ffff-192-0-2-1",
            "::ffff:192.0.2.1",
            "must be an IP address",
        ),
        ("ip-fe80--1", "fe80::1%eth0", "must be an IP address"),
        ("ip-web", "web", "must be an IP address"),
        ("ip-0-0-0-0", "0.0.0.0", "must be the address of one host"),
        ("ip-0-1-2-3", "0.1.2.3", "must be the address of one host"),
        ("ip---0", "::", "must be the address of one host"),
        (
            "ip-127-0-0-1",
            "127.0.0.1",
            "must be the address of one host",
        ),
        ("ip---1", "::1", "must be the address of one host"),
        (
            "ip-224-0-0-1",
            "224.0.0.1",
            "must be the address of one host",
        ),
        ("ip-ff02--1", "ff02::1", "must be the address of one host"),
        (
            "ip-255-255-255-255",
            "255.255.255.255",
            "must be the address of one host",
        ),
    ] {
        let object = address(name, json!({"address": text, "className": "public"}));
        refused(&cluster, &object, message);
    }
    for (name, text) in [
        ("ip-192-0-2-1", "192.0.2.1"),
        ("ip-240-0-0-1", "240.0.0.1"),
        ("ip-169-254-0-1", "169.254.0.1"),
        ("ip-fe80--1", "fe80::1"),
        ("ip-2001-db8--0", "2001:db8::"),
        ("ip-64-ff9b--a00-1", "64:ff9b::a00:1"),
    ] {
        taken(
            &cluster,
            &address(name, json!({"address": text, "className": "public"})),
        );
    }
}

async fn an_address_object_needs_the_name_of_its_address(cluster: Arc<Cluster>) {
    for (text, wanted) in [
        ("192.0.2.1", "ip-192-0-2-1"),
        ("2001:db8::7", "ip-2001-db8--7"),
        ("2001:db8::", "ip-2001-db8--0"),
    ] {
        let object = address("web", json!({"address": text, "className": "public"}));
        refused(
            &cluster,
            &object,
            &format!("metadata.name must be {wanted}: "),
        );
    }
}

/// Creates an object, and what becomes of it when it is changed so.
fn changed(cluster: &Cluster, before: &Value, changes: &[(&str, Value)]) -> (bool, String) {
    let mut after = before.clone();
    for (pointer, value) in changes {
        *after.pointer_mut(pointer).unwrap() = value.clone();
    }
    let (taken, said) = cluster.send(&["create"], before);
    assert!(taken, "{said}");
    let result = cluster.send(&["replace"], &after);
    let (taken, said) = cluster.send(&["delete"], before);
    assert!(taken, "{said}");
    result
}

async fn what_cannot_be_changed_is_refused(cluster: Arc<Cluster>) {
    let source = json!({"providerRef": {"id": "eip-1"}});
    let spec = json!({"address": "192.0.2.10", "className": "public", "source": source});
    let ip = address("ip-192-0-2-10", spec);
    let kept = class("kept", json!({"provisioner": "example.com/range"}));
    for (before, changes, message) in [
        (
            &ip,
            ("/spec/address", json!("192.0.2.11")),
            "spec.address: Invalid value: \"192.0.2.11\": cannot be changed",
        ),
        (
            &ip,
            ("/spec/source/providerRef/id", json!("eip-2")),
            "source cannot be changed",
        ),
        (
            &ip,
            ("/spec/source", json!({"fromClass": {}})),
            "source cannot be changed",
        ),
        (
            &ip,
            ("/spec/source", json!(null)),
            "source cannot be changed",
        ),
        (
            &kept,
            ("/spec/provisioner", json!("example.com/other")),
            "cannot be changed",
        ),
    ] {
        let (taken, said) = changed(&cluster, before, &[changes]);
        assert!(
            !taken && said.contains(message),
            "{said}\nwithout: {message}"
        );
    }
    let unsaid = json!({"address": "192.0.2.12", "className": "public"});
    let unsaid = address("ip-192-0-2-12", unsaid);
    for (before, changes) in [
        (&ip, ("/spec/className", json!("private"))),
        // What was never said can still be said.
        (
            &unsaid,
            (
                "/spec",
                json!({"address": "192.0.2.12", "className": "public", "source": {"fromClass": {}}}),
            ),
        ),
        (
            &kept,
            ("/metadata", json!({"name": "kept", "labels": {"a": "b"}})),
        ),
    ] {
        let (taken, said) = changed(&cluster, before, &[changes]);
        assert!(taken, "{said}");
    }
    for source in [
        json!({}),
        json!({"fromClass": {}, "providerRef": {"id": "x"}}),
    ] {
        let spec = json!({"address": "192.0.2.10", "className": "public", "source": source});
        let message = "must have exactly one of fromClass and providerRef";
        refused(&cluster, &address("ip-192-0-2-10", spec), message);
    }
}

async fn a_claim_of_a_specific_address_cannot_be_dual(cluster: Arc<Cluster>) {
    let dual = json!({"family": "Dual", "addressName": "ip-192-0-2-1"});
    refused(
        &cluster,
        &claim("web", dual),
        "cannot be used with family Dual",
    );
    for spec in [
        json!({"family": "Dual"}),
        json!({"family": "Dual", "addressName": ""}),
        json!({"family": "IPv6", "addressName": "ip-2001-db8--1"}),
    ] {
        taken(&cluster, &claim("web", spec));
    }
}

async fn the_spec_of_a_claim_is_frozen_once_it_is_bound(cluster: Arc<Cluster>) {
    let before = claim("frozen", json!({"className": "public", "family": "IPv4"}));
    assert!(cluster.send(&["create"], &before).0);
    let patch = |field: &str, value: Value| {
        let patch = json!({"spec": {field: value}}).to_string();
        let arguments = [
            "patch",
            "ipaddrclaim",
            "frozen",
            "-n",
            "team-a",
            "--type=merge",
            "-p",
        ];
        let output = cluster.kubectl(&arguments).arg(patch).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let phase = |phase: &str| {
        let patch = json!({"status": {"phase": phase}}).to_string();
        let arguments = [
            "patch",
            "ipaddrclaim",
            "frozen",
            "-n",
            "team-a",
            "--type=merge",
        ];
        cluster.ctl(&[&arguments[..], &["--subresource=status", "-p", &patch]].concat());
    };
    assert!(
        patch("className", json!("private")).0,
        "it may change while nothing is bound"
    );
    phase("Pending");
    assert!(
        patch("className", json!("public")).0,
        "it may change while it waits"
    );
    for held in ["Bound", "Lost"] {
        phase(held);
        for (field, value) in [
            ("className", json!("private")),
            ("className", json!(null)),
            ("family", json!("IPv6")),
            ("addressName", json!("ip-192-0-2-1")),
        ] {
            let (taken, said) = patch(field, value);
            let message = format!("spec.{field}: Invalid value");
            assert!(!taken && said.contains(&message), "{said}");
            assert!(said.contains("while the claim is Bound or Lost"), "{said}");
        }
        assert!(patch("addressName", json!("")).0, "nothing is changed");
    }
}

async fn names_words_and_sizes_are_checked(cluster: Arc<Cluster>) {
    let ip = |spec: Value| {
        let mut whole = json!({"address": "192.0.2.1", "className": "public"});
        for (name, value) in spec.as_object().unwrap() {
            whole[name] = value.clone();
        }
        address("ip-192-0-2-1", whole)
    };
    for (object, field) in [
        (claim("web", json!({"family": "IPv5"})), "spec.family"),
        (
            claim("web", json!({"className": "No Name"})),
            "spec.className",
        ),
        (
            claim("web", json!({"addressName": "-"})),
            "spec.addressName",
        ),
        (
            claim("web", json!({"className": "a".repeat(254)})),
            "spec.className",
        ),
        (ip(json!({"className": ""})), "spec.className"),
        (
            ip(json!({"reclaimPolicy": "Recycle"})),
            "spec.reclaimPolicy",
        ),
        (
            ip(json!({"claimRef": {"name": "web"}})),
            "spec.claimRef.namespace",
        ),
        (
            ip(json!({"claimRef": {"name": "web", "namespace": "a.b"}})),
            "spec.claimRef.namespace",
        ),
        (
            ip(json!({"source": {"providerRef": {}}})),
            "spec.source.providerRef.id",
        ),
        (
            address("ip-192-0-2-1", json!({"className": "public"})),
            "spec.address",
        ),
        (class("public", json!({})), "spec.provisioner"),
        (
            class("public", json!({"provisioner": ""})),
            "spec.provisioner",
        ),
        (
            class("public", json!({"provisioner": "x", "parameters": 7})),
            "spec.parameters",
        ),
    ] {
        refused(&cluster, &object, field);
    }
}

async fn what_is_left_out_gets_its_default(cluster: Arc<Cluster>) {
    let made = |object: &Value| -> Value {
        let (taken, said) = cluster.send(&["create", "--dry-run=server", "-o", "json"], object);
        assert!(taken, "{said}");
        serde_json::from_str(&said).unwrap()
    };
    let mut bare = claim("web", json!({}));
    bare.as_object_mut().unwrap().remove("spec");
    assert_eq!(made(&bare)["spec"], json!({"family": "IPv4"}));
    let ip = address(
        "ip-192-0-2-1",
        json!({"address": "192.0.2.1", "className": "public"}),
    );
    assert_eq!(made(&ip)["spec"]["reclaimPolicy"], "Retain");
    let parameters = json!({"anything": [{"at": {"all": null}}]});
    let public = class(
        "public",
        json!({"provisioner": "x", "parameters": parameters}),
    );
    let made = made(&public);
    assert_eq!(made["spec"]["reclaimPolicy"], "Retain");
    assert_eq!(made["spec"]["parameters"], parameters);
}

async fn unknown_fields_are_named_and_pruned(cluster: Arc<Cluster>) {
    let object = claim("web", json!({"familly": "IPv6"}));
    refused(&cluster, &object, "unknown field \"spec.familly\"");
    let lenient = [
        "create",
        "--dry-run=server",
        "--validate=ignore",
        "-o",
        "json",
    ];
    let (taken, said) = cluster.send(&lenient, &object);
    assert!(taken, "{said}");
    let made: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(made["spec"], json!({"family": "IPv4"}));
}
