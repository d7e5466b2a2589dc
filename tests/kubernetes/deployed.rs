//! The chart on a cluster that has something already, and what the cluster makes of its pods.

use serde_json::{Value, json};

use crate::cases;
use crate::chart::{self, CHART, RELEASE, SYSTEM, helm};
use crate::cluster::{Cluster, class, eventually};

cases![Alone:
    definitions_that_were_applied_by_kubectl_are_taken_over_by_the_chart,
    the_whole_chart_that_was_applied_by_kubectl_is_taken_over,
    every_pod_is_an_endpoint_of_the_service_of_its_component,
];

/// As docs/kubernetes.md says it.
const TAKE_OVER: [&str; 2] = ["--take-ownership", "--force-conflicts"];

async fn definitions_that_were_applied_by_kubectl_are_taken_over_by_the_chart(cluster: Cluster) {
    // The second finds those that the first one left behind.
    take_over(&cluster, &[(RELEASE, SYSTEM), ("other", "elsewhere")]);
    // Or the definitions are left to whoever applied them.
    chart::install_with(&cluster, &["crds.install=false"]);
}

async fn the_whole_chart_that_was_applied_by_kubectl_is_taken_over(cluster: Cluster) {
    cluster.apply(&std::fs::read_to_string(chart::MANIFESTS).unwrap());
    take_over(&cluster, &[("ipledger", SYSTEM)]);
}

/// Installs and uninstalls one after the other, which keeps every object.
fn take_over(cluster: &Cluster, releases: &[(&str, &str)]) {
    let run = |arguments: &[&str]| {
        let output = helm(cluster).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    cluster.create(&class("kept", json!({"provisioner": "driver.example.org"})));
    let kept = || {
        let uid = "jsonpath={.metadata.uid}";
        cluster.ctl(&["get", "ipaddrclass", "kept", "-o", uid])
    };
    let uid = kept();
    for (release, namespace) in releases {
        let place = ["-n", namespace];
        let install = [
            &["install", release, CHART, "--create-namespace"],
            &place[..],
        ]
        .concat();
        let (taken, said) = run(&install);
        let refused = !taken && said.contains("invalid ownership metadata");
        assert!(refused, "{said}");
        let (taken, said) = run(&[&install[..], &TAKE_OVER].concat());
        assert!(taken, "{said}");
        for (name, definition) in cluster.definitions() {
            let owner = &definition["metadata"]["annotations"]["meta.helm.sh/release-name"];
            assert_eq!(owner, release, "{name}");
        }
        // From here on it is a release like any other.
        let upgrade = ["upgrade", release, CHART];
        for arguments in [&upgrade[..], &["uninstall", release]] {
            let (done, said) = run(&[arguments, &place].concat());
            assert!(done, "{said}");
        }
        assert_eq!(kept(), uid);
    }
}

async fn every_pod_is_an_endpoint_of_the_service_of_its_component(cluster: Cluster) {
    let mut cluster = cluster;
    // What a cluster would have; the nodes are not there.
    let namespace = std::fs::read_to_string(chart::NAMESPACE).unwrap();
    cluster.apply(&namespace);
    chart::install_with(&cluster, &["crds.install=false"]);
    let mut careless = Value::Null;
    for (component, third) in [("core", 1), ("range", 2)] {
        let mut pod = chart::deployment(&cluster, component, &[])["spec"]["template"].take();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["namespace"] = json!(SYSTEM);
        for replica in 1..=2 {
            let name = format!("{component}-{replica}");
            pod["metadata"]["name"] = json!(name);
            cluster.create(&pod);
            let address = format!("198.51.{third}.{replica}");
            // It has begun to run and is not ready.
            let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
                "conditions": [{"type": "Ready", "status": "False"}]}});
            let patch = ["-p", &status.to_string(), "-n", SYSTEM];
            cluster.ctl(&[&["patch", "pod", &name, "--subresource=status"][..], &patch].concat());
        }
        careless = pod;
    }
    // The namespace would refuse one that says less of what it does not need.
    careless["metadata"]["name"] = json!("careless");
    careless["spec"]["containers"][0]["securityContext"].take();
    let (taken, said) = cluster.send(&["create"], &careless);
    assert!(!taken && said.contains("PodSecurity"), "{said}");

    cluster.start_manager();
    for (component, third) in [("core", 1), ("range", 2)] {
        let wanted = [1, 2].map(|replica| format!("198.51.{third}.{replica}:8080"));
        let service = format!("-lkubernetes.io/service-name={RELEASE}-{component}");
        eventually("the endpoints are known", || {
            let slices = cluster.ctl(&[
                "get",
                "endpointslices",
                "-n",
                SYSTEM,
                "-o",
                "json",
                &service,
            ]);
            let slices: Value = serde_json::from_str(&slices).unwrap();
            let mut found = Vec::new();
            for slice in slices["items"].as_array().unwrap() {
                let port = &slice["ports"][0]["port"];
                let endpoints = slice["endpoints"].as_array().into_iter().flatten();
                let addresses = endpoints.map(|e| e["addresses"][0].as_str().unwrap());
                found.extend(addresses.map(|address| format!("{address}:{port}")));
            }
            found.sort();
            found == wanted
        });
    }
}
