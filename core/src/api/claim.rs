use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Condition, Extra, Kind, Resource, ResourceSpec};
use crate::net::Family;

/// `IPAddressClaim`: "give me one", the whole tenant-facing API (seed 000 §2).
pub type IPAddressClaim = Resource<IPAddressClaimSpec>;

/// Which families a claim asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimFamily {
    /// One IPv4 address.
    #[default]
    IPv4,
    /// One IPv6 address.
    IPv6,
    /// One address of each family.
    Dual,
}

impl ClaimFamily {
    /// The concrete families, IPv4 first.
    pub fn families(self) -> &'static [Family] {
        match self {
            ClaimFamily::IPv4 => &[Family::V4],
            ClaimFamily::IPv6 => &[Family::V6],
            ClaimFamily::Dual => &[Family::V4, Family::V6],
        }
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ClaimFamily::IPv4 => "IPv4",
            ClaimFamily::IPv6 => "IPv6",
            ClaimFamily::Dual => "Dual",
        }
    }
}

/// What a tenant asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClaimSpec {
    /// The class; empty means the default class.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub class_name: String,
    /// Which families; IPv4 if absent.
    #[serde(default)]
    pub family: ClaimFamily,
    /// The name of one specific address object; not together with `Dual`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address_name: String,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Where a claim stands (seed 000 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimPhase {
    /// Not everything asked for is held yet.
    Pending,
    /// Everything asked for is held.
    Bound,
    /// A binding degraded; never silently provisioned around.
    Lost,
}

impl ClaimPhase {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ClaimPhase::Pending => "Pending",
            ClaimPhase::Bound => "Bound",
            ClaimPhase::Lost => "Lost",
        }
    }
}

/// One address of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedAddress {
    /// The name of the address object.
    pub name: String,
    /// The IP.
    pub address: String,
}

/// What a claim has; a projection of the addresses' claimRefs, never authoritative.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClaimStatus {
    /// See [`ClaimPhase`]; absent until the core has seen the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClaimPhase>,
    /// The class that the claim resolved to; sticky (§4 step 6).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub class_name: String,
    /// The bound addresses, sorted by object name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<ClaimedAddress>,
    /// The same as one string, because a table column prints only the first element of a list
    /// (our addition).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address_text: String,
    /// What the claim held and lost (our addition, R5).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_addresses: Vec<ClaimedAddress>,
    /// Conditions, a map by `type`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl IPAddressClaimStatus {
    /// Whether it has what we add to the fields of the source; a server whose definitions do not know these
    /// drops them.
    #[must_use]
    pub fn has_additions(&self) -> bool {
        !self.address_text.is_empty() || !self.lost_addresses.is_empty()
    }

    /// Whether it was written when the server dropped them: the text is always written with addresses.
    #[must_use]
    pub fn lacks_additions(&self) -> bool {
        !self.addresses.is_empty() && !self.has_additions()
    }
}

/// Why a driver cannot serve a claim: the value of the annotation
/// [`PROVISIONING_STATUS`](super::names::PROVISIONING_STATUS) (R14).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisioningStatus {
    /// The driver that says it.
    #[serde(default)]
    pub provisioner: String,
    /// One word for machines, for example `PoolExhausted`.
    #[serde(default)]
    pub reason: String,
    /// The class that it speaks of.
    #[serde(default)]
    pub class: String,
    /// A sentence for people, without numbers that move.
    #[serde(default)]
    pub message: String,
}

impl ResourceSpec for IPAddressClaimSpec {
    const KIND: Kind = Kind::IPAddressClaim;
    type Status = IPAddressClaimStatus;
}

impl IPAddressClaim {
    /// The phase, if there is one.
    pub fn phase(&self) -> Option<ClaimPhase> {
        self.status.as_ref().and_then(|s| s.phase)
    }

    /// The class that the claim resolved to; empty if none is recorded.
    pub fn resolved_class(&self) -> &str {
        self.status.as_ref().map_or("", |s| s.class_name.as_str())
    }

    /// The conditions; empty without a status.
    pub fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |s| &s.conditions)
    }

    /// The driver that the core stamped on the claim.
    pub fn stamp(&self) -> Option<&str> {
        self.metadata.annotation(super::names::PROVISIONER)
    }

    /// What a driver says about the claim, if the annotation can be read: a JSON object.
    pub fn provisioning_status(&self) -> Option<ProvisioningStatus> {
        let text = self
            .metadata
            .annotation(super::names::PROVISIONING_STATUS)?;
        // Read as it stands, a list of the fields' values would do as well.
        let fields: Extra = serde_json::from_str(text).ok()?;
        serde_json::from_value(Value::Object(fields)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_says_is_read_from_an_object_only() {
        let said = |text: &str| {
            let mut claim = IPAddressClaim::default();
            claim.metadata.annotations.insert(
                super::super::names::PROVISIONING_STATUS.to_owned(),
                text.to_owned(),
            );
            claim.provisioning_status().map(|s| s.reason)
        };
        let object = r#"{"provisioner": "p", "reason": "PoolExhausted", "more": 1}"#;
        assert_eq!(said(object).as_deref(), Some("PoolExhausted"));
        assert_eq!(said(r#"["p", "PoolExhausted", "c", "m"]"#), None);
        assert_eq!(said("{"), None);
    }
}
