//! How a component begins, and what it says of its health while the API server does not serve it.

use std::process::Command;

use ipledger_tests::program::binary;

use crate::cases;
use crate::cluster::eventually;
use crate::components::{Election, Name, Pod};
use crate::installation::Installation;

cases![Installed:
    a_component_says_what_keeps_it_from_its_start,
    a_component_whose_server_is_gone_is_not_ready_until_it_is_back,
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
