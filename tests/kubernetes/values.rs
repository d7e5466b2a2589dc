//! The values of the chart: each does the one thing that it is for, in objects that the API server takes.

use std::collections::BTreeMap;
use std::path::Path;

use ipledger_tests::kubernetes::succeed;
use serde_json::{Value, json};

mod table;

use table::{Row, of_all, of_component};

use crate::cases;
use crate::chart::{CHART, RELEASE, SYSTEM, helm};
use crate::cluster::Cluster;

cases![Alone: every_value_does_what_it_is_for];

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/kubernetes.md");

/// What the rows begin with: everything that is off by itself is on, and what is slow to try is off.
const BASE: [(&str, bool); 5] = [
    ("crds.install", false),
    ("policies.install", false),
    ("networkPolicy.enabled", true),
    ("metrics.serviceMonitor.enabled", true),
    ("metrics.prometheusRule.enabled", true),
];

/// The values that the schema knows, as `a.b.c`, in one of the two components only.
fn known(schema: &Value, of: &Value, path: &str, into: &mut Vec<String>) {
    let of = match of["$ref"].as_str() {
        Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap(),
        None => of,
    };
    let Some(properties) = of["properties"].as_object() else {
        into.push(path.trim_start_matches('.').to_owned());
        return;
    };
    for (name, value) in properties {
        // What Helm itself gives every chart.
        if name != "global" {
            known(schema, value, &format!("{path}.{name}"), into);
        }
    }
}

async fn every_value_does_what_it_is_for(cluster: Cluster) {
    let mut rows = of_all();
    rows.extend(of_component("core", "core", 1));
    rows.extend(of_component("drivers.range", "range", 2));
    let schema = Path::new(CHART).join("values.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let mut names = Vec::new();
    known(&schema, &schema, "", &mut names);
    assert!(names.len() > 50, "{names:?}");
    let page = std::fs::read_to_string(PAGE).unwrap();
    for name in &names {
        let has_row = rows.iter().any(|row| row.values[0].0 == *name);
        assert!(has_row, "no row for {name}");
        let own = name
            .strip_prefix("core.")
            .or(name.strip_prefix("drivers.range."));
        let written = own.map_or(format!("`{name}`"), |own| format!("`*.{own}`"));
        assert!(
            page.contains(&written),
            "{written} is not in docs/kubernetes.md"
        );
    }

    cluster.ctl(&["create", "namespace", SYSTEM]);
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        let plural = format!("{}s", kind.to_lowercase());
        let name = format!("{plural}.monitoring.coreos.com");
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let stub = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name}, "spec": {
                "group": "monitoring.coreos.com", "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema}}]}});
        cluster.create(&stub);
        cluster.ctl(&[
            "wait",
            "--for=condition=Established",
            &format!("crd/{name}"),
        ]);
    }
    let plain = objects(&cluster, &[]);
    let (cluster, plain) = (&cluster, &plain);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let halves = rows.chunks(rows.len().div_ceil(2)).map(|rows| {
            let judged = move || rows.iter().filter_map(|row| judge(cluster, plain, row));
            scope.spawn(move || judged().collect::<Vec<String>>())
        });
        let halves: Vec<_> = halves.collect();
        let wrong = halves.into_iter().flat_map(|half| half.join().unwrap());
        wrong.collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // Nothing keeps the name that the release would have given it.
    let values = [
        ("fullnameOverride", json!("it")),
        ("policies.install", json!(true)),
    ];
    let renamed = render(cluster, &values.map(|(name, set)| (name.to_owned(), set)));
    let renamed = renamed.replace("ipledger", "");
    for [before, after] in [
        ["", "-core"],
        ["", "-range"],
        ["-system:", ":"],
        ["-system.", "."],
    ] {
        assert!(renamed.contains(&format!("{before}it{after}")), "{renamed}");
        let name = format!("{before}{RELEASE}{after}");
        assert!(!renamed.contains(&name), "{name} in:\n{renamed}");
    }
}

/// What is wrong with what the values of a row do, if anything is.
fn judge(cluster: &Cluster, plain: &Objects, row: &Row) -> Option<String> {
    let became = objects(cluster, &row.values);
    let find = |objects: &Objects| match &*row.object {
        "*" => {
            let fields = objects.values().map(|object| field(object, &row.field));
            let mut fields: Vec<Value> = fields.collect();
            fields.dedup();
            match &fields[..] {
                [same] => same.clone(),
                _ => json!(fields),
            }
        }
        name => objects
            .get(name)
            .map_or(Value::Null, |object| field(object, &row.field)),
    };
    let (before, after) = (find(plain), find(&became));
    let right = after == row.is && before != after;
    (!right).then(|| {
        format!(
            "{:?}: {} {} is to be {} and is {after}, without it {before}",
            row.values, row.object, row.field, row.is
        )
    })
}

fn field(object: &Value, path: &str) -> Value {
    object.pointer(path).cloned().unwrap_or_default()
}

/// The objects of the chart by kind and name.
type Objects = BTreeMap<String, Value>;

/// The objects of the chart with these values, as the server would store them.
fn objects(cluster: &Cluster, values: &[(String, Value)]) -> Objects {
    let rendered = render(cluster, values);
    let arguments = [
        "apply",
        "--server-side",
        "--dry-run=server",
        "--force-conflicts",
        "-o",
        "json",
    ];
    let (taken, said) = cluster.send_text(&arguments, &rendered);
    assert!(taken, "{values:?}: {said}");
    let list: Value =
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{values:?}: {e}: {said}"));
    let items = list["items"].as_array().unwrap().iter();
    let name = |o: &Value| {
        let text = |field: &Value| field.as_str().unwrap().to_owned();
        format!("{}/{}", text(&o["kind"]), text(&o["metadata"]["name"]))
    };
    items.map(|o| (name(o), o.clone())).collect()
}

fn render(cluster: &Cluster, values: &[(String, Value)]) -> String {
    let mut template = helm(cluster);
    template.args(["template", RELEASE, CHART, "-n", SYSTEM]);
    for (name, on) in BASE {
        template.args(["--set-json", &format!("{name}={on}")]);
    }
    for (name, set) in values {
        template.args(["--set-json", &format!("{name}={set}")]);
    }
    succeed(&mut template)
}
