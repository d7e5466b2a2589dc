//! The controllers as a cluster runs them: one of several works, with the accounts, roles and policies
//! of the chart and with the arguments that the chart gives them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ipledger_tests::http;
use ipledger_tests::kubernetes::ADMIN;
use ipledger_tests::program::{Server, binary, free_port};
use serde_json::{Value, json};

use crate::binding::{apply_quickstart, eventually, items};
use crate::cases;
use crate::cluster::{Cluster, TEAM, address, claim, class};
use crate::roles::{self, RELEASE, SYSTEM};

cases![Alone:
    one_leads_and_is_followed_by_the_other_when_it_is_killed_or_stops,
    the_accounts_of_the_chart_may_do_all_that_they_must,
    a_controller_says_what_keeps_it_from_its_start,
    a_controller_whose_server_is_gone_is_not_ready_until_it_is_back,
];

const RANGE: &str = "range.drivers.local.sdn.cozystack.io";

/// A controller at work; health and metrics are on a port of its own.
pub(crate) fn start(kubeconfig: &Path, arguments: &[&str]) -> Server {
    let port = free_port();
    let mut command = Command::new(binary());
    command.args(arguments).arg("--kubeconfig").arg(kubeconfig);
    command.arg(format!("--listen=127.0.0.1:{port}"));
    command.env("IPLEDGER_LOG", "info");
    Server::launch(command, port)
}

fn leads(server: &Server) -> bool {
    let text = http::text(server.address(), "/metrics").unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        text.contains("# TYPE ipledger_store_requests_total"),
        "{text}"
    );
    match lines
        .iter()
        .find_map(|l| l.strip_prefix("ipledger_leader "))
    {
        Some("1") => true,
        Some("0") => false,
        other => panic!("{other:?}: {text}"),
    }
}

fn wait_bound(cluster: &Cluster, names: &[&str]) {
    let wait = ["wait", "--for=condition=Bound", "--timeout=60s", "-n", TEAM];
    cluster.ctl(&[&wait[..], &["ipaddrclaim"], names].concat());
}

pub(crate) fn create(cluster: &Cluster, object: &Value) {
    let (taken, said) = cluster.send(&["create"], object);
    assert!(taken, "{said}");
}

async fn one_leads_and_is_followed_by_the_other_when_it_is_killed_or_stops(cluster: Cluster) {
    let kubeconfig = cluster.kubeconfig(ADMIN);
    let lease = format!("--lease={TEAM}/core");
    let core = || start(&kubeconfig, &["controller", &lease, "--lease-duration=3s"]);
    let _driver = start(&kubeconfig, &["driver", "range"]);
    let (first, second) = (core(), core());
    eventually("one of them leads", || leads(&first) != leads(&second));
    let (leader, other) = if leads(&first) {
        (first, second)
    } else {
        (second, first)
    };
    apply_quickstart(&cluster);
    create(&cluster, &claim("before", json!({})));
    wait_bound(&cluster, &["before"]);
    assert!(leads(&leader) && !leads(&other), "two lead");
    leader.kill();
    create(&cluster, &claim("after", json!({})));
    wait_bound(&cluster, &["after"]);
    assert!(leads(&other));

    let holder = || {
        let of = ["get", "lease", "core", "-n", TEAM, "-o"];
        cluster.ctl(&[&of[..], &["jsonpath={.spec.holderIdentity}"]].concat())
    };
    let third = core();
    assert!(leads(&other) && !leads(&third), "two lead");
    let before = holder();
    assert!(other.stop().success());
    assert_ne!(holder(), before, "it is given back before the process ends");
    eventually("the third one leads", || leads(&third));
    create(&cluster, &claim("last", json!({})));
    wait_bound(&cluster, &["last"]);
    // Somebody takes the lease away: nothing depends on it.
    cluster.ctl(&["delete", "lease", "core", "-n", TEAM]);
    eventually("the lease is made again", || {
        third.printed().contains("somebody has deleted the lease") && leads(&third)
    });
}

/// The kubeconfig of a service account of the chart.
pub(crate) fn account(cluster: &Cluster, name: &str) -> PathBuf {
    let token = cluster.ctl(&["create", "token", name, "-n", SYSTEM]);
    let admin = std::fs::read_to_string(cluster.kubeconfig(ADMIN)).unwrap();
    let path = cluster.kubeconfig(name);
    let own = admin.replace(&format!("{ADMIN}-token"), token.trim());
    std::fs::write(&path, own).unwrap();
    path
}

