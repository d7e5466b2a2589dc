//! How a controller begins, and what it says of its health while the API server does not serve it.

use std::path::Path;
use std::process::Command;

use ipledger_tests::http;
use ipledger_tests::kubernetes::ADMIN;
use ipledger_tests::program::{Server, binary, free_port};

use crate::cases;
use crate::chart;
use crate::cluster::{Cluster, TEAM, eventually};
use crate::components::{Election, Name, Pod, leads};

cases![Alone:
    a_controller_says_what_keeps_it_from_its_start,
    a_controller_whose_server_is_gone_is_not_ready_until_it_is_back,
    a_component_is_alive_at_once_and_ready_when_it_has_read_the_ledger,
];

/// A controller at work; health and metrics are on a port of its own.
pub(crate) fn start(kubeconfig: &Path, arguments: &[&str]) -> Server {
    let port = free_port();
    let mut command = Command::new(binary());
    command.args(arguments).arg("--kubeconfig").arg(kubeconfig);
    command.arg(format!("--listen=127.0.0.1:{port}"));
    command.env("IPLEDGER_LOG", "info");
    Server::launch(command, port)
}

async fn a_controller_says_what_keeps_it_from_its_start(cluster: Cluster) {
    let kubeconfig = cluster.kubeconfig(ADMIN);
    let server = start(&kubeconfig, &["controller"]);
    let mut second = Command::new(binary());
    second.args(["controller", "--listen", server.address(), "--kubeconfig"]);
    let ended = second.arg(&kubeconfig).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("choose another port with --listen"), "{said}");
    for path in ["/livez", "/readyz"] {
        assert_eq!(server.ask("GET", path, None).unwrap().0, 200, "{path}");
    }
    let (code, _) = server
        .ask(
            "GET",
            "/apis/local.sdn.cozystack.io/v1alpha1/ipaddresses",
            None,
        )
        .unwrap();
    assert_eq!(code, 404, "nothing of the ledger is served");
    let mut nowhere = Command::new(binary());
    nowhere.args(["controller", "--listen=127.0.0.1:0", "--kubeconfig"]);
    let ended = nowhere.arg(cluster.kubeconfig("none")).output().unwrap();
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
}

async fn a_controller_whose_server_is_gone_is_not_ready_until_it_is_back(mut cluster: Cluster) {
    let lease = format!("--lease={TEAM}/core");
    let arguments = ["controller", &lease, "--lease-duration=3s"];
    let server = start(&cluster.kubeconfig(ADMIN), &arguments);
    eventually("it leads", || leads(&server));
    cluster.kill();
    eventually("it is not ready, and leads no more", || {
        let (code, said) = server.ask("GET", "/readyz", None).unwrap();
        code == 503 && said.to_string().contains("the API server") && !leads(&server)
    });
    cluster.start_again();
    eventually("it is ready and leads again", || {
        server.ask("GET", "/readyz", None).unwrap().0 == 200 && leads(&server)
    });
}

async fn a_component_is_alive_at_once_and_ready_when_it_has_read_the_ledger(_: Cluster) {
    // Without the definitions there is nothing to read yet.
    let cluster = Cluster::bare();
    chart::install_with(&cluster, &["crds.install=false"]);
    for name in [Name::Core, Name::Range] {
        let pod = Pod::of(&cluster, name, Election::None);
        let at = Pod::free_address();
        let [life, readiness] = pod.probes();
        let ask = |path: &str| http::ask(&format!("{}:{}", at.0, at.1), "GET", path, None);
        std::thread::scope(|scope| {
            let component = scope.spawn(|| pod.start_at(&cluster, at));
            eventually("it lives", || ask(life).is_ok_and(|(code, _)| code == 200));
            let metric = || http::text(&format!("{}:{}", at.0, at.1), "/metrics").unwrap();
            eventually("it has tried to read", || {
                let refused = "ipledger_store_requests_total";
                let counted = |line: &str| line.starts_with(refused) && !line.ends_with(" 0");
                metric().lines().any(counted)
            });
            let (code, said) = ask(readiness).unwrap();
            assert_eq!(code, 503, "{said}");
            assert!(!component.is_finished());
            cluster.define();
            let component = component.join().unwrap();
            component.assert_probed();
            let synced = "ipledger_controller_synced{controller=";
            let text = metric();
            let line = text.lines().find(|l| l.starts_with(synced)).unwrap();
            assert!(line.ends_with(" 1"), "{line}");
            assert!(component.stop().success());
        });
        cluster.ctl(&["delete", "crd", "--all"]);
    }
}
