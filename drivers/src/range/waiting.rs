//! Who waits for an address, by class and by what is missing.

use std::collections::{BTreeMap, BTreeSet};

use ipledger_core::api::Key;
use ipledger_core::net::Family;

/// The families that a claim misses. Both are given together or not at all (D2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// One IPv4 address.
    V4,
    /// One IPv6 address.
    V6,
    /// One of each.
    Both,
}

impl Need {
    /// The need for these families; `None` if there is none.
    pub(super) fn of(families: impl IntoIterator<Item = Family>) -> Option<Need> {
        families
            .into_iter()
            .map(Need::from)
            .reduce(|a, b| if a == b { a } else { Need::Both })
    }

    /// The concrete families, IPv4 first.
    pub(super) fn families(self) -> &'static [Family] {
        match self {
            Need::V4 => &[Family::V4],
            Need::V6 => &[Family::V6],
            Need::Both => &Family::ALL,
        }
    }
}

impl From<Family> for Need {
    fn from(family: Family) -> Need {
        match family {
            Family::V4 => Need::V4,
            Family::V6 => Need::V6,
        }
    }
}

/// Claims that wait because a class is exhausted, by what they need and what they were told. Sorted, so that the first claim that can be
/// helped is found in O(log n), however many cannot.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    by_class: BTreeMap<String, BTreeMap<(Need, Family), BTreeSet<Key>>>,
}

impl Waiting {
    /// Lets the claim wait. It is told that this family is exhausted.
    pub(super) fn insert(&mut self, class: &str, need: Need, told: Family, claim: Key) {
        let needs = self.by_class.entry(class.to_owned()).or_default();
        needs.entry((need, told)).or_default().insert(claim);
    }

    /// The claim waits for nothing of this class any more.
    pub(super) fn remove(&mut self, class: &str, claim: &Key) {
        if let Some(needs) = self.by_class.get_mut(class) {
            needs.retain(|_, claims| {
                claims.remove(claim);
                !claims.is_empty()
            });
            if needs.is_empty() {
                self.by_class.remove(class);
            }
        }
    }

    /// Classes that somebody waits for.
    pub(super) fn classes(&self) -> impl Iterator<Item = &String> {
        self.by_class.keys()
    }

    /// The first claim in key order whose need can be met.
    pub(super) fn first(&self, class: &str, can_meet: impl Fn(Need) -> bool) -> Option<&Key> {
        let needs = self.by_class.get(class)?;
        let met = needs.iter().filter(|((need, _), _)| can_meet(*need));
        met.filter_map(|(_, claims)| claims.first()).min()
    }

    /// The claims that need both families and were told that this one is exhausted.
    pub(super) fn told(&self, class: &str, family: Family) -> Vec<Key> {
        let needs = self.by_class.get(class);
        let told = needs.and_then(|needs| needs.get(&(Need::Both, family)));
        told.into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::claim("a", name)
    }

    #[test]
    fn the_first_claim_whose_need_can_be_met_is_found_among_those_that_cannot() {
        let mut waiting = Waiting::default();
        waiting.insert("c", Need::Both, Family::V6, key("1"));
        waiting.insert("c", Need::V4, Family::V4, key("3"));
        waiting.insert("c", Need::V6, Family::V6, key("2"));
        waiting.insert("other", Need::V4, Family::V4, key("0"));
        assert_eq!(waiting.told("c", Family::V4), []);
        assert_eq!(waiting.told("c", Family::V6), [key("1")]);
        assert_eq!(waiting.first("c", |need| need == Need::V4), Some(&key("3")));
        assert_eq!(
            waiting.first("c", |need| need != Need::Both),
            Some(&key("2"))
        );
        assert_eq!(waiting.first("c", |_| true), Some(&key("1")));
        waiting.remove("c", &key("3"));
        assert_eq!(waiting.first("c", |need| need == Need::V4), None);
        waiting.remove("other", &key("0"));
        assert_eq!(waiting.classes().collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn a_need_is_the_sum_of_its_families() {
        assert_eq!(Need::of([]), None);
        assert_eq!(Need::of([Family::V6]), Some(Need::V6));
        assert_eq!(Need::of([Family::V4, Family::V6]), Some(Need::Both));
    }
}
