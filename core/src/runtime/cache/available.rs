use std::collections::{BTreeMap, BTreeSet};

use crate::api::{IPAddress, Key};
use crate::binding::is_matchable;
use crate::net::Family;
use crate::store::Revision;

/// The free addresses by class and family, in name order, without those that a pass in flight
/// has picked. So two passes of one process never go for the same address.
#[derive(Default)]
pub(super) struct Available {
    free: BTreeMap<(String, Family), BTreeSet<String>>,
    picked: BTreeMap<String, Pick>,
}

struct Pick {
    by: Key,
    /// The revision that the pick was written at, once it was.
    written: Option<Revision>,
}

impl Available {
    /// The place of an address in the index, if it is free.
    fn place(address: &IPAddress) -> Option<(String, Family)> {
        let ip = address.ip().filter(|_| is_matchable(address))?;
        Some((address.spec.class_name.clone(), ip.family()))
    }

    /// Takes in a change; returns the place of an address that has become free by it.
    pub(super) fn observe(
        &mut self,
        name: &str,
        old: Option<&IPAddress>,
        new: Option<&IPAddress>,
    ) -> Option<(String, Family)> {
        let (before, after) = (
            old.and_then(Available::place),
            new.and_then(Available::place),
        );
        if let Some(place) = &before
            && let Some(names) = self.free.get_mut(place)
        {
            names.remove(name);
            if names.is_empty() {
                self.free.remove(place);
            }
        }
        let seen = new.and_then(|a| a.metadata.resource_version);
        if self
            .picked
            .get(name)
            .is_some_and(|p| new.is_none() || p.written.is_some_and(|w| seen >= Some(w)))
        {
            self.picked.remove(name);
        }
        if let Some(place) = &after
            && !self.picked.contains_key(name)
        {
            self.free
                .entry(place.clone())
                .or_default()
                .insert(name.to_owned());
        }
        after.filter(|place| before.as_ref() != Some(place))
    }

    /// The free address of this class and family with the smallest name.
    pub(super) fn first(&self, class: &str, family: Family) -> Option<&str> {
        self.free
            .get(&(class.to_owned(), family))?
            .first()
            .map(String::as_str)
    }

    /// Keeps an address for a pass; false if another pass has it.
    pub(super) fn pick(&mut self, address: &IPAddress, by: &Key) -> bool {
        let name = &address.metadata.name;
        if let Some(pick) = self.picked.get(name) {
            return pick.by == *by;
        }
        if let Some(place) = Available::place(address)
            && let Some(names) = self.free.get_mut(&place)
        {
            names.remove(name);
            if names.is_empty() {
                self.free.remove(&place);
            }
        }
        self.picked.insert(
            name.clone(),
            Pick {
                by: by.clone(),
                written: None,
            },
        );
        true
    }

    /// Ends a pick for this claim, unless another one has the address by now: it was written at this
    /// revision and is kept until that is observed, or it was not written. `current` is the address
    /// as observed now. Returns its place if it is free.
    pub(super) fn settle(
        &mut self,
        name: &str,
        by: &Key,
        written: Option<Revision>,
        current: Option<&IPAddress>,
    ) -> Option<(String, Family)> {
        let pick = self.picked.get_mut(name).filter(|pick| pick.by == *by)?;
        let seen = current.and_then(|a| a.metadata.resource_version);
        if let Some(revision) = written
            && seen < Some(revision)
            && current.is_some()
        {
            pick.written = Some(revision);
            return None;
        }
        self.picked.remove(name);
        let place = current.and_then(Available::place)?;
        self.free
            .entry(place.clone())
            .or_default()
            .insert(name.to_owned());
        Some(place)
    }

    /// What is picked: the address, for which claim, and the revision that it was written at.
    pub(super) fn picked(&self) -> impl Iterator<Item = (&str, &Key, Option<Revision>)> {
        let all = self.picked.iter();
        all.map(|(name, pick)| (name.as_str(), &pick.by, pick.written))
    }

    /// All that is free, for comparing with a rebuild.
    #[cfg(test)]
    pub(super) fn free(&self) -> &BTreeMap<(String, Family), BTreeSet<String>> {
        &self.free
    }
}
