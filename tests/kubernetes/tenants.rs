//! What tenants meet of Kubernetes itself: quotas, and namespaces that are deleted. The real controllers
//! do their part.

use ipledger_tests::kubernetes::NOBODY;
use serde_json::{Value, json};

use crate::binding::items;
use crate::cases;
use crate::cluster::{TEAM, address, claim, class, eventually, list};
use crate::installation::Installation;

cases![Installed:
    a_quota_limits_the_claims_of_a_tenant,
    a_namespace_with_bound_claims_is_deleted_and_its_addresses_reclaimed,
    the_garbage_collector_lets_addresses_and_claims_go,
];

const RANGE: &str = "range.drivers.local.sdn.cozystack.io";

/// A namespace of a tenant, who has the built-in role `edit` in it and may use this class.
fn tenant(cluster: &Installation, namespace: &str, class: &str) {
    cluster.ctl(&["create", "namespace", namespace]);
    let group = "rbac.authorization.k8s.io";
    let user = json!([{"apiGroup": group, "kind": "User", "name": NOBODY}]);
    let use_it = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Role",
        "metadata": {"name": "use", "namespace": namespace},
        "rules": [{"apiGroups": ["local.sdn.cozystack.io"], "resources": ["ipaddressclasses"],
            "resourceNames": [class], "verbs": ["use"]}]});
    let binding = |name: &str, kind: &str| {
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace}, "subjects": user,
            "roleRef": {"apiGroup": group, "kind": kind, "name": name}})
    };
    let all = [
        use_it,
        binding("use", "Role"),
        binding("edit", "ClusterRole"),
    ];
    cluster.apply(&list(&all).to_string());
    eventually("the tenant may create claims", || {
        let may = ["auth", "can-i", "create", "ipaddrclaim", "-n", namespace];
        let mut ask = cluster.kubectl(&may);
        ask.arg("--token=nobody-token");
        ask.output().unwrap().status.success()
    });
}

fn range(cluster: &Installation, name: &str, policy: &str, addresses: &[&str]) {
    let spec = json!({"provisioner": RANGE, "reclaimPolicy": policy,
        "parameters": {"addresses": addresses}});
    cluster.create(&class(name, spec));
}

fn claim_in(namespace: &str, name: &str, spec: Value) -> Value {
    let mut claim = claim(name, spec);
    claim["metadata"]["namespace"] = json!(namespace);
    claim
}

/// Deletes a namespace, which must not be held up.
fn delete_namespace(cluster: &Installation, namespace: &str) {
    cluster.ctl(&["delete", "namespace", namespace, "--timeout=60s"]);
}

fn a_quota_limits_the_claims_of_a_tenant(cluster: &mut Installation) {
    let namespace = "limited";
    range(cluster, "lan", "Delete", &["192.0.2.0/28"]);
    tenant(cluster, namespace, "lan");
    // The command of docs/kubernetes.md.
    let hard = "--hard=count/ipaddressclaims.local.sdn.cozystack.io=2";
    cluster.ctl(&["create", "quota", "claims", hard, "-n", namespace]);
    let used = || {
        let of = ["get", "quota", "claims", "-n", namespace, "-o", "json"];
        let quota: Value = serde_json::from_str(&cluster.ctl(&of)).unwrap();
        quota["status"]["used"]["count/ipaddressclaims.local.sdn.cozystack.io"].clone()
    };
    eventually("the quota counts", || used() == json!("0"));
    let create = |name: &str| {
        let claim = claim_in(namespace, name, json!({"className": "lan"}));
        cluster.send(&["create", "--token=nobody-token"], &claim)
    };
    for name in ["first", "second"] {
        let (taken, said) = create(name);
        assert!(taken, "{said}");
    }
    let (taken, said) = create("third");
    let message = "ipaddressclaims.local.sdn.cozystack.io \"third\" is forbidden: exceeded quota: claims, \
        requested: count/ipaddressclaims.local.sdn.cozystack.io=1, \
        used: count/ipaddressclaims.local.sdn.cozystack.io=2, \
        limited: count/ipaddressclaims.local.sdn.cozystack.io=2";
    assert!(!taken && said.contains(message), "{said}");
    cluster.wait_bound(namespace, &["first", "second"]);
    // Others are not limited by it.
    cluster.create(&claim("third", json!({"className": "lan"})));

    let delete = ["delete", "ipaddrclaim", "first", "-n", namespace];
    cluster.ctl(&[&delete[..], &["--token=nobody-token", "--timeout=60s"]].concat());
    eventually("there is room again", || create("third").0);
    cluster.wait_bound(namespace, &["second", "third"]);
    eventually("the quota counts both", || used() == json!("2"));
    assert!(!create("fourth").0);
    delete_namespace(cluster, namespace);
}

