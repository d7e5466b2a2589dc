//! One of several cores works, with the lease of the chart: another one follows when it is killed, stops
//! or hangs, and one that hung and goes on does no harm.

use ipledger_tests::program::signal;
use serde_json::{Value, json};

use crate::binding::{apply_quickstart, assert_nothing_is_held_twice, at_rest, items, versions};
use crate::cases;
use crate::chart::SYSTEM;
use crate::cluster::{TEAM, claim, eventually, list};
use crate::components::{Component, Election, Name, Pod};
use crate::installation::Installation;

cases![Installed:
    one_leads_and_is_followed_by_the_other_when_it_is_killed_or_stops,
    one_that_hangs_is_followed_and_does_no_harm_when_it_goes_on,
];

/// Long enough for a busy machine to renew it, and short to wait for.
const LEASE: Election = Election::Lease("3s");

/// Two cores of which one leads: that one, and the other.
fn two_cores(cluster: &Installation) -> (Pod, Component, Component) {
    let pod = Pod::of(cluster, Name::Core, LEASE);
    let (first, second) = (pod.start(), pod.start());
    eventually("one of them leads", || first.leads() != second.leads());
    if first.leads() {
        (pod, first, second)
    } else {
        (pod, second, first)
    }
}

fn holder(cluster: &Installation) -> String {
    let of = ["get", "lease", "ledger-core", "-n", SYSTEM, "-o"];
    cluster.ctl(&[&of[..], &["jsonpath={.spec.holderIdentity}"]].concat())
}

fn one_leads_and_is_followed_by_the_other_when_it_is_killed_or_stops(cluster: &mut Installation) {
    let _driver = Pod::of(cluster, Name::Range, LEASE).start();
    let (pod, leader, other) = two_cores(cluster);
    for core in [&leader, &other] {
        core.assert_probed();
    }
    apply_quickstart(cluster);
    cluster.create(&claim("before", json!({})));
    cluster.wait_bound(TEAM, &["before"]);
    assert!(leader.leads() && !other.leads(), "two lead");
    leader.kill();
    cluster.create(&claim("after", json!({})));
    cluster.wait_bound(TEAM, &["after"]);
    assert!(other.leads());

    let third = pod.start();
    assert!(other.leads() && !third.leads(), "two lead");
    let before = holder(cluster);
    assert!(other.stop().success());
    assert_ne!(
        holder(cluster),
        before,
        "it is given back before the process ends"
    );
    eventually("the third one leads", || third.leads());
    cluster.create(&claim("last", json!({})));
    cluster.wait_bound(TEAM, &["last"]);
    // Somebody takes the lease away: nothing depends on it.
    cluster.ctl(&["delete", "lease", "ledger-core", "-n", SYSTEM]);
    eventually("the lease is made again", || {
        third.printed().contains("somebody has deleted the lease") && third.leads()
    });
}

fn one_that_hangs_is_followed_and_does_no_harm_when_it_goes_on(cluster: &mut Installation) {
    let _driver = Pod::of(cluster, Name::Range, LEASE).start();
    let (_, leader, other) = two_cores(cluster);
    apply_quickstart(cluster);
    let claims: Vec<Value> = (0..60)
        .map(|n| claim(&format!("c-{n}"), json!({"family": "Dual"})))
        .collect();
    let list = list(&claims).to_string();
    let bound = || {
        let claims = items(cluster, "ipaddrclaim").into_iter();
        let (bound, waiting): (Vec<_>, Vec<_>) = claims
            .filter(|c| c["metadata"]["namespace"] == TEAM)
            .partition(|c| c["status"]["phase"] == "Bound");
        (bound.len(), waiting.len())
    };
    std::thread::scope(|scope| {
        let applied = scope.spawn(|| cluster.apply(&list));
        eventually("some are bound", || bound().0 > 0);
        // It hangs in the middle of the work.
        signal(leader.pid(), "STOP");
        applied.join().unwrap();
    });
    assert!(bound().1 > 5, "it was done with its work");
    cluster.wait_bound(TEAM, &["--all"]);
    assert!(other.leads());
    let new = holder(cluster);
    let before = at_rest(cluster);
    signal(leader.pid(), "CONT");
    eventually("it has seen that another one leads", || {
        leader.printed().contains("does not lead any more") && !leader.leads()
    });
    // What it had asked before it hung has timed out.
    eventually("it is ready to follow", || leader.is_ready());
    leader.assert_probed();
    assert_eq!(versions(cluster), before, "it has written");
    cluster.create(&claim("last", json!({})));
    cluster.wait_bound(TEAM, &["last"]);
    assert_eq!(holder(cluster), new);
    assert_nothing_is_held_twice(cluster);
}
