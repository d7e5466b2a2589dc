//! What must hold at every revision.

use std::collections::BTreeMap;

use ipledger_core::api::{AddressPhase, ClaimPhase, IPAddress, IPAddressClaim, Key, names};
use ipledger_core::net::Ip;

use super::{
    Oracle, Verb, Written, family_of, has_derived_name, holder, is_decided, is_extra, is_given_up,
    is_parked, reports, says_held_by, serves,
};
use crate::ledger::Who;

type Found = Vec<String>;

impl Oracle {
    /// What a write to an address may do, seen against the rest of the ledger.
    pub(super) fn address_step(
        &self,
        w: &Written,
        before: Option<&IPAddress>,
        now: &IPAddress,
        out: &mut Found,
    ) {
        let Some(before) = before.filter(|_| w.who == Who::Core) else {
            return;
        };
        let uid = holder(before);
        let live = (!uid.is_empty()).then(|| self.live(uid)).flatten();
        if matches!(w.verb, Verb::Delete(_)) {
            if live.is_some() {
                out.push(format!("{} is deleted while its claim lives", w.key));
            }
            self.not_reported(w, "deleted", out);
            return;
        }
        if now.phase() != before.phase() && now.phase() == Some(AddressPhase::Released) {
            if live.is_some() {
                out.push(format!("{} is released while its claim lives", w.key));
            }
            let stays = !now.metadata.is_deleting();
            if stays && now.spec.claim_ref.is_some() && holder(now).is_empty() {
                out.push(format!(
                    "{} is released for the next claim of its name (R4)",
                    w.key
                ));
            }
            self.not_reported(w, "released", out);
        }
        let pair = (uid.to_owned(), before.metadata.uid.clone());
        let again = says_held_by(now, uid) && !says_held_by(before, uid);
        let wiped = self.history.wiped.contains(&before.metadata.uid);
        let given_up = is_given_up(before) && self.history.given_up.contains(&pair);
        if again && given_up && live.is_none() && !wiped {
            out.push(format!(
                "{} was given up and is bound to a dead claim again",
                w.key
            ));
        }
        self.claim_ref_step(w, before, now, out);
        let had = |a: &IPAddress, f: &str| a.metadata.has_finalizer(f);
        let protection = names::ADDRESS_PROTECTION;
        if had(before, protection) && !had(now, protection) {
            if !before.metadata.is_deleting() {
                out.push(format!(
                    "the protection of {} goes although it is not deleted (R2)",
                    w.key
                ));
            }
            if live.is_some_and(|claim| !is_extra(claim, before)) && !is_parked(before, uid) {
                out.push(format!(
                    "the protection of {} goes while a claim holds it (R2)",
                    w.key
                ));
            }
        }
        if let Some(parked) = now.metadata.annotation(names::PARKED_FOR)
            && before.metadata.annotation(names::PARKED_FOR) != Some(parked)
        {
            let wiped = self.history.wiped.contains(parked);
            match self.live(parked) {
                Some(claim) if !is_extra(claim, now) && !wiped => {
                    out.push(format!(
                        "{} is parked although its claim may need it (R6d)",
                        w.key
                    ));
                }
                Some(claim) if reports(claim, &w.key.name) => {
                    out.push(format!(
                        "{} is parked although its claim reports it (R7)",
                        w.key
                    ));
                }
                _ => {}
            }
        }
    }

    fn claim_ref_step(&self, w: &Written, before: &IPAddress, now: &IPAddress, out: &mut Found) {
        let key = &w.key;
        match (&before.spec.claim_ref, &now.spec.claim_ref) {
            (a, b) if a == b => {}
            (None, Some(r)) => {
                if before.phase() != Some(AddressPhase::Available)
                    || before.metadata.is_deleting()
                    || before
                        .status
                        .as_ref()
                        .is_some_and(|s| s.associated_to.is_some())
                    || !has_derived_name(before)
                {
                    out.push(format!(
                        "{key} is matched although it is not free (§4 step 7)"
                    ));
                }
                if self.history.claims.get(&r.uid) != Some(&r.key()) {
                    out.push(format!("{key} is matched to a claim that never was"));
                }
                let died = self.history.died.get(&r.uid);
                if died.is_some_and(|d| before.metadata.resource_version > Some(*d)) {
                    out.push(format!(
                        "{key} is matched to a claim that was gone before (R3)"
                    ));
                }
                if now.metadata.annotation(names::BOUND_BY_CORE) != Some(r.uid.as_str()) {
                    out.push(format!(
                        "{key} is matched without the mark of the core (R6a)"
                    ));
                }
                self.held_by_protected(key, &r.uid, out);
            }
            (Some(a), Some(b)) => {
                if !a.uid.is_empty() || b.uid.is_empty() || a.key() != b.key() {
                    out.push(format!(
                        "{key} is taken from one claim and given to another"
                    ));
                }
                // A dying claim leaves its uid on what names it (R4); that is no completion.
                let completes = self.live(&b.uid).is_some();
                if completes && (before.metadata.is_deleting() || !has_derived_name(before)) {
                    out.push(format!(
                        "{key} is completed although it is deleted or invalid (R2)"
                    ));
                }
                if self.history.claims.get(&b.uid) != Some(&b.key()) {
                    out.push(format!("{key} is completed for a claim that never was"));
                }
                let died = self.history.died.get(&b.uid);
                if died.is_some_and(|d| before.metadata.resource_version > Some(*d)) {
                    out.push(format!(
                        "{key} is completed for a claim that was gone before (R4)"
                    ));
                }
                self.held_by_protected(key, &b.uid, out);
            }
            (Some(a), None) => self.undone(w, before, &a.uid, out),
            (None, None) => {}
        }
    }

