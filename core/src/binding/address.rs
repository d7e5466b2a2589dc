//! The plan for an address (seed 000 §5).

use super::assign::reported;
use super::held::{is_bound_by_core, is_given_up, is_parked, is_valid, mark_bound, says_bound_to};
use super::{AddressView, Need, Plan, Step, Write, surplus};
use crate::api::{
    AddressPhase, ClaimRef, ConditionStatus, IPAddress, IPAddressClaim, ReclaimPolicy, Timestamp,
    Verdict, find_condition, names, remove_condition, set_condition,
};
use crate::mutant::{Mutant, active};
use names::{condition, reason};

/// Plans one pass over an address.
pub fn plan(view: &AddressView) -> Step {
    let address = view.address.as_ref();
    // Step 1.
    if address.metadata.is_deleting() {
        return deletion(view);
    }
    // Step 2.
    let mut plan = Plan::default();
    let mut protected = address.clone();
    protected.metadata.add_finalizer(names::ADDRESS_PROTECTION);
    if protected.metadata != address.metadata {
        plan.writes.push(Write::address(protected.clone()));
    }
    // Steps 3 to 6.
    match settle(view, &protected) {
        Step::Do(rest) => {
            plan.extend(rest);
            Step::Do(plan)
        }
        need => need,
    }
}

/// Who the claimRef leads to.
enum Holder<'a> {
    /// A claim with the claimRef's uid, not being deleted.
    Live(&'a IPAddressClaim),
    /// That claim, being deleted.
    Leaving,
    /// No such claim, proven by a read at `Latest`.
    Gone,
    /// No such claim as far as the cache knows.
    Unproven,
}

fn holder<'a>(view: &'a AddressView, claim_ref: &ClaimRef) -> Holder<'a> {
    match view.claim.object.as_deref() {
        Some(claim)
            if claim.metadata.uid == claim_ref.uid || active(Mutant::HolderUidUnchecked) =>
        {
            if claim.metadata.is_deleting() {
                Holder::Leaving
            } else {
                Holder::Live(claim)
            }
        }
        _ if view.claim.proven || active(Mutant::ReclaimsOnCachedAbsence) => Holder::Gone,
        _ => Holder::Unproven,
    }
}

/// The protection goes only from an address that is marked for deletion and that no live claim
/// holds (§5 step 1, R2), or that its claim has been bound without (R6d).
fn deletion(view: &AddressView) -> Step {
    let address = view.address.as_ref();
    if !address.metadata.has_finalizer(names::ADDRESS_PROTECTION) {
        return Step::nothing();
    }
    if let Some(claim_ref) = &address.spec.claim_ref
        && !claim_ref.uid.is_empty()
        && !active(Mutant::DeletionIgnoresHolder)
    {
        match holder(view, claim_ref) {
            Holder::Live(claim) if !is_parked(address, &claim_ref.uid) => {
                // An extra is let go like any other, once the status decides for another (R6d).
                if !surplus::is_passed_over(address, claim) {
                    return Step::nothing();
                }
                if !view.claim.proven {
                    return Step::Need(vec![Need::Read(claim_ref.key())]);
                }
            }
            Holder::Unproven => return Step::Need(vec![Need::Read(claim_ref.key())]),
            Holder::Live(_) | Holder::Leaving | Holder::Gone => {}
        }
    }
    let mut plan = Plan::default();
    let mut freed = address.clone();
    // Where somebody else keeps the object for a while, it must not go on saying that it is bound.
    if address.metadata.finalizers.len() > 1
        && let Some(status) = unbound(view, address)
    {
        freed.status = status.status.clone();
        plan.writes.push(Write::address_status(status));
    }
    freed.metadata.remove_finalizer(names::ADDRESS_PROTECTION);
    plan.writes.push(Write::address(freed));
    Step::Do(plan)
}

/// The address as it says that the claim which it was bound to is gone; `None` if it does not say
/// that it is bound, or its claim lives (R7: a parked one).
fn unbound(view: &AddressView, address: &IPAddress) -> Option<IPAddress> {
    let claim_ref = address.spec.claim_ref.as_ref()?;
    let says_bound = address.phase() == Some(AddressPhase::Bound)
        || find_condition(address.conditions(), condition::BOUND)
            .is_some_and(|c| c.status == ConditionStatus::True);
    if !says_bound || matches!(holder(view, claim_ref), Holder::Live(_)) {
        return None;
    }
    let mut unbound = address.clone();
    let status = unbound.status.get_or_insert_default();
    if status.phase == Some(AddressPhase::Bound) {
        status.phase = Some(AddressPhase::Released);
    }
    let message = format!(
        "claim {}/{} is gone; the address goes when its finalizers are done",
        claim_ref.namespace, claim_ref.name
    );
    set_condition(
        &mut status.conditions,
        condition::BOUND,
        Verdict::no(reason::CLAIM_GONE, message),
        address.metadata.generation,
        view.now,
    );
    Some(unbound)
}