fn a_namespace_with_bound_claims_is_deleted_and_its_addresses_reclaimed(
    cluster: &mut Installation,
) {
    let namespace = "leaving";
    range(
        cluster,
        "goes",
        "Delete",
        &["192.0.2.0/28", "2001:db8::/64"],
    );
    range(cluster, "stays", "Retain", &["198.51.100.0/28"]);
    cluster.ctl(&["create", "namespace", namespace]);
    let dual = json!({"className": "goes", "family": "Dual"});
    let claims = [
        claim_in(namespace, "goes", json!({"className": "goes"})),
        claim_in(namespace, "dual", dual.clone()),
        claim_in(namespace, "stays", json!({"className": "stays"})),
        // It waits for a family that nobody has.
        claim_in(
            namespace,
            "waits",
            json!({"className": "stays", "family": "IPv6"}),
        ),
        claim("other", dual),
    ];
    cluster.apply(&list(&claims).to_string());
    cluster.wait_bound(namespace, &["goes", "dual", "stays"]);
    cluster.wait_bound(TEAM, &["other"]);
    let addresses = || -> Vec<Value> {
        let all = items(cluster, "ipaddr").into_iter();
        all.filter(|a| a["spec"]["claimRef"]["namespace"] == namespace)
            .collect()
    };
    let before = addresses();
    assert_eq!(before.len(), 4, "{before:#?}");

    delete_namespace(cluster, namespace);
    let left = || {
        let all = addresses().into_iter();
        all.map(|a| (a["spec"]["className"].clone(), a["status"]["phase"].clone()))
            .collect::<Vec<_>>()
    };
    eventually("what is to stay is released, the rest is gone", || {
        left() == [(json!("stays"), json!("Released"))]
    });
    let other: Value = serde_json::from_str(&cluster.ctl(&[
        "get",
        "ipaddrclaim",
        "other",
        "-n",
        TEAM,
        "-o",
        "json",
    ]))
    .unwrap();
    assert_eq!(other["status"]["phase"], "Bound", "{other}");

    // A namespace of the same name does not inherit it, and an administrator lets it go.
    cluster.ctl(&["create", "namespace", namespace]);
    let again = claim_in(namespace, "stays", json!({"className": "stays"}));
    cluster.create(&again);
    cluster.wait_bound(namespace, &["stays"]);
    let kept = before.iter().find(|a| a["spec"]["className"] == "stays");
    let kept = kept.unwrap();
    let (name, uid) = (
        kept["metadata"]["name"].as_str().unwrap(),
        &kept["spec"]["claimRef"]["uid"],
    );
    let of = ["get", "ipaddr", name, "-o", "json"];
    let now: Value = serde_json::from_str(&cluster.ctl(&of)).unwrap();
    assert_eq!(
        (&now["status"]["phase"], &now["spec"]["claimRef"]["uid"]),
        (&json!("Released"), uid)
    );
    let clear = [
        "--type=json",
        "-p",
        r#"[{"op": "remove", "path": "/spec/claimRef"}]"#,
    ];
    cluster.ctl(&[&["patch", "ipaddr", name][..], &clear].concat());
    let waits = [
        "wait",
        "--for=jsonpath={.status.phase}=Available",
        "ipaddr",
        name,
    ];
    cluster.ctl(&waits);
    delete_namespace(cluster, namespace);
}

/// With these ways to delete, an object has a finalizer that only the garbage collector removes.
fn the_garbage_collector_lets_addresses_and_claims_go(cluster: &mut Installation) {
    range(cluster, "lan", "Delete", &["192.0.2.0/28"]);
    for (cascade, ip) in [
        ("--cascade=foreground", "198.51.100.1"),
        ("--cascade=orphan", "198.51.100.2"),
    ] {
        let name = format!("ip-{}", ip.replace('.', "-"));
        let free = address(&name, json!({"address": ip, "className": "static"}));
        cluster.create(&free);
        cluster.create(&claim("web", json!({"className": "lan"})));
        cluster.wait_bound(TEAM, &["web"]);
        // The garbage collector looks for new kinds every half minute.
        for object in [["ipaddrclaim", "web"], ["ipaddr", &name]] {
            let how = ["-n", TEAM, cascade, "--timeout=100s"];
            cluster.ctl(&[&["delete"][..], &object, &how].concat());
        }
    }
}
