//! What must hold. The oracle knows the whole ledger and its history, looks at every revision, and
//! uses nothing of the plans that it judges.
//!
//! | question | file |
//! |---|---|
//! | who may write which field? | `ownership.rs` |
//! | what must hold at every revision, and what may the core do to an address? | `safety.rs` |
//! | what may the core do to a claim? | `claims.rs` |
//! | what may one pass do, and in which order? | `passes.rs` |
//! | which address may a claim be given? | `choice.rs` |
//! | what may the range driver create? | `range.rs` |
//! | what must hold once everything has come to rest? | `rest.rs`, `supply.rs` |
//! | what does an object say of itself? | `facts.rs` |
//! | which situations were reached at all? | `probes.rs` |

mod choice;
mod claims;
mod facts;
mod ownership;
mod passes;
mod probes;
mod range;
mod rest;
mod supply;
use facts::{
    family_of, has_derived_name, holder, is_decided, is_extra, is_free, is_given_up, is_parked,
    reports, says_held_by, serves,
};
pub use probes::{ALL as SITUATIONS, Probes};
pub use rest::Outside;
mod safety;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipledger_core::api::{
    ClaimPhase, DecodeError, IPAddress, IPAddressClaim, IPAddressClaimSpec, IPAddressClass, Key,
    Kind, Object, find_condition, names,
};
use ipledger_core::net::Family;
use ipledger_core::store::{Part, Preconditions, Revision};

use crate::desk::Caller;
use crate::ledger::Who;

/// A typed object.
#[derive(Clone, Debug, PartialEq)]
pub enum Thing {
    Class(Box<IPAddressClass>),
    Address(Box<IPAddress>),
    Claim(Box<IPAddressClaim>),
}

impl Thing {
    pub fn decode(object: &Object) -> Result<Thing, DecodeError> {
        Ok(match object.kind {
            Kind::IPAddressClass => Thing::Class(Box::new(IPAddressClass::from_object(object)?)),
            Kind::IPAddress => Thing::Address(Box::new(IPAddress::from_object(object)?)),
            Kind::IPAddressClaim => Thing::Claim(Box::new(IPAddressClaim::from_object(object)?)),
        })
    }
}

/// How something was written.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    Create,
    Update(Part),
    Delete(Preconditions),
}

/// One write that moved the revision.
#[derive(Clone, Debug)]
pub struct Written {
    pub who: Who,
    pub verb: Verb,
    pub revision: Revision,
    pub key: Key,
    /// The object after the write; its last state if the write removed it.
    pub last: Thing,
    pub gone: bool,
}

/// The whole ledger as it is, and what has to be remembered of how it came to be.
#[derive(Default)]
pub struct Oracle {
    pub classes: BTreeMap<String, IPAddressClass>,
    pub addresses: BTreeMap<String, IPAddress>,
    pub claims: BTreeMap<Key, IPAddressClaim>,
    pub revision: Revision,
    /// What was found wrong.
    pub violations: Vec<String>,
    /// How many writes each has made.
    pub writes: BTreeMap<Who, u64>,
    pub created: BTreeMap<Kind, u64>,
    pub deleted: BTreeMap<Kind, u64>,
    /// Which situations were reached.
    pub probes: Probes,
    history: History,
    /// Who is writing, if it is a pass of a process.
    by: Option<Caller>,
    /// How often the core gave each claim another phase or reason: at most so many events are told.
    pub turns: BTreeMap<Key, usize>,
    /// The time of the world.
    pub time: Duration,
    passes: BTreeMap<u64, passes::Pass>,
}

