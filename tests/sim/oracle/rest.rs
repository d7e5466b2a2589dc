//! What must hold once everything has come to rest: each claim and each address is where it
//! belongs, and every reason that is given is true.

use std::collections::BTreeSet;

use ipledger_core::api::{
    AddressPhase, ClaimFamily, ClaimPhase, ConditionStatus, IPAddress, IPAddressClaim,
    IPAddressClass, Key, ReclaimPolicy, find_condition, names,
};
use ipledger_core::net::{Family, Ip};
use ipledger_drivers::range;

use super::{Oracle, family_of, has_derived_name, holder, is_decided, is_extra, is_parked, serves};
use names::{condition, reason};

/// What the oracle has to be told of the world outside the ledger.
pub struct Outside<'a> {
    /// The drivers that are at work.
    pub alive: BTreeSet<String>,
    /// The finalizers that those drivers take off.
    pub finalizers: BTreeSet<String>,
    /// Whether the driver of a class could still provide an address of the family.
    pub could_provide: &'a dyn Fn(&str, Family) -> bool,
    /// Why the driver of a class cannot provide an address of the family, if it cannot.
    pub refusal: &'a dyn Fn(&str, Family) -> Option<&'static str>,
}

use crate::third_party;

type Found = Vec<String>;

impl Oracle {
    /// What is wrong with the ledger at rest.
    pub fn at_rest(&self, outside: &Outside<'_>) -> Vec<String> {
        let mut out = Vec::new();
        for (key, claim) in &self.claims {
            if claim.metadata.is_deleting() {
                out.push(format!("{key} is deleted and does not go"));
                continue;
            }
            if !claim.metadata.has_finalizer(names::CLAIM_PROTECTION) {
                out.push(format!("{key} is not protected"));
            }
            let Some(status) = &claim.status else {
                out.push(format!("{key} has no status"));
                continue;
            };
            let text: Vec<&str> = status
                .addresses
                .iter()
                .map(|e| e.address.as_str())
                .collect();
            if text.join(",") != status.address_text {
                out.push(format!("{key} says {:?} for {text:?}", status.address_text));
            }
            match status.phase {
                Some(ClaimPhase::Bound) => self.bound(key, claim, &mut out),
                Some(ClaimPhase::Lost) => self.lost(key, claim, &mut out),
                Some(ClaimPhase::Pending) => self.pending(key, claim, outside, &mut out),
                None => out.push(format!("{key} has no phase")),
            }
        }
        for (name, address) in &self.addresses {
            self.address_at_rest(name, address, outside, &mut out);
        }
        for class in self.classes.values() {
            if class.spec.provisioner == range::NAME && outside.alive.contains(range::NAME) {
                self.class_at_rest(class, &mut out);
            }
        }
        out
    }

    fn bound(&self, key: &Key, claim: &IPAddressClaim, out: &mut Found) {
        if said(claim) != (Some(ConditionStatus::True), reason::BOUND) {
            out.push(format!("{key} is Bound and says {:?}", said(claim)));
        }
        if claim
            .status
            .as_ref()
            .is_some_and(|s| !s.lost_addresses.is_empty())
        {
            out.push(format!("{key} is Bound and names something lost"));
        }
        let class = self.classes.get(claim.resolved_class());
        if claim.stamp().is_none() && class.is_some_and(|c| !c.spec.provisioner.is_empty()) {
            out.push(format!(
                "{key} is Bound without a stamp although its class is there (R10)"
            ));
        }
        self.held_at_rest(key, claim, out);
    }

    /// The addresses that a claim shows are all that they should be.
    fn held_at_rest(&self, key: &Key, claim: &IPAddressClaim, out: &mut Found) {
        let mut deleting = false;
        for entry in claim.status.iter().flat_map(|s| &s.addresses) {
            let Some(address) = self.addresses.get(&entry.name) else {
                out.push(format!("{key} shows {}, which is not there", entry.name));
                continue;
            };
            deleting |= address.metadata.is_deleting();
            let protected = address.metadata.has_finalizer(names::ADDRESS_PROTECTION)
                || address.metadata.is_deleting();
            if !serves(address, claim) || holder(address) != claim.metadata.uid || !protected {
                out.push(format!(
                    "{key} shows {}, which does not serve it",
                    entry.name
                ));
            }
            if !matches!(
                address.phase(),
                Some(AddressPhase::Bound | AddressPhase::Conflict)
            ) {
                out.push(format!(
                    "{key} shows {} in phase {:?}",
                    entry.name,
                    address.phase()
                ));
            }
        }
        let told = find_condition(claim.conditions(), condition::ADDRESS_DELETING).is_some();
        if told != deleting {
            out.push(format!(
                "{key} says AddressDeleting: {told}, and it is {deleting} (R2)"
            ));
        }
    }

