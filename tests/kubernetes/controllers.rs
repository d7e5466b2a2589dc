//! How a component begins, and what it says of its health while the API server does not serve it.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ipledger_tests::program::binary;

use crate::cases;
use crate::cluster::eventually;
use crate::components::{self, Election, Name, Pod};
use crate::installation::Installation;

cases![Installed:
    a_component_says_what_keeps_it_from_its_start,
    a_component_whose_server_is_gone_is_not_ready_until_it_is_back,
    a_component_takes_up_the_token_that_its_node_has_renewed,
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
