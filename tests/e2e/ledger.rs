//! Claims, addresses and classes through the API of a running server.

use serde_json::{Value, json};
use tempfile::tempdir;

use ipledger_tests::program::{Claim, Server, api, claim, class, wait_for};

fn create(server: &Server, path: &str, object: &Value) {
    let answer = server.ask("POST", &api(path), Some(object)).unwrap();
    assert_eq!(answer.0, 201, "{answer:?}");
}

fn create_claim(server: &Server, name: &str, class: &str) {
    create(
        server,
        "namespaces/default/ipaddressclaims",
        &claim(name, class),
    );
}

fn delete(server: &Server, path: &str) {
    let answer = server.ask("DELETE", &api(path), None).unwrap();
    assert!(answer.0 == 200 || answer.0 == 202, "{answer:?}");
}

fn find(server: &Server, name: &str) -> Claim {
    let all = server.claims("default");
    all.into_iter()
        .find(|c| c.name == name)
        .unwrap_or_else(|| panic!("no claim {name}"))
}

fn wait_bound(server: &Server, name: &str) -> Vec<String> {
    wait_for(&format!("{name} is bound"), || {
        find(server, name).phase == "Bound"
    });
    find(server, name).ips
}

fn wait_reason(server: &Server, name: &str, reason: &str) {
    wait_for(&format!("{name} is pending with {reason}"), || {
        let claim = find(server, name);
        claim.phase == "Pending" && claim.reason == reason
    });
}

