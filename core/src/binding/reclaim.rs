//! The plan for a claim that is being deleted (seed 000 §6).

use super::address::release;
use super::assign::{reported, reported_for};
use super::held::{family, holder_uid, is_bound_by_core, says_bound_to};
use super::{ClaimView, Need, Plan, Step, Write, surplus};
use crate::api::{IPAddress, IPAddressClaim, ReclaimPolicy, names};
use crate::mutant::{Mutant, active, either};

/// Plans one pass over a claim that is marked for deletion: every address first, the claim's
/// finalizer last, so that a crash in between only delays the rest.
pub fn plan(view: &ClaimView, claim: &IPAddressClaim) -> Step {
    if !claim.metadata.has_finalizer(names::CLAIM_PROTECTION) {
        return Step::nothing();
    }
    // Which addresses took effect is what the status says, so it must not be an old one.
    if !view.claim.proven {
        return Step::Need(vec![Need::Read(claim.key())]);
    }
    let mut plan = Plan::default();
    for address in &view.addresses {
        if !address.metadata.is_deleting() {
            reclaim(view, claim, address, &mut plan);
        }
    }
    let mut freed = claim.clone();
    freed.metadata.remove_finalizer(names::CLAIM_PROTECTION);
    let at = either(Mutant::ClaimFreedFirst, plan.writes.len(), 0);
    plan.writes.insert(at, Write::claim(freed));
    Step::Do(plan)
}

fn reclaim(view: &ClaimView, claim: &IPAddressClaim, address: &IPAddress, plan: &mut Plan) {
    let uid = claim.metadata.uid.as_str();
    let waits = address.is_reserved() && !active(Mutant::ReservedReclaimed);
    if holder_uid(address).is_empty() && waits {
        return;
    }
    if is_bound_by_core(address) && !took_effect(claim, address) {
        plan.writes.push(surplus::undo(address));
        return;
    }
    match address.spec.reclaim_policy {
        ReclaimPolicy::Delete => plan.writes.push(Write::delete(address)),
        ReclaimPolicy::Retain => {
            let mut dying = address.clone();
            if let Some(r) = &mut dying.spec.claim_ref
                && r.uid.is_empty()
                && !active(Mutant::DyingUidNotLeft)
            {
                // So that the next claim of this name does not inherit it (R4).
                r.uid = uid.to_owned();
                plan.writes.push(Write::address(dying.clone()));
            }
            plan.writes.extend(release(&dying, view.now));
        }
    }
}

/// Whether the binding ever took effect: the claim reports the address; or the address says that it
/// is bound to the claim, and the claim reports no other of its family (its status may have been
/// wiped, wholly or in part).
fn took_effect(claim: &IPAddressClaim, address: &IPAddress) -> bool {
    if reported(claim).any(|e| e.name == address.metadata.name) {
        return true;
    }
    let other = family(address).and_then(|f| reported_for(claim, f));
    says_bound_to(address, &claim.metadata.uid) && other.is_none()
}
