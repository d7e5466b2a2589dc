//! Who may write what of a claim, row by row.

use serde_json::json;

use super::table::Object::{Claim, ClaimStatus, NewClaim};
use super::table::Who::{Administrator, Core, Driver, Tenant};
use super::table::{CLAIM_PROTECTION, Row, STAMP, no, yes};

const SAID: &str = "local.sdn.cozystack.io/provisioning-status";

pub(super) fn rows() -> Vec<Row> {
    let stamp = "is written by the binding core alone";
    let said = "is written by drivers alone";
    let held = "is added and removed by the binding core alone";
    let status = "cannot patch resource \"ipaddressclaims/status\"";
    vec![
        yes(Tenant, NewClaim, "one of a class that may be used", |_| {}),
        yes(
            Tenant,
            NewClaim,
            "its own annotations and finalizers",
            |c| {
                c["metadata"]["annotations"] = json!({"team": "a"});
                c["metadata"]["finalizers"] = json!(["example.org/own"]);
            },
        ),
        no(
            Tenant,
            NewClaim,
            "a stamp",
            |c| c["metadata"]["annotations"] = json!({STAMP: "x"}),
            stamp,
        ),
        no(
            Tenant,
            NewClaim,
            "what a driver says",
            |c| c["metadata"]["annotations"] = json!({SAID: "{}"}),
            said,
        ),
        no(
            Tenant,
            NewClaim,
            "the core's finalizer",
            |c| c["metadata"]["finalizers"] = json!([CLAIM_PROTECTION]),
            held,
        ),
        no(
            Tenant,
            NewClaim,
            "a driver's finalizer",
            |c| c["metadata"]["finalizers"] = json!(["range.drivers.local.sdn.cozystack.io/x"]),
            "are added and removed by the core and the drivers alone",
        ),
        no(
            Tenant,
            NewClaim,
            "of a class of others",
            |c| c["spec"]["className"] = json!("secret"),
            "class secret may not be used here",
        ),
        no(
            Tenant,
            NewClaim,
            "of the default class of others",
            |c| c["spec"] = json!({}),
            "the default class secret may not be used here",
        ),
        no(
            Tenant,
            NewClaim,
            "an address without its class",
            |c| c["spec"] = json!({"addressName": "ip-192-0-2-1"}),
            "must name the class of that address",
        ),
        yes(Tenant, NewClaim, "an address with its class", |c| {
            c["spec"] = json!({"addressName": "ip-192-0-2-1", "className": "public"})
        }),
        yes(Administrator, NewClaim, "of any class", |c| {
            c["spec"] = json!({})
        }),
        yes(Tenant, Claim, "a label", |c| {
            c["metadata"]["labels"] = json!({"a": "b"})
        }),
        no(
            Tenant,
            Claim,
            "another stamp",
            |c| c["metadata"]["annotations"][STAMP] = json!("x"),
            stamp,
        ),
        no(
            Tenant,
            Claim,
            "no stamp",
            |c| c["metadata"]["annotations"] = json!({}),
            stamp,
        ),
        no(
            Tenant,
            Claim,
            "without the core's finalizer",
            |c| c["metadata"]["finalizers"] = json!([]),
            held,
        ),
        no(
            Tenant,
            Claim,
            "a class of others",
            |c| c["spec"]["className"] = json!("secret"),
            "class secret may not",
        ),
        no(
            Tenant,
            Claim,
            "no class",
            |c| drop(c["spec"].as_object_mut().unwrap().remove("className")),
            "the default class secret may not be used here",
        ),
        no(
            Tenant,
            Claim,
            "what a driver says",
            |c| c["metadata"]["annotations"][SAID] = json!("{}"),
            said,
        ),
        yes(Tenant, Claim, "an address of its class", |c| {
            c["spec"]["addressName"] = json!("ip-192-0-2-1")
        }),
        no(
            Tenant,
            ClaimStatus,
            "a phase",
            |c| c["status"] = json!({"phase": "Bound"}),
            status,
        ),
        yes(Driver, Claim, "what it says", |c| {
            c["metadata"]["annotations"][SAID] = json!("{}")
        }),
        no(
            Driver,
            Claim,
            "another stamp",
            |c| c["metadata"]["annotations"][STAMP] = json!("x"),
            stamp,
        ),
        no(
            Driver,
            Claim,
            "without the core's finalizer",
            |c| c["metadata"]["finalizers"] = json!([]),
            held,
        ),
        no(
            Driver,
            Claim,
            "another family",
            |c| c["spec"]["family"] = json!("IPv6"),
            "is forbidden: ValidatingAdmissionPolicy",
        ),
        no(
            Driver,
            ClaimStatus,
            "a phase",
            |c| c["status"] = json!({"phase": "Bound"}),
            status,
        ),
        no(
            Driver,
            NewClaim,
            "one",
            |_| {},
            "cannot create resource \"ipaddressclaims\"",
        ),
        yes(Core, Claim, "stamp and finalizer", |c| {
            c["metadata"]["annotations"][STAMP] = json!("x");
            c["metadata"]["finalizers"] = json!([]);
        }),
        no(
            Core,
            Claim,
            "what a driver says",
            |c| c["metadata"]["annotations"][SAID] = json!("{}"),
            said,
        ),
        no(
            Core,
            Claim,
            "another family",
            |c| c["spec"]["family"] = json!("IPv6"),
            "is forbidden: ValidatingAdmissionPolicy",
        ),
        yes(Core, ClaimStatus, "a phase", |c| {
            c["status"] = json!({"phase": "Bound"})
        }),
    ]
}
