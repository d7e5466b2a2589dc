//! What an address object says about its relation to a claim: who wrote what on it, and whether
//! it may serve.

use crate::api::{
    AddressPhase, ClaimRef, IPAddress, IPAddressClaim, Timestamp, Verdict, find_condition, names,
    set_condition,
};
use crate::mutant::{Mutant, active};
use crate::net::Family;

/// Whether name and address can be trusted (R1): only such an object is ever available, bound,
/// completed or counted.
pub fn is_valid(address: &IPAddress) -> bool {
    address.ip().is_some_and(|ip| {
        ip.object_name() == address.metadata.name || active(Mutant::NameUnchecked)
    })
}

/// Whether an address is free to be matched with any claim of its class and family (§4 step 7).
pub fn is_matchable(address: &IPAddress) -> bool {
    address.spec.claim_ref.is_none()
        && address.phase() == Some(AddressPhase::Available)
        && (!address.metadata.is_deleting() || active(Mutant::MatchesDeleting))
        && !address.is_associated()
        && is_valid(address)
}

/// The family of a valid address.
pub(super) fn family(address: &IPAddress) -> Option<Family> {
    address.ip().map(|ip| ip.family())
}

/// The uid in the claimRef; empty without one.
pub(super) fn holder_uid(address: &IPAddress) -> &str {
    address
        .spec
        .claim_ref
        .as_ref()
        .map_or("", |r| r.uid.as_str())
}

/// Whether the claimRef names this claim: with its uid, or without any (§4 step 3).
pub(super) fn names_claim(address: &IPAddress, claim: &IPAddressClaim) -> bool {
    address.spec.claim_ref.as_ref().is_some_and(|r| {
        r.namespace == claim.metadata.namespace
            && r.name == claim.metadata.name
            && (r.uid.is_empty() || r.uid == claim.metadata.uid)
    })
}

/// Whether the core wrote the claimRef that stands (R6a).
pub(super) fn is_bound_by_core(address: &IPAddress) -> bool {
    let uid = holder_uid(address);
    !uid.is_empty() && address.metadata.annotation(names::BOUND_BY_CORE) == Some(uid)
}

/// Whether the address is surplus for the claim of this uid (R7). Once an admin lets it serve it
/// is no longer.
pub(super) fn is_parked(address: &IPAddress, claim_uid: &str) -> bool {
    address.metadata.annotation(names::PARKED_FOR) == Some(claim_uid)
}

/// Whether an admin lets this surplus address serve the claim of this uid (R7).
pub(super) fn is_let_serve(address: &IPAddress, claim_uid: &str) -> bool {
    address
        .metadata
        .annotation(names::PARKED_FOR)
        .and_then(|v| v.strip_suffix(names::SERVE_SUFFIX))
        == Some(claim_uid)
}

/// Whether the address was reclaimed: its claim was proven to be gone.
pub(super) fn is_given_up(address: &IPAddress) -> bool {
    address.phase() == Some(AddressPhase::Released)
        || find_condition(address.conditions(), names::condition::RECLAIMED)
            .is_some_and(|c| c.status == crate::api::ConditionStatus::True)
}

/// Names the claim as the holder.
pub(super) fn claim_ref(claim: &IPAddressClaim) -> ClaimRef {
    ClaimRef {
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        extra: Default::default(),
    }
}

// The uid stands at the end of the message, because a field of its own would be dropped by a
// server whose schema does not know it.
const UID_MARK: &str = " with uid ";

/// Whether the address carries the condition that the claim of this uid holds it (R6b).
pub(super) fn says_bound_to(address: &IPAddress, claim_uid: &str) -> bool {
    find_condition(address.conditions(), names::condition::BOUND).is_some_and(|c| {
        c.status == crate::api::ConditionStatus::True
            && c.message
                .rsplit_once(UID_MARK)
                .is_some_and(|(_, uid)| uid == claim_uid)
    })
}

/// Writes phase and condition of an address that the claim holds. A driver's phase stays (R8).
pub(super) fn mark_bound(address: &mut IPAddress, claim: &IPAddressClaim, now: Timestamp) {
    let generation = address.metadata.generation;
    let status = address.status.get_or_insert_default();
    if !status.phase.is_some_and(AddressPhase::is_sticky) || active(Mutant::StickyOverwritten) {
        status.phase = Some(AddressPhase::Bound);
    }
    let verdict = Verdict::yes(
        names::reason::BOUND,
        format!(
            "held by claim {}/{}{UID_MARK}{}",
            claim.metadata.namespace, claim.metadata.name, claim.metadata.uid
        ),
    );
    set_condition(
        &mut status.conditions,
        names::condition::BOUND,
        verdict,
        generation,
        now,
    );
}
