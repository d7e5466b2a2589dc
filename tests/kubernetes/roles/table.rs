//! The table of who may write what: a row is a write, with the answer that refuses it.

use serde_json::{Value, json};

pub(super) const STAMP: &str = "local.sdn.cozystack.io/provisioner";
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

pub(super) fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}
