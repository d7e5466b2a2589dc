//! Accounts that have rights to write and none by which the policies know drivers, core and
//! administrators: what stops them is the policies. One of them is Kubernetes' garbage collector. And one
//! that has more rights than one should.

use serde_json::{Value, json};

use super::addresses::serving;
use super::metadata::owner;
use super::table::Object::{Address, AddressStatus, Claim, ClaimStatus, NewAddress};
use super::table::Who::{GarbageCollector, Outsider, RichCore};
use super::table::{ADDRESS_PROTECTION, Row, no, yes};
use crate::chart::SYSTEM;
use crate::cluster::Cluster;

/// The account of the garbage collector, which has a role in every cluster.
pub(super) const COLLECTOR: &str = "generic-garbage-collector";

/// Makes the accounts, and gives them their rights.
pub(super) fn create(cluster: &Cluster) {
    cluster.ctl(&["create", "serviceaccount", COLLECTOR, "-n", "kube-system"]);
    let role = |name: &str, resources: &[&str], verbs: &[&str]| {
        let rules = [
            json!({"apiGroups": ["local.sdn.cozystack.io"], "resources": resources, "verbs": verbs}),
        ];
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": rules});
        cluster.apply(&role.to_string());
    };
    let written = [
        "ipaddresses",
        "ipaddresses/status",
        "ipaddressclaims",
        "ipaddressclaims/status",
    ];
    role("writes", &written, &["get", "update", "patch"]);
    role("creates", &["ipaddresses"], &["create"]);
    role("binds", &["ipaddressclaims"], &["bind"]);
    for account in ["outsider", "rich-core"] {
        cluster.ctl(&["create", "serviceaccount", account, "-n", SYSTEM]);
    }
    for (name, role, account) in [
        ("outsider", "writes", "outsider"),
        ("rich-core", "writes", "rich-core"),
        ("rich-core-binds", "binds", "rich-core"),
        ("rich-core-creates", "creates", "rich-core"),
    ] {
        let role = format!("--clusterrole={role}");
        let account = format!("--serviceaccount={SYSTEM}:{account}");
        cluster.ctl(&["create", "clusterrolebinding", name, &role, &account]);
    }
}

fn labelled(object: &mut Value) {
    object["metadata"]["labels"] = json!({"a": "b"});
}

fn without_owner(object: &mut Value) {
    object["metadata"]["ownerReferences"] = json!([]);
}

fn with_another_owner(object: &mut Value) {
    object["metadata"]["ownerReferences"] = owner("other");
}

pub(super) fn rows() -> Vec<Row> {
    let addresses = "addresses are written by drivers, the binding core and administrators alone";
    let bound = |object: &mut Value| object["status"] = json!({"phase": "Bound"});
    vec![
        yes(GarbageCollector, Address, "without `orphan`", |a| {
            a["metadata"]["finalizers"] = json!([ADDRESS_PROTECTION])
        }),
        yes(GarbageCollector, Address, "without an owner", without_owner),
        yes(GarbageCollector, Claim, "without an owner", without_owner),
        no(GarbageCollector, Address, "a label", labelled, addresses),
        no(
            GarbageCollector,
            Address,
            "without the core's finalizer",
            |a| a["metadata"]["finalizers"] = json!(["orphan"]),
            addresses,
        ),
        no(
            GarbageCollector,
            Address,
            "no claim",
            |a| drop(a["spec"].as_object_mut().unwrap().remove("claimRef")),
            addresses,
        ),
        no(
            GarbageCollector,
            Address,
            "another owner",
            with_another_owner,
            addresses,
        ),
        yes(Outsider, Claim, "a label", labelled),
        no(
            Outsider,
            Claim,
            "no stamp",
            |c| c["metadata"]["annotations"] = json!({}),
            "is written by the binding core alone",
        ),
        no(Outsider, Address, "a label", labelled, addresses),
        no(
            Outsider,
            AddressStatus,
            "a workload",
            serving,
            "the status of an address is written by drivers and the binding core alone",
        ),
        no(
            Outsider,
            ClaimStatus,
            "a phase",
            bound,
            "the status of a claim is written by the binding core alone",
        ),
        no(
            RichCore,
            NewAddress,
            "one",
            |_| {},
            "the binding core creates no addresses",
        ),
        yes(RichCore, ClaimStatus, "a phase", bound),
    ]
}
