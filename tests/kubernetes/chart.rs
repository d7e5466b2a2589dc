//! The chart: rendered, installed, upgraded.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ipledger_tests::kubernetes::{ADMIN, AUDITED, succeed};
use ipledger_tests::tools;
use serde_json::{Value, json};

use crate::cases;
use crate::cluster::Cluster;

cases![Shared:
    a_bad_value_is_refused_by_its_name,
    an_alert_is_about_its_own_release_alone,
];

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

async fn a_bad_value_is_refused_by_its_name(cluster: Arc<Cluster>) {
    for (value, named) in [
        (
            "core.replica=2",
            "at '/core': additional properties 'replica' not allowed",
        ),
        ("core.replicas=two", "at '/core/replicas'"),
        ("core.replicas=-1", "at '/core/replicas'"),
        (
            "core.replicas=null",
            "at '/core': missing property 'replicas'",
        ),
        ("core.enabled=yes", "at '/core/enabled'"),
        ("core.args=x", "at '/core/args'"),
        ("core.args={1}", "at '/core/args/0'"),
        ("core.podAnnotations.x=true", "at '/core/podAnnotations/x'"),
        ("core.podLabels.x=1", "at '/core/podLabels/x'"),
        ("core.nodeSelector.x=true", "at '/core/nodeSelector/x'"),
        (
            "core.serviceAccount.annotations.x=1",
            "at '/core/serviceAccount/annotations/x'",
        ),
        ("core.tolerations.x=1", "at '/core/tolerations'"),
        (
            "core.topologySpreadConstraints=x",
            "at '/core/topologySpreadConstraints'",
        ),
        (
            "core.leaderElection.leaseDuration=0s",
            "at '/core/leaderElection/leaseDuration'",
        ),
        ("drivers.range.replicas=101", "at '/drivers/range/replicas'"),
        (
            "drivers.other.enabled=true",
            "at '/drivers': additional properties 'other'",
        ),
        (
            "drivers.range=null",
            "at '/drivers': missing property 'range'",
        ),
        ("drivers=null", "missing property 'drivers'"),
        ("core=null", "missing property 'core'"),
        ("crds=null", "missing property 'crds'"),
        (
            "crds.install=null",
            "at '/crds': missing property 'install'",
        ),
        ("policies=null", "missing property 'policies'"),
        (
            "policies.validationActions=null",
            "at '/policies': missing property 'validationActions'",
        ),
        (
            "policies.validationActions={Deny,Warn}",
            "at '/policies/validationActions'",
        ),
        (
            "policies.validationActions={Allow}",
            "at '/policies/validationActions/0'",
        ),
        ("roles=null", "missing property 'roles'"),
        ("roles.aggregate=1", "at '/roles/aggregate'"),
        ("log=null", "missing property 'log'"),
        ("log=1", "at '/log'"),
        ("metrics=null", "missing property 'metrics'"),
        (
            "metrics.serviceMonitor=null",
            "at '/metrics': missing property 'serviceMonitor'",
        ),
        (
            "metrics.prometheusRule=null",
            "at '/metrics': missing property 'prometheusRule'",
        ),
        (
            "metrics.serviceMonitor.interval=1",
            "at '/metrics/serviceMonitor/interval'",
        ),
        (
            "metrics.serviceMonitor.labels.x=1",
            "at '/metrics/serviceMonitor/labels/x'",
        ),
        (
            "metrics.prometheusRule.labels.x=1",
            "at '/metrics/prometheusRule/labels/x'",
        ),
        ("networkPolicy=null", "missing property 'networkPolicy'"),
        ("networkPolicy.from.x=1", "at '/networkPolicy/from'"),
        (
            "networkPolicy.apiServerPorts={https}",
            "at '/networkPolicy/apiServerPorts/0'",
        ),
        (
            "networkPolicy.apiServerPorts=null",
            "missing property 'apiServerPorts'",
        ),
        (
            "podDisruptionBudget=null",
            "missing property 'podDisruptionBudget'",
        ),
        ("image=null", "missing property 'image'"),
        (
            "image.repository=null",
            "at '/image': missing property 'repository'",
        ),
        ("image.tag=1", "at '/image/tag'"),
        ("image.digest=sha256:12", "at '/image/digest'"),
        ("image.pullPolicy=Sometimes", "at '/image/pullPolicy'"),
        ("imagePullSecrets={pull}", "at '/imagePullSecrets/0'"),
        ("fullnameOverride=It", "at '/fullnameOverride'"),
        ("nameOverride=it/it", "at '/nameOverride'"),
        ("commonLabels.x=true", "at '/commonLabels/x'"),
        ("listen=null", "missing property 'listen'"),
        ("listen.address=127.0.0.1", "at '/listen/address'"),
        ("listen.port=80", "at '/listen/port'"),
    ] {
        let render = ["template", RELEASE, CHART, "--set", value];
        let output = helm(&cluster).args(render).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let refused = !output.status.success() && said.contains(named);
        assert!(refused, "{value} is to be refused with {named}: {said}");
    }
    // What may be left out means what the values say.
    for value in [
        "core.args",
        "core.resources",
        "core.leaderElection",
        "core.serviceAccount",
        "core.podLabels",
        "core.topologySpreadConstraints",
        "image.tag",
        "commonLabels",
        "nameOverride",
        "fullnameOverride",
        "imagePullSecrets",
        "networkPolicy.from",
    ] {
        let render = [
            "template",
            RELEASE,
            CHART,
            "--set",
            &format!("{value}=null"),
        ];
        let text = succeed(helm(&cluster).args(render));
        let (right, said) = cluster.send_text(&["create", "--dry-run=client"], &text);
        assert!(right, "{value}: {said}");
    }
    succeed(helm(&cluster).args(["lint", "--strict", CHART]));
}

async fn an_alert_is_about_its_own_release_alone(cluster: Arc<Cluster>) {
    let alerts = |values: &[&str]| {
        let mut template = helm(&cluster);
        template.args([
            "template",
            RELEASE,
            CHART,
            "-n",
            SYSTEM,
            "-s",
            "templates/monitoring.yaml",
        ]);
        template.args(["--set", "metrics.prometheusRule.enabled=true"]);
        let text = succeed(template.args(values));
        let expressions = text.lines().filter_map(|l| l.trim().strip_prefix("expr: "));
        expressions.map(str::to_owned).collect::<Vec<_>>()
    };
    let ours = format!(r#"namespace="{SYSTEM}",service"#);
    let both = format!(r#"{{{ours}=~"{RELEASE}-(core|range)"}}"#);
    let works = |component: &str, controller: &str| {
        let service = format!("{RELEASE}-{component}");
        format!(
            r#"absent(ipledger_controller_synced{{{ours}="{service}",controller="{controller}"}} == 1)"#
        )
    };
    let rate = format!("rate(ipledger_controller_failures_total{both}[10m])");
    let wanted = [
        format!("sum by (controller) ({rate}) > 0.1"),
        works("core", "binding_core"),
        works("range", "range_driver"),
        format!("increase(ipledger_controller_resync_found_work_total{both}[1h]) > 0"),
    ];
    assert_eq!(alerts(&[]), wanted);
    // Nobody misses what is not to be there.
    assert_eq!(alerts(&["--set", "core.enabled=false"])[1..], wanted[2..]);
}
