//! One row or more for every value of the chart.

use serde_json::{Value, json};

use crate::chart::{RELEASE, SYSTEM};

/// Values, and what becomes of a field of an object by them. `null` is an object or field that is not there.
pub(super) struct Row {
    pub(super) values: Vec<(String, Value)>,
    /// Its kind and name; `*` for every object.
    pub(super) object: String,
    pub(super) field: String,
    pub(super) is: Value,
}

fn row(value: &str, set: Value, object: &str, field: &str, is: Value) -> Row {
    Row {
        values: vec![(value.to_owned(), set)],
        object: object.to_owned(),
        field: field.to_owned(),
        is,
    }
}

/// What a component has of its own.
pub(super) fn of_component(values: &str, name: &str, arguments: usize) -> Vec<Row> {
    let named = |kind: &str| format!("{kind}/{RELEASE}-{name}");
    let in_object = |kind: &str, value: &str, set: Value, field: &str, is: Value| {
        row(&format!("{values}.{value}"), set, &named(kind), field, is)
    };
    let in_pod = |value: &str, set: Value, field: &str, is: Value| {
        let field = format!("/spec/template/{field}");
        in_object("Deployment", value, set, &field, is)
    };
    let argument = |i: usize| format!("spec/containers/0/args/{}", arguments + i);
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        [{"topologyKey": "rack", "labelSelector": {"matchLabels": {"team": "other"}}}]}});
    let over_zones =
        json!([{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]);
    let theirs = json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"their": "own"}}});
    // A label of the selector cannot be taken: the server would refuse the deployment.
    let labels = json!({"team": "true", "app.kubernetes.io/instance": "theirs"});
    vec![
        in_object("Deployment", "enabled", json!(false), "", json!(null)),
        in_object("Service", "enabled", json!(false), "", json!(null)),
        in_object(
            "Deployment",
            "replicas",
            json!(0),
            "/spec/replicas",
            json!(0),
        ),
        in_object(
            "Deployment",
            "replicas",
            json!(1),
            "/spec/replicas",
            json!(1),
        ),
        in_object(
            "Deployment",
            "replicas",
            json!(3),
            "/spec/replicas",
            json!(3),
        ),
        in_pod("replicas", json!(1), &argument(1), json!(null)),
        in_object("Role", "replicas", json!(1), "", json!(null)),
        in_object("PodDisruptionBudget", "replicas", json!(1), "", json!(null)),
        in_object("PodDisruptionBudget", "replicas", json!(0), "", json!(null)),
        in_pod(
            "leaderElection.leaseDuration",
            json!("30s"),
            &argument(2),
            json!("--lease-duration=30s"),
        ),
        in_pod("args", json!(["--any=1"]), &argument(3), json!("--any=1")),
        in_pod(
            "resources",
            json!({"limits": {"memory": "2Gi"}}),
            "spec/containers/0/resources/limits/memory",
            json!("2Gi"),
        ),
        in_object(
            "ServiceAccount",
            "serviceAccount.annotations",
            json!({"role": "true"}),
            "/metadata/annotations",
            json!({"role": "true"}),
        ),
        in_pod(
            "podAnnotations",
            json!({"note": "true"}),
            "metadata/annotations",
            json!({"note": "true"}),
        ),
        in_pod("podLabels", labels, "metadata/labels/team", json!("true")),
        in_pod(
            "nodeSelector",
            json!({"disk": "ssd"}),
            "spec/nodeSelector",
            json!({"disk": "ssd"}),
        ),
        in_pod(
            "tolerations",
            json!([{"operator": "Exists"}]),
            "spec/tolerations",
            json!([{"operator": "Exists"}]),
        ),
        in_pod("affinity", affinity.clone(), "spec/affinity", affinity),
        in_pod(
            "topologySpreadConstraints",
            json!([]),
            "spec/topologySpreadConstraints",
            json!(null),
        ),
        in_pod(
            "topologySpreadConstraints",
            over_zones,
            "spec/topologySpreadConstraints/0",
            json!({"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "ipledger",
                "app.kubernetes.io/instance": RELEASE, "app.kubernetes.io/component": name}}}),
        ),
        in_pod(
            "topologySpreadConstraints",
            json!([theirs]),
            "spec/topologySpreadConstraints/0",
            theirs,
        ),
        in_pod(
            "priorityClassName",
            json!("system-cluster-critical"),
            "spec/priorityClassName",
            json!("system-cluster-critical"),
        ),
    ]
}

