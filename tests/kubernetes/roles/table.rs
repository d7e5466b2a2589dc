//! Who may write what, row by row, with the answer that refuses it.

use serde_json::{Value, json};

use Who::{Administrator, Core, Driver, Tenant};

use crate::cluster::TEAM;

pub(super) const STAMP: &str = "local.sdn.cozystack.io/provisioner";
const SAID: &str = "local.sdn.cozystack.io/provisioning-status";
pub(super) const CLAIM_PROTECTION: &str = "local.sdn.cozystack.io/claim-protection";
pub(super) const ADDRESS_PROTECTION: &str = "local.sdn.cozystack.io/address-protection";

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Tenant,
    Driver,
    Core,
    Administrator,
    /// Kubernetes' own.
    GarbageCollector,
    /// With the right to write what there is, and none by which the policies know somebody.
    Outsider,
    /// The same with the verb of the core and the right to create addresses.
    RichCore,
}

/// What a write of somebody comes to.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) who: Who,
    pub(super) object: Object,
    pub(super) what: &'static str,
    pub(super) change: fn(&mut Value),
    /// The answer that refuses it; nothing if it is taken.
    pub(super) refused: Option<&'static str>,
}

/// What is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Object {
    NewClaim,
    Claim,
    ClaimStatus,
    NewAddress,
    Address,
    AddressStatus,
    NewClass,
    Class,
    ClassStatus,
}

pub(super) fn no(
    who: Who,
    object: Object,
    what: &'static str,
    change: fn(&mut Value),
    because: &'static str,
) -> Row {
    Row {
        who,
        object,
        what,
        change,
        refused: Some(because),
    }
}

pub(super) fn yes(who: Who, object: Object, what: &'static str, change: fn(&mut Value)) -> Row {
    Row {
        who,
        object,
        what,
        change,
        refused: None,
    }
}

pub(super) fn claims() -> Vec<Row> {
    use Object::{Claim, ClaimStatus, NewClaim};
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

pub(super) fn addresses() -> Vec<Row> {
    use Object::{Address, AddressStatus, NewAddress};
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
        yes(Driver, Address, "its own finalizer", |a| {
            a["metadata"]["finalizers"] = json!([ADDRESS_PROTECTION, "driver.example.org/teardown"])
        }),
        yes(Core, Address, "claim, mark and finalizer", |a| {
            a["spec"]["claimRef"]["uid"] = json!("u");
            a["metadata"]["annotations"] = json!({"local.sdn.cozystack.io/bound-by-core": "u"});
            a["metadata"]["finalizers"] = json!([]);
        }),
        no(
            Core,
            Address,
            "a driver's finalizer",
            |a| {
                a["metadata"]["finalizers"] =
                    json!([ADDRESS_PROTECTION, "driver.example.org/teardown"])
            },
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
        yes(Driver, AddressStatus, "a workload", |a| {
            a["status"]["associatedTo"] = json!({"kind": "Service", "namespace": TEAM, "name": "s"})
        }),
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
            |a| {
                a["status"]["associatedTo"] =
                    json!({"kind": "Service", "namespace": TEAM, "name": "s"})
            },
            "status.associatedTo is written by drivers alone",
        ),
    ]
}

/// After a driver has flagged the address.
pub(super) fn flagged_addresses() -> Vec<Row> {
    use Object::AddressStatus;
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

pub(super) fn classes() -> Vec<Row> {
    use Object::{Class, ClassStatus, NewClass};
    vec![
        no(
            Tenant,
            NewClass,
            "one",
            |_| {},
            "cannot create resource \"ipaddressclasses\"",
        ),
        no(
            Tenant,
            Class,
            "as default",
            default_class,
            "cannot update resource",
        ),
        no(
            Driver,
            Class,
            "as default",
            default_class,
            "cannot update resource",
        ),
        no(
            Core,
            Class,
            "as default",
            default_class,
            "cannot update resource",
        ),
        yes(Administrator, Class, "as default", default_class),
        yes(Driver, ClassStatus, "capacity", |c| {
            c["status"] = json!({"outOfRange": ["ip-192-0-2-9"]})
        }),
        no(
            Core,
            ClassStatus,
            "capacity",
            |c| c["status"] = json!({"outOfRange": ["x"]}),
            "cannot patch resource \"ipaddressclasses/status\"",
        ),
    ]
}

fn default_class(class: &mut Value) {
    let key = "ipaddressclass.local.sdn.cozystack.io/is-default-class";
    class["metadata"]["annotations"] = json!({key: "true"});
}

pub(super) fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}
