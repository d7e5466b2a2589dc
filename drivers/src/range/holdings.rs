//! The supply side: which IPs are taken, by which address objects and by which picks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipledger_core::api::{IPAddress, Key, names};
use ipledger_core::mutant::{Mutant, active};
use ipledger_core::net::{Ip, Occupancy};

use super::{FINALIZER, REUSABLE_AT};

/// All address objects by IP, claim and class, and the IPs that are picked and not created yet.
///
/// An IP never has a pick and an object at once: the object ends the pick. Each change costs
/// O(log n) in the number of objects.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    entries: BTreeMap<String, Entry>,
    /// How many objects stand on an IP.
    objects: BTreeMap<Ip, usize>,
    /// The claim for which an IP is picked.
    picks: BTreeMap<Ip, Key>,
    /// IPs with an object or a pick.
    occupied: Occupancy,
    by_claim: BTreeMap<Key, BTreeSet<String>>,
    by_class: BTreeMap<String, BTreeSet<String>>,
    /// Objects that are marked for deletion and that this driver still has to let go.
    leaving: BTreeSet<String>,
    /// IPs that rest after their release.
    cooling: Occupancy,
}

/// One object, as far as it can be read.
#[derive(Debug, Default)]
struct Entry {
    object: Option<Arc<IPAddress>>,
    /// The IP in its spec and the one that its name stands for; normally the same.
    ips: BTreeSet<Ip>,
}

/// What a change of one object has done.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Moves {
    /// The object before the change.
    pub(super) old: Option<Arc<IPAddress>>,
    /// IPs that no object stands on any more.
    pub(super) freed: Vec<Ip>,
    /// IPs that an object stands on now.
    pub(super) taken: Vec<Ip>,
    /// Picks that the object has ended, with their claims.
    pub(super) ended: Vec<(Ip, Key)>,
    /// IPs that have begun or ceased to cool down.
    pub(super) cooled: Vec<Ip>,
}

impl Holdings {
    /// Takes in the new state of the object of this name; `None` if it is gone.
    pub(super) fn apply(&mut self, name: &str, new: Option<Arc<IPAddress>>) -> Moves {
        let entry = new.map(|object| Entry {
            ips: object.ip().into_iter().chain(named_ip(name)).collect(),
            object: Some(object),
        });
        self.replace(name, entry)
    }

    /// Takes in that there is an object of this name which cannot be read: its name alone takes
    /// an IP. Ends with the next [`apply`](Self::apply).
    pub(super) fn block(&mut self, name: &str) -> Moves {
        let ips = named_ip(name).into_iter().collect();
        self.replace(name, Some(Entry { object: None, ips }))
    }

    fn replace(&mut self, name: &str, new: Option<Entry>) -> Moves {
        let mut moves = Moves::default();
        let new = new.unwrap_or_default();
        let old = self.entries.remove(name).unwrap_or_default();
        // First what comes, so that an IP that stays is neither freed nor taken.
        for ip in &new.ips {
            let count = self.objects.entry(*ip).or_insert(0);
            *count += 1;
            if *count == 1 {
                self.occupied.insert(*ip);
                moves.taken.push(*ip);
                moves
                    .ended
                    .extend(self.picks.remove(ip).map(|key| (*ip, key)));
            }
        }
        for ip in &old.ips {
            if let Some(count) = self.objects.get_mut(ip) {
                *count -= 1;
                if *count == 0 {
                    self.objects.remove(ip);
                    self.occupied.remove(*ip);
                    moves.freed.push(*ip);
                }
            }
        }
        if let Some(object) = &old.object {
            self.forget(name, object, &mut moves);
        }
        if let Some(object) = &new.object {
            self.remember(name, object, &mut moves);
        }
        // An IP that goes on cooling was taken out and put back.
        moves.cooled.sort_unstable();
        moves.cooled = moves
            .cooled
            .chunk_by(|a, b| a == b)
            .filter(|c| c.len() == 1)
            .flatten()
            .copied()
            .collect();
        moves.old = old.object;
        if new.object.is_some() || !new.ips.is_empty() {
            self.entries.insert(name.to_owned(), new);
        }
        moves
    }

