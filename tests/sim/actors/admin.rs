use ipledger_core::api::{
    AddressPhase, ClaimRef, IPAddress, IPAddressClass, Key, ReclaimPolicy, names,
};
use ipledger_core::net::Ip;
use ipledger_core::store::{Part, Preconditions};

use super::{STATIC, Universe, class, one_of, some_class};
use crate::ledger::{Ledger, Who};
use crate::rng::Rng;

pub(super) fn act(universe: &Universe, ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    match rng.below(20) {
        0..=5 => creates_address(universe, ledger, rng),
        6..=9 => clears(ledger, rng),
        10 | 11 => deletes_address(ledger, rng),
        12 => reserves(ledger, rng),
        13 | 14 => lets_serve(ledger, rng),
        15..=18 => class_act(universe, ledger, rng),
        _ => changes_policy(ledger, rng),
    }
}

/// A static address that nobody has.
pub(super) fn free_address(ip: &str, ledger: &Ledger) {
    let mut address = IPAddress::default();
    address.metadata.name = Ip::parse(ip).map_or("odd".to_owned(), Ip::object_name);
    address.spec.address = ip.to_owned();
    address.spec.class_name = STATIC.to_owned();
    ledger.add(Who::Admin, &address);
}

pub(super) fn creates_address(
    universe: &Universe,
    ledger: &Ledger,
    rng: &mut Rng,
) -> Option<String> {
    let ip = *rng.pick(&universe.by_hand);
    let mut address = IPAddress::default();
    address.metadata.name = Ip::parse(ip).map_or("odd".to_owned(), Ip::object_name);
    address.spec.address = ip.to_owned();
    if rng.chance(40) {
        address.metadata.name = format!("also-{}", address.metadata.name);
    }
    if rng.chance(20) {
        address.spec.address = "10.0.0".to_owned();
    }
    address.spec.class_name = some_class(universe, rng);
    if rng.chance(400) {
        address.spec.reclaim_policy = ReclaimPolicy::Delete;
    }
    if rng.chance(250) {
        let key = rng.pick(&universe.claims);
        let uid = ledger
            .oracle()
            .claims
            .get(key)
            .map(|c| c.metadata.uid.clone());
        let uid = uid.filter(|_| rng.chance(400)).unwrap_or_default();
        address.spec.claim_ref = Some(ClaimRef {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid,
            ..ClaimRef::default()
        });
        if rng.chance(300) {
            address
                .metadata
                .annotations
                .insert(names::RESERVED.to_owned(), "true".to_owned());
        }
    }
    let said = format!(
        "creates address {} {:?} of class {} for {:?}",
        address.metadata.name,
        address.spec.reclaim_policy,
        address.spec.class_name,
        address.spec.claim_ref
    );
    ledger.add(Who::Admin, &address).then_some(said)
}

/// Whether the address was released and its claim is really gone.
fn is_released(ledger: &Ledger, address: &IPAddress) -> bool {
    let oracle = ledger.oracle();
    let holder = address.spec.claim_ref.as_ref().and_then(|r| {
        oracle
            .claims
            .get(&r.key())
            .filter(|c| c.metadata.uid == r.uid)
    });
    address.phase() == Some(AddressPhase::Released) && holder.is_none()
}

fn clears(ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    let all: Vec<IPAddress> = ledger.oracle().addresses.values().cloned().collect();
    let address = one_of(rng, &all, |a| is_released(ledger, a))?;
    let soft = rng.chance(400);
    let key = address.key();
    let done = ledger.edit(Who::Admin, &key, Part::Main, |a: &mut IPAddress| {
        if soft {
            if let Some(r) = &mut a.spec.claim_ref {
                r.uid.clear();
            }
            a.metadata
                .annotations
                .insert(names::RESERVED.to_owned(), "true".to_owned());
        } else {
            a.spec.claim_ref = None;
        }
    });
    done.then(|| {
        format!(
            "clears {} of {key}",
            if soft { "the uid" } else { "the claimRef" }
        )
    })
}

fn deletes_address(ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    let address = one_of(rng, ledger.oracle().addresses.values(), |a| {
        !a.metadata.is_deleting()
    })?;
    let key = address.key();
    let done = ledger
        .delete(Who::Admin, &key, &Preconditions::default())
        .is_ok();
    done.then(|| format!("deletes {key}"))
}

fn reserves(ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    let address = one_of(rng, ledger.oracle().addresses.values(), |_| true)?;
    let key = address.key();
    let reserve = !address.is_reserved();
    let done = ledger.edit(Who::Admin, &key, Part::Main, |a: &mut IPAddress| {
        if reserve {
            a.metadata
                .annotations
                .insert(names::RESERVED.to_owned(), "true".to_owned());
        } else {
            a.metadata.annotations.remove(names::RESERVED);
        }
    });
    done.then(|| format!("reserves {key}: {reserve}"))
}

