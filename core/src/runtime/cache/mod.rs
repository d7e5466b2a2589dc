//! What the binding core knows: the last seen objects and the indexes over them, kept
//! incrementally. Nothing here is authoritative; it can be thrown away and observed again.

mod available;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Change, Work};
use crate::api::{
    IPAddress, IPAddressClaim, IPAddressClaimStatus, IPAddressClass, Key, Kind, ReclaimPolicy,
    Timestamp,
};
use crate::binding::{AddressView, ClaimView, ClassLookup, Facts, Seen, resolve};
use crate::mutant::{Mutant, active};
use crate::store::Revision;
use available::Available;
use waiting::Waiting;

/// The objects that a pass looks at, each with the revision that was observed.
pub(super) type Around = BTreeMap<Key, Option<Revision>>;

/// The cache of the binding core.
#[derive(Default)]
pub struct Cache {
    classes: BTreeMap<String, Arc<IPAddressClass>>,
    defaults: BTreeSet<String>,
    addresses: BTreeMap<String, Arc<IPAddress>>,
    claims: BTreeMap<Key, Arc<IPAddressClaim>>,
    /// Claim, uid in the claimRef (may be empty), address name.
    by_claim: BTreeSet<(Key, String, String)>,
    available: Available,
    waiting: Waiting,
    /// When this process first saw a pre-bound address without its claim: uid, claim and time.
    orphans: BTreeMap<String, (String, Key, Duration)>,
    /// Whether an addition of ours to a claim's status was ever seen: the server keeps them.
    additions_kept: bool,
}

impl Cache {
    /// Takes in a change and names the work that it may call for.
    pub fn observe(&mut self, change: &Change) -> Vec<Work> {
        match change {
            Change::Class { key, old, new } => self.observe_class(key, old, new),
            Change::Address { key, old, new } => self.observe_address(key, old, new),
            Change::Claim { key, old, new } => self.observe_claim(key, old, new),
        }
    }

    fn observe_class(
        &mut self,
        key: &Key,
        old: &Option<Arc<IPAddressClass>>,
        new: &Option<Arc<IPAddressClass>>,
    ) -> Vec<Work> {
        match new {
            Some(class) => self.classes.insert(key.name.clone(), class.clone()),
            None => self.classes.remove(&key.name),
        };
        let is_default =
            |c: &Option<Arc<IPAddressClass>>| c.as_ref().is_some_and(|c| c.is_default());
        if is_default(new) {
            self.defaults.insert(key.name.clone());
        } else {
            self.defaults.remove(&key.name);
        }
        let driver =
            |c: &Option<Arc<IPAddressClass>>| c.as_ref().map(|c| c.spec.provisioner.clone());
        // What the driver reports in the status concerns no claim.
        let mut keys = Vec::new();
        if driver(old) != driver(new) && !active(Mutant::WakeForClassLost) {
            keys.extend(self.waiting.of_class(&key.name));
        }
        if is_default(old) != is_default(new) || (is_default(new) && driver(old) != driver(new)) {
            keys.extend(self.waiting.of_class(""));
        }
        keys.into_iter().map(Work::Claim).collect()
    }

    fn observe_address(
        &mut self,
        key: &Key,
        old: &Option<Arc<IPAddress>>,
        new: &Option<Arc<IPAddress>>,
    ) -> Vec<Work> {
        let name = &key.name;
        match new {
            Some(address) => self.addresses.insert(name.clone(), address.clone()),
            None => self.addresses.remove(name),
        };
        let mut works = Vec::new();
        for (address, is_new) in [(old, false), (new, true)] {
            let Some(r) = address.as_ref().and_then(|a| a.spec.claim_ref.as_ref()) else {
                continue;
            };
            let entry = (r.key(), r.uid.clone(), name.clone());
            works.push(Work::Claim(r.key()));
            if is_new {
                self.by_claim.insert(entry);
            } else {
                self.by_claim.remove(&entry);
            }
        }
        if new.is_none() {
            self.orphans.remove(name);
        } else {
            works.push(Work::Address(name.clone()));
        }
        works.extend(self.waiting.of_name(name).into_iter().map(Work::Claim));
        let freed = self.available.observe(name, old.as_deref(), new.as_deref());
        if let Some(place) = freed {
            works.extend(self.waiting.wake_first(&place).map(Work::Claim));
        }
        works
    }

