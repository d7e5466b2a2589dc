use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Condition, Extra, Kind, ReclaimPolicy, Resource, ResourceSpec, names};

/// `IPAddressClass`: which driver, which parameters, which reclaim policy (seed 000 §2).
pub type IPAddressClass = Resource<IPAddressClassSpec>;

/// What an admin asks of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClassSpec {
    /// The driver that fulfils claims of this class. Immutable.
    #[serde(default)]
    pub provisioner: String,
    /// Copied onto each provisioned address, where it takes effect.
    #[serde(default)]
    pub reclaim_policy: ReclaimPolicy,
    /// The driver's own parameters; the core never reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What the class's driver reports (R14, an addition to the public contract).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClassStatus {
    /// One entry a family, IPv4 first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity: Vec<FamilyCapacity>,
    /// The first few address objects that lie outside the class's ranges, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out_of_range: Vec<String>,
    /// Conditions, a map by `type`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The addresses of one family in a class. Counts are decimal strings: a /64 has more than
/// JSON numbers can hold exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FamilyCapacity {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// Addresses that the class can hand out.
    pub total: String,
    /// Those with an address object, of any class.
    pub used: String,
    /// Those without.
    pub free: String,
    /// Those whose object waits for its cool-down to end (part of `used`).
    pub cooling: String,
    /// Those that the parameters leave out.
    pub excluded: String,
    /// Address objects of the class outside its ranges (not part of `total`).
    pub out_of_range: String,
}

impl ResourceSpec for IPAddressClassSpec {
    const KIND: Kind = Kind::IPAddressClass;
    type Status = IPAddressClassStatus;
}

impl IPAddressClass {
    /// Whether this class is annotated as the default.
    pub fn is_default(&self) -> bool {
        self.metadata.annotation(names::DEFAULT_CLASS) == Some("true")
    }
}
