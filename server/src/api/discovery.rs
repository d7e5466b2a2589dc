//! What clients ask before anything else: groups, versions, resources.

use axum::routing::get;
use axum::{Json, Router};
use ipledger_core::api::Kind;
use serde_json::{Value, json};

use super::ApiState;

pub(super) fn router() -> Router<ApiState> {
    let mut router = Router::new()
        .route("/api", get(async || Json(core_versions())))
        .route("/apis", get(async || Json(group_list())))
        .route("/version", get(async || Json(version())));
    for (group, version) in group_versions() {
        router = router
            .route(
                &format!("/apis/{group}"),
                get(async move || Json(group_object(group, version))),
            )
            .route(
                &format!("/apis/{group}/{version}"),
                get(async move || Json(resource_list(group, version))),
            );
    }
    router
}

/// Each group with its version, once.
fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = Kind::ALL.iter().map(|k| (k.group(), k.version())).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// No kind of Kubernetes itself is kept here yet.
fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": [], "serverAddressByClientCIDRs": []})
}

fn group_list() -> Value {
    let groups: Vec<Value> = group_versions()
        .into_iter()
        .map(|(g, v)| group_entry(g, v))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_object(group: &str, version: &str) -> Value {
    let mut object = group_entry(group, version);
    object["kind"] = json!("APIGroup");
    object["apiVersion"] = json!("v1");
    object
}

fn group_entry(group: &str, version: &str) -> Value {
    let entry = json!({"groupVersion": format!("{group}/{version}"), "version": version});
    json!({"name": group, "versions": [entry], "preferredVersion": entry})
}

fn resource_list(group: &str, version: &str) -> Value {
    let kinds = Kind::ALL
        .into_iter()
        .filter(|k| (k.group(), k.version()) == (group, version));
    let resources: Vec<Value> = kinds.flat_map(resources).collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": format!("{group}/{version}"), "resources": resources})
}

/// A kind and its `status`. The verbs are those of the router.
fn resources(kind: Kind) -> [Value; 2] {
    [
        json!({"name": kind.plural(), "singularName": kind.singular(), "kind": kind.name(),
            "namespaced": kind.namespaced(), "shortNames": [kind.short_name()],
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]}),
        json!({"name": format!("{}/status", kind.plural()), "singularName": "",
            "kind": kind.name(), "namespaced": kind.namespaced(),
            "verbs": ["get", "patch", "update"]}),
    ]
}

/// The Kubernetes version whose conventions are followed, with ours as build metadata.
fn version() -> Value {
    json!({"major": "1", "minor": "37",
        "gitVersion": concat!("v1.37.0+ipledger.", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH)})
}
