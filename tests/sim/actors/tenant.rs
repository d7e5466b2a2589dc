use std::collections::BTreeMap;

use ipledger_core::api::{
    ClaimFamily, ClaimPhase, IPAddress, IPAddressClaim, IPAddressClaimSpec, IPAddressClaimStatus,
    Key, names,
};
use ipledger_core::net::Ip;
use ipledger_core::store::{Part, Preconditions};

use super::{Universe, one_of, some_class};
use crate::ledger::{Ledger, Who};
use crate::rng::Rng;

/// What a tenant may write in the place of a driver.
const FORGED_BY_NOBODY: &str = r#"{"provisioner":"somebody.example.com","reason":"PoolExhausted","class":"s","message":"forged"}"#;
const FORGED_BY_RANGE: &str = r#"{"provisioner":"range.drivers.local.sdn.cozystack.io","reason":"PoolExhausted","class":"r","message":"forged"}"#;

fn spec(universe: &Universe, ledger: &Ledger, rng: &mut Rng) -> IPAddressClaimSpec {
    let mut spec = IPAddressClaimSpec {
        family: *rng.pick(&[
            ClaimFamily::IPv4,
            ClaimFamily::IPv4,
            ClaimFamily::IPv6,
            ClaimFamily::Dual,
            ClaimFamily::Dual,
        ]),
        ..IPAddressClaimSpec::default()
    };
    if let Some(class) = universe.crowded.filter(|_| rng.chance(900)) {
        spec.class_name = class.to_owned();
        return spec;
    }
    match rng.below(20) {
        0..=3 => {}
        4 => spec.class_name = "none".to_owned(),
        _ => spec.class_name = some_class(universe, rng),
    }
    if rng.chance(150) {
        let by_hand = *rng.pick(&universe.by_hand);
        spec.address_name = Ip::parse(by_hand).map_or(by_hand.to_owned(), Ip::object_name);
        let known = one_of(rng, ledger.oracle().addresses.values(), |_| true);
        if let Some(address) = known.filter(|_| rng.chance(600)) {
            spec.address_name = address.metadata.name;
        }
        if rng.chance(700) {
            spec.class_name.clear();
        }
        if spec.family == ClaimFamily::Dual && rng.chance(800) {
            spec.family = ClaimFamily::IPv4;
        }
    }
    spec
}

pub(super) fn act(universe: &Universe, ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    let key = rng.pick(&universe.claims).clone();
    let claim = ledger.oracle().claims.get(&key).cloned();
    let Some(claim) = claim else {
        let mut claim = IPAddressClaim::default();
        claim.metadata.namespace = key.namespace.clone();
        claim.metadata.name = key.name.clone();
        claim.spec = spec(universe, ledger, rng);
        let said = format!("creates {key}: {:?}", claim.spec);
        return ledger.add(Who::Tenant, &claim).then_some(said);
    };
    match rng.below(10) {
        0 | 1 => {
            let done = ledger
                .delete(Who::Tenant, &key, &Preconditions::default())
                .is_ok();
            (done && !claim.metadata.is_deleting()).then(|| format!("deletes {key}"))
        }
        // The server lets nobody change the spec of a claim that is bound (R9).
        2 | 3 if !matches!(claim.phase(), Some(ClaimPhase::Bound | ClaimPhase::Lost)) => {
            let next = spec(universe, ledger, rng);
            let said = format!("edits {key}: {next:?}");
            ledger
                .edit(Who::Tenant, &key, Part::Main, |c: &mut IPAddressClaim| {
                    c.spec = next
                })
                .then_some(said)
        }
        4 => {
            let (what, value) = *rng.pick(&[
                (names::PROVISIONER, None),
                (names::PROVISIONER, Some("nobody.example.com")),
                (names::PROVISIONER, Some(crate::third_party::NAME)),
                (names::PROVISIONING_STATUS, None),
                (names::PROVISIONING_STATUS, Some(FORGED_BY_NOBODY)),
                (names::PROVISIONING_STATUS, Some(FORGED_BY_RANGE)),
                ("example.com/note", Some("x")),
                ("example.com/note", Some("y")),
            ]);
            let changed = ledger.edit(Who::Tenant, &key, Part::Main, |c: &mut IPAddressClaim| {
                match value {
                    Some(v) => c.metadata.annotations.insert(what.to_owned(), v.to_owned()),
                    None => c.metadata.annotations.remove(what),
                };
            });
            changed.then(|| format!("annotates {key} with {what}: {value:?}"))
        }
        _ => None,
    }
}

