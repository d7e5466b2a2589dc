//! What the core may do to a claim, seen against the rest of the ledger and its history.

use ipledger_core::api::{ClaimPhase, IPAddressClaim, IPAddressClaimStatus, Key, names};
use ipledger_core::net::Family;

use super::{Oracle, Written, family_of, holder, is_parked, reports, says_held_by, serves};
use crate::ledger::Who;

type Found = Vec<String>;

impl Oracle {
    /// What a write to a claim may do, seen against the rest of the ledger.
    pub(super) fn claim_step(
        &self,
        w: &Written,
        before: Option<&IPAddressClaim>,
        now: &IPAddressClaim,
        out: &mut Found,
    ) {
        let Some(before) = before.filter(|_| w.who == Who::Core) else {
            return;
        };
        let key = &w.key;
        let protection = names::CLAIM_PROTECTION;
        if before.metadata.has_finalizer(protection)
            && !now.metadata.has_finalizer(protection)
            && !before.metadata.is_deleting()
        {
            out.push(format!(
                "the protection of {key} goes although it is not deleted"
            ));
        }
        let stamp = now.stamp();
        if let Some(driver) = stamp
            && before.stamp() != stamp
        {
            if !self.history.provisioners.contains(driver) {
                out.push(format!(
                    "{key} is stamped with {driver}, which no class ever named"
                ));
            }
            if now.phase() == Some(ClaimPhase::Bound) && before.stamp().is_some() {
                out.push(format!(
                    "the stamp of {key} is changed although it is bound (R10)"
                ));
            }
            if now.phase() == Some(ClaimPhase::Lost)
                || (now.phase() != Some(ClaimPhase::Bound) && !now.spec.address_name.is_empty())
            {
                out.push(format!(
                    "{key} is stamped although no driver is to provision (R10)"
                ));
            }
        }
        if before.status != now.status
            && let Some(status) = &now.status
        {
            self.status_step(key, before, now, status, out);
        }
    }

    fn status_step(
        &self,
        key: &Key,
        before: &IPAddressClaim,
        now: &IPAddressClaim,
        status: &IPAddressClaimStatus,
        out: &mut Found,
    ) {
        use ClaimPhase::{Bound, Lost, Pending};
        let uid = &now.metadata.uid;
        let wiped = self.history.wiped.contains(uid);
        let fits = match (before.phase(), status.phase) {
            (None | Some(Pending), Some(Pending | Bound)) => true,
            (Some(Bound | Lost), Some(Bound | Lost)) => true,
            // Without a status, what was bound and is lost is known from the addresses alone.
            (None, Some(Lost)) => {
                let mut said = self.history.said_held.iter();
                wiped || said.any(|(holder, _)| holder == uid)
            }
            (Some(Pending), Some(Lost)) => wiped,
            _ => false,
        };
        if !fits {
            out.push(format!(
                "{key} goes from {:?} to {:?}",
                before.phase(),
                status.phase
            ));
        }
        if status.phase == Some(Lost) && now.stamp().is_some() {
            out.push(format!(
                "{key} is called Lost while it carries a stamp (R10)"
            ));
        }
        let protected = now.metadata.has_finalizer(names::CLAIM_PROTECTION);
        if !protected && !self.history.unprotected.contains(uid) && !now.metadata.is_deleting() {
            out.push(format!("{key} gets a status before its protection (R11)"));
        }
        for entry in &status.addresses {
            if reports(before, &entry.name) {
                continue;
            }
            self.newly_reported(key, now, &entry.name, out);
        }
        for entry in &status.addresses {
            let was_lost = before
                .status
                .iter()
                .flat_map(|s| &s.lost_addresses)
                .any(|l| l == entry);
            let pair = (uid.clone(), entry.name.clone());
            if was_lost && !self.history.back.contains(&pair) {
                out.push(format!(
                    "{key} has {} again, which never came back",
                    entry.name
                ));
            }
        }
        for entry in &status.lost_addresses {
            let pair = (uid.clone(), entry.name.clone());
            if reports(before, &entry.name) && !self.history.unfit.contains(&pair) {
                out.push(format!(
                    "{key} says that it lost {}, which it never did (R3)",
                    entry.name
                ));
            }
        }
        self.keeps_what_it_had(key, now, status, out);
        self.keeps_what_it_had_before_a_wipe(key, now, status, out);
    }