    fn remember(&mut self, name: &str, object: &IPAddress, moves: &mut Moves) {
        if let Some(claim) = &object.spec.claim_ref {
            self.by_claim
                .entry(claim.key())
                .or_default()
                .insert(name.to_owned());
        }
        let class = object.spec.class_name.clone();
        self.by_class
            .entry(class)
            .or_default()
            .insert(name.to_owned());
        if is_leaving(object) {
            self.leaving.insert(name.to_owned());
        }
        if let Some(ip) = cooling_ip(name, object)
            && self.cooling.insert(ip)
        {
            moves.cooled.push(ip);
        }
    }

    fn forget(&mut self, name: &str, object: &IPAddress, moves: &mut Moves) {
        if let Some(claim) = &object.spec.claim_ref {
            remove_from(&mut self.by_claim, &claim.key(), name);
        }
        remove_from(&mut self.by_class, &object.spec.class_name, name);
        self.leaving.remove(name);
        if let Some(ip) = cooling_ip(name, object)
            && self.cooling.remove(ip)
        {
            moves.cooled.push(ip);
        }
    }

    /// Keeps a free IP for a claim until [`release`](Self::release) or until an object stands on it.
    pub(super) fn pick(&mut self, ip: Ip, claim: Key) {
        self.picks.insert(ip, claim);
        self.occupied.insert(ip);
    }

    /// Gives a picked IP back. Without effect if it is not picked.
    pub(super) fn release(&mut self, ip: Ip) {
        if self.picks.remove(&ip).is_some() {
            self.occupied.remove(ip);
        }
    }

    /// IPs with an object or a pick.
    pub(super) fn occupied(&self) -> &Occupancy {
        &self.occupied
    }

    /// IPs that are picked and have no object yet.
    pub(super) fn picked(&self) -> impl Iterator<Item = Ip> + '_ {
        self.picks.keys().copied()
    }

    /// IPs that rest after their release.
    pub(super) fn cooling(&self) -> &Occupancy {
        &self.cooling
    }

    /// The object of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<IPAddress>> {
        self.entries.get(name)?.object.as_ref()
    }

    /// The objects whose claimRef names this claim, whatever uid it has.
    pub(super) fn of_claim(&self, claim: &Key) -> impl Iterator<Item = &IPAddress> {
        self.named(self.by_claim.get(claim))
    }

    /// The objects that say they are of this class.
    pub(super) fn of_class(&self, class: &str) -> impl Iterator<Item = &IPAddress> {
        self.named(self.by_class.get(class))
    }

    /// Names of objects that are marked for deletion and that this driver still has to let go.
    pub(super) fn leaving(&self) -> impl Iterator<Item = &String> {
        self.leaving.iter()
    }

    fn named(&self, names: Option<&BTreeSet<String>>) -> impl Iterator<Item = &IPAddress> {
        let names = names.into_iter().flatten();
        names.filter_map(|name| self.get(name).map(|object| &**object))
    }
}

fn remove_from<K: Ord>(index: &mut BTreeMap<K, BTreeSet<String>>, key: &K, name: &str) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

/// The IP whose object has this name, whatever the object says: a second object of that name
/// cannot be created.
fn named_ip(name: &str) -> Option<Ip> {
    let text = name.strip_prefix("ip-")?;
    let v4 = Ip::parse(&text.replace('-', ".")).ok();
    let ip = v4.or_else(|| Ip::parse(&text.replace('-', ":")).ok())?;
    (ip.object_name() == name).then_some(ip)
}

/// Whether this driver has to let the object go, now or later.
pub(super) fn is_leaving(object: &IPAddress) -> bool {
    let meta = &object.metadata;
    meta.is_deleting()
        && meta.has_finalizer(FINALIZER)
        && (!meta.has_finalizer(names::ADDRESS_PROTECTION) || active(Mutant::LetsGoEarly))
}

