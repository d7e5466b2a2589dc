//! How a component begins, and what it says of its health while the API server does not serve it.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ipledger_tests::program::binary;
use ipledger_tests::relay::Relay;
use serde_json::Value;

use crate::cases;
use crate::cluster::{Cluster, eventually};
use crate::components::{self, Component, Election, Name, Pod};
use crate::installation::Installation;

cases![Installed:
    a_component_says_what_keeps_it_from_its_start,
    a_component_whose_server_is_gone_is_not_ready_until_it_is_back,
    a_component_takes_up_the_token_that_its_node_has_renewed,
    a_component_that_loses_a_right_is_not_ready_and_says_which_until_it_has_it_again,
    a_leader_that_loses_the_right_to_its_lease_leads_no_more_until_it_has_it_again,
];

fn a_component_says_what_keeps_it_from_its_start(cluster: &mut Installation) {
    for name in [Name::Core, Name::Range] {
        let pod = Pod::of(cluster, name, Election::None);
        let at = Pod::free_address();
        let component = pod.start_at(at);
        let (mut second, _secrets) = pod.command(at);
        let ended = second.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("choose another port with --listen"), "{said}");
        component.assert_probed();
        let ledger = "/apis/local.sdn.cozystack.io/v1alpha1/ipaddresses";
        assert_eq!(
            component.ask(ledger).0,
            404,
            "nothing of the ledger is served"
        );
        assert!(component.stop().success());
    }
    let mut nowhere = Command::new(binary());
    nowhere.args(["controller", "--listen=127.0.0.1:0", "--kubeconfig"]);
    let ended = nowhere.arg(cluster.kubeconfig("none")).output().unwrap();
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
}

fn a_component_whose_server_is_gone_is_not_ready_until_it_is_back(cluster: &mut Installation) {
    let components =
        [Name::Core, Name::Range].map(|name| Pod::of(cluster, name, Election::Lease("3s")).start());
    for component in &components {
        eventually("it leads", || component.leads());
    }
    cluster.kill();
    for component in &components {
        eventually("it is not ready, and leads no more", || {
            let (code, said) = component.ask("/readyz");
            code == 503 && said.to_string().contains("the API server") && !component.leads()
        });
    }
    cluster.start_again();
    for component in &components {
        eventually("it is ready and leads again", || {
            component.is_ready() && component.leads()
        });
    }
    cluster.wait_until_served();
}

fn a_component_takes_up_the_token_that_its_node_has_renewed(cluster: &mut Installation) {
    let components = [Name::Core, Name::Range].map(|name| {
        let component = Pod::of(cluster, name, Election::Lease("15s")).start();
        (name, component)
    });
    let tokens = |name: Name| {
        let answers = cluster.audit().into_iter();
        let own = answers.filter(|a| a.account == name.account() && a.code < 300);
        own.map(|a| a.token).collect::<BTreeSet<_>>()
    };
    let before = components.each_ref().map(|(name, _)| tokens(*name));
    for (name, component) in &components {
        component.renew(&components::token(cluster, *name));
    }
    // It looks at the file once a minute; a token lives an hour.
    let until = Instant::now() + Duration::from_secs(100);
    for ((name, _), before) in components.iter().zip(&before) {
        assert!(!before.is_empty());
        while tokens(*name) == *before {
            assert!(
                Instant::now() < until,
                "{name:?} goes on with its first token"
            );
            sleep(Duration::from_secs(1));
        }
    }
    for (_, component) in components {
        component.assert_probed();
        assert!(component.stop().success());
    }
}

/// Takes away the bindings of this kind that name the account of a component; for giving them back.
fn take_away(cluster: &Cluster, kind: &str, of: Name) -> Vec<Value> {
    let all = cluster.ctl(&["get", kind, "-A", "-o", "json"]);
    let mut all: Value = serde_json::from_str(&all).unwrap();
    let Value::Array(all) = all["items"].take() else {
        panic!("no list of {kind}");
    };
    let mut taken: Vec<Value> = all
        .into_iter()
        .filter(|binding| {
            let subjects = binding["subjects"].as_array();
            let mut subjects = subjects.into_iter().flatten();
            subjects.any(|s| s["name"] == of.account().as_str())
        })
        .collect();
    assert!(!taken.is_empty(), "{kind} of {}", of.account());
    for binding in &mut taken {
        let (deleted, said) = cluster.send(&["delete"], binding);
        assert!(deleted, "{said}");
        let metadata = binding["metadata"].as_object_mut().unwrap();
        metadata
            .retain(|field, _| ["name", "namespace", "labels", "annotations"].contains(&&**field));
    }
    taken
}

/// Waits until it is not ready, because it may not do this.
fn wait_until_denied(component: &Component, what: &str) {
    eventually("it is not ready and says which right is missing", || {
        let (code, said) = component.ask("/readyz");
        let said = said.to_string();
        code == 503 && said.contains("denies what is needed") && said.contains(what)
    });
}

fn a_component_that_loses_a_right_is_not_ready_and_says_which_until_it_has_it_again(
    cluster: &mut Installation,
) {
    let relay = Relay::start(cluster.port());
    for name in [Name::Core, Name::Range] {
        let pod = Pod::of(cluster, name, Election::None).with_server_at(relay.port());
        let component = pod.start();
        component.assert_probed();
        let bindings = take_away(cluster, "clusterrolebindings", name);
        // A watch that is open goes on, by itself for minutes.
        relay.cut();
        wait_until_denied(&component, "cannot list resource");
        bindings.iter().for_each(|binding| cluster.create(binding));
        eventually("it is ready again", || component.is_ready());
        assert!(component.stop().success());
        cluster.denials_were_meant();
    }
}

fn a_leader_that_loses_the_right_to_its_lease_leads_no_more_until_it_has_it_again(
    cluster: &mut Installation,
) {
    for name in [Name::Core, Name::Range] {
        let component = Pod::of(cluster, name, Election::Lease("3s")).start();
        eventually("it leads", || component.leads());
        let bindings = take_away(cluster, "rolebindings", name);
        eventually("it leads no more", || !component.leads());
        wait_until_denied(&component, "leases");
        let said = component.printed();
        assert!(said.contains("does not lead any more"), "{said}");
        bindings.iter().for_each(|binding| cluster.create(binding));
        eventually("it leads again and is ready", || {
            component.leads() && component.is_ready()
        });
        assert!(component.stop().success());
        cluster.denials_were_meant();
    }
}
