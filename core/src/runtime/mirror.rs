use std::collections::BTreeMap;
use std::sync::Arc;

use super::Listing;
use super::typed::Typed;
use crate::api::{IPAddress, IPAddressClaim, IPAddressClass, Key, Kind, Object};
use crate::mutant::{Mutant, active};
use crate::store::{Revision, WatchEvent};

/// One change of one object, as far as the observer is concerned: from `old` to `new`.
#[derive(Clone, Debug)]
pub enum Change {
    /// A class came, changed or went.
    Class {
        /// The object.
        key: Key,
        /// Before.
        old: Option<Arc<IPAddressClass>>,
        /// After.
        new: Option<Arc<IPAddressClass>>,
    },
    /// An address came, changed or went.
    Address {
        /// The object.
        key: Key,
        /// Before.
        old: Option<Arc<IPAddress>>,
        /// After.
        new: Option<Arc<IPAddress>>,
    },
    /// A claim came, changed or went.
    Claim {
        /// The object.
        key: Key,
        /// Before.
        old: Option<Arc<IPAddressClaim>>,
        /// After.
        new: Option<Arc<IPAddressClaim>>,
    },
}

/// The last seen state of every object, typed, and what each listing or event changed in it.
///
/// # Guarantees
/// * A change is reported once; what is not newer than what is held changes nothing.
/// * An object that was deleted and created again under its name is reported as gone and then
///   as new, however much of that the store has shown.
///
/// # Caveats
/// * An object that cannot be read keeps its last readable state here and is named in
///   [`unreadable`](Self::unreadable): it must not look as if it were absent.
#[derive(Default)]
pub struct Mirror {
    objects: BTreeMap<Key, Typed>,
    unreadable: BTreeMap<Key, String>,
    reached: BTreeMap<Kind, Revision>,
}

impl Mirror {
    /// An empty mirror.
    pub fn new() -> Mirror {
        Mirror::default()
    }

    /// Takes an event of the kind's watch; returns what it changed, in order.
    pub fn apply(&mut self, kind: Kind, event: &WatchEvent) -> Vec<Change> {
        let revision = event.revision();
        if revision == Revision::default() {
            tracing::error!(
                ?event,
                "the store sent an event without a revision; it is ignored"
            );
        }
        if revision <= self.reached(kind) && !active(Mutant::OldEventsTaken) {
            return Vec::new();
        }
        self.reached.insert(kind, revision);
        let mut changes = Vec::new();
        match event {
            WatchEvent::Applied(object) => self.put(object, revision, &mut changes),
            WatchEvent::Deleted(object) => {
                let key = object.key();
                if self.is_newer(&key, revision) {
                    self.unreadable.remove(&key);
                    self.remove(key, &mut changes);
                }
            }
            WatchEvent::Unreadable { key, reason, .. } => {
                self.mark_unreadable(key.clone(), reason.clone());
            }
            WatchEvent::Bookmark(_) | WatchEvent::Synced(_) => {}
        }
        changes
    }

    /// Takes a listing of all objects of a kind; returns what it changed: first what is gone,
    /// then what is new or different. A listing older than what was reached is ignored.
    pub fn replace(&mut self, kind: Kind, listing: Listing) -> Vec<Change> {
        if listing.revision < self.reached(kind) && !active(Mutant::OlderListingTaken) {
            return Vec::new();
        }
        self.reached.insert(kind, listing.revision);
        let mut changes = Vec::new();
        let gone: Vec<Key> = self
            .of(kind)
            .map(|(key, _)| key)
            .filter(|key| {
                !listing.objects.contains_key(key) && !listing.unreadable.contains_key(key)
            })
            .cloned()
            .collect();
        for key in gone {
            if active(Mutant::RelistHidesDeletes) {
                continue;
            }
            self.remove(key, &mut changes);
        }
        self.unreadable
            .retain(|key, _| key.kind != kind || listing.unreadable.contains_key(key));
        for (key, reason) in listing.unreadable {
            self.mark_unreadable(key, reason);
        }
        for (key, typed) in listing.objects {
            if typed
                .meta()
                .resource_version
                .is_none_or(|r| self.is_newer(&key, r))
            {
                self.set(key, typed, &mut changes);
            }
        }
        changes
    }

    /// The revision up to which the kind was taken in; 0 before the first listing.
    pub fn reached(&self, kind: Kind) -> Revision {
        self.reached.get(&kind).copied().unwrap_or_default()
    }

    /// The class of that name.
    pub fn class(&self, name: &str) -> Option<&Arc<IPAddressClass>> {
        self.objects
            .get(&Key::class(name))
            .and_then(Typed::as_class)
    }

    /// The address object of that name.
    pub fn address(&self, name: &str) -> Option<&Arc<IPAddress>> {
        self.objects
            .get(&Key::address(name))
            .and_then(Typed::as_address)
    }

    /// The claim with that key.
    pub fn claim(&self, key: &Key) -> Option<&Arc<IPAddressClaim>> {
        self.objects.get(key).and_then(Typed::as_claim)
    }

    /// All classes, by name.
    pub fn classes(&self) -> impl Iterator<Item = &Arc<IPAddressClass>> {
        self.of(Kind::IPAddressClass)
            .filter_map(|(_, typed)| typed.as_class())
    }

    /// All address objects, by name.
    pub fn addresses(&self) -> impl Iterator<Item = &Arc<IPAddress>> {
        self.of(Kind::IPAddress)
            .filter_map(|(_, typed)| typed.as_address())
    }

    /// All claims, by namespace and name.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<IPAddressClaim>> {
        self.of(Kind::IPAddressClaim)
            .filter_map(|(_, typed)| typed.as_claim())
    }

    /// The objects whose stored form cannot be read, with the reason.
    pub fn unreadable(&self) -> &BTreeMap<Key, String> {
        &self.unreadable
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = (&Key, &Typed)> {
        self.objects
            .range(Key::cluster(kind, "")..)
            .take_while(move |(key, _)| key.kind == kind)
    }

    /// Whether this revision of the object is newer than the one held, if one is held.
    fn is_newer(&self, key: &Key, revision: Revision) -> bool {
        self.objects
            .get(key)
            .and_then(|held| held.meta().resource_version)
            < Some(revision)
    }

    fn put(&mut self, object: &Object, revision: Revision, changes: &mut Vec<Change>) {
        let key = object.key();
        if !self.is_newer(&key, revision) {
            return;
        }
        match Typed::decode(object) {
            Ok(typed) => self.set(key, typed, changes),
            Err(e) => self.mark_unreadable(key, e.reason),
        }
    }

    fn set(&mut self, key: Key, new: Typed, changes: &mut Vec<Change>) {
        self.unreadable.remove(&key);
        match self.objects.insert(key.clone(), new.clone()) {
            Some(old) if old.meta().uid != new.meta().uid && !active(Mutant::RecreationUnseen) => {
                changes.push(Typed::change(key.clone(), Some(old), None));
                changes.push(Typed::change(key, None, Some(new)));
            }
            old => changes.push(Typed::change(key, old, Some(new))),
        }
    }

    fn remove(&mut self, key: Key, changes: &mut Vec<Change>) {
        if let Some(old) = self.objects.remove(&key) {
            changes.push(Typed::change(key, Some(old), None));
        }
    }

    /// Logs it once, not with every listing.
    fn mark_unreadable(&mut self, key: Key, reason: String) {
        if self.unreadable.get(&key) != Some(&reason) {
            tracing::error!(
                object = %key, %reason,
                "an object cannot be read; its last readable state is used until it is mended"
            );
            self.unreadable.insert(key, reason);
        }
    }
}