pub(super) fn of_all() -> Vec<Row> {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let core = |value: &str, set: Value, field: &str, is: Value| {
        let field = format!("/spec/template/spec/{field}");
        row(
            value,
            set,
            &format!("Deployment/{RELEASE}-core"),
            &field,
            is,
        )
    };
    let peer = json!([{"ipBlock": {"cidr": "192.0.2.0/24"}}]);
    let network = format!("NetworkPolicy/{RELEASE}");
    let monitor = format!("ServiceMonitor/{RELEASE}");
    let rule = format!("PrometheusRule/{RELEASE}");
    let service = format!("Service/{RELEASE}-core");
    let binding = format!("ValidatingAdmissionPolicyBinding/{SYSTEM}.{RELEASE}.claims");
    let image = "containers/0/image";
    let mut warn = row(
        "policies.validationActions",
        json!(["Warn", "Audit"]),
        &binding,
        "/spec/validationActions",
        json!(["Warn", "Audit"]),
    );
    warn.values
        .push(("policies.install".to_owned(), json!(true)));
    vec![
        core(
            "image.repository",
            json!("example.com/it"),
            image,
            json!("example.com/it:0.1.0"),
        ),
        core("image.tag", json!("2.0"), image, json!("ipledger:2.0")),
        core(
            "image.digest",
            json!(digest),
            image,
            json!(format!("ipledger@{digest}")),
        ),
        core(
            "image.pullPolicy",
            json!("Always"),
            "containers/0/imagePullPolicy",
            json!("Always"),
        ),
        core(
            "imagePullSecrets",
            json!([{"name": "pull"}]),
            "imagePullSecrets",
            json!([{"name": "pull"}]),
        ),
        row(
            "fullnameOverride",
            json!("it"),
            "Deployment/it-core",
            "/metadata/name",
            json!("it-core"),
        ),
        row(
            "nameOverride",
            json!("it"),
            "*",
            "/metadata/labels/app.kubernetes.io~1name",
            json!("it"),
        ),
        row(
            "nameOverride",
            json!("it"),
            &service,
            "/spec/selector/app.kubernetes.io~1name",
            json!("it"),
        ),
        row(
            "commonLabels",
            json!({"team": "true"}),
            "*",
            "/metadata/labels/team",
            json!("true"),
        ),
        row(
            "commonLabels",
            json!({"team": "true"}),
            &format!("Deployment/{RELEASE}-core"),
            "/spec/template/metadata/labels/team",
            json!("true"),
        ),
        core(
            "listen.address",
            json!("0.0.0.0"),
            "containers/0/args/1",
            json!("--listen=0.0.0.0:8080"),
        ),
        core(
            "listen.port",
            json!(9090),
            "containers/0/args/1",
            json!("--listen=[::]:9090"),
        ),
        core(
            "listen.port",
            json!(9090),
            "containers/0/ports/0/containerPort",
            json!(9090),
        ),
        row(
            "listen.port",
            json!(9090),
            &service,
            "/spec/ports/0/port",
            json!(9090),
        ),
        row(
            "crds.install",
            json!(true),
            "CustomResourceDefinition/ipaddresses.local.sdn.cozystack.io",
            "/metadata/annotations/helm.sh~1resource-policy",
            json!("keep"),
        ),
        row(
            "policies.install",
            json!(true),
            &binding,
            "/spec/validationActions",
            json!(["Deny"]),
        ),
        warn,
        row(
            "roles.aggregate",
            json!(false),
            &format!("ClusterRole/{SYSTEM}:{RELEASE}:claims-edit"),
            "/metadata/labels/rbac.authorization.k8s.io~1aggregate-to-edit",
            json!(null),
        ),
        row(
            "roles.classesReadableByAll",
            json!(false),
            &format!("ClusterRoleBinding/{SYSTEM}:{RELEASE}:classes-view"),
            "",
            json!(null),
        ),
        core(
            "log",
            json!("debug"),
            "containers/0/env/0/value",
            json!("debug"),
        ),
        row(
            "podDisruptionBudget.enabled",
            json!(false),
            &format!("PodDisruptionBudget/{RELEASE}-core"),
            "",
            json!(null),
        ),
        row(
            "networkPolicy.enabled",
            json!(false),
            &network,
            "",
            json!(null),
        ),
        row(
            "networkPolicy.from",
            peer.clone(),
            &network,
            "/spec/ingress/0/from",
            peer.clone(),
        ),
        row(
            "networkPolicy.apiServer",
            peer.clone(),
            &network,
            "/spec/egress/0/to",
            peer,
        ),
        row(
            "networkPolicy.apiServerPorts",
            json!([16443]),
            &network,
            "/spec/egress/0/ports",
            json!([{"port": 16443, "protocol": "TCP"}]),
        ),
        row(
            "metrics.serviceMonitor.enabled",
            json!(false),
            &monitor,
            "",
            json!(null),
        ),
        row(
            "metrics.serviceMonitor.interval",
            json!("1m"),
            &monitor,
            "/spec/endpoints/0/interval",
            json!("1m"),
        ),
        row(
            "metrics.serviceMonitor.labels",
            json!({"release": "prometheus"}),
            &monitor,
            "/metadata/labels/release",
            json!("prometheus"),
        ),
        row(
            "metrics.prometheusRule.enabled",
            json!(false),
            &rule,
            "",
            json!(null),
        ),
        row(
            "metrics.prometheusRule.labels",
            json!({"release": "prometheus"}),
            &rule,
            "/metadata/labels/release",
            json!("prometheus"),
        ),
    ]
}
