use serde::{Deserialize, Serialize};

use super::{Condition, Extra, Key, Kind, Resource, ResourceSpec, names};
use crate::net::Ip;

/// `IPAddress`: one concrete IP, the reservation and the record of its binding (seed 000 §2).
pub type IPAddress = Resource<IPAddressSpec>;

/// What becomes of an address object when its claim goes (seed 000 §6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReclaimPolicy {
    /// The object stays, `Released`, until an admin clears its claimRef.
    #[default]
    Retain,
    /// The object is deleted; its driver tears down behind its own finalizer.
    Delete,
}

/// The ledger entry itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressSpec {
    /// The IP in canonical form. Immutable.
    #[serde(default)]
    pub address: String,
    /// The class that it belongs to.
    #[serde(default)]
    pub class_name: String,
    /// The claim that holds it: the single authoritative record of a binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ClaimRef>,
    /// What becomes of this object when its claim goes.
    #[serde(default)]
    pub reclaim_policy: ReclaimPolicy,
    /// Where the reservation comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<AddressSource>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Names the claim that holds an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimRef {
    /// The claim's namespace.
    #[serde(default)]
    pub namespace: String,
    /// The claim's name.
    #[serde(default)]
    pub name: String,
    /// The claim's uid; empty until the core completes a pre-binding.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ClaimRef {
    /// The key of the claim that is named.
    pub fn key(&self) -> Key {
        Key::claim(&self.namespace, &self.name)
    }
}

/// A union: exactly one member is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressSource {
    /// Carved from the class's own range; the driver is the IPAM of record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_class: Option<Extra>,
    /// Held by an external provider under its own handle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<ProviderRef>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A reservation at an external provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProviderRef {
    /// The provider's stable handle.
    #[serde(default)]
    pub id: String,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Where an address stands (seed 000 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AddressPhase {
    /// Not (yet) fit to be bound.
    Pending,
    /// Bound to nobody and fit to be matched.
    Available,
    /// Held by a claim.
    Bound,
    /// Its claim is gone; an admin decides.
    Released,
    /// A driver saw it used by something that the binding does not authorise.
    Conflict,
    /// A driver saw its backing reservation disappear.
    Lost,
}

impl AddressPhase {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            AddressPhase::Pending => "Pending",
            AddressPhase::Available => "Available",
            AddressPhase::Bound => "Bound",
            AddressPhase::Released => "Released",
            AddressPhase::Conflict => "Conflict",
            AddressPhase::Lost => "Lost",
        }
    }

    /// Whether drivers own this phase: the core neither enters nor leaves it (R8).
    pub fn is_sticky(self) -> bool {
        matches!(self, AddressPhase::Conflict | AddressPhase::Lost)
    }
}

/// What is observed of an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressStatus {
    /// See [`AddressPhase`]; absent until the core has seen the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<AddressPhase>,
    /// The workload that it is announced for; written by drivers only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub associated_to: Option<WorkloadRef>,
    /// Conditions, a map by `type`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Names a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadRef {
    /// Its kind, for example `Service`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, if known (our addition).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ResourceSpec for IPAddressSpec {
    const KIND: Kind = Kind::IPAddress;
    type Status = IPAddressStatus;
}

impl IPAddress {
    /// The IP, if `spec.address` is one in any spelling.
    pub fn ip(&self) -> Option<Ip> {
        Ip::parse(&self.spec.address).ok()
    }

    /// The phase, if there is one.
    pub fn phase(&self) -> Option<AddressPhase> {
        self.status.as_ref().and_then(|s| s.phase)
    }

    /// The conditions; empty without a status.
    pub fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |s| &s.conditions)
    }

    /// Whether it is announced for a workload.
    pub fn is_associated(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|s| s.associated_to.is_some())
    }

    /// Whether an admin keeps it for the claim that it names (R4, R13).
    pub fn is_reserved(&self) -> bool {
        self.metadata.annotation(names::RESERVED) == Some("true")
    }
}
