//! `bench bind` in a cluster: a small run of it, and that it measures nobody else's work.

use std::process::{Command, Output};

use ipledger_tests::kubernetes::ADMIN;
use ipledger_tests::program::binary;

use crate::binding::items;
use crate::cases;
use crate::cluster::{Cluster, TEAM};
use crate::components::{Election, Name, Pod};
use crate::installation::Installation;

cases![Installed:
    a_measurement_binds_in_five_writes_and_leaves_nothing_behind,
];

fn bench(cluster: &Cluster, addresses: &str) -> Output {
    let mut command = Command::new(binary());
    command.args(["bench", "bind", "--claims", "40", "--spare", "10"]);
    command.args(["--addresses", addresses, "-n", TEAM, "--kubeconfig"]);
    command.arg(cluster.kubeconfig(ADMIN)).output().unwrap()
}

fn a_measurement_binds_in_five_writes_and_leaves_nothing_behind(cluster: &mut Installation) {
    // A claim that is seen to wait for its address tells so, which is a write more.
    for (addresses, most) in [("static", 5.0), ("range", 6.0)] {
        let output = bench(cluster, addresses);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let table = String::from_utf8_lossy(&output.stdout);
        let row = |name: &str| {
            let row = table.lines().find_map(|line| line.strip_prefix(name));
            row.unwrap_or_else(|| panic!("{name}: {table}")).trim()
        };
        assert_eq!(row("claims"), "40");
        let writes: f64 = row("core writes a bind").parse().unwrap();
        assert!(writes <= most, "{table}");
        for kind in ["ipaddrclass", "ipaddr", "ipaddrclaim"] {
            assert_eq!(items(cluster, kind), [0; 0], "{kind}");
        }
    }
    let _core = Pod::of(cluster, Name::Core, Election::Lease("15s")).start();
    let refused = bench(cluster, "static");
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("a binding core works on this cluster already"),
        "{said}"
    );
    assert_eq!(items(cluster, "ipaddrclaim"), [0; 0]);
}
