//! Who may write what of an address, row by row.

use serde_json::{Value, json};

use super::table::Object::{Address, AddressStatus, NewAddress};
use super::table::Who::{Administrator, Core, Driver, Tenant};
use super::table::{ADDRESS_PROTECTION, Row, condition, no, yes};
use crate::cluster::TEAM;

/// Announced for a workload.
pub(super) fn serving(address: &mut Value) {
    let workload = json!({"kind": "Service", "namespace": TEAM, "name": "s"});
    address["status"]["associatedTo"] = workload;
}

fn held_by_its_driver(address: &mut Value) {
    let finalizers = json!([ADDRESS_PROTECTION, "driver.example.org/teardown"]);
    address["metadata"]["finalizers"] = finalizers;
}

pub(super) fn rows() -> Vec<Row> {
    let held = "is added and removed by the binding core alone";
    let reference = "spec.claimRef of an existing address is written by the binding core alone";
    let phases = "Conflict and Lost are entered and left by drivers alone";
    vec![
        no(
            Tenant,
            NewAddress,
            "one",
            |_| {},
            "cannot create resource \"ipaddresses\"",
        ),
        no(
            Tenant,
            Address,
            "a label",
            |a| a["metadata"]["labels"] = json!({"a": "b"}),
            "cannot update resource",
        ),
        yes(Driver, NewAddress, "one that is bound", |a| {
            a["spec"]["claimRef"] = json!({"namespace": TEAM, "name": "web"});
            a["metadata"]["finalizers"] = json!(["driver.example.org/teardown"]);
        }),
        no(
            Driver,
            NewAddress,
            "the core's finalizer",
            |a| a["metadata"]["finalizers"] = json!([ADDRESS_PROTECTION]),
            held,
        ),
        no(
            Driver,
            NewAddress,
            "the core's mark",
            |a| a["metadata"]["annotations"] = json!({"local.sdn.cozystack.io/bound-by-core": "u"}),
            "bound-by-core and local.sdn.cozystack.io/parked-for are written by the binding core alone",
        ),
        no(
            Core,
            NewAddress,
            "one",
            |_| {},
            "cannot create resource \"ipaddresses\"",
        ),
        yes(Administrator, NewAddress, "a static one", |_| {}),
        no(
            Driver,
            Address,
            "another claim",
            |a| a["spec"]["claimRef"]["name"] = json!("mail"),
            reference,
        ),
        no(
            Driver,
            Address,
            "no claim",
            |a| drop(a["spec"].as_object_mut().unwrap().remove("claimRef")),
            reference,
        ),
        no(
            Driver,
            Address,
            "the claim's uid",
            |a| a["spec"]["claimRef"]["uid"] = json!("u"),
            reference,
        ),
        no(
            Driver,
            Address,
            "without the core's finalizer",
            |a| a["metadata"]["finalizers"] = json!([]),
            held,
        ),
        no(
            Driver,
            Address,
            "another policy",
            |a| a["spec"]["reclaimPolicy"] = json!("Delete"),
            "only an administrator changes",
        ),
        yes(Driver, Address, "its own finalizer", held_by_its_driver),
        yes(Core, Address, "claim, mark and finalizer", |a| {
            a["spec"]["claimRef"]["uid"] = json!("u");
            a["metadata"]["annotations"] = json!({"local.sdn.cozystack.io/bound-by-core": "u"});
            a["metadata"]["finalizers"] = json!([]);
        }),
        no(
            Core,
            Address,
            "a driver's finalizer",
            held_by_its_driver,
            "finalizers of drivers are added and removed by drivers alone",
        ),
        no(
            Core,
            Address,
            "another class",
            |a| a["spec"]["className"] = json!("secret"),
            "only an administrator changes",
        ),
        yes(Administrator, Address, "no claim", |a| {
            drop(a["spec"].as_object_mut().unwrap().remove("claimRef"))
        }),
        no(
            Driver,
            AddressStatus,
            "phase Available",
            |a| a["status"]["phase"] = json!("Available"),
            phases,
        ),
        no(
            Driver,
            AddressStatus,
            "no status",
            |a| a["status"] = json!({}),
            phases,
        ),
        no(
            Tenant,
            AddressStatus,
            "phase Released",
            |a| a["status"]["phase"] = json!("Released"),
            "cannot patch resource \"ipaddresses/status\"",
        ),
        no(
            Driver,
            AddressStatus,
            "phase Released",
            |a| a["status"]["phase"] = json!("Released"),
            phases,
        ),
        yes(Driver, AddressStatus, "phase Conflict", |a| {
            a["status"]["phase"] = json!("Conflict")
        }),
        yes(Driver, AddressStatus, "phase Lost", |a| {
            a["status"]["phase"] = json!("Lost")
        }),
        yes(Driver, AddressStatus, "a workload", serving),
        no(
            Driver,
            AddressStatus,
            "another condition of the core",
            |a| a["status"]["conditions"] = json!([condition("Reclaimed")]),
            "are written by the binding core alone",
        ),
        no(
            Driver,
            AddressStatus,
            "no conditions",
            |a| drop(a["status"].as_object_mut().unwrap().remove("conditions")),
            "write status with a patch, or keep the conditions that you have read",
        ),
        yes(Driver, AddressStatus, "its own condition", |a| {
            let conditions = a["status"]["conditions"].as_array_mut();
            conditions.unwrap().push(condition("CoolingDown"));
        }),
        yes(Core, AddressStatus, "phase Released", |a| {
            a["status"]["phase"] = json!("Released")
        }),
        yes(Core, AddressStatus, "its condition", |a| {
            a["status"]["conditions"] = json!([condition("Bound")])
        }),
        no(
            Core,
            AddressStatus,
            "phase Conflict",
            |a| a["status"]["phase"] = json!("Conflict"),
            phases,
        ),
        no(
            Core,
            AddressStatus,
            "a workload",
            serving,
            "status.associatedTo is written by drivers alone",
        ),
    ]
}

/// After a driver has flagged the address.
pub(super) fn rows_of_a_flagged_one() -> Vec<Row> {
    vec![
        no(
            Core,
            AddressStatus,
            "phase Bound",
            |a| a["status"]["phase"] = json!("Bound"),
            "Conflict and Lost are entered and left by drivers alone",
        ),
        yes(Driver, AddressStatus, "phase Bound", |a| {
            a["status"]["phase"] = json!("Bound")
        }),
        yes(Driver, AddressStatus, "phase Available", |a| {
            a["status"]["phase"] = json!("Available")
        }),
        yes(Driver, AddressStatus, "phase Pending", |a| {
            a["status"]["phase"] = json!("Pending")
        }),
        yes(Driver, AddressStatus, "no phase", |a| {
            drop(a["status"].as_object_mut().unwrap().remove("phase"))
        }),
        yes(Driver, AddressStatus, "phase Lost", |a| {
            a["status"]["phase"] = json!("Lost")
        }),
        yes(Core, AddressStatus, "its condition", |a| {
            a["status"]["conditions"] = json!([condition("Reclaimed")])
        }),
    ]
}
