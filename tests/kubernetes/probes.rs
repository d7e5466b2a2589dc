//! What the kubelet is told of a component that has begun and cannot read the ledger yet.

use ipledger_tests::http;

use crate::cases;
use crate::chart;
use crate::cluster::{Cluster, eventually};
use crate::components::{Election, Name, Pod};

cases![Alone:
    a_component_is_alive_at_once_and_ready_when_it_has_read_the_ledger,
];

async fn a_component_is_alive_at_once_and_ready_when_it_has_read_the_ledger(cluster: Cluster) {
    chart::install_with(&cluster, &["crds.install=false"]);
    for name in [Name::Core, Name::Range] {
        // There is nothing to read yet.
        cluster.ctl(&["delete", "crd", "--all"]);
        let pod = Pod::of(&cluster, name, Election::None);
        let at = Pod::free_address();
        let [life, readiness] = pod.probes();
        let ask = |path: &str| http::ask(&format!("{}:{}", at.0, at.1), "GET", path, None);
        std::thread::scope(|scope| {
            let component = scope.spawn(|| pod.start_at(at));
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
    }
}