    /// The condition comes before the report (R6b); what is reported is held for this claim.
    fn newly_reported(&self, key: &Key, claim: &IPAddressClaim, name: &str, out: &mut Found) {
        let uid = &claim.metadata.uid;
        let Some(address) = self.addresses.get(name) else {
            return;
        };
        if self
            .history
            .broken
            .contains(&(uid.clone(), name.to_owned()))
        {
            return;
        }
        if self.history.wiped.contains(&address.metadata.uid) {
            return;
        }
        if is_parked(address, uid) {
            out.push(format!("{key} reports {name}, which is parked (R7)"));
        }
        if !says_held_by(address, uid) {
            out.push(format!(
                "{key} reports {name} before the address says so (R6b)"
            ));
        }
    }

    /// Once bound, a family keeps its address, found or lost, unless an admin lets another serve.
    fn keeps_what_it_had(
        &self,
        key: &Key,
        claim: &IPAddressClaim,
        status: &IPAddressClaimStatus,
        out: &mut Found,
    ) {
        let uid = &claim.metadata.uid;
        for ((_, family), had) in self
            .history
            .settled
            .range((uid.clone(), Family::V4)..)
            .take_while(|((u, _), _)| u == uid)
        {
            let entries = status.addresses.iter().chain(&status.lost_addresses);
            let shown: Vec<&str> = entries
                .filter(|e| family_of(&e.address) == Some(*family))
                .map(|e| e.name.as_str())
                .collect();
            let served = |name: &&str| {
                self.history
                    .served
                    .contains(&(uid.clone(), (*name).to_owned()))
            };
            if shown != [had.as_str()] && !(shown.len() == 1 && shown.iter().all(served)) {
                out.push(format!(
                    "{key} was bound to {had} and now shows {shown:?} for {family} (R5)"
                ));
            }
        }
    }

    /// A wiped status never moves an address (R2, R5): nothing is bound in place of one that still
    /// carries the claim's uid.
    fn keeps_what_it_had_before_a_wipe(
        &self,
        key: &Key,
        claim: &IPAddressClaim,
        status: &IPAddressClaimStatus,
        out: &mut Found,
    ) {
        let uid = &claim.metadata.uid;
        let all = &self.history.settled_before_wipe;
        for ((_, family), (had, wiped_at)) in all.iter().filter(|((u, _), _)| u == uid) {
            let named = &claim.spec.address_name;
            let still_fits = self.addresses.get(had).is_some_and(|a| {
                claim.spec.family.families().contains(family)
                    && (named.is_empty() || named == had)
                    && holder(a) == uid
                    && serves(a, claim)
                    && !a.metadata.is_deleting()
                    && !self.history.wiped.contains(&a.metadata.uid)
                    && self
                        .history
                        .bound_since
                        .get(&(uid.clone(), a.metadata.uid.clone()))
                        .is_some_and(|since| since <= wiped_at)
            });
            let newly_bound = |name: &str| {
                let address = self.addresses.get(name);
                let pair = address.map(|a| (uid.clone(), a.metadata.uid.clone()));
                let since = pair.and_then(|pair| self.history.bound_since.get(&pair));
                since.is_some_and(|since| since > wiped_at)
            };
            for entry in &status.addresses {
                let of_family = family_of(&entry.address) == Some(*family);
                if still_fits && of_family && entry.name != *had && newly_bound(&entry.name) {
                    out.push(format!(
                        "{key} had {had} before its status was wiped, and gets {} in its place",
                        entry.name
                    ));
                }
            }
        }
    }
}