    fn lost(&self, key: &Key, claim: &IPAddressClaim, out: &mut Found) {
        if claim.stamp().is_some() {
            out.push(format!("{key} is Lost and stamped (R10)"));
        }
        if said(claim) != (Some(ConditionStatus::False), reason::ADDRESS_LOST) {
            out.push(format!("{key} is Lost and says {:?}", said(claim)));
        }
        self.held_at_rest(key, claim, out);
        let uid = &claim.metadata.uid;
        let lost = claim.status.iter().flat_map(|s| &s.lost_addresses);
        let mut any = false;
        for entry in lost {
            any = true;
            let back = self
                .addresses
                .get(&entry.name)
                .filter(|a| serves(a, claim) && (!a.metadata.is_deleting() || holder(a) == uid));
            if back.is_some() {
                out.push(format!(
                    "{key} says that it lost {}, which is there",
                    entry.name
                ));
            }
            let family = family_of(&entry.address);
            let let_serve = self.addresses.values().find(|a| {
                a.metadata.annotation(names::PARKED_FOR)
                    == Some(&format!("{uid}{}", names::SERVE_SUFFIX))
                    && family_of(&a.spec.address) == family
                    && serves(a, claim)
                    && !a.metadata.is_deleting()
            });
            if let Some(other) = let_serve {
                out.push(format!(
                    "{key} is Lost although {} may serve (R7)",
                    other.metadata.name
                ));
            }
        }
        // After a wipe it need not be known.
        if !any && !self.history.wiped.contains(uid) {
            out.push(format!("{key} is Lost and does not say what"));
        }
    }

    fn pending(&self, key: &Key, claim: &IPAddressClaim, outside: &Outside<'_>, out: &mut Found) {
        self.held_at_rest(key, claim, out);
        let shown: Vec<Family> = claim
            .status
            .iter()
            .flat_map(|s| &s.addresses)
            .filter_map(|e| family_of(&e.address))
            .collect();
        let asked = claim.spec.family.families();
        let missing: Vec<Family> = asked
            .iter()
            .copied()
            .filter(|f| !shown.contains(f))
            .collect();
        if missing.is_empty() {
            out.push(format!("{key} has everything and is Pending"));
        }
        let wanted = &claim.spec.address_name;
        for (name, address) in &self.addresses {
            let of_missing = family_of(&address.spec.address).is_some_and(|f| missing.contains(&f));
            if of_missing
                && serves(address, claim)
                && !address.metadata.is_deleting()
                && (wanted.is_empty() || wanted == name)
            {
                out.push(format!("{key} waits although {name} names it"));
            }
        }
        let (status, told) = said(claim);
        if status != Some(ConditionStatus::False) {
            out.push(format!("{key} is Pending and says {:?}", said(claim)));
        }
        if wanted.is_empty() {
            self.pending_by_class(key, claim, &missing, told, outside, out);
        } else {
            if claim.stamp().is_some() {
                out.push(format!("{key} names an address and is stamped (R10)"));
            }
            let truths = self.obstacles(claim, wanted);
            if truths.is_empty() {
                out.push(format!("{key} waits although {wanted} is free"));
            } else if !truths.contains(&told) {
                out.push(format!("{key} says {told}; true is {truths:?}"));
            }
        }
    }

