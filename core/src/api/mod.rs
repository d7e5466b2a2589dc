//! The kinds as types, and the names of the public contract (seed 000 §2-§3, design page 1).
//!
//! Every level of every kind keeps the fields that it does not know, so that reading and writing
//! an object of a newer or foreign version loses nothing.

mod address;
mod claim;
mod class;
mod condition;
pub mod crd;
mod kind;
mod meta;
pub mod names;
mod object;
mod time;
pub mod validate;

pub use address::{
    AddressPhase, AddressSource, ClaimRef, IPAddress, IPAddressSpec, IPAddressStatus, ProviderRef,
    ReclaimPolicy, WorkloadRef,
};
pub use claim::{
    ClaimFamily, ClaimPhase, ClaimedAddress, IPAddressClaim, IPAddressClaimSpec,
    IPAddressClaimStatus, ProvisioningStatus,
};
pub use class::{FamilyCapacity, IPAddressClass, IPAddressClassSpec, IPAddressClassStatus};
pub use condition::{
    Condition, ConditionStatus, Verdict, find_condition, remove_condition, set_condition,
};
pub use kind::{GROUP, Key, Kind, VERSION};
pub use meta::{Extra, ObjectMeta};
pub use object::{DecodeError, Object, Resource, ResourceSpec};
pub use time::Timestamp;
