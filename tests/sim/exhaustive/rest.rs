//! What must hold once the system is at rest: every view is current, and a pass over any key by any
//! core plans nothing.

use ipledger_core::api::{
    AddressPhase, ClaimPhase, ConditionStatus, IPAddress, IPAddressClaim, ReclaimPolicy,
    find_condition, names,
};

use super::oracles::{Ledger, Verdict, addresses, check, family, holder, is_parked, live, reports};

/// Judges a ledger at rest.
pub fn judge(ledger: &Ledger<'_>) -> Verdict {
    for claim in ledger.iter().filter_map(|e| e.claim()) {
        claim_at_rest(ledger, claim)?;
    }
    addresses(ledger).try_for_each(|address| address_at_rest(ledger, address))
}

fn claim_at_rest(ledger: &Ledger<'_>, claim: &IPAddressClaim) -> Verdict {
    let key = claim.key();
    check(!claim.metadata.is_deleting(), || {
        format!("{key} is never let go")
    })?;
    let bound = find_condition(claim.conditions(), names::condition::BOUND);
    let Some(bound) = bound.filter(|c| !c.reason.is_empty()) else {
        return Err(format!("{key} says neither that it is bound nor why not"));
    };
    if claim.phase() == Some(ClaimPhase::Bound) {
        return check(
            bound.status == ConditionStatus::True && claim.stamp().is_some(),
            || format!("{key} is Bound, and its condition or its stamp says something else"),
        );
    }
    check(bound.status == ConditionStatus::False, || {
        format!("{key} waits and says that it is bound")
    })?;
    let named = &claim.spec.address_name;
    check(named.is_empty() == claim.stamp().is_some(), || {
        format!("{key} waits with the stamp {:?} (R10)", claim.stamp())
    })?;
    for wanted in claim.spec.family.families() {
        let has = claim.status.iter().flat_map(|s| &s.addresses);
        if has.into_iter().any(|e| family(&e.address) == Some(*wanted)) {
            continue;
        }
        let free = addresses(ledger).find(|a| {
            let asked = a.spec.class_name == claim.spec.class_name && named.is_empty()
                || a.metadata.name == *named;
            ipledger_core::binding::is_matchable(a)
                && asked
                && a.ip().is_some_and(|ip| ip.family() == *wanted)
        });
        if let Some(free) = free {
            let name = &free.metadata.name;
            return Err(format!("{key} waits although {name} is free"));
        }
        let reserved = addresses(ledger).find(|a| {
            let holder = a.spec.claim_ref.as_ref();
            holder.is_some_and(|r| r.key() == key && r.uid.is_empty())
                && !a.metadata.is_deleting()
                && a.ip().is_some_and(|ip| ip.family() == *wanted)
        });
        if let Some(reserved) = reserved {
            let name = &reserved.metadata.name;
            return Err(format!("{key} waits although {name} is reserved for it"));
        }
    }
    Ok(())
}

fn address_at_rest(ledger: &Ledger<'_>, address: &IPAddress) -> Verdict {
    let key = address.key();
    let uid = holder(address);
    let claim = live(ledger).find(|c| {
        let holder = address.spec.claim_ref.as_ref();
        holder.is_some_and(|r| r.key() == c.key() && (r.uid.is_empty() || uid == c.metadata.uid))
    });
    let reported = claim.is_some_and(|c| reports(c).any(|n| n == address.metadata.name));
    if address.metadata.is_deleting() {
        // It goes with its claim, or once the claim is bound to another.
        let waits = claim.is_some_and(|c| c.phase() == Some(ClaimPhase::Pending));
        return check(reported || waits, || format!("{key} is never let go"));
    }
    match (&address.spec.claim_ref, claim) {
        (None, _) => check(
            address.phase() == Some(AddressPhase::Available)
                && find_condition(address.conditions(), names::condition::BOUND).is_none(),
            || format!("{key} is held by nobody and is {:?}", address.phase()),
        ),
        (Some(_), Some(claim)) if reported => {
            check(address.phase() == Some(AddressPhase::Bound), || {
                format!(
                    "{} reports {key}, which is {:?}",
                    claim.key(),
                    address.phase()
                )
            })
        }
        (Some(_), Some(claim)) => check(is_parked(address, &claim.metadata.uid), || {
            format!("{key} is kept for {}, which has another", claim.key())
        }),
        // Reserved for the next claim of this name.
        (Some(held), None) if held.uid.is_empty() => {
            check(address.phase() == Some(AddressPhase::Pending), || {
                format!("{key} waits for a claim and is {:?}", address.phase())
            })
        }
        (Some(_), None) => check(
            address.phase() == Some(AddressPhase::Released)
                && address.spec.reclaim_policy == ReclaimPolicy::Retain,
            || {
                format!(
                    "the claim of {key} is gone, and it is {:?}",
                    address.phase()
                )
            },
        ),
    }
}