/// Takes the protection off a claim, or wipes its status.
pub(super) fn break_rules(universe: &Universe, ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    if rng.chance(500) {
        return None;
    }
    match rng.below(10) {
        0 => return wipes_beside_another(universe, ledger, rng),
        1 => return leaves_what_is_parked(ledger, rng),
        2 | 3 => return wipe_all(ledger),
        _ => {}
    }
    // One with more than it needs, if there is one: what counts is then not obvious.
    let has_extra = |c: &IPAddressClaim, addresses: &BTreeMap<String, IPAddress>| {
        let holds = |a: &&IPAddress| {
            a.spec
                .claim_ref
                .as_ref()
                .is_some_and(|r| r.uid == c.metadata.uid)
        };
        addresses.values().filter(holds).count() > c.spec.family.families().len()
    };
    let extra = {
        let oracle = ledger.oracle();
        one_of(rng, oracle.claims.values(), |c| {
            has_extra(c, &oracle.addresses)
        })
    };
    let claim = match extra.filter(|_| rng.chance(750)) {
        Some(claim) => claim,
        None => one_of(rng, ledger.oracle().claims.values(), |_| true)?,
    };
    let key = claim.key();
    if rng.chance(600) {
        let part = rng.below(5);
        let wiped = ledger.edit(
            Who::Vandal,
            &key,
            Part::Status,
            |c: &mut IPAddressClaim| match (part, &mut c.status) {
                (0, Some(status)) => *status = IPAddressClaimStatus::default(),
                (1, Some(status)) => status.phase = None,
                (2, Some(status)) => status.addresses.clear(),
                _ => c.status = None,
            },
        );
        return wiped.then(|| format!("wipes the status of {key}, part {part}"));
    }
    let stripped = ledger.edit(Who::Vandal, &key, Part::Main, |c: &mut IPAddressClaim| {
        c.metadata.finalizers.clear();
    });
    stripped.then(|| format!("takes the finalizers off {key}"))
}

/// The status of a claim goes just after another address of a family that the core has matched was
/// made for it: before the core can put that aside.
fn wipes_beside_another(universe: &Universe, ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    let matched = |a: &IPAddress| {
        let uid = a.spec.claim_ref.as_ref().map(|r| r.uid.as_str());
        uid.is_some() && a.metadata.annotation(names::BOUND_BY_CORE) == uid
    };
    let address = one_of(rng, ledger.oracle().addresses.values(), matched)?;
    let claim = address.spec.claim_ref.clone()?;
    let other = universe.by_hand.iter().find(|text| {
        let ip = Ip::parse(text).ok();
        let stands = ip.is_some_and(|ip| {
            let name = ip.object_name();
            ledger.oracle().addresses.contains_key(&name)
        });
        !stands && ip.map(Ip::family) == address.ip().map(Ip::family)
    })?;
    let mut extra = IPAddress::default();
    extra.metadata.name = Ip::parse(other).ok()?.object_name();
    extra.spec.address = (*other).to_owned();
    extra.spec.class_name = address.spec.class_name.clone();
    extra.spec.claim_ref = Some(claim.clone());
    ledger.add(Who::Admin, &extra);
    let wiped = ledger.edit(
        Who::Vandal,
        &claim.key(),
        Part::Status,
        |c: &mut IPAddressClaim| c.status = None,
    );
    Some(format!(
        "makes {} for {}, whose status is wiped: {wiped}",
        extra.key(),
        claim.key()
    ))
}

/// What a claim reports is taken away, with its status, while another one is parked for it.
fn leaves_what_is_parked(ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    let is_parked = |a: &IPAddress| {
        let uid = a.spec.claim_ref.as_ref().map(|r| r.uid.as_str());
        uid.is_some() && a.metadata.annotation(names::PARKED_FOR) == uid
    };
    let parked = one_of(rng, ledger.oracle().addresses.values(), is_parked)?;
    let key = parked.spec.claim_ref.as_ref()?.key();
    let claim = ledger.oracle().claims.get(&key).cloned()?;
    let family = |ip: Option<Ip>| ip.map(Ip::family);
    for entry in claim.status.iter().flat_map(|s| &s.addresses) {
        if family(Ip::parse(&entry.address).ok()) == family(parked.ip()) {
            let reported = Key::address(&entry.name);
            ledger.edit(Who::Vandal, &reported, Part::Main, |a: &mut IPAddress| {
                a.metadata.finalizers.clear();
            });
            let _ = ledger.delete(Who::Vandal, &reported, &Preconditions::default());
        }
    }
    let wiped = ledger.edit(Who::Vandal, &key, Part::Status, |c: &mut IPAddressClaim| {
        c.status = None
    });
    Some(format!("leaves {key} only what is parked: {wiped}"))
}

/// As a restore without the status of anything does.
fn wipe_all(ledger: &Ledger) -> Option<String> {
    let claims: Vec<Key> = ledger.oracle().claims.keys().cloned().collect();
    for key in &claims {
        ledger.edit(Who::Vandal, key, Part::Status, |c: &mut IPAddressClaim| {
            c.status = None
        });
    }
    let addresses: Vec<Key> = ledger
        .oracle()
        .addresses
        .values()
        .map(IPAddress::key)
        .collect();
    for key in &addresses {
        ledger.edit(Who::Vandal, key, Part::Status, |a: &mut IPAddress| {
            a.status = None
        });
    }
    Some("wipes every status".to_owned())
}
