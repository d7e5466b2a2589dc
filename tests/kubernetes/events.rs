//! What a tenant is told about a claim: Events of the API, written with the role of the chart.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::binding::items;
use crate::cases;
use crate::cluster::{Cluster, TEAM, address, claim, class, eventually};
use crate::installation::Installation;

cases![Installed:
    a_claim_that_cannot_be_bound_has_an_event_that_says_why_and_one_when_it_is_bound,
    good_news_are_told_by_a_core_that_has_not_given_the_warning_itself,
    a_claim_with_the_longest_name_has_events,
    an_event_that_is_told_again_is_counted_and_one_that_was_deleted_is_made_anew,
];

/// The events about a claim, whoever tells of them.
fn events(cluster: &Cluster, about: &str) -> Vec<Value> {
    let claims = items(cluster, "ipaddrclaim");
    let claim = claims.iter().find(|c| c["metadata"]["name"] == about);
    let uid = &claim.expect("it was created")["metadata"]["uid"];
    let events = items(cluster, "events.events.k8s.io").into_iter();
    events.filter(|e| e["regarding"]["uid"] == *uid).collect()
}

/// Type and reason of the events about a claim.
fn told(cluster: &Cluster, about: &str) -> BTreeSet<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let events = events(cluster, about);
    let told = events
        .iter()
        .map(|e| (text(&e["type"]), text(&e["reason"])));
    told.collect()
}

fn warning(reason: &str) -> (String, String) {
    ("Warning".to_owned(), reason.to_owned())
}

fn good(reason: &str) -> (String, String) {
    ("Normal".to_owned(), reason.to_owned())
}

/// A class without a driver, of which addresses are made by hand.
fn create_static_class(cluster: &Cluster) {
    let spec = json!({"provisioner": "example.com/none", "reclaimPolicy": "Delete"});
    cluster.create(&class("static", spec));
}

fn create_address(cluster: &Cluster, ip: &str) {
    let spec = json!({"address": ip, "className": "static", "reclaimPolicy": "Delete",
        "source": {"fromClass": {}}});
    let name = format!("ip-{}", ip.replace('.', "-"));
    cluster.create(&address(&name, spec));
}

fn a_claim_that_cannot_be_bound_has_an_event_that_says_why_and_one_when_it_is_bound(
    cluster: &mut Installation,
) {
    create_static_class(cluster);
    cluster.create(&claim(
        "web",
        json!({"className": "static", "addressName": "ip-198-18-0-1"}),
    ));
    let warned = BTreeSet::from([warning("AddressNotFound")]);
    eventually("the claim is warned about", || {
        told(cluster, "web") == warned
    });
    create_address(cluster, "198.18.0.1");
    eventually("good news follow", || {
        told(cluster, "web").contains(&good("Bound"))
    });
    let shown = cluster.ctl(&["describe", "ipaddrclaim", "web", "-n", TEAM]);
    let events = shown.split("Events:").nth(1).unwrap();
    assert!(
        events.contains("AddressNotFound") && events.contains("ipledger-controller"),
        "{shown}"
    );

    // Where all is well at once, the status says so and no event does.
    create_address(cluster, "198.18.0.2");
    cluster.create(&claim(
        "calm",
        json!({"className": "static", "addressName": "ip-198-18-0-2"}),
    ));
    cluster.wait_bound(TEAM, &["calm"]);
    assert_eq!(told(cluster, "calm"), BTreeSet::new());
}

fn good_news_are_told_by_a_core_that_has_not_given_the_warning_itself(cluster: &mut Installation) {
    create_static_class(cluster);
    let wanted = json!({"className": "static", "addressName": "ip-198-18-0-1"});
    cluster.create(&claim("web", wanted));
    let warned = BTreeSet::from([warning("AddressNotFound")]);
    eventually("the claim is warned about", || {
        told(cluster, "web") == warned
    });
    cluster.restart();
    create_address(cluster, "198.18.0.1");
    eventually("good news follow", || {
        told(cluster, "web").contains(&good("Bound"))
    });
}

fn a_claim_with_the_longest_name_has_events(cluster: &mut Installation) {
    create_static_class(cluster);
    let long = format!("{}-{}", "w".repeat(232), "b".repeat(20));
    let wanted = json!({"className": "static", "addressName": "ip-198-18-0-1"});
    cluster.create(&claim(&long, wanted));
    eventually("the claim is warned about", || {
        told(cluster, &long).contains(&warning("AddressNotFound"))
    });
    create_address(cluster, "198.18.0.1");
    eventually("good news follow", || {
        told(cluster, &long).contains(&good("Bound"))
    });
}

fn an_event_that_is_told_again_is_counted_and_one_that_was_deleted_is_made_anew(
    cluster: &mut Installation,
) {
    create_static_class(cluster);
    let wants = |name: &str| json!({"className": "static", "addressName": name});
    cluster.create(&claim("web", wants("ip-198-18-0-1")));
    // Two cores count for themselves.
    let times = |reason: &str| -> u64 {
        let all = events(cluster, "web").into_iter();
        all.filter(|e| e["reason"] == reason)
            .map(|e| e["series"]["count"].as_u64().unwrap_or(1))
            .sum()
    };
    let warned = |expected: u64| {
        let what = format!("it is told {expected} times that there is no such address");
        eventually(&what, || times("AddressNotFound") == expected);
    };
    // It asks for what there is not, then in a wrong way, and so on.
    let change = |spec: Value, reason: &str| {
        let patch = json!({"spec": spec}).to_string();
        let merge = ["--type=merge", "-p", patch.as_str()];
        cluster.ctl(&[&["patch", "ipaddrclaim", "web", "-n", TEAM][..], &merge].concat());
        eventually("its condition says so", || {
            let claims = items(cluster, "ipaddrclaim");
            claims[0]["status"]["conditions"]
                .to_string()
                .contains(reason)
        });
    };
    let (absent, other) = (wants("ip-198-18-0-1"), wants("ip-198-18-0-2"));
    let spec = json!({"address": "198.18.0.2", "className": "other"});
    cluster.create(&address("ip-198-18-0-2", spec));
    warned(1);
    for expected in 2..=4 {
        change(other.clone(), "AddressClassMismatch");
        change(absent.clone(), "AddressNotFound");
        warned(expected);
    }
    let all = events(cluster, "web").into_iter();
    let of_one = all.filter(|e| e["reason"] == "AddressNotFound").count();
    assert!(of_one <= cluster.each(), "{of_one}");

    cluster.ctl(&["delete", "events.events.k8s.io", "--all", "-n", TEAM]);
    change(other, "AddressClassMismatch");
    eventually("it is told anew", || {
        told(cluster, "web").contains(&warning("AddressClassMismatch"))
    });
    change(absent, "AddressNotFound");
    warned(1);
}
