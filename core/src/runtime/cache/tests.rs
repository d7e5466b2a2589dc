use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::api::{AddressPhase, ClaimFamily, ClaimPhase, ClaimRef, ClaimedAddress, names};
use crate::net::Ip;

const IPS: [&str; 4] = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"];

fn address(n: usize, uid: u8, class: bool, holder: Option<(u8, bool)>, phase: u8) -> IPAddress {
    let mut a = IPAddress::default();
    let ip = Ip::parse(IPS[n]).unwrap();
    a.metadata.name = ip.object_name();
    a.metadata.uid = format!("a{uid}");
    a.spec.address = ip.to_string();
    a.spec.class_name = if class { "x" } else { "y" }.to_owned();
    a.spec.claim_ref = holder.map(|(claim, with_uid)| ClaimRef {
        namespace: "ns".to_owned(),
        name: format!("k{claim}"),
        uid: if with_uid {
            format!("u{claim}")
        } else {
            String::new()
        },
        ..ClaimRef::default()
    });
    let phases = [
        AddressPhase::Available,
        AddressPhase::Bound,
        AddressPhase::Lost,
    ];
    a.status.get_or_insert_default().phase = phases.get(phase as usize).copied();
    a
}

fn claim(
    n: u8,
    class: u8,
    dual: bool,
    phase: u8,
    named: bool,
    has: Option<usize>,
) -> IPAddressClaim {
    let mut c = IPAddressClaim::default();
    c.metadata.name = format!("k{n}");
    c.metadata.namespace = "ns".to_owned();
    c.metadata.uid = format!("u{n}");
    c.spec.class_name = ["", "x", "y"][class as usize % 3].to_owned();
    c.spec.family = if dual {
        ClaimFamily::Dual
    } else {
        ClaimFamily::IPv6
    };
    if named {
        c.spec.address_name = "ip-192-0-2-1".to_owned();
    }
    if phase > 2 {
        c.metadata
            .annotations
            .insert(names::PROVISIONER.to_owned(), "d".to_owned());
    }
    if phase > 0 {
        let phases = [ClaimPhase::Pending, ClaimPhase::Bound, ClaimPhase::Lost];
        let status = c.status.get_or_insert_default();
        status.phase = phases.get(phase as usize % 3).copied();
        status.class_name = "x".to_owned();
        status.addresses = has
            .map(|n| ClaimedAddress {
                name: Ip::parse(IPS[n]).unwrap().object_name(),
                address: IPS[n].to_owned(),
            })
            .into_iter()
            .collect();
    }
    c
}

/// The arguments of [`address`] behind the first.
type AddressArguments = (u8, bool, Option<(u8, bool)>, u8);
/// The arguments of [`claim`] behind the first.
type ClaimArguments = (u8, bool, u8, bool, Option<usize>);