fn settle(view: &AddressView, address: &IPAddress) -> Step {
    let valid = is_valid(address);
    let Some(claim_ref) = &address.spec.claim_ref else {
        // Step 5, also the way back from Released: an admin cleared the claimRef.
        return status(view, address, valid, AddressPhase::Available, |status| {
            remove_condition(&mut status.conditions, condition::BOUND);
            remove_condition(&mut status.conditions, condition::RECLAIMED);
        });
    };
    if claim_ref.uid.is_empty() {
        return pre_bound(view, address, claim_ref, valid);
    }
    match holder(view, claim_ref) {
        Holder::Live(claim) => bound(view, address, claim, valid),
        // The claim's own plan reclaims it (§5 step 6).
        Holder::Leaving => status(view, address, valid, phase_or_bound(address), |_| {}),
        Holder::Gone | Holder::Unproven if is_reclaimed(address, valid) => Step::nothing(),
        Holder::Unproven => Step::Need(vec![Need::Read(claim_ref.key())]),
        Holder::Gone => reclaim(view, address),
    }
}

fn phase_or_bound(address: &IPAddress) -> AddressPhase {
    address.phase().unwrap_or(AddressPhase::Bound)
}

/// Held by a live claim: phase `Bound`, and the condition once the claim reports it (R6b).
fn bound(view: &AddressView, address: &IPAddress, claim: &IPAddressClaim, valid: bool) -> Step {
    if is_given_up(address) && !view.claim.proven {
        return Step::Need(vec![Need::Read(claim.key())]);
    }
    let is_reported = reported(claim).any(|e| e.name == address.metadata.name);
    if valid && is_reported && !says_bound_to(address, &claim.metadata.uid) {
        let mut marked = address.clone();
        mark_bound(&mut marked, claim, view.now);
        return Step::Do(Plan {
            writes: vec![Write::address_status(marked)],
            ..Plan::default()
        });
    }
    status(view, address, valid, AddressPhase::Bound, |status| {
        remove_condition(&mut status.conditions, condition::RECLAIMED);
    })
}

/// Named for a claim without its uid: reserved until that claim completes it (R4).
fn pre_bound(view: &AddressView, address: &IPAddress, claim_ref: &ClaimRef, valid: bool) -> Step {
    let waits_for_ever = (view.claim.object.is_some() || active(Mutant::PreBoundStaysForEver))
        || address.spec.reclaim_policy == ReclaimPolicy::Retain
        || address.is_reserved()
        || view.grace.is_zero();
    if !waits_for_ever && (view.waited >= view.grace || active(Mutant::GraceSkipped)) {
        return if view.claim.proven {
            Step::Do(Plan {
                writes: vec![Write::delete(address)],
                ..Plan::default()
            })
        } else {
            Step::Need(vec![Need::Read(claim_ref.key())])
        };
    }
    let verdict = Verdict::no(
        reason::WAITING_FOR_CLAIM,
        format!("kept for claim {}/{}", claim_ref.namespace, claim_ref.name),
    );
    let generation = address.metadata.generation;
    let step = status(view, address, valid, AddressPhase::Pending, |status| {
        set_condition(
            &mut status.conditions,
            condition::BOUND,
            verdict,
            generation,
            view.now,
        );
        remove_condition(&mut status.conditions, condition::RECLAIMED);
    });
    match step {
        Step::Do(mut plan) => {
            plan.again_after = (!waits_for_ever).then(|| view.grace - view.waited);
            Step::Do(plan)
        }
        need => need,
    }
}

/// Whether the safety net has nothing left to do for an address whose claim is gone.
fn is_reclaimed(address: &IPAddress, valid: bool) -> bool {
    if address.spec.reclaim_policy == ReclaimPolicy::Delete {
        return false;
    }
    match address.phase() {
        Some(AddressPhase::Released) => valid,
        Some(phase) if phase.is_sticky() => says_reclaimed(address),
        Some(AddressPhase::Pending) if !valid => says_reclaimed(address) && says_invalid(address),
        _ => false,
    }
}

