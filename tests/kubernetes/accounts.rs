//! The components of the chart have all the rights that they need, and the API server's audit log says
//! that they ask for no others.

use ipledger_tests::kubernetes::Answer;
use serde_json::json;

use crate::binding::items;
use crate::cases;
use crate::cluster::{TEAM, address, claim, class, eventually};
use crate::components::Name;
use crate::installation::Installation;

cases![Installed:
    the_accounts_of_the_chart_may_do_all_that_they_must,
    a_field_that_is_empty_is_one_that_is_absent,
];

const RANGE: &str = "range.drivers.local.sdn.cozystack.io";

/// What the account was allowed, as `VERB RESOURCE`.
fn allowed(answers: &[Answer], account: &str) -> Vec<String> {
    let own = answers.iter().filter(|a| a.account == account);
    let taken = own.filter(|a| a.code < 300 && !a.program.starts_with("kubectl"));
    let mut all: Vec<String> = taken
        .map(|answer| {
            let (verb, path) = answer.request.split_once(' ').unwrap();
            let path = path.split('?').next().unwrap();
            let known = path
                .split('/')
                .find(|p| p.starts_with("ipaddr") || *p == "leases");
            let status = if path.ends_with("/status") {
                "/status"
            } else {
                ""
            };
            format!("{verb} {}{status}", known.unwrap_or(path))
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

fn the_accounts_of_the_chart_may_do_all_that_they_must(cluster: &mut Installation) {
    for (name, policy, range) in [
        ("goes", "Delete", "192.0.2.0/28"),
        ("stays", "Retain", "198.51.100.0/28"),
    ] {
        let spec = json!({"provisioner": RANGE, "reclaimPolicy": policy,
            "parameters": {"addresses": [range]}});
        cluster.create(&class(name, spec));
        cluster.create(&claim(name, json!({"className": name})));
    }
    let other = json!({"className": "goes", "family": "IPv6"});
    cluster.create(&claim("unservable", other));
    cluster.wait_bound(TEAM, &["goes", "stays"]);
    eventually("the driver says why it cannot serve", || {
        let claims = items(cluster, "ipaddrclaim");
        let said = claims
            .iter()
            .map(|c| c["metadata"]["annotations"].to_string());
        said.into_iter().any(|a| a.contains("FamilyUnavailable"))
    });
    cluster.ctl(&[
        "delete",
        "ipaddrclaim",
        "--all",
        "-n",
        TEAM,
        "--timeout=60s",
    ]);
    eventually("what is to go goes, what is to stay is released", || {
        let left = items(cluster, "ipaddr");
        // Two drivers at work may each have made one for the claim.
        (1..=cluster.each()).contains(&left.len())
            && left
                .iter()
                .all(|a| a["status"]["phase"] == "Released" && a["spec"]["className"] == "stays")
    });
    cluster.assert_nothing_was_denied();
    let answers = cluster.audit_of_components();
    let core = allowed(&answers, &Name::Core.account());
    for right in [
        "delete ipaddresses",
        "list ipaddressclasses",
        "patch ipaddressclaims/status",
        "patch ipaddresses/status",
        "update ipaddressclaims",
        "update ipaddresses",
        "watch ipaddressclaims",
    ] {
        assert!(core.iter().any(|a| a == right), "{right}: {core:?}");
    }
    let range = allowed(&answers, &Name::Range.account());
    for right in [
        "create ipaddresses",
        "patch ipaddressclasses/status",
        "update ipaddressclaims",
        "update ipaddresses",
        "watch ipaddressclaims",
    ] {
        assert!(range.iter().any(|a| a == right), "{right}: {range:?}");
    }
    for account in [core, range] {
        let elects = account.iter().any(|a| a.ends_with(" leases"));
        assert_eq!(elects, cluster.each() == 1, "{account:?}");
    }
}

/// Programs in Go often write what they leave out; ours do not.
fn a_field_that_is_empty_is_one_that_is_absent(cluster: &mut Installation) {
    let spec = json!({"provisioner": RANGE, "reclaimPolicy": "Delete",
        "parameters": {"addresses": ["192.0.2.0/28"]}});
    let mut lan = class("lan", spec);
    let default = "ipaddressclass.local.sdn.cozystack.io/is-default-class";
    lan["metadata"]["annotations"] = json!({default: "true"});
    let hand_made = json!({"address": "203.0.113.7", "className": "lan", "reclaimPolicy": "Delete",
        "claimRef": {"namespace": TEAM, "name": "meant", "uid": ""}});
    for object in [
        lan,
        address("ip-203-0-113-7", hand_made),
        claim(
            "web",
            json!({"className": "", "addressName": "", "family": "IPv4"}),
        ),
        claim("meant", json!({"className": "lan", "addressName": ""})),
    ] {
        cluster.create(&object);
    }
    cluster.wait_bound(TEAM, &["web", "meant"]);
}