/// What the present state alone does not say.
#[derive(Default)]
struct History {
    /// The key of each claim that ever was, by uid.
    claims: BTreeMap<String, Key>,
    /// When each claim that is gone went.
    died: BTreeMap<String, Revision>,
    /// When each claim (by uid) was marked for deletion.
    marked: BTreeMap<String, Revision>,
    /// What each claim (by uid) asks for, and since when.
    asked: BTreeMap<String, (IPAddressClaimSpec, Revision)>,
    /// When each address (by uid) was created.
    born: BTreeMap<String, Revision>,
    /// Until when an address of the family named the claim and was then changed.
    named_until: BTreeMap<(Key, Family), Revision>,
    /// When an address of the family that served a claim (by uid) last ceased to.
    served_until: BTreeMap<(String, Family), Revision>,
    /// Since when each address (by uid) names what it names.
    orphaned: BTreeMap<String, Duration>,
    /// When an address (by name) went last.
    went: BTreeMap<String, Revision>,
    /// Since when each class (by name) is as it is, apart from its status.
    classes_since: BTreeMap<String, Revision>,
    /// What each class (by name) was, apart from its status, and since when; `None` while it is gone.
    classes: BTreeMap<String, Vec<(Revision, Option<IPAddressClass>)>>,
    /// The creates of range drivers whose outcome is unknown.
    sent: BTreeMap<range::Place, range::Sent>,
    /// The driver of each class that ever was.
    provisioners: BTreeSet<String>,
    /// Which address a claim (by uid) was bound to, by family.
    settled: BTreeMap<(String, Family), String>,
    /// The same of claims whose status was wiped since, and at which revision.
    settled_before_wipe: BTreeMap<(String, Family), (String, Revision)>,
    /// Since which revision an address (by uid) carries the uid of a claim.
    bound_since: BTreeMap<(String, String), Revision>,
    /// The claims (by uid) that reported this address (by name).
    reported: BTreeSet<(String, String)>,
    /// The addresses (by name) that the last status of a claim (by uid) names.
    named: BTreeMap<String, BTreeSet<String>>,
    /// The claims (by uid) that this address (by uid) said it is held by.
    said_held: BTreeSet<(String, String)>,
    /// The claims (by uid) on whose death the core has given this address (by uid) up.
    given_up: BTreeSet<(String, String)>,
    /// Of those reported, the ones whose address was unfit at some time since.
    unfit: BTreeSet<(String, String)>,
    /// Of the addresses that a claim calls lost, those that served it at some time since.
    back: BTreeSet<(String, String)>,
    /// Of the reported, those whose address was taken away by force and is not yet back.
    broken: BTreeSet<(String, String)>,
    /// The claims and addresses (by uid) whose status somebody wiped.
    wiped: BTreeSet<String>,
    /// The claims (by uid) whose status is not the core's as it stands.
    tampered: BTreeSet<String>,
    /// The claims (by uid) whose protection somebody took off.
    unprotected: BTreeSet<String>,
    /// The claims (by uid) for which an admin let this address (by name) serve.
    served: BTreeSet<(String, String)>,
}

impl Oracle {
    /// Takes in a write and judges it.
    pub fn written(&mut self, w: &Written) {
        self.revision = w.revision;
        *self.writes.entry(w.who).or_default() += 1;
        if w.verb == Verb::Create {
            *self.created.entry(w.key.kind).or_default() += 1;
        }
        if w.gone {
            *self.deleted.entry(w.key.kind).or_default() += 1;
        }
        let mut found = Vec::new();
        match &w.last {
            Thing::Class(class) => {
                self.history
                    .provisioners
                    .insert(class.spec.provisioner.clone());
                let name = w.key.name.clone();
                let before = self.classes.remove(&name);
                if w.gone || before.as_ref().is_none_or(|b| b.spec != class.spec) {
                    self.history.classes_since.insert(name.clone(), w.revision);
                    let now = (!w.gone).then(|| IPAddressClass::clone(class));
                    let all = self.history.classes.entry(name.clone()).or_default();
                    all.push((w.revision, now));
                }
                if let Some(before) = before {
                    self.times(w, &Thing::Class(Box::new(before)), &mut found);
                }
                if !w.gone {
                    self.classes.insert(name, IPAddressClass::clone(class));
                }
                ownership::class(w, &mut found);
            }
            Thing::Address(address) => {
                let name = w.key.name.clone();
                let before = self.addresses.remove(&name);
                ownership::address(w, before.as_ref(), address, &mut found);
                self.address_step(w, before.as_ref(), address, &mut found);
                if let Some(before) = &before {
                    self.address_in_pass(w, before, address, &mut found);
                    self.let_go_by_range(w, before, address, &mut found);
                    self.times(w, &Thing::Address(Box::new(before.clone())), &mut found);
                } else if w.who == Who::Range {
                    self.created_by_range(w, address, &mut found);
                }
                let of = [before.as_ref(), Some(address)];
                let lives = of.iter().flatten().any(|a| self.live(holder(a)).is_some());
                self.probes.address(w, before.as_ref(), address, lives);
                if !w.gone {
                    self.addresses.insert(name, IPAddress::clone(address));
                }
                self.remember_address(w, before.as_ref(), address);
                self.remember_pass(w, None);
            }
            Thing::Claim(claim) => {
                let before = self.claims.remove(&w.key);
                ownership::claim(w, before.as_ref(), claim, &mut found);
                self.claim_step(w, before.as_ref(), claim, &mut found);
                if let Some(before) = &before {
                    self.claim_in_pass(w, before, claim, &mut found);
                    self.times(w, &Thing::Claim(Box::new(before.clone())), &mut found);
                }
                self.remember_pass(w, before.as_ref());
                let wiped = self.history.wiped.contains(&claim.metadata.uid);
                self.probes.claim(w, before.as_ref(), claim, wiped);
                if !w.gone {
                    self.claims
                        .insert(w.key.clone(), IPAddressClaim::clone(claim));
                }
                self.remember_claim(w, before.as_ref(), claim);
            }
        }
        self.everywhere(&mut found);
        for what in found {
            self.violations
                .push(format!("revision {} by {:?}: {what}", w.revision, w.who));
        }
    }