fn lets_serve(ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    let parked = |a: &IPAddress| a.metadata.annotation(names::PARKED_FOR).map(str::to_owned);
    let address = one_of(rng, ledger.oracle().addresses.values(), |a| {
        parked(a).is_some_and(|v| !v.ends_with(names::SERVE_SUFFIX))
    })?;
    let key = address.key();
    let value = format!("{}{}", parked(&address)?, names::SERVE_SUFFIX);
    if rng.chance(400) {
        loses_what_is_reported(ledger, &address);
    }
    let done = ledger.edit(Who::Admin, &key, Part::Main, |a: &mut IPAddress| {
        a.metadata
            .annotations
            .insert(names::PARKED_FOR.to_owned(), value);
    });
    done.then(|| format!("lets {key} serve"))
}

/// A driver says that what a claim reports beside this address is lost.
fn loses_what_is_reported(ledger: &Ledger, beside: &IPAddress) {
    let claim_ref = beside.spec.claim_ref.as_ref();
    let claim = claim_ref.and_then(|r| ledger.oracle().claims.get(&r.key()).cloned());
    let family = |ip: Option<Ip>| ip.map(Ip::family);
    let status = claim.and_then(|c| c.status).unwrap_or_default();
    for entry in status.addresses {
        if family(Ip::parse(&entry.address).ok()) == family(beside.ip()) {
            let key = Key::address(&entry.name);
            ledger.edit(Who::Driver, &key, Part::Status, |a: &mut IPAddress| {
                a.status.get_or_insert_default().phase = Some(AddressPhase::Lost);
            });
        }
    }
}

fn changes_policy(ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    let address = one_of(rng, ledger.oracle().addresses.values(), |_| true)?;
    let key = address.key();
    let policy = match address.spec.reclaim_policy {
        ReclaimPolicy::Retain => ReclaimPolicy::Delete,
        ReclaimPolicy::Delete => ReclaimPolicy::Retain,
    };
    let done = ledger.edit(Who::Admin, &key, Part::Main, |a: &mut IPAddress| {
        a.spec.reclaim_policy = policy
    });
    done.then(|| format!("makes {key} {policy:?}"))
}

fn class_act(universe: &Universe, ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    let name = *rng.pick(&universe.classes);
    let key = Key::class(name);
    let known = ledger.oracle().classes.get(name).cloned();
    let Some(known) = known else {
        return ledger
            .add(Who::Admin, &class(name, rng))
            .then(|| format!("creates class {name}"));
    };
    match rng.below(4) {
        0 => {
            let done = ledger
                .delete(Who::Admin, &key, &Preconditions::default())
                .is_ok();
            done.then(|| format!("deletes class {name}"))
        }
        1 | 2 => {
            let is_default = known.is_default();
            let done = ledger.edit(Who::Admin, &key, Part::Main, |c: &mut IPAddressClass| {
                if is_default {
                    c.metadata.annotations.remove(names::DEFAULT_CLASS);
                } else {
                    c.metadata
                        .annotations
                        .insert(names::DEFAULT_CLASS.to_owned(), "true".to_owned());
                }
            });
            done.then(|| format!("makes class {name} the default: {}", !is_default))
        }
        _ => {
            let next = class(name, rng).spec.parameters;
            let said = format!("gives class {name} the parameters {next:?}");
            ledger
                .edit(Who::Admin, &key, Part::Main, |c: &mut IPAddressClass| {
                    c.spec.parameters = next
                })
                .then_some(said)
        }
    }
}

/// Takes the finalizers off an address, or takes it away altogether, or wipes its status.
pub(super) fn break_rules(ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    let address = one_of(rng, ledger.oracle().addresses.values(), |_| true)?;
    let key = address.key();
    if rng.chance(400) {
        let wiped = ledger.edit(Who::Vandal, &key, Part::Status, |a: &mut IPAddress| {
            a.status = None
        });
        return wiped.then(|| format!("wipes the status of {key}"));
    }
    let stripped = ledger.edit(Who::Vandal, &key, Part::Main, |a: &mut IPAddress| {
        a.metadata.finalizers.clear();
    });
    if rng.chance(700) {
        let gone = ledger
            .delete(Who::Vandal, &key, &Preconditions::default())
            .is_ok();
        return (gone || stripped).then(|| format!("takes {key} away"));
    }
    stripped.then(|| format!("takes the finalizers off {key}"))
}
