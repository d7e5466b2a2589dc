//! What people do and see with kubectl, while core and range driver work.

use ipledger_tests::kubernetes::NOBODY;
use serde_json::{Value, json};

use crate::binding::{at_rest, items};
use crate::cases;
use crate::cluster::{TEAM, address, claim, class, eventually};
use crate::golden;
use crate::installation::Installation;

cases![Installed:
    the_happy_path_of_the_contract,
    the_tables_show_every_address_and_fit_a_terminal,
    a_dry_run_on_the_server_changes_nothing,
    two_managers_apply_one_claim,
];

const RANGE: &str = "range.drivers.local.sdn.cozystack.io";
const STAMP: &str = "local.sdn.cozystack.io/provisioner";
/// What a terminal shows of a line.
const WIDTH: usize = 120;

fn create(cluster: &Installation, objects: &[Value]) {
    for object in objects {
        cluster.create(object);
    }
}

fn lan(addresses: &[&str]) -> Value {
    let spec = json!({"provisioner": RANGE, "reclaimPolicy": "Delete",
        "parameters": {"addresses": addresses}});
    class("lan", spec)
}

fn get(cluster: &Installation, kind: &str, name: &str) -> Value {
    let text = cluster.ctl(&["get", kind, name, "-n", TEAM, "-o", "json"]);
    serde_json::from_str(&text).unwrap()
}

/// Section 8 of the contract, as far as there is no workload: the tenant creates a claim, the core stamps
/// it, the driver provides an address, the core binds it; the claim is deleted and the address goes.
fn the_happy_path_of_the_contract(cluster: &mut Installation) {
    create(cluster, &[lan(&["192.0.2.7/32"])]);
    let (allowed, user) = ("allowed-for-path", format!("--user={NOBODY}"));
    let role = ["--clusterrole=edit", "-n", TEAM];
    cluster.ctl(&[&["create", "rolebinding", allowed, &user][..], &role].concat());
    let used = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": allowed, "namespace": TEAM},
        "rules": [{"apiGroups": ["local.sdn.cozystack.io"], "resources": ["ipaddressclasses"],
            "resourceNames": ["lan"], "verbs": ["use"]}]});
    cluster.apply(&used.to_string());
    let role = format!("--role={allowed}");
    let bind = ["create", "rolebinding", "may-use-lan", "-n", TEAM];
    cluster.ctl(&[&bind[..], &[&role, &user]].concat());

    let token = "--token=nobody-token";
    let web = claim("web", json!({"className": "lan"}));
    let mut said = String::new();
    // The built-in role and the right to the class are known a moment after they were given.
    eventually("the tenant may create the claim", || {
        let (taken, answer) = cluster.send(&["create", token], &web);
        said = answer;
        taken
    });
    assert_eq!(
        said.trim(),
        "ipaddressclaim.local.sdn.cozystack.io/web created"
    );
    let wait = [
        "wait",
        "--for=condition=Bound",
        "--timeout=60s",
        "-n",
        TEAM,
        "ipaddrclaim/web",
    ];
    let met = cluster.ctl(&[&wait[..], &[token]].concat());
    assert_eq!(
        met.trim(),
        "ipaddressclaim.local.sdn.cozystack.io/web condition met"
    );

    let bound = get(cluster, "ipaddrclaim", "web");
    assert_eq!(bound["metadata"]["annotations"][STAMP], RANGE);
    let finalizers = json!(["local.sdn.cozystack.io/claim-protection"]);
    assert_eq!(bound["metadata"]["finalizers"], finalizers);
    let status = &bound["status"];
    assert_eq!(
        (&status["phase"], &status["className"]),
        (&json!("Bound"), &json!("lan"))
    );
    let held = json!([{"name": "ip-192-0-2-7", "address": "192.0.2.7"}]);
    assert_eq!(status["addresses"], held);

    let ip = get(cluster, "ipaddr", "ip-192-0-2-7");
    let claim_ref = json!({"namespace": TEAM, "name": "web", "uid": bound["metadata"]["uid"]});
    assert_eq!(ip["spec"]["claimRef"], claim_ref);
    assert_eq!(ip["spec"]["source"], json!({"fromClass": {}}));
    assert_eq!(
        (&ip["spec"]["className"], &ip["spec"]["reclaimPolicy"]),
        (&json!("lan"), &json!("Delete"))
    );
    assert_eq!(ip["status"]["phase"], "Bound");
    let finalizers = ip["metadata"]["finalizers"].to_string();
    for owner in [
        "local.sdn.cozystack.io/address-protection",
        "range.drivers.local.sdn.cozystack.io/",
    ] {
        assert!(finalizers.contains(owner), "{finalizers}");
    }
    assert_eq!(ip["status"]["associatedTo"], Value::Null);

    let delete = [
        "delete",
        "ipaddrclaim",
        "web",
        "-n",
        TEAM,
        "--timeout=60s",
        token,
    ];
    cluster.ctl(&delete);
    cluster.ctl(&[
        "wait",
        "--for=delete",
        "--timeout=60s",
        "ipaddr/ip-192-0-2-7",
    ]);
    cluster.ctl(&["delete", "rolebinding", allowed, "may-use-lan", "-n", TEAM]);
    cluster.ctl(&["delete", "role", allowed, "-n", TEAM]);
}