    /// Somebody wrote what was there already.
    pub fn idle_write(&mut self, who: Who, key: &Key, part: Part) {
        if matches!(who, Who::Core | Who::Range) {
            self.violations.push(format!(
                "{who:?} wrote {part:?} of {key} without changing it"
            ));
        }
    }

    fn remember_claim(
        &mut self,
        w: &Written,
        before: Option<&IPAddressClaim>,
        now: &IPAddressClaim,
    ) {
        let uid = &now.metadata.uid;
        let h = &mut self.history;
        h.claims.insert(uid.clone(), w.key.clone());
        if now.metadata.is_deleting() || w.gone {
            h.marked.entry(uid.clone()).or_insert(w.revision);
        }
        if before.is_none_or(|b| b.spec != now.spec) {
            h.asked.insert(uid.clone(), (now.spec.clone(), w.revision));
        }
        if w.gone {
            h.died.insert(uid.clone(), w.revision);
        }
        if w.who != Who::Core {
            if before.is_some_and(|b| b.status != now.status) {
                h.wiped.insert(uid.clone());
                h.tampered.insert(uid.clone());
                // A status that lost its phase alone still decides (R5).
                let named = |c: &IPAddressClaim| {
                    let status = c.status.as_ref();
                    status.map(|s| (s.addresses.clone(), s.lost_addresses.clone()))
                };
                let decides = before.is_some_and(|b| is_decided(b) && named(b) == named(now));
                let of_claim = |(u, _): &(String, Family)| u == uid && !decides;
                let settled: Vec<_> = h.settled.keys().filter(|k| of_claim(k)).cloned().collect();
                for place in settled {
                    if let Some(name) = h.settled.remove(&place) {
                        h.settled_before_wipe.insert(place, (name, w.revision));
                    }
                }
            }
            if before.is_some_and(|b| b.spec != now.spec) {
                h.settled.retain(|(u, _), _| u != uid);
                h.settled_before_wipe.retain(|(u, _), _| u != uid);
            }
            let had = before.is_some_and(|b| b.metadata.has_finalizer(names::CLAIM_PROTECTION));
            if had && !now.metadata.has_finalizer(names::CLAIM_PROTECTION) {
                h.unprotected.insert(uid.clone());
            }
            return;
        }
        let Some(status) = now
            .status
            .as_ref()
            .filter(|_| before.is_none_or(|b| b.status != now.status))
        else {
            return;
        };
        h.tampered.remove(uid);
        let told = |c: &IPAddressClaim| {
            let bound = find_condition(c.conditions(), names::condition::BOUND);
            (c.phase(), bound.map(|b| b.reason.clone()))
        };
        if before.is_none_or(|b| told(b) != told(now)) {
            *self.turns.entry(w.key.clone()).or_default() += 1;
        }
        let entries = status.addresses.iter().chain(&status.lost_addresses);
        h.named
            .insert(uid.clone(), entries.map(|e| e.name.clone()).collect());
        for entry in &status.lost_addresses {
            let pair = (uid.clone(), entry.name.clone());
            h.back.remove(&pair);
            h.reported.insert(pair);
        }
        for entry in &status.addresses {
            let pair = (uid.clone(), entry.name.clone());
            h.reported.insert(pair.clone());
            h.unfit.remove(&pair);
            if status.phase == Some(ClaimPhase::Bound)
                && let Some(family) = family_of(&entry.address)
            {
                h.settled.insert((uid.clone(), family), entry.name.clone());
                h.settled_before_wipe.remove(&(uid.clone(), family));
            }
        }
        // What is unfit at this moment has been so since it was reported.
        self.note_unfit();
    }

