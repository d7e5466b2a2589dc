//! Addresses that name a claim and do not count for it: undone if the core bound them (R6d),
//! parked if a driver or admin did (R7).

use super::assign::{Assignment, is_decided, reported, reported_for};
use super::held::{family, holder_uid, is_bound_by_core, is_let_serve, is_parked, is_valid};
use super::{ClaimView, Event, EventKind, Need, Plan, Write};
use crate::api::{ClaimRef, IPAddress, IPAddressClaim, names};
use crate::mutant::{Mutant, active};

/// Plans for the surplus of a claim that is otherwise settled.
///
/// Two controllers may bind two addresses to one claim, because they swap on different objects;
/// the claim's status decides. So nothing is touched before a read at `Latest` shows that it did.
pub(super) fn plan(
    view: &ClaimView,
    claim: &IPAddressClaim,
    assignment: &Assignment,
) -> Result<Plan, Vec<Need>> {
    let mut plan = Plan::default();
    if !is_decided(claim) && !active(Mutant::SurplusOfUndecided) {
        return Ok(plan);
    }
    let uid = claim.metadata.uid.as_str();
    for address in &view.addresses {
        let counts = assignment
            .held()
            .any(|a| a.metadata.name == address.metadata.name);
        if counts || !is_surplus(address, claim) {
            continue;
        }
        if !view.claim.proven && !active(Mutant::SurplusUnproven) {
            return Err(vec![Need::Read(claim.key())]);
        }
        if is_bound_by_core(address) || active(Mutant::SurplusAlwaysUndone) {
            plan.writes.push(undo(address));
        } else {
            let mut parked = IPAddress::clone(address);
            parked
                .metadata
                .annotations
                .insert(names::PARKED_FOR.to_owned(), uid.to_owned());
            plan.writes.push(Write::address(parked));
            plan.events.push(Event {
                about: claim.key(),
                uid: uid.to_owned(),
                kind: EventKind::Warning,
                reason: names::reason::ADDRESS_PARKED.to_owned(),
                message: format!(
                    "{} ({}) was bound to this claim in addition to what it asks for; it is kept \
                     aside until the claim is deleted, or until an admin lets it serve",
                    address.spec.address, address.metadata.name
                ),
            });
        }
    }
    Ok(plan)
}

fn is_surplus(address: &IPAddress, claim: &IPAddressClaim) -> bool {
    // An admin keeps a reserved one for the next claim of this name (R13).
    let waits = holder_uid(address).is_empty()
        && address.is_reserved()
        && !active(Mutant::ReservedCompletedBySatisfied);
    is_valid(address)
        && !address.metadata.is_deleting()
        && !is_parked(address, &claim.metadata.uid)
        && !waits
        && is_passed_over(address, claim)
}

/// Whether the claim's status decides for another address (R6c): it names another of that family,
/// or the family is not asked for.
pub(super) fn is_passed_over(address: &IPAddress, claim: &IPAddressClaim) -> bool {
    if (!is_decided(claim) && !active(Mutant::SurplusOfUndecided))
        || is_let_serve(address, &claim.metadata.uid)
        || reported(claim).any(|e| e.name == address.metadata.name)
    {
        return false;
    }
    family(address).is_some_and(|of| {
        !claim.spec.family.families().contains(&of) || reported_for(claim, of).is_some()
    })
}

/// Takes back a binding that the core made and that never took effect.
pub(super) fn undo(address: &IPAddress) -> Write {
    let mut free = address.clone();
    free.spec.claim_ref = None::<ClaimRef>;
    free.metadata.annotations.remove(names::BOUND_BY_CORE);
    Write::address(free)
}