    fn observe_claim(
        &mut self,
        key: &Key,
        old: &Option<Arc<IPAddressClaim>>,
        new: &Option<Arc<IPAddressClaim>>,
    ) -> Vec<Work> {
        match new {
            Some(claim) => self.claims.insert(key.clone(), claim.clone()),
            None => self.claims.remove(key),
        };
        let mut works = vec![Work::Claim(key.clone())];
        let status = new.as_ref().and_then(|c| c.status.as_ref());
        if !self.additions_kept && status.is_some_and(IPAddressClaimStatus::has_additions) {
            self.additions_kept = true;
            works.extend(self.without_additions().map(Work::Claim));
        }
        self.waiting.observe(key, old.as_deref(), new.as_deref());
        if new.is_none() {
            works.extend(self.pass_on(key, None));
        }
        if new.is_none() || old.is_none() {
            // Addresses of an earlier claim of this name, and of one that is gone.
            works.extend(
                self.named_by(key)
                    .map(|(_, name)| Work::Address(name.to_owned())),
            );
        }
        works
    }

    /// The claims whose status was written when the server dropped what we add to it.
    fn without_additions(&self) -> impl Iterator<Item = Key> {
        let lacks = IPAddressClaimStatus::lacks_additions;
        let claims = self.claims.iter();
        claims
            .filter(move |(_, claim)| claim.status.as_ref().is_some_and(lacks))
            .map(|(key, _)| key.clone())
    }

