//! What must hold of addresses and classes once everything has come to rest.

use ipledger_core::api::{
    AddressPhase, ConditionStatus, IPAddress, IPAddressClaim, IPAddressClass, ReclaimPolicy,
    find_condition, names,
};
use ipledger_core::net::Ip;
use ipledger_drivers::range;
use names::condition;

use super::{Oracle, Outside, has_derived_name, holder, is_decided, is_extra, is_parked};
use crate::pool::Pool;

type Found = Vec<String>;

impl Oracle {
    /// What the range driver publishes of a class is true (D3, D8).
    pub(super) fn class_at_rest(&self, class: &IPAddressClass, out: &mut Found) {
        let name = &class.metadata.name;
        let Some(status) = &class.status else {
            out.push(format!("class {name} has no status (D8)"));
            return;
        };
        let pool = Pool::of(class);
        let ready = find_condition(&status.conditions, range::condition::READY);
        let should_be = match pool {
            Some(_) => ConditionStatus::True,
            None => ConditionStatus::False,
        };
        if ready.map(|c| c.status) != Some(should_be) {
            out.push(format!(
                "class {name} is not called ready: {should_be:?} (D8)"
            ));
        }
        let Some(Pool { listed, usable }) = pool else {
            return;
        };
        for capacity in &status.capacity {
            let of_family = |ip: &Ip| ip.family().to_string() == capacity.family;
            let total = usable.iter().filter(|ip| of_family(ip)).count();
            let excluded = listed
                .difference(&usable)
                .filter(|ip| of_family(ip))
                .count();
            let used = |ip: &&Ip| {
                let taken = |(name, a): (&String, &IPAddress)| {
                    a.ip() == Some(**ip) || *name == ip.object_name()
                };
                of_family(ip) && self.addresses.iter().any(taken)
            };
            let used = usable.iter().filter(used).count();
            let outside = self.addresses.values().filter(|a| {
                a.spec.class_name == *name
                    && a.ip()
                        .is_some_and(|ip| of_family(&ip) && !usable.contains(&ip))
            });
            let outside = outside.count();
            let told = [
                &capacity.total,
                &capacity.used,
                &capacity.out_of_range,
                &capacity.excluded,
            ];
            let truth = [total, used, outside, excluded].map(|n| n.to_string());
            if told != truth.each_ref() {
                out.push(format!(
                    "class {name} says {told:?}; true is {truth:?} (D3, D8)"
                ));
            }
        }
    }

    pub(super) fn address_at_rest(
        &self,
        name: &str,
        address: &IPAddress,
        outside: &Outside<'_>,
        out: &mut Found,
    ) {
        let uid = holder(address);
        let live = self.live(uid);
        let meta = &address.metadata;
        let protected = meta.has_finalizer(names::ADDRESS_PROTECTION);
        if meta.is_deleting() {
            let held = live.is_some() && !is_parked(address, uid);
            if protected && !held {
                out.push(format!("{name} is deleted, held by nobody, and protected"));
            }
            if !protected
                && meta
                    .finalizers
                    .iter()
                    .all(|f| outside.finalizers.contains(f))
            {
                out.push(format!(
                    "{name} is deleted and its driver does not let it go"
                ));
            }
            return;
        }
        if !protected {
            out.push(format!("{name} is not protected"));
        }
        let valid = has_derived_name(address);
        let phase = address.phase();
        let sticky = phase.is_some_and(AddressPhase::is_sticky);
        let expect = |wanted: AddressPhase, out: &mut Found| {
            let wanted = if valid { wanted } else { AddressPhase::Pending };
            if !sticky && phase != Some(wanted) {
                out.push(format!("{name} is {phase:?} and should be {wanted:?}"));
            }
        };
        let says_invalid = find_condition(address.conditions(), condition::VALID)
            .is_some_and(|c| c.status == ConditionStatus::False);
        if says_invalid == valid && !sticky {
            out.push(format!(
                "{name} says invalid: {says_invalid}, and valid is {valid} (R1)"
            ));
        }
        let Some(claim_ref) = &address.spec.claim_ref else {
            expect(AddressPhase::Available, out);
            return;
        };
        if uid.is_empty() {
            let claim = self.claims.get(&claim_ref.key());
            let kept =
                address.spec.reclaim_policy == ReclaimPolicy::Retain || address.is_reserved();
            if claim.is_none() && !kept {
                out.push(format!("{name} waits for a claim beyond its grace (R4)"));
            }
            if let Some(claim) = claim
                && is_decided(claim)
                && !address.is_reserved()
            {
                self.extra_at_rest(name, address, claim, out);
            }
            expect(AddressPhase::Pending, out);
            return;
        }
        if let Some(claim) = live {
            expect(AddressPhase::Bound, out);
            self.extra_at_rest(name, address, claim, out);
            return;
        }
        if address.spec.reclaim_policy == ReclaimPolicy::Delete {
            out.push(format!("{name} is not deleted although its claim is gone"));
        }
        expect(AddressPhase::Released, out);
        let reclaimed = find_condition(address.conditions(), condition::RECLAIMED)
            .is_some_and(|c| c.status == ConditionStatus::True);
        if (sticky || !valid) && !reclaimed {
            out.push(format!("{name} does not say that its claim is gone (R8)"));
        }
        let by_core = meta.annotation(names::BOUND_BY_CORE) == Some(uid);
        let h = &self.history;
        let took_effect = h.said_held.contains(&(uid.to_owned(), meta.uid.clone()));
        if by_core && !took_effect && !h.wiped.contains(&meta.uid) {
            out.push(format!(
                "{name} is kept for a match that never took effect (R6d)"
            ));
        }
    }

    /// An extra address of a claim that is settled is parked (R7) or was undone (R6).
    pub(super) fn extra_at_rest(
        &self,
        name: &str,
        address: &IPAddress,
        claim: &IPAddressClaim,
        out: &mut Found,
    ) {
        let uid = &claim.metadata.uid;
        let parked = address
            .metadata
            .annotation(names::PARKED_FOR)
            .is_some_and(|v| v.strip_suffix(names::SERVE_SUFFIX).unwrap_or(v) == uid);
        let status = claim.status.iter();
        let shown = status
            .flat_map(|s| s.addresses.iter().chain(&s.lost_addresses))
            .any(|e| e.name == name);
        if is_extra(claim, address) && !shown && !parked && has_derived_name(address) {
            out.push(format!(
                "{name} is an extra of {} and not parked",
                claim.key()
            ));
        }
    }
}