fn the_tables_show_every_address_and_fit_a_terminal(cluster: &mut Installation) {
    // As long as an address gets that a machine gives itself.
    let six = "2001:db8:0:12:5054:ff:fe12:3456";
    let mut standard = lan(&["192.0.2.110/32", &format!("{six}/128")]);
    standard["metadata"]["name"] = json!("standard");
    let default = "ipaddressclass.local.sdn.cozystack.io/is-default-class";
    standard["metadata"]["annotations"] = json!({default: "true"});
    let fixed = json!({"provisioner": "example.com/none"});
    let hand_made = |name: &str, text: &str| {
        let spec = json!({"address": text, "className": "static"});
        address(name, spec)
    };
    create(
        cluster,
        &[
            standard,
            class("static", fixed),
            hand_made("ip-203-0-113-7", "203.0.113.7"),
            hand_made("ip-203-0-113-8", "203.0.113.8"),
            hand_made("ip-2001-db8--8", "2001:db8::8"),
            claim("frontend", json!({"family": "Dual"})),
            claim("mail", json!({"addressName": "ip-203-0-113-7"})),
            claim("old", json!({"addressName": "ip-203-0-113-8"})),
        ],
    );
    cluster.wait_bound(TEAM, &["frontend", "mail", "old"]);
    create(cluster, &[claim("waits", json!({}))]);
    cluster.ctl(&["delete", "ipaddrclaim", "old", "-n", TEAM]);
    let waits = "jsonpath={.status.conditions[?(@.type==\"Bound\")].reason}";
    eventually("the last claim says why it waits", || {
        let reason = cluster.ctl(&["get", "ipaddrclaim", "waits", "-n", TEAM, "-o", waits]);
        reason == "PoolExhausted"
    });
    for (kind, file) in [
        ("ipaddrclaim", "claims.txt"),
        ("ipaddr", "addresses.txt"),
        ("ipaddrclass", "classes.txt"),
    ] {
        let table = cluster.ctl(&["get", kind, "-n", TEAM]);
        let longest = table.lines().map(|line| line.trim_end().len()).max();
        assert!(longest <= Some(WIDTH), "{longest:?}:\n{table}");
        let wide = cluster.ctl(&["get", kind, "-n", TEAM, "-o", "wide"]);
        let both = format!(
            "{}\n{}",
            golden::without_ages(&table),
            golden::without_ages(&wide)
        );
        golden::assert_is_kept(file, &both);
    }
    let all = cluster.ctl(&["get", "ipledger", "-A"]);
    for line in [
        "192.0.2.110,2001:db8:0:12:5054:ff:fe12:3456",
        "ipaddressclass.local.sdn.cozystack.io/standard",
    ] {
        assert!(all.contains(line), "{all}");
    }
}

