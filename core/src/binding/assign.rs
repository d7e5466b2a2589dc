//! Which address counts for each family that a claim asks for (R5, R6, R7).

use std::cmp::Reverse;
use std::sync::Arc;

use super::held::{
    family, holder_uid, is_let_serve, is_parked, is_valid, names_claim, says_bound_to,
};
use super::{ClaimView, Need};
use crate::api::{
    AddressPhase, ClaimPhase, ClaimedAddress, IPAddress, IPAddressClaim, Kind, names,
};
use crate::mutant::{Mutant, active};
use crate::net::{Family, Ip};

/// What a claim has of one family.
#[derive(Clone, Debug)]
pub(super) enum Slot {
    /// This address counts.
    Held(Arc<IPAddress>),
    /// This one counted and is gone, lost or somebody else's; nothing replaces it by itself.
    Lost(ClaimedAddress),
    /// Nothing counts.
    Missing,
}

/// What a claim has.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    /// One entry for each family that is asked for, IPv4 first.
    pub(super) slots: Vec<(Family, Slot)>,
    /// Whether the winners were chosen among several without a status to decide, so that each is
    /// to be swapped before it is reported (R6e).
    pub(super) fence: bool,
}

impl Assignment {
    /// The addresses that count.
    pub(super) fn held(&self) -> impl Iterator<Item = &Arc<IPAddress>> {
        self.slots.iter().filter_map(|(_, slot)| match slot {
            Slot::Held(address) => Some(address),
            _ => None,
        })
    }

    /// Whether every family has its address.
    pub(super) fn is_complete(&self) -> bool {
        self.slots
            .iter()
            .all(|(_, slot)| matches!(slot, Slot::Held(_)))
    }

    /// The families of which nothing counts and nothing was lost: those that may be matched.
    pub(super) fn missing(&self) -> Vec<Family> {
        self.slots
            .iter()
            .filter(|(_, slot)| matches!(slot, Slot::Missing))
            .map(|(family, _)| *family)
            .collect()
    }

    /// Whether an address that counted is lost.
    pub(super) fn has_lost(&self) -> bool {
        self.slots
            .iter()
            .any(|(_, slot)| matches!(slot, Slot::Lost(_)))
    }
}

/// Whether the claim was wholly bound once, so that its status decides which address counts. A status
/// without a phase, which somebody has wiped in part, says so if it names something lost or an
/// address of every family.
pub(super) fn is_decided(claim: &IPAddressClaim) -> bool {
    match claim.phase() {
        Some(ClaimPhase::Bound | ClaimPhase::Lost) => true,
        Some(ClaimPhase::Pending) => false,
        None => {
            let names_lost = claim
                .status
                .as_ref()
                .is_some_and(|s| !s.lost_addresses.is_empty());
            let mut families = claim.spec.family.families().iter();
            names_lost || families.all(|family| reported_for(claim, *family).is_some())
        }
    }
}

/// The addresses that the claim's status names: first those held, then those lost.
pub(super) fn reported(claim: &IPAddressClaim) -> impl Iterator<Item = &ClaimedAddress> {
    claim
        .status
        .iter()
        .flat_map(|s| s.addresses.iter().chain(&s.lost_addresses))
}

/// The address that the claim's status names for this family.
pub(super) fn reported_for(claim: &IPAddressClaim, family: Family) -> Option<&ClaimedAddress> {
    reported(claim).find(|e| Ip::parse(&e.address).is_ok_and(|ip| ip.family() == family))
}

/// Assigns an address to each family, or says which facts are missing to decide.
pub(super) fn assign(view: &ClaimView, claim: &IPAddressClaim) -> Result<Assignment, Vec<Need>> {
    let mut slots = Vec::new();
    let mut fence = false;
    for family in claim.spec.family.families() {
        let slot = if is_decided(claim) {
            decided(view, claim, *family)?
        } else {
            let (slot, several) = undecided(view, claim, *family)?;
            fence |= several;
            slot
        };
        slots.push((*family, slot));
    }
    // A claim that was never wholly bound has nothing to lose (R5): without a status, only what it
    // has or had of every family says that it was.
    if !is_decided(claim) && slots.iter().any(|(_, s)| matches!(s, Slot::Missing)) {
        for (_, slot) in slots.iter_mut().filter(|(_, s)| matches!(s, Slot::Lost(_))) {
            *slot = Slot::Missing;
        }
    }
    Ok(Assignment { slots, fence })
}

/// The status decides: the address that it names counts, and no other (R5, R6c), unless that one
/// is gone or lost and an admin lets a parked one serve (R7).
fn decided(view: &ClaimView, claim: &IPAddressClaim, wanted: Family) -> Result<Slot, Vec<Need>> {
    let uid = claim.metadata.uid.as_str();
    let of_family = || {
        view.addresses
            .iter()
            .filter(|a| is_valid(a) && family(a) == Some(wanted))
    };
    let Some(entry) = reported_for(claim, wanted) else {
        // The status was wiped in part: what is bound counts again.
        let bound = of_family().filter(|a| {
            holder_uid(a) == uid && !gone_or_parked(a, uid) && (lives(a) || is_held(a))
        });
        return match bound.min_by_key(|a| preference(a)) {
            Some(address) => Ok(Slot::Held(address.clone())),
            None if view.addresses_current => Ok(Slot::Missing),
            None => Err(vec![Need::Barrier(Kind::IPAddress)]),
        };
    };
    let seen = view.named.get(&entry.name);
    let address = seen.and_then(|s| s.object.as_ref());
    // An entry that is on record as lost needs no second proof: nothing is published by it.
    let on_record = claim.status.as_ref().is_some_and(|s| {
        s.phase == Some(ClaimPhase::Lost) && s.lost_addresses.iter().any(|l| l.name == entry.name)
    });
    if let Some(address) = address.filter(|a| keeps(a, claim, wanted)) {
        // A view that lags may still show what was lost.
        if on_record && !seen.is_some_and(|s| s.proven) {
            return Err(vec![Need::Read(crate::api::Key::address(&entry.name))]);
        }
        return Ok(Slot::Held(address.clone()));
    }
    if !on_record && !seen.is_some_and(|s| s.proven) && !active(Mutant::LostUnproven) {
        return Err(vec![Need::Read(crate::api::Key::address(&entry.name))]);
    }
    let chosen = of_family().find(|a| {
        (is_let_serve(a, uid) && !active(Mutant::ServeIgnored)
            || active(Mutant::AnyReplacesLost) && holder_uid(a) == uid)
            && lives(a)
            && a.phase() != Some(AddressPhase::Lost)
    });
    Ok(match chosen {
        Some(address) => Slot::Held(address.clone()),
        None if active(Mutant::LostMatchedAgain) => Slot::Missing,
        None => Slot::Lost(entry.clone()),
    })
}