    fn remember_address(&mut self, w: &Written, before: Option<&IPAddress>, now: &IPAddress) {
        if before.is_none() {
            self.history
                .born
                .insert(now.metadata.uid.clone(), w.revision);
        }
        if let Some(before) = before
            && let (Some(r), Some(f)) = (&before.spec.claim_ref, family_of(&before.spec.address))
        {
            self.history.named_until.insert((r.key(), f), w.revision);
            let served = self.claims.get(&r.key()).filter(|c| serves(before, c));
            if let Some(claim) = served.filter(|c| w.gone || !serves(now, c)) {
                let place = (claim.metadata.uid.clone(), f);
                self.history.served_until.insert(place, w.revision);
            }
        }
        if w.gone {
            self.history.went.insert(w.key.name.clone(), w.revision);
        }
        if says_held_by(now, holder(now)) {
            let pair = (holder(now).to_owned(), now.metadata.uid.clone());
            self.history.said_held.insert(pair);
        }
        if before.is_none_or(|b| b.spec.claim_ref != now.spec.claim_ref) {
            self.history
                .orphaned
                .insert(now.metadata.uid.clone(), self.time);
        }
        if before.is_none_or(|b| holder(b) != holder(now)) {
            let pair = (holder(now).to_owned(), now.metadata.uid.clone());
            self.history.bound_since.insert(pair, w.revision);
        }
        if w.who == Who::Core && w.verb == Verb::Update(Part::Status) && is_given_up(now) {
            let pair = (holder(now).to_owned(), now.metadata.uid.clone());
            self.history.given_up.insert(pair);
        }
        if w.who != Who::Core {
            if before.is_some_and(|b| b.status.is_some()) && now.status.is_none() {
                self.history.wiped.insert(now.metadata.uid.clone());
            }
            let served = now
                .metadata
                .annotation(names::PARKED_FOR)
                .and_then(|v| v.strip_suffix(names::SERVE_SUFFIX));
            if let Some(uid) = served {
                self.history
                    .served
                    .insert((uid.to_owned(), w.key.name.clone()));
            }
        }
        if w.who == Who::Vandal {
            // Whoever reports it, or is about to, has lost it by force.
            let reporters = self.claims.values().filter(|c| reports(c, &w.key.name));
            let mut uids: Vec<String> = reporters.map(|c| c.metadata.uid.clone()).collect();
            uids.extend(before.map(|b| holder(b).to_owned()));
            for uid in uids {
                self.history.broken.insert((uid, w.key.name.clone()));
            }
        }
        self.note_unfit();
    }

    /// Remembers which reported addresses are unfit now, and which broken ones are back.
    fn note_unfit(&mut self) {
        let History {
            reported,
            unfit,
            back,
            broken,
            claims,
            ..
        } = &mut self.history;
        for pair in reported.iter() {
            let (uid, name) = pair;
            let Some(claim) = claims.get(uid).and_then(|key| self.claims.get(key)) else {
                continue;
            };
            if claim.metadata.uid != *uid {
                continue;
            }
            match self.addresses.get(name).filter(|a| serves(a, claim)) {
                None => {
                    unfit.insert(pair.clone());
                }
                Some(address) => {
                    back.insert(pair.clone());
                    let held = holder(address) == uid;
                    if held && address.metadata.has_finalizer(names::ADDRESS_PROTECTION) {
                        broken.remove(pair);
                    }
                }
            }
        }
    }

    /// The claim of this uid, if it exists and is not being deleted.
    fn live(&self, uid: &str) -> Option<&IPAddressClaim> {
        let key = self.history.claims.get(uid)?;
        self.claims
            .get(key)
            .filter(|c| c.metadata.uid == uid && !c.metadata.is_deleting())
    }
}
