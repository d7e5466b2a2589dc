use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::api::{ClaimPhase, IPAddressClaim, Key, names};
use crate::net::Family;

/// Which claims an event can help: those that wait for a free address, for a class, or for one
/// address by name.
#[derive(Default)]
pub(super) struct Waiting {
    /// Claims that wait for a free address of a class and family, without those woken.
    for_address: BTreeMap<(String, Family), BTreeSet<Key>>,
    /// Claims that were woken for free addresses and have not had a pass since, and for which.
    woken: BTreeMap<Key, BTreeSet<(String, Family)>>,
    /// Claims that a change of this class (empty: of the default) concerns.
    for_class: BTreeSet<(String, Key)>,
    /// Claims that name an address object.
    for_name: BTreeSet<(String, Key)>,
}

impl Waiting {
    /// Takes in a change of a claim.
    pub(super) fn observe(
        &mut self,
        key: &Key,
        old: Option<&IPAddressClaim>,
        new: Option<&IPAddressClaim>,
    ) {
        if let Some(claim) = old {
            for place in families_wanted(claim) {
                self.leave(&place, key);
            }
            if let Some(class) = class_wanted(claim) {
                self.for_class.remove(&(class.to_owned(), key.clone()));
            }
            self.for_name
                .remove(&(claim.spec.address_name.clone(), key.clone()));
        }
        let Some(claim) = new else {
            return;
        };
        self.enter(key, claim);
        if let Some(class) = class_wanted(claim) {
            self.for_class.insert((class.to_owned(), key.clone()));
        }
        if !claim.spec.address_name.is_empty() && is_open(claim) {
            self.for_name
                .insert((claim.spec.address_name.clone(), key.clone()));
        }
    }

    fn enter(&mut self, key: &Key, claim: &IPAddressClaim) {
        for place in families_wanted(claim) {
            if self.woken.get(key).is_some_and(|p| p.contains(&place)) {
                continue;
            }
            self.for_address
                .entry(place)
                .or_default()
                .insert(key.clone());
        }
    }

    fn leave(&mut self, place: &(String, Family), key: &Key) {
        if let Some(keys) = self.for_address.get_mut(place) {
            keys.remove(key);
            if keys.is_empty() {
                self.for_address.remove(place);
            }
        }
    }

    /// Wakes the first claim that waits for a free address of this class and family. One freed
    /// address wakes one claim.
    pub(super) fn wake_first(&mut self, place: &(String, Family)) -> Option<Key> {
        let key = self.for_address.get(place)?.first()?.clone();
        self.wake(place, key)
    }

    /// The claim counts as woken for a free address of this class and family.
    pub(super) fn keep_turn(&mut self, place: &(String, Family), key: &Key) {
        self.wake(place, key.clone());
    }

    fn wake(&mut self, place: &(String, Family), key: Key) -> Option<Key> {
        self.leave(place, &key);
        self.woken
            .entry(key.clone())
            .or_default()
            .insert(place.clone());
        Some(key)
    }

    /// The claim has had its pass, or is gone: it may be woken again if it still waits. Returns
    /// what it was woken for.
    pub(super) fn passed(
        &mut self,
        key: &Key,
        claim: Option<&IPAddressClaim>,
    ) -> BTreeSet<(String, Family)> {
        let places = self.woken.remove(key).unwrap_or_default();
        if let Some(claim) = claim {
            self.enter(key, claim);
        }
        places
    }

    /// Wakes the next claim behind one that could not use what it was woken for. It goes forward
    /// only, so that claims which cannot use an address do not wake each other for ever.
    pub(super) fn wake_after(&mut self, place: &(String, Family), key: &Key) -> Option<Key> {
        let behind = (Bound::Excluded(key.clone()), Bound::Unbounded);
        let next = self.for_address.get(place)?.range(behind).next()?.clone();
        self.wake(place, next)
    }

    /// The claims that a change of this class concerns; the empty name stands for the default.
    pub(super) fn of_class(&self, class: &str) -> Vec<Key> {
        keys_of(&self.for_class, class)
    }

    /// The claims that name this address object and are not bound.
    pub(super) fn of_name(&self, address: &str) -> Vec<Key> {
        keys_of(&self.for_name, address)
    }

    /// Whether both would wake the same claims for the same events.
    #[cfg(test)]
    pub(super) fn is_like(&self, other: &Waiting) -> bool {
        self.for_address == other.for_address
            && self.for_class == other.for_class
            && self.for_name == other.for_name
    }
}

fn keys_of(index: &BTreeSet<(String, Key)>, name: &str) -> Vec<Key> {
    let from = (name.to_owned(), Key::cluster(crate::api::Kind::ALL[0], ""));
    index
        .range(from..)
        .take_while(|(n, _)| n == name)
        .map(|(_, key)| key.clone())
        .collect()
}

/// Whether the claim may still be matched.
fn is_open(claim: &IPAddressClaim) -> bool {
    !claim.metadata.is_deleting()
        && !matches!(claim.phase(), Some(ClaimPhase::Bound | ClaimPhase::Lost))
}

/// The class and family of each address that the claim waits for.
fn families_wanted(claim: &IPAddressClaim) -> Vec<(String, Family)> {
    if !is_open(claim) || !claim.spec.address_name.is_empty() {
        return Vec::new();
    }
    let Some(status) = &claim.status else {
        return Vec::new();
    };
    let class = if claim.spec.class_name.is_empty() {
        &status.class_name
    } else {
        &claim.spec.class_name
    };
    if class.is_empty() {
        return Vec::new();
    }
    let has = |family: Family| {
        status
            .addresses
            .iter()
            .any(|e| crate::net::Ip::parse(&e.address).is_ok_and(|ip| ip.family() == family))
    };
    let families = claim.spec.family.families().iter().copied();
    families
        .filter(|f| !has(*f))
        .map(|f| (class.clone(), f))
        .collect()
}

/// The class whose changes concern the claim; `Some("")` for the default class.
fn class_wanted(claim: &IPAddressClaim) -> Option<&str> {
    let unstamped = claim.phase() == Some(ClaimPhase::Bound)
        && claim.metadata.annotation(names::PROVISIONER).is_none();
    // A bound claim is stamped from the class of what it holds, which need not be the one asked for.
    let mut named = [claim.spec.class_name.as_str(), claim.resolved_class()];
    if unstamped {
        named.reverse();
    }
    let class = named.into_iter().find(|c| !c.is_empty()).unwrap_or("");
    let open = is_open(claim) && claim.spec.address_name.is_empty();
    (open || (unstamped && !claim.metadata.is_deleting())).then_some(class)
}
