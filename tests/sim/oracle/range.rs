//! What our range driver may create (D1 to D5), seen against what its view must have shown when the
//! pass began, and when it may let go (D5).

use ipledger_core::api::{
    ClaimPhase, IPAddress, IPAddressClaim, IPAddressClass, Key, Kind, Timestamp,
};
use ipledger_core::net::{Family, Ip};
use ipledger_core::store::{Revision, StoreError};
use ipledger_drivers::range;

use super::{Oracle, Written, family_of, has_derived_name, holder, is_parked};
use crate::desk::{Answer, Caller, Request};
use crate::ledger::Who;
use crate::pool::Pool;

type Found = Vec<String>;

/// A create of which its process does not know whether it took place.
pub struct Sent {
    name: String,
    class: String,
    at: Revision,
    /// By this pass.
    pass: u64,
}

/// The claim (by uid) and family for which a process, in one of its lives, has asked for an address.
pub type Place = (usize, u64, String, Family);

fn place(by: Caller, address: &IPAddress) -> Option<Place> {
    let family = family_of(&address.spec.address)?;
    Some((by.process, by.life, holder(address).to_owned(), family))
}

impl Oracle {
    /// The driver hears of the fate of a create.
    pub(super) fn heard_of_create(&mut self, by: Caller, request: &Request, answer: &Answer) {
        let Request::Create(object) = request else {
            return;
        };
        let Some(address) = IPAddress::from_object(object).ok() else {
            return;
        };
        let Some(place) = place(by, &address) else {
            return;
        };
        let error = answer.error();
        if error.is_some_and(|e| matches!(e, StoreError::OutcomeUnknown { .. })) {
            let sent = Sent {
                name: address.metadata.name.clone(),
                class: address.spec.class_name.clone(),
                at: self.revision,
                pass: by.pass,
            };
            self.history.sent.entry(place).or_insert(sent);
        } else if error.is_none() {
            self.history.sent.remove(&place);
        }
    }

    pub(super) fn created_by_range(&self, w: &Written, now: &IPAddress, out: &mut Found) {
        let (Some(by), Some(ip)) = (self.by, Ip::parse(&now.spec.address).ok()) else {
            return;
        };
        let (key, uid, family) = (&w.key, holder(now), ip.family());
        let seen = |revision: Option<Revision>, kind| revision <= Some(by.since.of(kind));
        // D1, D4: an IP that stood in any object, of any name and class, was known to be taken.
        for other in self.addresses.values() {
            let born = self.history.born.get(&other.metadata.uid).copied();
            if other.ip() == Some(ip) && seen(born, Kind::IPAddress) {
                out.push(format!("{key} is created beside {} (D1)", other.key()));
            }
        }
        self.still_the_same_create(by, key, now, out);
        self.as_the_class_says(by, key, now, out);
        let claim = self
            .history
            .claims
            .get(uid)
            .and_then(|k| self.claims.get(k));
        let Some(claim) = claim.filter(|c| {
            c.metadata.uid == uid && seen(c.metadata.resource_version, Kind::IPAddressClaim)
        }) else {
            return;
        };
        let is_to_be_served = claim.phase() == Some(ClaimPhase::Pending)
            && claim.stamp() == Some(range::NAME)
            && !claim.metadata.is_deleting()
            && claim.spec.address_name.is_empty()
            && claim.resolved_class() == now.spec.class_name
            && claim.spec.family.families().contains(&family);
        if !is_to_be_served {
            out.push(format!(
                "{key} is created for {}, which is not to be served (D2)",
                claim.key()
            ));
        }
        if let Some(other) = self.covering(by, claim, family) {
            out.push(format!(
                "{key} is created although {} has {other} (D2)",
                claim.key()
            ));
        }
        let other_family = if family == Family::V4 {
            Family::V6
        } else {
            Family::V4
        };
        if claim.spec.family.families().len() == 2
            && self.covering(by, claim, other_family).is_none()
            && self.is_exhausted(by, &now.spec.class_name, other_family)
            && !self.covered_since(by, claim, other_family)
        {
            out.push(format!(
                "{key} is half of what {} can get (D2)",
                claim.key()
            ));
        }
    }

    /// Range, reclaim policy and cool-down are those of the class as the driver has seen it (D2, D3,
    /// D5, D6).
    fn as_the_class_says(&self, by: Caller, key: &Key, now: &IPAddress, out: &mut Found) {
        let Some(class) = self.class_seen(by, &now.spec.class_name) else {
            out.push(format!("{key} is created of a class that was gone (D2)"));
            return;
        };
        // What may have been created already is created again, wherever the range has gone since.
        let (process, life, uid) = (by.process, by.life, holder(now));
        let mut sent = self.history.sent.keys();
        let is_repeated = sent.any(|(p, l, u, _)| (*p, *l, u.as_str()) == (process, life, uid));
        let usable = Pool::of(class).unwrap_or_default().usable;
        if !now.ip().is_some_and(|ip| usable.contains(&ip)) && !is_repeated {
            out.push(format!("{key} is created outside its class (D3, D6)"));
        }
        if now.spec.reclaim_policy != class.spec.reclaim_policy {
            out.push(format!(
                "{key} is created with another reclaim policy than its class has (D2)"
            ));
        }
        let parameters = class.spec.parameters.as_ref();
        // The people of this world write it as the driver does.
        let rest = parameters.and_then(|p| p["reuseAfter"].as_str());
        if now.metadata.annotation(range::REUSE_AFTER) != rest {
            out.push(format!(
                "{key} is created without the cool-down of its class, {rest:?} (D5)"
            ));
        }
    }

