//! Against the fault-free run: a script that acts on settled states only ends as it ends without
//! faults, up to which address went to whom, and with the same numbers of creates and deletes.

use std::collections::BTreeMap;

use ipledger_core::api::{
    AddressPhase, ClaimFamily, IPAddress, IPAddressClaim, Key, Kind, ReclaimPolicy, find_condition,
    names,
};
use ipledger_core::net::Ip;
use ipledger_core::store::{Part, Preconditions};
use serde_json::json;

use crate::actors::{RANGE, STATIC};
use crate::ledger::{Ledger, Who};
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::world::{Failure, World};

/// One act. It names no address, because which one a claim holds may differ.
#[derive(Clone, Debug)]
enum Act {
    Create(Key, ClaimFamily, &'static str),
    Delete(Key),
    /// An admin deletes what a claim holds: it goes with the claim.
    DeleteHeld(Key),
    /// An admin clears what was released.
    Clear {
        only_uid: bool,
    },
    /// A driver loses what a claim holds, or finds it again.
    Lose(Key),
    Find(Key),
    DeleteClass(&'static str),
    CreateClass(&'static str),
    WipeStatus(Key),
}

/// A script, drawn without looking at the world.
fn script(rng: &mut Rng) -> Vec<Act> {
    let key = |rng: &mut Rng| Key::claim("a", *rng.pick(&["k1", "k2", "k3"]));
    let class = |rng: &mut Rng| *rng.pick(&[STATIC, RANGE]);
    let families = [ClaimFamily::IPv4, ClaimFamily::IPv6, ClaimFamily::Dual];
    (0..rng.between(4, 14))
        .map(|_| match rng.below(20) {
            0..=8 => Act::Create(key(rng), *rng.pick(&families), class(rng)),
            9..=11 => Act::Delete(key(rng)),
            12 => Act::DeleteHeld(key(rng)),
            13 => Act::Clear {
                only_uid: rng.chance(400),
            },
            14 => Act::Lose(key(rng)),
            15 => Act::Find(key(rng)),
            16 => Act::DeleteClass(class(rng)),
            17 | 18 => Act::CreateClass(class(rng)),
            _ => Act::WipeStatus(key(rng)),
        })
        .collect()
}

/// A class of this world: all of its addresses have one policy, so that it does not matter which
/// one a claim gets.
fn class(name: &str) -> ipledger_core::api::IPAddressClass {
    let mut class = ipledger_core::api::IPAddressClass::default();
    class.metadata.name = name.to_owned();
    class.spec.provisioner = "nobody.example.com".to_owned();
    if name == RANGE {
        class.spec.provisioner = ipledger_drivers::range::NAME.to_owned();
        class.spec.reclaim_policy = ReclaimPolicy::Delete;
        class.spec.parameters = Some(json!({ "addresses": ["10.2.0.0/24", "fd02::/120"] }));
    }
    class
}

fn furnish(ledger: &Ledger) {
    for name in [STATIC, RANGE] {
        ledger.add(Who::Admin, &class(name));
    }
    let by_hand = (1..=9).flat_map(|n| [format!("10.0.0.{n}"), format!("fd00::{n}")]);
    for text in by_hand {
        let mut address = IPAddress::default();
        address.metadata.name = Ip::parse(&text).map_or(String::new(), Ip::object_name);
        address.spec.address = text;
        address.spec.class_name = STATIC.to_owned();
        ledger.add(Who::Admin, &address);
    }
}

fn held(ledger: &Ledger, key: &Key) -> Vec<Key> {
    let oracle = ledger.oracle();
    let uid = oracle.claims.get(key).map(|c| c.metadata.uid.clone());
    let holds =
        |a: &&IPAddress| uid.is_some() && a.spec.claim_ref.as_ref().map(|r| &r.uid) == uid.as_ref();
    oracle
        .addresses
        .values()
        .filter(holds)
        .map(IPAddress::key)
        .collect()
}

fn carry_out(act: &Act, ledger: &Ledger) {
    let plain = Preconditions::default();
    match act {
        Act::Create(key, family, class) => {
            let mut claim = IPAddressClaim::default();
            claim.metadata.namespace = key.namespace.clone();
            claim.metadata.name = key.name.clone();
            claim.spec.family = *family;
            claim.spec.class_name = (*class).to_owned();
            ledger.add(Who::Tenant, &claim);
        }
        Act::Delete(key) => {
            let _ = ledger.delete(Who::Tenant, key, &plain);
        }
        Act::DeleteHeld(key) => {
            for address in held(ledger, key) {
                let _ = ledger.delete(Who::Admin, &address, &plain);
            }
        }
        Act::Clear { only_uid } => {
            let all: Vec<IPAddress> = ledger.oracle().addresses.values().cloned().collect();
            for address in all
                .iter()
                .filter(|a| a.phase() == Some(AddressPhase::Released))
            {
                ledger.edit(
                    Who::Admin,
                    &address.key(),
                    Part::Main,
                    |a: &mut IPAddress| {
                        if !only_uid {
                            a.spec.claim_ref = None;
                        } else if let Some(r) = &mut a.spec.claim_ref {
                            r.uid.clear();
                            let reserved = names::RESERVED.to_owned();
                            a.metadata.annotations.insert(reserved, "true".to_owned());
                        }
                    },
                );
            }
        }
        Act::Lose(key) | Act::Find(key) => {
            let phase = matches!(act, Act::Lose(_)).then_some(AddressPhase::Lost);
            for address in held(ledger, key) {
                ledger.edit(Who::Driver, &address, Part::Status, |a: &mut IPAddress| {
                    a.status.get_or_insert_default().phase = phase;
                });
            }
        }
        Act::DeleteClass(name) => {
            let _ = ledger.delete(Who::Admin, &Key::class(*name), &plain);
        }
        Act::CreateClass(name) => {
            ledger.add(Who::Admin, &class(name));
        }
        Act::WipeStatus(key) => {
            ledger.edit(Who::Vandal, key, Part::Status, |c: &mut IPAddressClaim| {
                c.status = None
            });
        }
    }
}

/// What the ledger says, up to which address went to whom.
#[derive(Debug, PartialEq)]
struct Summary {
    claims: Vec<String>,
    addresses: BTreeMap<String, usize>,
    created: u64,
    deleted: u64,
}

fn summary(oracle: &Oracle) -> Summary {
    let claims = oracle.claims.iter().map(|(key, c)| {
        let s = c.status.clone().unwrap_or_default();
        let reason = find_condition(&s.conditions, "Bound").map(|c| c.reason.clone());
        let counts = (s.addresses.len(), s.lost_addresses.len());
        format!(
            "{key} {:?} {reason:?} {counts:?} {:?} {:?}",
            s.phase,
            s.class_name,
            c.stamp()
        )
    });
    let mut addresses = BTreeMap::new();
    for address in oracle.addresses.values() {
        let family = address.ip().map(Ip::family);
        let holder = address
            .spec
            .claim_ref
            .as_ref()
            .map(|r| (r.name.clone(), r.uid.is_empty()));
        let class = &address.spec.class_name;
        let going = address.metadata.is_deleting();
        let what = format!(
            "{class} {family:?} {holder:?} {:?} {going}",
            address.phase()
        );
        *addresses.entry(what).or_default() += 1;
    }
    let of = |counts: &BTreeMap<Kind, u64>| counts.get(&Kind::IPAddress).copied().unwrap_or(0);
    Summary {
        claims: claims.collect(),
        addresses,
        created: of(&oracle.created),
        deleted: of(&oracle.deleted),
    }
}

/// Plays one script with and without faults.
///
/// # Errors
/// What was found wrong in the run with faults, or how it ends otherwise than the one without.
pub fn play(seed: u64) -> (Result<(), Failure>, World) {
    let acts = script(&mut Rng::new(seed).fork());
    let run = |faults: bool| {
        let mut world = World::scripted(seed, furnish);
        let result = acts.iter().try_for_each(|act| {
            world.say(format!("-- script: {act:?}"));
            carry_out(act, world.ledger());
            if faults {
                world.trouble_for(40);
            }
            world.settle()
        });
        (result, world)
    };
    let (calm, calm_world) = run(false);
    let (result, mut world) = run(true);
    let result = calm
        .map_err(|what| format!("without faults: {what}"))
        .and(result)
        .and_then(|()| {
            let (without, with) = (
                summary(&calm_world.ledger().oracle()),
                summary(&world.ledger().oracle()),
            );
            if without == with {
                world.finish()
            } else {
                Err(format!(
                    "ends as {with:#?}\nand without faults as {without:#?}"
                ))
            }
        });
    (result, world)
}