    /// A claim that gets an address passes the reclaim flow when it is deleted (R11).
    fn held_by_protected(&self, key: &Key, uid: &str, out: &mut Found) {
        if let Some(claim) = self.live(uid)
            && !claim.metadata.has_finalizer(names::CLAIM_PROTECTION)
            && !self.history.unprotected.contains(uid)
        {
            out.push(format!(
                "{key} is bound to {}, which is not protected",
                claim.key()
            ));
        }
    }

    /// The core clears a claimRef only where it undoes a match that never took effect (R6d).
    fn undone(&self, w: &Written, before: &IPAddress, uid: &str, out: &mut Found) {
        let (key, name) = (&w.key, &w.key.name);
        if uid.is_empty() || before.metadata.annotation(names::BOUND_BY_CORE) != Some(uid) {
            out.push(format!(
                "the core cleared a claimRef of {key} that is not its own (R6d)"
            ));
            return;
        }
        let wiped =
            self.history.wiped.contains(uid) || self.history.wiped.contains(&before.metadata.uid);
        match self.live(uid) {
            Some(claim) => {
                if reports(claim, name) {
                    out.push(format!("{key} is undone while {} reports it", claim.key()));
                } else if !is_extra(claim, before) && !wiped {
                    out.push(format!(
                        "{key} is undone although {} may need it (R6d)",
                        claim.key()
                    ));
                }
            }
            None => {
                let h = &self.history;
                let took_effect = h.named.get(uid).is_some_and(|n| n.contains(name))
                    && h.said_held
                        .contains(&(uid.to_owned(), before.metadata.uid.clone()));
                if took_effect && !wiped {
                    out.push(format!(
                        "{key} is undone although its claim had it: its reclaim policy was skipped"
                    ));
                }
            }
        }
    }

    fn not_reported(&self, w: &Written, what: &str, out: &mut Found) {
        for claim in self.claims.values().filter(|c| !c.metadata.is_deleting()) {
            let broken = (claim.metadata.uid.clone(), w.key.name.clone());
            if reports(claim, &w.key.name) && !self.history.broken.contains(&broken) {
                out.push(format!(
                    "{} is {what} while {} reports it",
                    w.key,
                    claim.key()
                ));
            }
        }
    }

    /// What must hold over the whole ledger, whoever wrote last.
    pub(super) fn everywhere(&self, out: &mut Found) {
        let mut by_ip: BTreeMap<Ip, &str> = BTreeMap::new();
        for (name, address) in &self.addresses {
            if !matches!(
                address.phase(),
                Some(AddressPhase::Available | AddressPhase::Bound)
            ) {
                continue;
            }
            let Ok(ip) = Ip::parse(&address.spec.address) else {
                out.push(format!("{name} is {:?} and no address", address.phase()));
                continue;
            };
            if let Some(other) = by_ip.insert(ip, name) {
                out.push(format!(
                    "{ip} has two live entries: {other} and {name} (R1)"
                ));
            }
            if !has_derived_name(address) {
                out.push(format!(
                    "{name} is {:?} under a wrong name (R1)",
                    address.phase()
                ));
            }
        }
        let mut by_name: BTreeMap<&str, &Key> = BTreeMap::new();
        for (key, claim) in self
            .claims
            .iter()
            .filter(|(_, c)| !c.metadata.is_deleting())
        {
            let Some(status) = claim
                .status
                .as_ref()
                .filter(|_| !self.history.tampered.contains(&claim.metadata.uid))
            else {
                continue;
            };
            let mut families = Vec::new();
            for entry in &status.addresses {
                let broken = (claim.metadata.uid.clone(), entry.name.clone());
                if !self.history.broken.contains(&broken)
                    && let Some(other) = by_name.insert(&entry.name, key)
                {
                    out.push(format!("{other} and {key} both report {}", entry.name));
                }
                let Some(family) = family_of(&entry.address) else {
                    out.push(format!("{key} reports {}, no address", entry.address));
                    continue;
                };
                if families.contains(&family) {
                    out.push(format!("{key} reports two {family} addresses (R6)"));
                }
                families.push(family);
                self.holds(key, claim, &entry.name, out);
            }
            if claim.phase() == Some(ClaimPhase::Bound) {
                let mut asked = claim.spec.family.families().to_vec();
                asked.retain(|f| !families.contains(f));
                if !asked.is_empty() {
                    out.push(format!("{key} is Bound without {asked:?}"));
                }
            }
        }
    }

    /// Held means held (R2): what a claim reports carries its uid and the core's protection.
    fn holds(&self, key: &Key, claim: &IPAddressClaim, name: &str, out: &mut Found) {
        let uid = &claim.metadata.uid;
        if self
            .history
            .broken
            .contains(&(uid.clone(), name.to_owned()))
        {
            return;
        }
        let Some(address) = self.addresses.get(name) else {
            out.push(format!("{key} reports {name}, which is not there"));
            return;
        };
        if holder(address) != uid {
            out.push(format!(
                "{key} reports {name}, whose claimRef does not carry its uid"
            ));
        }
        if !address.metadata.has_finalizer(names::ADDRESS_PROTECTION) {
            out.push(format!("{key} reports {name}, which is not protected (R2)"));
        }
        if is_parked(address, uid) && is_decided(claim) && !serves(address, claim) {
            out.push(format!("{key} reports {name}, which is parked (R7)"));
        }
    }
}
