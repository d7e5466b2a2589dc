//! Labels, annotations, finalizers and owners: whose they are, row by row.

use serde_json::{Value, json};

use super::table::Object::{Address, Claim, NewAddress};
use super::table::Who::{Administrator, Core, Driver, Tenant};
use super::table::{CLAIM_PROTECTION, Row, no, yes};

const RESERVED: &str = "local.sdn.cozystack.io/reserved";

/// An owner that is gone: what names it is deleted by the garbage collector.
pub(super) fn owner(uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": uid}])
}

fn owned(object: &mut Value) {
    object["metadata"]["ownerReferences"] = owner("other");
}

fn own_finalizer(claim: &mut Value) {
    claim["metadata"]["finalizers"] = json!([CLAIM_PROTECTION, "example.org/own"]);
}

fn reserved(object: &mut Value) {
    object["metadata"]["annotations"] = json!({RESERVED: "true"});
}

pub(super) fn rows() -> Vec<Row> {
    let described = "labels and annotations of a claim are written by who may create claims";
    let reserves = "local.sdn.cozystack.io/reserved is written by administrators alone";
    let mut rows = vec![
        yes(Tenant, Claim, "another owner", owned),
        yes(Tenant, Claim, "another annotation", |c| {
            c["metadata"]["annotations"]["team"] = json!("b")
        }),
        yes(Tenant, Claim, "a finalizer of its own", own_finalizer),
        yes(Administrator, NewAddress, "a reservation", reserved),
        yes(Administrator, Address, "a reservation", reserved),
        yes(Driver, NewAddress, "an owner", owned),
        yes(Driver, Claim, "a finalizer of its own", own_finalizer),
        no(
            Core,
            Claim,
            "a finalizer of others",
            own_finalizer,
            "finalizers of a claim outside local.sdn.cozystack.io are written by",
        ),
        no(Driver, NewAddress, "a reservation", reserved, reserves),
    ];
    for who in [Core, Driver] {
        rows.extend([
            no(
                who,
                Claim,
                "a label",
                |c| c["metadata"]["labels"] = json!({"a": "b"}),
                described,
            ),
            no(
                who,
                Claim,
                "another annotation",
                |c| c["metadata"]["annotations"]["team"] = json!("b"),
                described,
            ),
            no(
                who,
                Claim,
                "one more annotation",
                |c| c["metadata"]["annotations"]["more"] = json!("b"),
                described,
            ),
            no(
                who,
                Claim,
                "without the annotation of its tenant",
                |c| {
                    let annotations = c["metadata"]["annotations"].as_object_mut();
                    annotations.unwrap().remove("team");
                },
                described,
            ),
            no(
                who,
                Claim,
                "another owner",
                owned,
                "the owners of a claim are named by",
            ),
            no(
                who,
                Address,
                "another owner",
                owned,
                "the owners of an existing address are not changed",
            ),
            no(who, Address, "a reservation", reserved, reserves),
        ]);
    }
    rows
}