/// A component of the chart, started as its pods would be, except for the address.
pub(crate) fn component(cluster: &Cluster, name: &str) -> Server {
    let name = format!("{RELEASE}-{name}");
    let deployment = cluster.ctl(&["get", "deploy", &name, "-n", SYSTEM, "-o", "json"]);
    let deployment: Value = serde_json::from_str(&deployment).unwrap();
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments = arguments.as_array().unwrap().iter();
    let arguments: Vec<&str> = arguments.map(|a| a.as_str().unwrap()).collect();
    let (listen, others): (Vec<&str>, Vec<&str>) =
        arguments.iter().partition(|a| a.starts_with("--listen"));
    assert_eq!(listen, ["--listen=[::]:8080"]);
    assert!(others.contains(&format!("--lease={SYSTEM}/{name}").as_str()));
    start(&account(cluster, &name), &others)
}

fn check(cluster: &Cluster) -> Output {
    let kubeconfig = cluster.kubeconfig(ADMIN);
    let mut command = Command::new(binary());
    command.args(["uninstall", "--check", "--kubeconfig"]);
    command.arg(kubeconfig).output().unwrap()
}

async fn the_accounts_of_the_chart_may_do_all_that_they_must(cluster: Cluster) {
    roles::install(&cluster);
    let driver = account(&cluster, &format!("{RELEASE}-range"));
    let driver = std::fs::read_to_string(driver).unwrap();
    let driver = driver.split("token: ").nth(1).unwrap();
    let driver = driver.split_whitespace().next().unwrap();
    eventually("the policies are in force", || {
        let spec = json!({"address": "192.0.2.99", "className": "goes",
            "reclaimPolicy": "Delete", "source": {"fromClass": {}}});
        let mut forged = address("ip-192-0-2-99", spec);
        forged["metadata"]["annotations"] = json!({"local.sdn.cozystack.io/parked-for": "x"});
        let create = ["create", "--dry-run=server", "--token", driver];
        let (taken, said) = cluster.send(&create, &forged);
        !taken && said.contains("written by the binding core alone")
    });
    let servers = [component(&cluster, "core"), component(&cluster, "range")];
    eventually("both lead", || servers.iter().all(leads));
    for (name, policy, range) in [
        ("goes", "Delete", "192.0.2.0/28"),
        ("stays", "Retain", "198.51.100.0/28"),
    ] {
        let spec = json!({"provisioner": RANGE, "reclaimPolicy": policy,
            "parameters": {"addresses": [range]}});
        create(&cluster, &class(name, spec));
        create(&cluster, &claim(name, json!({"className": name})));
    }
    let dual = json!({"className": "goes", "family": "IPv6"});
    create(&cluster, &claim("unservable", dual));
    wait_bound(&cluster, &["goes", "stays"]);
    eventually("the driver says why it cannot serve", || {
        let claims = items(&cluster, "ipaddrclaim");
        let said = claims
            .iter()
            .map(|c| c["metadata"]["annotations"].to_string());
        said.into_iter().any(|a| a.contains("FamilyUnavailable"))
    });
    let held = check(&cluster);
    assert_eq!(held.status.code(), Some(10), "{held:?}");
    let told = String::from_utf8_lossy(&held.stdout);
    for line in [
        "IPAddressClaim team-a/goes: local.sdn.cozystack.io/claim-protection (the binding core)",
        "local.sdn.cozystack.io/address-protection (the binding core)",
        "range.drivers.local.sdn.cozystack.io/teardown (the range driver)",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let delete = ["delete", "--all", "--timeout=60s"];
    cluster.ctl(&[&delete[..], &["ipaddrclaim", "-n", TEAM]].concat());
    eventually("what is to go goes, what is to stay is released", || {
        let left = items(&cluster, "ipaddr");
        let phases: Vec<_> = left.iter().map(|a| &a["status"]["phase"]).collect();
        phases == ["Released"] && left[0]["spec"]["className"] == "stays"
    });
    cluster.ctl(&[&delete[..], &["ipaddr"]].concat());
    cluster.ctl(&[&delete[..], &["ipaddrclass"]].concat());
    let free = check(&cluster);
    assert_eq!(free.status.code(), Some(0), "{free:?}");
    for server in servers {
        let log = server.printed();
        assert!(log.contains("this server leads"), "{log}");
        assert!(!log.to_lowercase().contains("forbidden"), "{log}");
        assert!(server.stop().success());
    }
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