    /// The class as the driver had seen it when the pass began.
    fn class_seen(&self, by: Caller, name: &str) -> Option<&IPAddressClass> {
        let mut all = self.history.classes.get(name)?.iter().rev();
        let (_, class) = all.find(|(at, _)| *at <= by.since.of(Kind::IPAddressClass))?;
        class.as_ref()
    }

    /// What cools down is kept until its end, by the clock of the process (D5).
    pub(super) fn let_go_by_range(
        &self,
        w: &Written,
        before: &IPAddress,
        now: &IPAddress,
        out: &mut Found,
    ) {
        let has = |a: &IPAddress| a.metadata.has_finalizer(range::FINALIZER);
        let rests = before.metadata.annotation(range::REUSE_AFTER).is_some();
        let until = before.metadata.annotation(range::REUSABLE_AT);
        let (Some(by), Some(until)) = (self.by.filter(|_| w.who == Who::Range), until) else {
            return;
        };
        let until = serde_json::from_value::<Timestamp>(until.into());
        if rests && has(before) && !has(now) && until.is_ok_and(|until| until > by.wall) {
            out.push(format!(
                "{} is let go before the end of its cool-down (D5)",
                w.key
            ));
        }
    }

    /// Until its fate is known the same create is repeated, never another one (D2).
    fn still_the_same_create(&self, by: Caller, key: &Key, now: &IPAddress, out: &mut Found) {
        let sent = place(by, now).and_then(|place| self.history.sent.get(&place));
        // What arrives late is that create itself.
        let sent = sent.filter(|sent| sent.pass != by.pass);
        // The claim or its class has changed in between: then the first one was given up.
        let live = self.live(holder(now));
        let sent = sent.filter(|sent| {
            live.is_some_and(|c| c.metadata.resource_version <= Some(sent.at))
                && self.history.classes_since.get(&sent.class) <= Some(&sent.at)
        });
        let claim = now.spec.claim_ref.as_ref().map(|r| r.key());
        if sent.is_some() && claim.is_some_and(|claim| !self.has_read(by, &claim)) {
            out.push(format!(
                "{key} is created again without a look at its claim (D2)"
            ));
        }
        let Some(sent) = sent.filter(|s| s.name != key.name && s.class == now.spec.class_name)
        else {
            return;
        };
        // Taken by somebody meanwhile.
        let gone = self.history.went.get(&sent.name).copied();
        let stood = self.addresses.contains_key(&sent.name) || gone >= Some(sent.at);
        if !stood {
            out.push(format!(
                "{key} is created although {} may come (D2)",
                sent.name
            ));
        }
    }

    /// An address that covers the family of a claim, as the driver has seen it.
    fn covering(&self, by: Caller, claim: &IPAddressClaim, family: Family) -> Option<&str> {
        let since = Some(by.since.of(Kind::IPAddress));
        let mut all = self.addresses.values().filter(|a| covers(a, claim, family));
        all.find(|a| a.metadata.resource_version <= since)
            .map(|a| a.metadata.name.as_str())
    }

    /// Whether the driver may believe that the claim has an address of the family.
    fn covered_since(&self, by: Caller, claim: &IPAddressClaim, family: Family) -> bool {
        let last = self.history.named_until.get(&(claim.key(), family));
        last >= Some(&by.since.of(Kind::IPAddress))
            || self.addresses.values().any(|a| covers(a, claim, family))
    }

    /// Whether the driver has seen every address of the class and family taken.
    fn is_exhausted(&self, by: Caller, class: &str, family: Family) -> bool {
        let Some(class) = self.classes.get(class) else {
            return false;
        };
        let seen = |revision: Option<&Revision>, kind| revision <= Some(&by.since.of(kind));
        let edited = self.history.classes_since.get(&class.metadata.name);
        let usable = Pool::of(class).unwrap_or_default().usable;
        seen(edited, Kind::IPAddressClass)
            && Pool::of_family(&usable, family).all(|ip| {
                self.addresses.values().any(|a| {
                    a.ip() == Some(ip)
                        && seen(self.history.born.get(&a.metadata.uid), Kind::IPAddress)
                })
            })
    }
}

fn covers(address: &IPAddress, claim: &IPAddressClaim, family: Family) -> bool {
    let r = address.spec.claim_ref.as_ref();
    r.is_some_and(|r| r.key() == claim.key())
        && ["", claim.metadata.uid.as_str()].contains(&holder(address))
        && has_derived_name(address)
        && family_of(&address.spec.address) == Some(family)
        && address.phase() != Some(ipledger_core::api::AddressPhase::Lost)
        && !address.metadata.is_deleting()
        && !is_parked(address, &claim.metadata.uid)
}
