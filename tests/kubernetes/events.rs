//! What a tenant is told about a claim: Events of the API, written with the role of the chart.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::binding::items;
use crate::cases;
use crate::cluster::{Cluster, TEAM, address, claim, class, eventually};
use crate::installation::Installation;

cases![Installed:
    a_claim_that_cannot_be_bound_has_an_event_that_says_why_and_one_when_it_is_bound,
];

/// Type and reason of the events about a claim, whoever tells of them.
fn told(cluster: &Cluster, about: &str) -> BTreeSet<(String, String)> {
    let claims = items(cluster, "ipaddrclaim");
    let claim = claims.iter().find(|c| c["metadata"]["name"] == about);
    let uid = &claim.expect("it was created")["metadata"]["uid"];
    let events = items(cluster, "events.events.k8s.io");
    let of_claim = events.iter().filter(|e| e["regarding"]["uid"] == *uid);
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    of_claim
        .map(|e| (text(&e["type"]), text(&e["reason"])))
        .collect()
}

fn a_claim_that_cannot_be_bound_has_an_event_that_says_why_and_one_when_it_is_bound(
    cluster: &mut Installation,
) {
    cluster.create(&class(
        "static",
        json!({"provisioner": "example.com/none", "reclaimPolicy": "Delete"}),
    ));
    cluster.create(&claim(
        "web",
        json!({"className": "static", "addressName": "ip-198-18-0-1"}),
    ));
    let warned = ("Warning".to_owned(), "AddressNotFound".to_owned());
    eventually("the claim is warned about", || {
        told(cluster, "web") == BTreeSet::from([warned.clone()])
    });
    cluster.create(&address(
        "ip-198-18-0-1",
        json!({"address": "198.18.0.1", "className": "static", "reclaimPolicy": "Delete",
            "source": {"fromClass": {}}}),
    ));
    let good = ("Normal".to_owned(), "Bound".to_owned());
    eventually("good news follow", || told(cluster, "web").contains(&good));
    let shown = cluster.ctl(&["describe", "ipaddrclaim", "web", "-n", TEAM]);
    let events = shown.split("Events:").nth(1).unwrap();
    assert!(
        events.contains("AddressNotFound") && events.contains("ipledger-controller"),
        "{shown}"
    );

    // Where all is well at once, the status says so and no event does.
    cluster.create(&address(
        "ip-198-18-0-2",
        json!({"address": "198.18.0.2", "className": "static", "reclaimPolicy": "Delete",
            "source": {"fromClass": {}}}),
    ));
    cluster.create(&claim(
        "calm",
        json!({"className": "static", "addressName": "ip-198-18-0-2"}),
    ));
    cluster.wait_bound(TEAM, &["calm"]);
    assert_eq!(told(cluster, "calm"), BTreeSet::new());
}