    /// The uid and name of each address whose claimRef names this claim.
    fn named_by<'a>(&'a self, key: &Key) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let key = key.clone();
        self.by_claim
            .range((key.clone(), String::new(), String::new())..)
            .take_while(move |(k, _, _)| *k == key)
            .map(|(_, uid, name)| (uid.as_str(), name.as_str()))
    }

    /// The names of the addresses whose claimRef names this claim with exactly this uid.
    fn named_with<'a>(&'a self, key: &Key, uid: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let (key, uid) = (key.clone(), uid.to_owned());
        self.by_claim
            .range((key.clone(), uid.clone(), String::new())..)
            .take_while(move |(k, u, _)| *k == key && *u == uid)
            .map(|(_, _, name)| name.as_str())
    }

    /// The claim as this pass knows it: what it read at `Latest` wins over what was observed.
    fn claim(&self, key: &Key, facts: &Facts) -> Seen<IPAddressClaim> {
        newest(self.claims.get(key), facts.claims.get(key), |c| {
            c.metadata.resource_version
        })
    }

    /// The revision of the claim as this pass knows it.
    pub(super) fn claim_revision(&self, key: &Key, facts: &Facts) -> Option<Revision> {
        revision_of(&self.claim(key, facts))
    }

    fn address(&self, name: &str, facts: &Facts) -> Seen<IPAddress> {
        newest(self.addresses.get(name), facts.addresses.get(name), |a| {
            a.metadata.resource_version
        })
    }

    /// The view of a claim.
    pub fn claim_view(&self, key: &Key, facts: &Facts, now: Timestamp) -> ClaimView {
        let claim = self.claim(key, facts);
        let known = revision_of(&claim);
        let is_current = |kind| {
            let asked_of = facts.barriers.get(&kind);
            asked_of.is_some_and(|r| *r == known || active(Mutant::BarrierOutlivesWipe))
        };
        let mut view = ClaimView {
            addresses_current: is_current(Kind::IPAddress),
            classes_current: is_current(Kind::IPAddressClass),
            additions_kept: self.additions_kept,
            now,
            ..ClaimView::default()
        };
        let Some(object) = claim.object.clone() else {
            return view;
        };
        view.claim = claim;
        let uid = object.metadata.uid.as_str();
        let mut names: BTreeSet<&str> = self.named_with(key, uid).collect();
        names.extend(self.named_with(key, ""));
        view.addresses = names
            .into_iter()
            .filter_map(|name| self.address(name, facts).object)
            .filter(|a| {
                // A fact may be newer than the index.
                a.spec
                    .claim_ref
                    .as_ref()
                    .is_some_and(|r| r.key() == *key && (r.uid.is_empty() || r.uid == uid))
            })
            .collect();
        let status = object.status.iter();
        let reported = status.flat_map(|s| s.addresses.iter().chain(&s.lost_addresses));
        let mut named: Vec<&str> = reported.map(|e| e.name.as_str()).collect();
        if !object.spec.address_name.is_empty() {
            named.push(&object.spec.address_name);
        }
        for name in named {
            view.named
                .insert(name.to_owned(), self.address(name, facts));
        }
        let lookup = Classes { cache: self, facts };
        view.class = resolve(&object, &lookup);
        view.stamp_class = self.stamp_class(&object, &view, &lookup);
        if let Some(class) = view.class.class() {
            for family in object.spec.family.families() {
                let first = self.available.first(&class.metadata.name, *family);
                if let Some(address) = first.and_then(|name| self.addresses.get(name)) {
                    view.candidates.insert(*family, address.clone());
                }
            }
        }
        view
    }

    fn stamp_class(
        &self,
        claim: &IPAddressClaim,
        view: &ClaimView,
        classes: &Classes<'_>,
    ) -> Option<Arc<IPAddressClass>> {
        let of_address = || {
            let wanted = view
                .named
                .get(&claim.spec.address_name)
                .and_then(|s| s.object.as_ref());
            wanted
                .or(view.addresses.first())
                .map_or("", |a| a.spec.class_name.as_str())
        };
        let name = match claim.resolved_class() {
            "" => of_address(),
            name => name,
        };
        classes.class(name).0
    }

    /// The view of an address; `None` if it is not known.
    pub fn address_view(
        &mut self,
        name: &str,
        facts: &Facts,
        now: Timestamp,
        monotonic: Duration,
        grace: Duration,
    ) -> Option<AddressView> {
        let address = self.address(name, facts).object?;
        let claim_ref = address.spec.claim_ref.as_ref();
        let claim = claim_ref
            .map(|r| self.claim(&r.key(), facts))
            .unwrap_or_default();
        let waits_for = claim_ref.filter(|r| {
            claim.object.is_none()
                && address.spec.reclaim_policy == ReclaimPolicy::Delete
                && r.uid.is_empty()
        });
        let waited = if let Some(r) = waits_for {
            let fresh = (address.metadata.uid.clone(), r.key(), monotonic);
            let seen = self
                .orphans
                .entry(name.to_owned())
                .or_insert_with(|| fresh.clone());
            if (&seen.0, &seen.1) != (&fresh.0, &fresh.1) {
                *seen = fresh;
            }
            monotonic.saturating_sub(seen.2)
        } else {
            self.orphans.remove(name);
            Duration::ZERO
        };
        Some(AddressView {
            address,
            claim,
            waited,
            grace,
            now,
        })
    }

    /// All that a pass over this work looks at, by revision, to tell whether it has moved.
    pub(super) fn around(&self, work: &Work) -> Around {
        let mut around = Around::new();
        let mut note_address = |name: &str| {
            let revision = self
                .addresses
                .get(name)
                .and_then(|a| a.metadata.resource_version);
            around.insert(Key::address(name), revision);
        };
        let key = match work {
            Work::Claim(key) => {
                self.named_by(key).for_each(|(_, name)| note_address(name));
                Some(key.clone())
            }
            Work::Address(name) => {
                note_address(name);
                let address = self.addresses.get(name);
                address
                    .and_then(|a| a.spec.claim_ref.as_ref())
                    .map(|r| r.key())
            }
        };
        let claim = key.as_ref().and_then(|key| self.claims.get(key));
        if let (Work::Claim(_), Some(claim)) = (work, claim) {
            let status = claim.status.iter();
            let named = status.flat_map(|s| s.addresses.iter().chain(&s.lost_addresses));
            named.for_each(|entry| note_address(&entry.name));
            note_address(&claim.spec.address_name);
            // A class is read only where none is known. The status of one that is known moves often
            // and concerns no claim.
            let names = [claim.spec.class_name.as_str(), claim.resolved_class()];
            let unknown = names
                .iter()
                .filter(|name| !self.classes.contains_key(**name));
            around.extend(unknown.map(|name| (Key::class(*name), None)));
        }
        if let Some(key) = key {
            around.insert(key, claim.and_then(|c| c.metadata.resource_version));
        }
        around
    }

    /// The addresses of a claim's own group: those that name it with its uid or without any.
    pub fn group(&self, key: &Key) -> Vec<String> {
        let Some(claim) = self.claims.get(key) else {
            return Vec::new();
        };
        let uid = claim.metadata.uid.as_str();
        self.named_with(key, "")
            .chain(self.named_with(key, uid))
            .map(str::to_owned)
            .collect()
    }

    /// Whether this address is looked after with the claim that it names, rather than alone.
    pub fn group_of(&self, name: &str) -> Option<Key> {
        let claim_ref = self.addresses.get(name)?.spec.claim_ref.as_ref()?;
        let claim = self.claims.get(&claim_ref.key())?;
        (claim_ref.uid.is_empty() || claim_ref.uid == claim.metadata.uid).then(|| claim_ref.key())
    }

    /// Whether an address is known and bound to nobody.
    pub fn is_free(&self, name: &str) -> bool {
        self.addresses
            .get(name)
            .is_some_and(|a| a.spec.claim_ref.is_none())
    }

    /// Keeps a free address for a pass; false if another pass has it.
    pub fn pick(&mut self, name: &str, by: &Key) -> bool {
        match self.addresses.get(name) {
            Some(address) => self.available.pick(address, by),
            None => false,
        }
    }

    /// The addresses that are kept for passes: name, claim, and the revision of the write that is
    /// still to be observed, once it is made.
    pub fn picked(&self) -> impl Iterator<Item = (&str, &Key, Option<Revision>)> {
        self.available.picked()
    }

    /// Ends a pick for this claim that was written at this revision.
    pub fn settle_pick(&mut self, name: &str, by: &Key, written: Revision) -> Option<Work> {
        let current = self.addresses.get(name).map(AsRef::as_ref);
        let place = self.available.settle(name, by, Some(written), current)?;
        self.waiting.wake_first(&place).map(Work::Claim)
    }

    /// Ends a pick that was not written. The claim has its turn still, and passes it on when it has had
    /// its pass.
    pub fn give_back(&mut self, name: &str, by: &Key) {
        let current = self.addresses.get(name).map(AsRef::as_ref);
        if let Some(place) = self.available.settle(name, by, None, current) {
            self.waiting.keep_turn(&place, by);
        }
    }

    /// A claim has had its pass. Of each class and family for which it was woken and something is
    /// still free, the next in line is woken.
    pub fn passed(&mut self, key: &Key) -> Vec<Work> {
        let claim = self.claims.get(key).cloned();
        self.pass_on(key, claim.as_deref())
    }

    fn pass_on(&mut self, key: &Key, claim: Option<&IPAddressClaim>) -> Vec<Work> {
        let mut next = Vec::new();
        for place in self.waiting.passed(key, claim) {
            if active(Mutant::BatonDropped) {
                continue;
            }
            if self.available.first(&place.0, place.1).is_some() {
                next.extend(self.waiting.wake_after(&place, key).map(Work::Claim));
            }
        }
        next
    }

    /// All work there could be.
    pub fn all(&self) -> Vec<Work> {
        let claims = self.claims.keys().cloned().map(Work::Claim);
        claims
            .chain(self.addresses.keys().cloned().map(Work::Address))
            .collect()
    }
}

