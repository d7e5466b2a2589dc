//! Which address a claim is given, seen against what the core must have known when its pass began.

use ipledger_core::api::{IPAddress, IPAddressClaim, Key, Kind, names};
use ipledger_core::net::Family;

use super::{Oracle, family_of, holder, is_free, serves};
use crate::desk::Caller;

type Found = Vec<String>;

impl Oracle {
    /// Of several that name a claim without its uid, the smallest name is completed (R4), and none
    /// if the claim has one of that family.
    pub(super) fn smallest_first(
        &self,
        by: Caller,
        key: &Key,
        before: &IPAddress,
        now: &IPAddress,
        out: &mut Found,
    ) {
        let Some(claim) = self
            .live(holder(now))
            .filter(|_| before.spec.claim_ref.is_some())
        else {
            return;
        };
        let serves_by_hand = now
            .metadata
            .annotation(names::PARKED_FOR)
            .is_some_and(|v| v.ends_with(names::SERVE_SUFFIX));
        // What a lost claim calls lost is back: that one and no other.
        let is_back = claim
            .status
            .iter()
            .flat_map(|s| &s.lost_addresses)
            .any(|l| l.name == key.name);
        if !claim.spec.address_name.is_empty() || serves_by_hand || is_back {
            return;
        }
        let family = family_of(&now.spec.address);
        let seen = |a: &&IPAddress| {
            a.metadata.resource_version <= Some(by.since.of(Kind::IPAddress))
                && family_of(&a.spec.address) == family
                && serves(a, claim)
                && !a.metadata.is_deleting()
        };
        for (name, other) in self.addresses.iter().filter(|(_, a)| seen(a)) {
            let bound = holder(other) == claim.metadata.uid;
            if bound || (holder(other).is_empty() && *name < key.name) {
                out.push(format!("{key} is completed instead of {name} (R4, R6)"));
            }
        }
    }

    /// A claim gets what it asks for (R9).
    pub(super) fn as_asked(
        &self,
        by: Caller,
        key: &Key,
        matched: bool,
        now: &IPAddress,
        out: &mut Found,
    ) {
        let uid = holder(now);
        let asked = self.history.asked.get(uid);
        let Some((spec, _)) = asked.filter(|(_, at)| *at <= by.since.of(Kind::IPAddressClaim))
        else {
            return;
        };
        let family = family_of(&now.spec.address);
        if family.is_none_or(|f| !spec.family.families().contains(&f)) && self.live(uid).is_some() {
            out.push(format!("{key} is of a family that was not asked for (R9)"));
        }
        if !matched {
            return;
        }
        if !spec.address_name.is_empty() && spec.address_name != key.name {
            out.push(format!("{key} is not the one that was asked for (R9)"));
        }
        if !spec.class_name.is_empty() && spec.class_name != now.spec.class_name {
            out.push(format!("{key} is not of the class that was asked for (R9)"));
        }
    }

    /// What free addresses can serve is bound before a driver is asked (R10).
    pub(super) fn could_be_matched(
        &self,
        by: Caller,
        key: &Key,
        claim: &IPAddressClaim,
        out: &mut Found,
    ) {
        let named = [claim.spec.class_name.as_str(), claim.resolved_class()];
        let class = named
            .into_iter()
            .find(|c| !c.is_empty())
            .unwrap_or_default();
        let since = Some(by.since.of(Kind::IPAddress));
        // Also by one that has ceased to serve after the pass began.
        let covered = |family: Family| {
            let place = (claim.metadata.uid.clone(), family);
            self.history.served_until.get(&place).copied() > since
                || self
                    .addresses
                    .values()
                    .any(|a| family_of(&a.spec.address) == Some(family) && serves(a, claim))
        };
        for address in self.addresses.values() {
            let seen = address.metadata.resource_version <= since;
            let asked = claim.spec.family.families();
            let family = family_of(&address.spec.address).filter(|f| asked.contains(f));
            if seen
                && is_free(address)
                && address.spec.class_name == class
                && family.is_some_and(|family| !covered(family))
            {
                out.push(format!(
                    "{key} is stamped although {} is free (R10)",
                    address.key()
                ));
            }
        }
    }

    /// Of several that a claim may have had before its status was wiped, the winner has been swapped
    /// and carries no mark, so that a late undoing loses (R6e).
    pub(super) fn fenced(&self, by: Caller, key: &Key, claim: &IPAddressClaim, out: &mut Found) {
        let uid = claim.metadata.uid.as_str();
        let marked = |a: &IPAddress| a.metadata.annotation(names::BOUND_BY_CORE) == Some(uid);
        for entry in claim.status.iter().flat_map(|s| &s.addresses) {
            let Some(winner) = self.addresses.get(&entry.name).filter(|a| marked(a)) else {
                continue;
            };
            let rival = self.addresses.values().find(|a| {
                a.metadata.name != winner.metadata.name
                    && holder(a) == uid
                    && serves(a, claim)
                    && !a.metadata.is_deleting()
                    && family_of(&a.spec.address) == family_of(&winner.spec.address)
                    && a.metadata.resource_version <= Some(by.since.of(Kind::IPAddress))
                    && claim.spec.address_name.is_empty()
            });
            if let Some(rival) = rival {
                out.push(format!(
                    "{key} reports {} unfenced, beside {} (R6e)",
                    entry.name, rival.metadata.name
                ));
            }
        }
    }
}