#[derive(Clone, Debug)]
enum Step {
    Address(usize, Option<AddressArguments>),
    Claim(u8, Option<ClaimArguments>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let holder = proptest::option::of((0u8..3, any::<bool>()));
    let address = (
        0usize..4,
        proptest::option::of((any::<u8>(), any::<bool>(), holder, 0u8..4)),
    )
        .prop_map(|(n, a)| Step::Address(n, a));
    let has = proptest::option::of(0usize..4);
    let claim = (
        0u8..3,
        proptest::option::of((0u8..3, any::<bool>(), 0u8..5, any::<bool>(), has)),
    )
        .prop_map(|(n, c)| Step::Claim(n, c));
    proptest::collection::vec(prop_oneof![address, claim], 1..60)
}

proptest! {
    #[test]
    fn the_indexes_kept_incrementally_are_those_of_a_rebuild(steps in steps()) {
        let mut cache = Cache::default();
        for step in steps {
            let change = match step {
                Step::Address(n, new) => {
                    let key = Key::address(Ip::parse(IPS[n]).unwrap().object_name());
                    let old = cache.addresses.get(&key.name).cloned();
                    let new = new.map(|(u, c, h, p)| Arc::new(address(n, u, c, h, p)));
                    Change::Address { key, old, new }
                }
                Step::Claim(n, new) => {
                    let key = Key::claim("ns", format!("k{n}"));
                    let old = cache.claims.get(&key).cloned();
                    let new = new.map(|(c, d, p, m, h)| Arc::new(claim(n, c, d, p, m, h)));
                    Change::Claim { key, old, new }
                }
            };
            cache.observe(&change);
            // Everybody who was woken has a pass.
            let keys: Vec<Key> = cache.claims.keys().cloned().collect();
            for key in keys {
                cache.passed(&key);
            }
        }
        let mut rebuilt = Cache::default();
        for (name, new) in &cache.addresses {
            let key = Key::address(name);
            rebuilt.observe(&Change::Address { key, old: None, new: Some(new.clone()) });
        }
        for (key, new) in &cache.claims {
            rebuilt.observe(&Change::Claim { key: key.clone(), old: None, new: Some(new.clone()) });
        }
        prop_assert_eq!(&cache.by_claim, &rebuilt.by_claim);
        prop_assert_eq!(cache.available.free(), rebuilt.available.free());
        prop_assert!(cache.waiting.is_like(&rebuilt.waiting));
    }
}

fn observed(cache: &mut Cache, new: IPAddress) {
    let key = new.key();
    let old = cache.addresses.get(&key.name).cloned();
    cache.observe(&Change::Address {
        key,
        old,
        new: Some(Arc::new(new)),
    });
}

#[test]
fn an_address_that_a_pass_has_picked_is_offered_to_no_other() {
    let mut cache = Cache::default();
    let (one, two) = (Key::claim("ns", "k1"), Key::claim("ns", "k2"));
    observed(&mut cache, address(0, 1, true, None, 0));
    let v4 = crate::net::Family::V4;
    assert_eq!(cache.available.first("x", v4), Some("ip-192-0-2-1"));
    assert!(cache.pick("ip-192-0-2-1", &one));
    assert!(!cache.pick("ip-192-0-2-1", &two));
    assert_eq!(cache.available.first("x", v4), None);
    // An echo of an earlier write does not put it back.
    observed(&mut cache, address(0, 1, true, None, 0));
    assert_eq!(cache.available.first("x", v4), None);
    // The claim that has not picked it cannot end the pick.
    cache.give_back("ip-192-0-2-1", &two);
    assert_eq!(cache.available.first("x", v4), None);
    cache.give_back("ip-192-0-2-1", &one);
    assert_eq!(cache.available.first("x", v4), Some("ip-192-0-2-1"));
}

#[test]
fn a_written_pick_is_kept_until_the_write_is_observed() {
    let mut cache = Cache::default();
    let mut free = address(0, 1, true, None, 0);
    free.metadata.resource_version = Some(Revision(5));
    observed(&mut cache, free.clone());
    let by = Key::claim("ns", "k1");
    cache.pick("ip-192-0-2-1", &by);
    let woken = cache.settle_pick("ip-192-0-2-1", &by, Revision(7));
    assert_eq!(woken, None);
    free.metadata.resource_version = Some(Revision(6));
    observed(&mut cache, free.clone());
    let v4 = crate::net::Family::V4;
    assert_eq!(cache.available.first("x", v4), None);
    free.metadata.resource_version = Some(Revision(8));
    observed(&mut cache, free);
    assert_eq!(cache.available.first("x", v4), Some("ip-192-0-2-1"));
}

#[test]
fn default_classes_are_known_by_their_annotation() {
    let mut cache = Cache::default();
    let mut class = IPAddressClass::default();
    class.metadata.name = "x".to_owned();
    class.metadata.annotations =
        BTreeMap::from([(names::DEFAULT_CLASS.to_owned(), "true".to_owned())]);
    let (key, with) = (Key::class("x"), Some(Arc::new(class)));
    cache.observe(&Change::Class {
        key: key.clone(),
        old: None,
        new: with.clone(),
    });
    assert!(cache.defaults.contains("x"));
    cache.observe(&Change::Class {
        key,
        old: with,
        new: None,
    });
    assert!(cache.defaults.is_empty());
}

#[test]
fn a_claim_that_was_woken_twice_and_is_gone_passes_both_addresses_on() {
    let mut cache = Cache::default();
    let waits = |n: u8, family: ClaimFamily| {
        let mut waiting = claim(n, 1, false, 3, false, None);
        waiting.spec.family = family;
        waiting
    };
    let claims = [
        waits(0, ClaimFamily::Dual),
        waits(1, ClaimFamily::IPv4),
        waits(2, ClaimFamily::IPv6),
    ];
    for new in claims.clone() {
        cache.observe(&Change::Claim {
            key: new.key(),
            old: None,
            new: Some(Arc::new(new)),
        });
    }
    // Both wake the first in line, which goes before its pass.
    observed(&mut cache, address(0, 1, true, None, 0));
    observed(&mut cache, address(2, 1, true, None, 0));
    let key = claims[0].key();
    let old = cache.claims.get(&key).cloned();
    let works = cache.observe(&Change::Claim {
        key,
        old,
        new: None,
    });
    for waiting in &claims[1..] {
        assert!(works.contains(&Work::Claim(waiting.key())), "{works:?}");
    }
}

#[test]
fn claims_of_a_server_that_dropped_our_additions_are_looked_at_once_it_keeps_them() {
    let mut cache = Cache::default();
    let mut observe = |new: &IPAddressClaim| {
        let key = new.key();
        let old = cache.claims.get(&key).cloned();
        let new = Some(Arc::new(new.clone()));
        cache.observe(&Change::Claim { key, old, new })
    };
    let older = claim(0, 1, false, 1, false, Some(2));
    let waiting = claim(1, 1, false, 1, false, None);
    for claim in [&older, &waiting] {
        assert_eq!(observe(claim), [Work::Claim(claim.key())]);
    }
    let mut newer = claim(2, 1, false, 1, false, Some(3));
    newer.status.get_or_insert_default().address_text = IPS[3].to_owned();
    let works = observe(&newer);
    assert_eq!(works, [Work::Claim(newer.key()), Work::Claim(older.key())]);
    assert_eq!(observe(&newer), [Work::Claim(newer.key())]);
}