    /// Every true reason why a claim cannot have the address that it names (R9).
    fn obstacles(&self, claim: &IPAddressClaim, wanted: &str) -> Vec<&'static str> {
        if claim.spec.family == ClaimFamily::Dual {
            return vec![reason::INVALID_SPEC];
        }
        let Some(address) = self.addresses.get(wanted) else {
            return vec![reason::ADDRESS_NOT_FOUND];
        };
        let mut all = Vec::new();
        let family = family_of(&address.spec.address);
        if family.is_some_and(|f| !claim.spec.family.families().contains(&f)) {
            all.push(reason::ADDRESS_FAMILY_MISMATCH);
        }
        let class = &claim.spec.class_name;
        if !class.is_empty() && *class != address.spec.class_name {
            all.push(reason::ADDRESS_CLASS_MISMATCH);
        }
        if address.metadata.is_deleting() {
            all.push(reason::ADDRESS_DELETING);
        }
        if address.spec.claim_ref.is_some() {
            let released = address.phase() == Some(AddressPhase::Released);
            all.push(if released {
                reason::ADDRESS_RELEASED
            } else {
                reason::ADDRESS_IN_USE
            });
        } else if !is_free(address) {
            all.push(reason::ADDRESS_NOT_AVAILABLE);
        }
        all
    }

    fn pending_by_class(
        &self,
        key: &Key,
        claim: &IPAddressClaim,
        missing: &[Family],
        told: &str,
        outside: &Outside<'_>,
        out: &mut Found,
    ) {
        let class = match self.class_of(claim) {
            Ok(class) => class,
            Err(why) => {
                if told != why {
                    out.push(format!("{key} says {told}; true is {why}"));
                }
                if claim.stamp().is_some() {
                    out.push(format!(
                        "{key} is stamped although its class does not resolve (R10)"
                    ));
                }
                return;
            }
        };
        let (name, driver) = (&class.metadata.name, &class.spec.provisioner);
        if claim.resolved_class() != name {
            out.push(format!(
                "{key} resolves to {name} and records {}",
                claim.resolved_class()
            ));
        }
        if !driver.is_empty() && claim.stamp() != Some(driver) {
            out.push(format!(
                "{key} waits for {driver} and is stamped {:?}",
                claim.stamp()
            ));
        }
        for (other, address) in &self.addresses {
            let of_family = family_of(&address.spec.address).is_some_and(|f| missing.contains(&f));
            if of_family && address.spec.class_name == *name && is_free(address) {
                out.push(format!("{key} waits although {other} is free"));
            }
        }
        let partial = claim.spec.family == ClaimFamily::Dual && missing.len() == 1;
        let driver_says = claim
            .provisioning_status()
            .filter(|s| s.provisioner == *driver && s.class == *name && !s.reason.is_empty());
        let expected = match (partial, &driver_says) {
            (true, _) => reason::PARTIALLY_BOUND,
            (false, Some(said)) => said.reason.as_str(),
            (false, None) => reason::WAITING_FOR_PROVISIONING,
        };
        if told != expected {
            out.push(format!("{key} says {told}; true is {expected}"));
        }
        if outside.alive.contains(driver) {
            if missing.iter().all(|f| (outside.could_provide)(name, *f)) {
                out.push(format!(
                    "{key} waits although {driver} has addresses: {told}"
                ));
                return;
            }
            let truths = missing.iter().map(|f| (outside.refusal)(name, *f));
            let truths: Vec<&str> = truths.flatten().collect();
            let told = driver_says
                .as_ref()
                .map_or("nothing", |s| s.reason.as_str());
            if !truths.contains(&told) {
                out.push(format!(
                    "{driver} says {told} about {key}; true is {truths:?}"
                ));
            }
        }
    }

    /// What the range driver publishes of a class is true (D3, D8).
    fn class_at_rest(&self, class: &IPAddressClass, out: &mut Found) {
        let name = &class.metadata.name;
        let Some(status) = &class.status else {
            out.push(format!("class {name} has no status (D8)"));
            return;
        };
        let listed = third_party::listed(class);
        let ready = find_condition(&status.conditions, range::condition::READY);
        let items = class
            .spec
            .parameters
            .as_ref()
            .and_then(|p| p["addresses"].as_array());
        if items.is_none_or(|items| items.len() != listed.len()) {
            // Not listed one by one, or not to be read.
            return;
        }
        if ready.map(|c| c.status) != Some(ConditionStatus::True) {
            out.push(format!("class {name} is not called ready (D8)"));
        }
        for capacity in &status.capacity {
            let of_family = |ip: &Ip| ip.family().to_string() == capacity.family;
            let total = listed.iter().filter(|ip| of_family(ip)).count();
            let used = |ip: &&Ip| {
                let taken = |(name, a): (&String, &IPAddress)| {
                    a.ip() == Some(**ip) || *name == ip.object_name()
                };
                of_family(ip) && self.addresses.iter().any(taken)
            };
            let used = listed.iter().filter(used).count();
            let outside = self.addresses.values().filter(|a| {
                a.spec.class_name == *name
                    && a.ip()
                        .is_some_and(|ip| of_family(&ip) && !listed.contains(&ip))
            });
            let outside = outside.count();
            let told = (&capacity.total, &capacity.used, &capacity.out_of_range);
            let truth = (total.to_string(), used.to_string(), outside.to_string());
            if told != (&truth.0, &truth.1, &truth.2) {
                out.push(format!(
                    "class {name} says {told:?}; true is {truth:?} (D3, D8)"
                ));
            }
        }
    }

    fn class_of(&self, claim: &IPAddressClaim) -> Result<&IPAddressClass, &'static str> {
        let named = [claim.spec.class_name.as_str(), claim.resolved_class()];
        if let Some(name) = named.into_iter().find(|n| !n.is_empty()) {
            return self.classes.get(name).ok_or(reason::CLASS_NOT_FOUND);
        }
        let mut defaults = self.classes.values().filter(|c| c.is_default());
        match (defaults.next(), defaults.next()) {
            (None, _) => Err(reason::NO_DEFAULT_CLASS),
            (Some(class), None) => Ok(class),
            (Some(_), Some(_)) => Err(reason::MULTIPLE_DEFAULT_CLASSES),
        }
    }

    fn address_at_rest(
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
    fn extra_at_rest(
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

/// Whether an address can be matched with any claim of its class and family.
pub(super) fn is_free(address: &IPAddress) -> bool {
    address.spec.claim_ref.is_none()
        && address.phase() == Some(AddressPhase::Available)
        && !address.metadata.is_deleting()
        && !address.is_associated()
        && has_derived_name(address)
}

/// What the claim's condition `Bound` says.
fn said(claim: &IPAddressClaim) -> (Option<ConditionStatus>, &str) {
    match find_condition(claim.conditions(), condition::BOUND) {
        Some(c) => (Some(c.status), c.reason.as_str()),
        None => (None, ""),
    }
}