fn a_dry_run_on_the_server_changes_nothing(cluster: &mut Installation) {
    create(
        cluster,
        &[
            lan(&["192.0.2.0/28"]),
            claim("web", json!({"className": "lan"})),
            claim("waits", json!({})),
        ],
    );
    cluster.wait_bound(TEAM, &["web"]);
    at_rest(cluster);
    let all = || ["ipaddrclass", "ipaddr", "ipaddrclaim"].map(|kind| items(cluster, kind));
    let before = all();
    let dry = "--dry-run=server";
    let new = claim("new", json!({"className": "lan"}));
    let labelled = {
        let mut web = claim("web", json!({"className": "lan"}));
        web["metadata"]["labels"] = json!({"a": "b"});
        web
    };
    for (arguments, object) in [
        (&["create", dry][..], &new),
        (&["apply", dry], &new),
        (&["apply", "--server-side", dry], &new),
        (&["apply", "--server-side", dry], &labelled),
        (&["replace", dry], &labelled),
        (&["delete", dry], &labelled),
        (
            &["create", dry],
            &address(
                "ip-192-0-2-9",
                json!({"address": "192.0.2.9", "className": "lan"}),
            ),
        ),
    ] {
        let (taken, said) = cluster.send(arguments, object);
        assert!(
            taken && said.contains("server dry run"),
            "{arguments:?}: {said}"
        );
    }
    let label = ["label", "ipaddrclaim", "web", "a=b", "-n", TEAM, dry];
    assert!(cluster.ctl(&label).contains("server dry run"));
    // What would be refused is refused.
    let dual = claim(
        "new",
        json!({"family": "Dual", "addressName": "ip-192-0-2-1"}),
    );
    let (taken, said) = cluster.send(&["create", dry], &dual);
    assert!(
        !taken && said.contains("cannot be used with family Dual"),
        "{said}"
    );
    assert_eq!(all(), before);
}

fn two_managers_apply_one_claim(cluster: &mut Installation) {
    create(cluster, &[lan(&["192.0.2.0/28"])]);
    let mut other = lan(&["198.51.100.0/28"]);
    other["metadata"]["name"] = json!("other");
    create(cluster, &[other]);
    let with = |labels: Value, spec: Value| {
        let mut web = claim("web", spec);
        web["metadata"]["labels"] = labels;
        web
    };
    let apply = |manager: &str, object: &Value, more: &[&str]| {
        let manager = format!("--field-manager={manager}");
        cluster.send(
            &[&["apply", "--server-side", &manager][..], more].concat(),
            object,
        )
    };
    // A claim that waits, so that its class may change.
    let first = with(json!({"team": "a"}), json!({"className": "nowhere"}));
    let (taken, said) = apply("first", &first, &[]);
    assert!(taken, "{said}");
    let mut only_label = with(json!({"zone": "b"}), json!({}));
    only_label.as_object_mut().unwrap().remove("spec");
    let (taken, said) = apply("second", &only_label, &[]);
    assert!(taken, "{said}");
    let labels = || get(cluster, "ipaddrclaim", "web")["metadata"]["labels"].clone();
    assert_eq!(labels(), json!({"team": "a", "zone": "b"}));

    let contested = with(json!({"zone": "b"}), json!({"className": "lan"}));
    let (taken, said) = apply("second", &contested, &[]);
    let message = "Apply failed with 1 conflict: conflict with \"first\": .spec.className";
    assert!(!taken && said.contains(message), "{said}");
    assert_eq!(
        get(cluster, "ipaddrclaim", "web")["spec"]["className"],
        "nowhere"
    );
    let (taken, said) = apply("second", &contested, &["--force-conflicts"]);
    assert!(taken, "{said}");
    cluster.wait_bound(TEAM, &["web"]);
    assert_eq!(labels(), json!({"team": "a", "zone": "b"}));

    // It is bound now: what the core has written is no manager's, and is kept when they apply again.
    let bound = get(cluster, "ipaddrclaim", "web");
    let (taken, said) = apply("second", &contested, &[]);
    assert!(taken, "{said}");
    let after = get(cluster, "ipaddrclaim", "web");
    assert_eq!(after["status"], bound["status"]);
    for field in ["annotations", "finalizers"] {
        assert_eq!(after["metadata"][field], bound["metadata"][field]);
    }
    assert_eq!(after["metadata"]["annotations"][STAMP], RANGE);
    // A manager that leaves its label out takes it away, and nothing of the other one.
    let (taken, said) = apply("first", &with(json!({}), json!({})), &[]);
    assert!(taken, "{said}");
    assert_eq!(labels(), json!({"zone": "b"}));
    let moved = with(json!({"zone": "b"}), json!({"className": "other"}));
    let (taken, said) = apply("second", &moved, &[]);
    assert!(
        !taken && said.contains("while the claim is Bound or Lost"),
        "{said}"
    );
}