fn says_reclaimed(address: &IPAddress) -> bool {
    find_condition(address.conditions(), condition::RECLAIMED)
        .is_some_and(|c| c.status == ConditionStatus::True)
}

fn says_invalid(address: &IPAddress) -> bool {
    find_condition(address.conditions(), condition::VALID)
        .is_some_and(|c| c.status == ConditionStatus::False)
}

/// The safety net: the claim is gone without its own flow having run (§5 step 6).
fn reclaim(view: &AddressView, address: &IPAddress) -> Step {
    // A match that never took effect is undone (R6d): the condition comes before the report. Where
    // the status was wiped or is that of an earlier end, the policy decides.
    let undone = is_bound_by_core(address)
        && !active(Mutant::MatchNotUndone)
        && address.status.is_some()
        && find_condition(address.conditions(), condition::BOUND).is_none()
        && !says_reclaimed(address);
    let mut plan = Plan::default();
    if undone {
        plan.writes.push(surplus::undo(address));
    } else {
        match address.spec.reclaim_policy {
            ReclaimPolicy::Delete => plan.writes.push(Write::delete(address)),
            ReclaimPolicy::Retain => plan.writes.extend(release(address, view.now)),
        }
    }
    Step::Do(plan)
}

/// `Released`; where a driver's phase stands or the object is invalid, the condition `Reclaimed`
/// records it (R8). Nothing if that is said already.
pub(super) fn release(address: &IPAddress, now: Timestamp) -> Option<Write> {
    if is_reclaimed(address, is_valid(address)) {
        return None;
    }
    let mut released = address.clone();
    let generation = address.metadata.generation;
    let held = address.spec.claim_ref.clone().unwrap_or_default();
    let message = format!(
        "claim {}/{} is gone; clear spec.claimRef to make the address available again",
        held.namespace, held.name
    );
    let status = released.status.get_or_insert_default();
    let keeps_phase =
        status.phase.is_some_and(AddressPhase::is_sticky) && !active(Mutant::StickyNotReclaimed);
    if keeps_phase || !is_valid(address) {
        let verdict = Verdict::yes(reason::CLAIM_GONE, message.clone());
        set_condition(
            &mut status.conditions,
            condition::RECLAIMED,
            verdict,
            generation,
            now,
        );
        if !is_valid(address) {
            if !status.phase.is_some_and(AddressPhase::is_sticky) {
                status.phase = Some(AddressPhase::Pending);
            }
            let verdict = invalid(address);
            set_condition(
                &mut status.conditions,
                condition::VALID,
                verdict,
                generation,
                now,
            );
        }
    } else {
        status.phase = Some(AddressPhase::Released);
        remove_condition(&mut status.conditions, condition::RECLAIMED);
    }
    let verdict = Verdict::no(reason::CLAIM_GONE, message);
    set_condition(
        &mut status.conditions,
        condition::BOUND,
        verdict,
        generation,
        now,
    );
    Some(Write::address_status(released))
}

/// Brings phase and conditions to what they should be. An invalid object stays `Pending` (§5
/// step 3, R1); a driver's phase stays (R8).
fn status(
    view: &AddressView,
    address: &IPAddress,
    valid: bool,
    phase: AddressPhase,
    edit: impl FnOnce(&mut crate::api::IPAddressStatus),
) -> Step {
    let mut desired = address.clone();
    let generation = address.metadata.generation;
    let status = desired.status.get_or_insert_default();
    if !status.phase.is_some_and(AddressPhase::is_sticky) {
        status.phase = Some(if valid { phase } else { AddressPhase::Pending });
    }
    edit(status);
    if valid {
        remove_condition(&mut status.conditions, condition::VALID);
    } else {
        let verdict = invalid(address);
        set_condition(
            &mut status.conditions,
            condition::VALID,
            verdict,
            generation,
            view.now,
        );
    }
    let writes = if desired.status == address.status {
        Vec::new()
    } else {
        vec![Write::address_status(desired)]
    };
    Step::Do(Plan {
        writes,
        ..Plan::default()
    })
}

fn invalid(address: &IPAddress) -> Verdict {
    match crate::net::Ip::parse(&address.spec.address) {
        Ok(ip) => Verdict::no(
            reason::NAME_MISMATCH,
            format!("the object for {ip} must be named {}", ip.object_name()),
        ),
        Err(e) => Verdict::no(reason::INVALID_ADDRESS, format!("spec.address: {e}")),
    }
}
