//! What the core would change after an import, because the export does not hold all that its objects
//! lean on. An export of a ledger at rest has nothing of it.

use std::collections::{BTreeMap, BTreeSet};

use ipledger_core::api::{
    AddressPhase, ClaimPhase, ConditionStatus, IPAddress, IPAddressClaim, Key, Object,
    ReclaimPolicy, find_condition, names,
};
use ipledger_core::net::{Family, Ip};

/// A sentence for each object that would not stay as it is.
pub(super) fn findings(objects: &[Object]) -> Vec<String> {
    let addresses: Vec<IPAddress> = typed(objects, IPAddress::from_object);
    let claims: Vec<IPAddressClaim> = typed(objects, IPAddressClaim::from_object);
    let live: BTreeMap<Key, &IPAddressClaim> = claims.iter().map(|c| (c.key(), c)).collect();
    let names: BTreeSet<&str> = addresses.iter().map(|a| a.metadata.name.as_str()).collect();
    let mut findings = Vec::new();
    let mut held: BTreeMap<&str, Vec<&IPAddress>> = BTreeMap::new();
    for address in &addresses {
        let Some(holder) = address.spec.claim_ref.as_ref() else {
            continue;
        };
        if holder.uid.is_empty() {
            continue;
        }
        held.entry(&holder.uid).or_default().push(address);
        let is_there = live
            .get(&holder.key())
            .is_some_and(|c| c.metadata.uid == holder.uid);
        if !is_there && !is_at_rest_without_claim(address) {
            findings.push(format!(
                "{}: held by {} with uid {}, which is not here: the address would be reclaimed",
                address.key(),
                holder.key(),
                holder.uid
            ));
        }
    }
    for claim in claims.iter().filter(|c| !c.metadata.is_deleting()) {
        let shown = claim.status.iter().flat_map(|s| &s.addresses);
        for entry in shown.filter(|e| !names.contains(e.name.as_str())) {
            findings.push(format!(
                "{}: has {} ({}), which is not here: the claim would be Lost",
                claim.key(),
                entry.name,
                entry.address
            ));
        }
        let held = held.get(claim.uid()).map_or(&[][..], Vec::as_slice);
        if is_ambiguous(claim, held) {
            findings.push(format!(
                "{}: has several addresses of one family, and its status does not say which of \
                 them counts",
                claim.key()
            ));
        }
    }
    findings
}

/// Objects that cannot be read as their kind are nobody's to change.
fn typed<T, E>(objects: &[Object], read: impl Fn(&Object) -> Result<T, E>) -> Vec<T> {
    objects.iter().filter_map(|o| read(o).ok()).collect()
}

/// Whether the core has done all that it does when a claim is gone.
fn is_at_rest_without_claim(address: &IPAddress) -> bool {
    let metadata = &address.metadata;
    if metadata.is_deleting() {
        return !metadata.has_finalizer(names::ADDRESS_PROTECTION);
    }
    let reclaimed = find_condition(address.conditions(), names::condition::RECLAIMED);
    address.spec.reclaim_policy == ReclaimPolicy::Retain
        && (address.phase() == Some(AddressPhase::Released)
            || reclaimed.is_some_and(|c| c.status == ConditionStatus::True))
}

/// Where the status does not decide, the core asks which address is older (R6e); a new ledger does
/// not know.
fn is_ambiguous(claim: &IPAddressClaim, held: &[&IPAddress]) -> bool {
    let undecided = match (&claim.status, claim.phase()) {
        (None, _) => claim.metadata.has_finalizer(names::CLAIM_PROTECTION),
        (_, Some(ClaimPhase::Bound | ClaimPhase::Lost)) => true,
        _ => false,
    };
    let shown = |family| {
        let status = claim.status.iter();
        let mut entries = status.flat_map(|s| s.addresses.iter().chain(&s.lost_addresses));
        entries.any(|e| Ip::parse(&e.address).is_ok_and(|ip| ip.family() == family))
    };
    let several = |family: Family| {
        let of_family = held
            .iter()
            .filter(|a| a.ip().is_some_and(|ip| ip.family() == family));
        of_family.count() > 1
    };
    let mut families = claim.spec.family.families().iter();
    undecided && families.any(|family| !shown(*family) && several(*family))
}