fn cooling_ip(name: &str, object: &IPAddress) -> Option<Ip> {
    let resting = is_leaving(object) && object.metadata.annotation(REUSABLE_AT).is_some();
    // Only the object that blocks the IP by its name counts, so that an IP counts once.
    object.ip().filter(|ip| resting && ip.object_name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Ip {
        Ip::parse(text).unwrap()
    }

    fn object(name: &str, address: &str) -> Option<Arc<IPAddress>> {
        let mut object = IPAddress::default();
        object.metadata.name = name.to_owned();
        object.spec.address = address.to_owned();
        Some(Arc::new(object))
    }

    #[test]
    fn an_ip_is_free_when_its_last_object_is_gone_whatever_their_names_and_spellings() {
        let mut holdings = Holdings::default();
        holdings.apply("my-ip", object("my-ip", "2001:DB8:0::7"));
        holdings.apply("ip-2001-db8--7", object("ip-2001-db8--7", "2001:db8::7"));
        assert!(holdings.occupied().contains(ip("2001:db8::7")));
        assert_eq!(holdings.apply("my-ip", None).freed, []);
        assert_eq!(
            holdings.apply("ip-2001-db8--7", None).freed,
            [ip("2001:db8::7")]
        );
        assert!(holdings.occupied().is_empty());
    }

    #[test]
    fn a_name_takes_its_ip_even_if_the_object_says_something_else_or_nothing() {
        let mut holdings = Holdings::default();
        holdings.apply("ip-10-0-0-1", object("ip-10-0-0-1", "10.0.0.9"));
        holdings.apply("ip-10-0-0-2", object("ip-10-0-0-2", "nonsense"));
        holdings.block("ip-2001-db8--0");
        for taken in ["10.0.0.1", "10.0.0.9", "10.0.0.2", "2001:db8::"] {
            assert!(holdings.occupied().contains(ip(taken)), "{taken}");
        }
        assert_eq!(holdings.occupied().len(), 4);
        assert_eq!(named_ip("ip-10-0-0-01"), None);
        assert_eq!(named_ip("ip-2001-db8-0--7"), None);
        assert_eq!(named_ip("host-10-0-0-1"), None);
    }

    #[test]
    fn an_object_ends_the_pick_of_its_ip_and_nothing_else_moves() {
        let mut holdings = Holdings::default();
        let claim = Key::claim("a", "one");
        holdings.pick(ip("10.0.0.1"), claim.clone());
        let moves = holdings.apply("ip-10-0-0-1", object("ip-10-0-0-1", "10.0.0.1"));
        assert_eq!(moves.ended, [(ip("10.0.0.1"), claim)]);
        holdings.release(ip("10.0.0.1"));
        assert!(holdings.occupied().contains(ip("10.0.0.1")));
        let again = holdings.apply("ip-10-0-0-1", object("ip-10-0-0-1", "10.0.0.1"));
        assert_eq!(
            (again.freed, again.taken, again.ended),
            (vec![], vec![], vec![])
        );
    }

    #[test]
    fn a_change_of_claim_and_class_moves_the_object_in_both_indexes() {
        let mut holdings = Holdings::default();
        let named = |claim: &str, class: &str| {
            let mut object = IPAddress::default();
            object.spec.class_name = class.to_owned();
            object.spec.claim_ref = Some(ipledger_core::api::ClaimRef {
                namespace: "a".to_owned(),
                name: claim.to_owned(),
                ..Default::default()
            });
            Some(Arc::new(object))
        };
        holdings.apply("x", named("one", "first"));
        holdings.apply("x", named("two", "second"));
        assert_eq!(holdings.of_claim(&Key::claim("a", "one")).count(), 0);
        assert_eq!(holdings.of_claim(&Key::claim("a", "two")).count(), 1);
        assert_eq!(holdings.of_class("first").count(), 0);
        assert_eq!(holdings.of_class("second").count(), 1);
        holdings.apply("x", None);
        assert!(holdings.by_claim.is_empty() && holdings.by_class.is_empty());
    }
}
