//! What an object says of itself, read without the code that is judged.

use ipledger_core::api::{
    AddressPhase, ClaimPhase, ConditionStatus, IPAddress, IPAddressClaim, find_condition, names,
};
use ipledger_core::net::{Family, Ip};

/// The family of an address in text form.
pub(super) fn family_of(text: &str) -> Option<Family> {
    Ip::parse(text).ok().map(Ip::family)
}

/// Whether an object has the name that its address gives (R1).
pub(super) fn has_derived_name(address: &IPAddress) -> bool {
    Ip::parse(&address.spec.address).is_ok_and(|ip| ip.object_name() == address.metadata.name)
}

pub(super) fn holder(address: &IPAddress) -> &str {
    address
        .spec
        .claim_ref
        .as_ref()
        .map_or("", |r| r.uid.as_str())
}

/// Whether the claim's status lists the address among those that it has.
pub(super) fn reports(claim: &IPAddressClaim, name: &str) -> bool {
    claim
        .status
        .as_ref()
        .is_some_and(|s| s.addresses.iter().any(|e| e.name == name))
}

/// Whether the address carries the condition that the claim of this uid holds it (R6b).
pub(super) fn says_held_by(address: &IPAddress, uid: &str) -> bool {
    !uid.is_empty()
        && find_condition(address.conditions(), names::condition::BOUND)
            .is_some_and(|c| c.status == ConditionStatus::True && c.message.ends_with(uid))
}

/// Whether the address says that its claim is gone.
pub(super) fn is_given_up(address: &IPAddress) -> bool {
    address.phase() == Some(AddressPhase::Released)
        || find_condition(address.conditions(), names::condition::RECLAIMED)
            .is_some_and(|c| c.status == ConditionStatus::True)
}

pub(super) fn is_parked(address: &IPAddress, uid: &str) -> bool {
    address.metadata.annotation(names::PARKED_FOR) == Some(uid)
}

/// Whether an address that a claim was bound to is still what it was bound to (R5).
pub(super) fn serves(address: &IPAddress, claim: &IPAddressClaim) -> bool {
    let names_it = address.spec.claim_ref.as_ref().is_some_and(|r| {
        r.key() == claim.key() && (r.uid.is_empty() || r.uid == claim.metadata.uid)
    });
    has_derived_name(address)
        && names_it
        && address.phase() != Some(AddressPhase::Lost)
        && !is_parked(address, &claim.metadata.uid)
}

/// Whether the claim was wholly bound once: its phase says so, or, where that was wiped, what its
/// status names (R5).
pub(super) fn is_decided(claim: &IPAddressClaim) -> bool {
    let Some(status) = &claim.status else {
        return false;
    };
    let asked = claim.spec.family.families().iter();
    match status.phase {
        Some(phase) => phase != ClaimPhase::Pending,
        None => {
            let named: Vec<_> = status
                .addresses
                .iter()
                .map(|e| family_of(&e.address))
                .collect();
            let lost = !status.lost_addresses.is_empty();
            lost || asked
                .into_iter()
                .all(|family| named.contains(&Some(*family)))
        }
    }
}

/// Whether the claim's status names another address of this family, or the claim does not ask for
/// the family: the condition under which an extra address may be touched (R6d).
pub(super) fn is_extra(claim: &IPAddressClaim, address: &IPAddress) -> bool {
    let Some(family) = family_of(&address.spec.address) else {
        return false;
    };
    let asked = claim.spec.family.families().contains(&family);
    let status = claim.status.as_ref();
    let mut entries = status
        .iter()
        .flat_map(|s| s.addresses.iter().chain(&s.lost_addresses));
    is_decided(claim)
        && (!asked
            || entries
                .any(|e| e.name != address.metadata.name && family_of(&e.address) == Some(family)))
}

/// Whether an address can be matched with any claim of its class and family.
pub(super) fn is_free(address: &IPAddress) -> bool {
    address.spec.claim_ref.is_none()
        && address.phase() == Some(AddressPhase::Available)
        && !address.metadata.is_deleting()
        && !address.is_associated()
        && has_derived_name(address)
}
