//! The chart: rendered, installed, upgraded.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ipledger_tests::kubernetes::{ADMIN, AUDITED, succeed};
use ipledger_tests::tools;
use serde_json::{Value, json};

use crate::cases;
use crate::cluster::Cluster;

cases![Shared: a_value_that_the_chart_does_not_know_is_refused];

pub(crate) const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/chart/ipledger");
/// The chart, rendered with its own values.
pub(crate) const MANIFESTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../deploy/manifests/ipledger.yaml"
);
/// What the rendered chart begins with, because the chart cannot have it.
pub(crate) const NAMESPACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../deploy/manifests/namespace.yaml"
);
pub(crate) const RELEASE: &str = "ledger";
pub(crate) const SYSTEM: &str = AUDITED;

pub(crate) fn helm(cluster: &Cluster) -> Command {
    let program = tools::folder("helm")
        .expect("helm is built: tests/tools/build helm")
        .join("helm");
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(cluster.kubeconfig(ADMIN));
    // What helm keeps for itself goes with the cluster.
    for (name, folder) in [
        ("HELM_CACHE_HOME", "cache"),
        ("HELM_CONFIG_HOME", "config"),
        ("HELM_DATA_HOME", "data"),
    ] {
        command.env(name, cluster.kubeconfig(&format!("helm-{folder}")));
    }
    command
}

/// The chart as it is, definitions included.
pub(crate) fn install(cluster: &Cluster) {
    install_with(cluster, &[]);
    cluster.wait_until_served();
}

/// The chart with these values (`NAME=VALUE`).
pub(crate) fn install_with(cluster: &Cluster, values: &[&str]) {
    release(cluster, "install", Path::new(CHART), values);
}

/// Installs or upgrades the release, as `verb` says, from the chart in a folder.
pub(crate) fn release(cluster: &Cluster, verb: &str, chart: &Path, values: &[&str]) {
    let mut command = helm(cluster);
    command
        .args([verb, RELEASE])
        .arg(chart)
        .args(["-n", SYSTEM]);
    if verb == "install" {
        command.arg("--create-namespace");
    }
    for value in values {
        command.args(["--set", value]);
    }
    succeed(&mut command);
}

/// The kubeconfig of a service account beside the chart.
pub(crate) fn account(cluster: &Cluster, name: &str) -> PathBuf {
    let token = cluster.ctl(&["create", "token", name, "-n", SYSTEM]);
    let admin = std::fs::read_to_string(cluster.kubeconfig(ADMIN)).unwrap();
    let path = cluster.kubeconfig(name);
    let own = admin.replace(&format!("{ADMIN}-token"), token.trim());
    std::fs::write(&path, own).unwrap();
    path
}

/// The deployment of a component as the chart renders it with these values (`NAME=VALUE`).
pub(crate) fn deployment(cluster: &Cluster, component: &str, values: &[String]) -> Value {
    let name = format!("{RELEASE}-{component}");
    let mut template = helm(cluster);
    template.args(["template", RELEASE, CHART, "-n", SYSTEM]);
    for value in values {
        template.args(["--set", value]);
    }
    let text = succeed(&mut template);
    let documents = text.split("\n---\n");
    let is_it =
        |d: &&str| d.contains("\nkind: Deployment\n") && d.contains(&format!("\n  name: {name}\n"));
    let document = documents.into_iter().find(is_it);
    let document = document.unwrap_or_else(|| panic!("no deployment {name} in:\n{text}"));
    // kubectl reads YAML for us.
    let read = ["create", "--dry-run=client", "-o", "json"];
    let (right, text) = cluster.send_text(&read, document);
    assert!(right, "{text}");
    let deployment: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(deployment["metadata"]["name"], json!(name));
    deployment
}

async fn a_value_that_the_chart_does_not_know_is_refused(cluster: Arc<Cluster>) {
    let output = helm(&cluster)
        .args(["template", "x", CHART, "--set", "core.replica=2"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("replica"),
        "{said}"
    );
    succeed(helm(&cluster).args(["lint", "--strict", CHART]));
}