fn revision_of(claim: &Seen<IPAddressClaim>) -> Option<Revision> {
    claim.object.as_ref()?.metadata.resource_version
}

/// Whichever is newer. What was read to be absent is absent, whatever was observed before.
fn newest<T>(
    observed: Option<&Arc<T>>,
    read: Option<&Option<Arc<T>>>,
    revision: impl Fn(&T) -> Option<Revision>,
) -> Seen<T> {
    match (observed, read) {
        (observed, None) => Seen {
            object: observed.cloned(),
            proven: false,
        },
        (_, Some(None)) => Seen {
            object: None,
            proven: true,
        },
        (Some(o), Some(Some(r))) if revision(o) > revision(r) => Seen {
            object: Some(o.clone()),
            proven: true,
        },
        (_, Some(Some(r))) => Seen {
            object: Some(r.clone()),
            proven: true,
        },
    }
}

struct Classes<'a> {
    cache: &'a Cache,
    facts: &'a Facts,
}

impl Classes<'_> {
    fn class(&self, name: &str) -> (Option<Arc<IPAddressClass>>, bool) {
        let seen = newest(
            self.cache.classes.get(name),
            self.facts.classes.get(name),
            |c| c.metadata.resource_version,
        );
        (seen.object, seen.proven)
    }
}

impl ClassLookup for Classes<'_> {
    fn class(&self, name: &str) -> (Option<Arc<IPAddressClass>>, bool) {
        Classes::class(self, name)
    }

    fn defaults(&self) -> Vec<Arc<IPAddressClass>> {
        let names = self.cache.defaults.iter();
        names
            .filter_map(|name| self.cache.classes.get(name).cloned())
            .collect()
    }
}