fn address_phase(server: &Server, name: &str) -> Option<String> {
    match server
        .ask("GET", &api(&format!("ipaddresses/{name}")), None)
        .unwrap()
    {
        (200, object) => Some(object["status"]["phase"].as_str().unwrap_or("").to_owned()),
        (404, _) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn with_policy_delete_the_ip_goes_to_the_next_claim() {
    let dir = tempdir().unwrap();
    let server = Server::start(&dir.path().join("l.db"), &[]);
    create(
        &server,
        "ipaddressclasses",
        &class("c", &["192.0.2.1"], "Delete"),
    );
    create_claim(&server, "a", "c");
    assert_eq!(wait_bound(&server, "a"), ["192.0.2.1"]);
    create_claim(&server, "b", "c");
    wait_reason(&server, "b", "PoolExhausted");
    delete(&server, "namespaces/default/ipaddressclaims/a");
    assert_eq!(wait_bound(&server, "b"), ["192.0.2.1"]);
    assert_eq!(server.claims("default").len(), 1);
}

#[test]
fn with_policy_retain_the_ip_waits_for_an_admin() {
    let dir = tempdir().unwrap();
    let server = Server::start(&dir.path().join("l.db"), &[]);
    create(
        &server,
        "ipaddressclasses",
        &class("c", &["192.0.2.1"], "Retain"),
    );
    create_claim(&server, "a", "c");
    wait_bound(&server, "a");
    delete(&server, "namespaces/default/ipaddressclaims/a");
    wait_for("the address is released", || {
        address_phase(&server, "ip-192-0-2-1").as_deref() == Some("Released")
    });
    create_claim(&server, "b", "c");
    wait_reason(&server, "b", "PoolExhausted");
    // Only the uid cleared: kept for the next claim of that name.
    let path = api("ipaddresses/ip-192-0-2-1");
    let soft = json!({"spec": {"claimRef": {"uid": null}}});
    assert_eq!(server.ask("PATCH", &path, Some(&soft)).unwrap().0, 200);
    wait_for("the address waits", || {
        address_phase(&server, "ip-192-0-2-1").as_deref() == Some("Pending")
    });
    create_claim(&server, "a", "c");
    assert_eq!(wait_bound(&server, "a"), ["192.0.2.1"]);
    delete(&server, "namespaces/default/ipaddressclaims/a");
    wait_for("the address is released", || {
        address_phase(&server, "ip-192-0-2-1").as_deref() == Some("Released")
    });
    // The whole claimRef cleared: available, and the one who waits gets it.
    let clear = json!({"spec": {"claimRef": null}});
    assert_eq!(server.ask("PATCH", &path, Some(&clear)).unwrap().0, 200);
    assert_eq!(wait_bound(&server, "b"), ["192.0.2.1"]);
}

#[test]
fn a_deleted_class_leaves_bound_claims_untouched_and_unbound_ones_say_so() {
    let dir = tempdir().unwrap();
    let server = Server::start(&dir.path().join("l.db"), &[]);
    create(
        &server,
        "ipaddressclasses",
        &class("c", &["192.0.2.1"], "Delete"),
    );
    create_claim(&server, "bound", "c");
    wait_bound(&server, "bound");
    create_claim(&server, "waits", "c");
    wait_reason(&server, "waits", "PoolExhausted");
    let before = server.get("namespaces/default/ipaddressclaims/bound");
    delete(&server, "ipaddressclasses/c");
    wait_reason(&server, "waits", "ClassNotFound");
    assert_eq!(
        server.get("namespaces/default/ipaddressclaims/bound"),
        before
    );
}

#[test]
fn two_default_classes_are_refused_by_name_and_moving_the_default_moves_no_claim() {
    let dir = tempdir().unwrap();
    let server = Server::start(&dir.path().join("l.db"), &[]);
    let default = |name: &str, addresses: &[&str]| {
        let mut class = class(name, addresses, "Delete");
        class["metadata"]["annotations"] =
            json!({"ipaddressclass.local.sdn.cozystack.io/is-default-class": "true"});
        class
    };
    create(
        &server,
        "ipaddressclasses",
        &default("gold", &["192.0.2.1"]),
    );
    create_claim(&server, "bound", "");
    wait_bound(&server, "bound");
    create_claim(&server, "resolved", "");
    wait_reason(&server, "resolved", "PoolExhausted");
    create(
        &server,
        "ipaddressclasses",
        &default("silver", &["198.51.100.0/29"]),
    );
    create_claim(&server, "undecided", "");
    wait_reason(&server, "undecided", "MultipleDefaultClasses");
    let claim = server.get("namespaces/default/ipaddressclaims/undecided");
    assert!(claim.to_string().contains("gold, silver"), "{claim}");
    let (bound, resolved) = (find(&server, "bound"), find(&server, "resolved"));
    let undo = json!({"metadata": {"annotations":
        {"ipaddressclass.local.sdn.cozystack.io/is-default-class": null}}});
    assert_eq!(
        server
            .ask("PATCH", &api("ipaddressclasses/gold"), Some(&undo))
            .unwrap()
            .0,
        200
    );
    assert_eq!(wait_bound(&server, "undecided"), ["198.51.100.0"]);
    assert_eq!(
        (find(&server, "bound"), find(&server, "resolved")),
        (bound, resolved)
    );
}

#[test]
fn widening_a_class_serves_the_claims_that_wait_and_moves_nobody() {
    let dir = tempdir().unwrap();
    let server = Server::start(&dir.path().join("l.db"), &[]);
    create(
        &server,
        "ipaddressclasses",
        &class("c", &["192.0.2.8"], "Delete"),
    );
    create_claim(&server, "a", "c");
    wait_bound(&server, "a");
    create_claim(&server, "b", "c");
    wait_reason(&server, "b", "PoolExhausted");
    let wider = json!({"spec": {"parameters": {"addresses": ["192.0.2.0/28"]}}});
    assert_eq!(
        server
            .ask("PATCH", &api("ipaddressclasses/c"), Some(&wider))
            .unwrap()
            .0,
        200
    );
    wait_bound(&server, "b");
    assert_eq!(find(&server, "a").ips, ["192.0.2.8"]);
}

#[test]
fn a_quiescent_server_writes_nothing() {
    let dir = tempdir().unwrap();
    let server = Server::start(&dir.path().join("l.db"), &[]);
    create(
        &server,
        "ipaddressclasses",
        &class("c", &["192.0.2.0/28"], "Delete"),
    );
    for n in 0..20 {
        create_claim(&server, &format!("k{n}"), "c");
    }
    let settled = |server: &Server| {
        let claims = server.claims("default");
        claims.iter().filter(|c| c.phase == "Bound").count() == 16
            && claims
                .iter()
                .filter(|c| c.reason == "PoolExhausted")
                .count()
                == 4
    };
    wait_for("sixteen are bound and four wait", || settled(&server));
    // The class status follows within a second; then the counter must stand still for a minute.
    let mut last = server.writes();
    wait_for("the counter comes to rest", || {
        std::thread::sleep(std::time::Duration::from_secs(3));
        let now = server.writes();
        std::mem::replace(&mut last, now) == now
    });
    std::thread::sleep(std::time::Duration::from_secs(60));
    assert_eq!(server.writes(), last);
    assert!(settled(&server));
}