/// Whether an address that the claim reports still serves it. `Conflict` and a deletion mark do
/// not break a binding; phase `Lost` does.
fn keeps(address: &IPAddress, claim: &IPAddressClaim, wanted: Family) -> bool {
    is_valid(address)
        && family(address) == Some(wanted)
        && names_claim(address, claim)
        && (lives(address) || is_held(address))
        && (address.phase() != Some(AddressPhase::Lost) || active(Mutant::LostPhaseKept))
        && !is_parked(address, &claim.metadata.uid)
}

/// No status decides: what is bound to the claim counts, else the first that is pre-bound.
fn undecided(
    view: &ClaimView,
    claim: &IPAddressClaim,
    wanted: Family,
) -> Result<(Slot, bool), Vec<Need>> {
    let uid = claim.metadata.uid.as_str();
    // A claim that was seen before and has no phase now may have been bound: look at all that is
    // committed before choosing (R6e).
    let wiped = claim.phase().is_none() && claim.metadata.has_finalizer(names::CLAIM_PROTECTION);
    if wiped && !view.addresses_current && !active(Mutant::NoBarrierAfterWipe) {
        return Err(vec![Need::Barrier(Kind::IPAddress)]);
    }
    let named = |a: &Arc<IPAddress>| {
        claim.spec.address_name.is_empty() || claim.spec.address_name == a.metadata.name
    };
    let of_family = || {
        view.addresses
            .iter()
            .filter(|a| is_valid(a) && family(a) == Some(wanted) && named(a))
    };
    // What the claim held before its status was wiped is held still, also if it waits for deletion
    // or was lost meanwhile (R2, R5).
    let was_bound = |a: &IPAddress| wiped && (a.status.is_none() || says_bound_to(a, uid));
    let bound: Vec<&Arc<IPAddress>> = of_family()
        .filter(|a| holder_uid(a) == uid)
        .filter(|a| serves(a, uid) || (was_bound(a) && is_held(a) && !gone_or_parked(a, uid)))
        .collect();
    let several = wiped && bound.len() > 1 && !active(Mutant::NoFenceAfterWipe);
    let reported = reported_for(claim, wanted)
        .and_then(|entry| bound.iter().find(|a| a.metadata.name == entry.name));
    let choice = reported
        .copied()
        .or_else(|| bound.iter().copied().min_by_key(|a| preference(a)))
        .or_else(|| {
            let mut pre_bound = of_family().filter(|a| holder_uid(a).is_empty() && serves(a, uid));
            match active(Mutant::CompletesAnother) {
                true => pre_bound.next_back(),
                false => pre_bound.next(),
            }
        });
    if let Some(address) = choice {
        return Ok((Slot::Held(address.clone()), several));
    }
    let lost = of_family()
        .find(|a| holder_uid(a) == uid && was_bound(a) && a.phase() == Some(AddressPhase::Lost));
    Ok((
        lost.map_or(Slot::Missing, |a| Slot::Lost(entry(a))),
        several,
    ))
}

/// Whether an address may newly count for the claim of this uid (R5, last sentence).
fn serves(address: &IPAddress, uid: &str) -> bool {
    lives(address) && !gone_or_parked(address, uid)
}

fn gone_or_parked(address: &IPAddress, uid: &str) -> bool {
    address.phase() == Some(AddressPhase::Lost)
        || (is_parked(address, uid) && !active(Mutant::ParkedCounts))
}

fn lives(address: &IPAddress) -> bool {
    !address.metadata.is_deleting()
}

/// Whether a claim's hold keeps the object there, marked for deletion or not (R2). Once the
/// protection is gone from a marked object it cannot be put back.
fn is_held(address: &IPAddress) -> bool {
    !holder_uid(address).is_empty() && address.metadata.has_finalizer(names::ADDRESS_PROTECTION)
}

/// How a claim's status names the address.
pub(super) fn entry(address: &IPAddress) -> ClaimedAddress {
    ClaimedAddress {
        name: address.metadata.name.clone(),
        address: address
            .ip()
            .map_or_else(|| address.spec.address.clone(), |ip| ip.to_string()),
    }
}

/// The order among several that are bound (R6e): smallest first.
fn preference(address: &IPAddress) -> impl Ord + use<> {
    (
        address.metadata.is_deleting(),
        Reverse(address.is_associated()),
        Reverse(address.phase() == Some(AddressPhase::Bound)),
        address.metadata.creation_timestamp,
        address.metadata.name.clone(),
    )
}
