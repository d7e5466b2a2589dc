use ipledger_core::api::{AddressPhase, IPAddress, WorkloadRef, names};
use ipledger_core::net::Ip;
use ipledger_core::store::Part;

use super::one_of;
use crate::ledger::{Ledger, Who};
use crate::rng::Rng;

/// What drivers do to addresses beside provisioning: raise and clear `Conflict` and `Lost`, attach
/// and detach workloads.
pub(super) fn act(ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    let derived = |a: &IPAddress| {
        Ip::parse(&a.spec.address).is_ok_and(|ip| ip.object_name() == a.metadata.name)
    };
    let oracle = ledger.oracle();
    // One whose claim has another one aside, if there is one: that may have to serve.
    let replaceable = |a: &IPAddress| {
        let uid = a.spec.claim_ref.as_ref().map_or("", |r| r.uid.as_str());
        let aside = |o: &IPAddress| {
            let parked = o.metadata.annotation(names::PARKED_FOR);
            parked.is_some_and(|v| !uid.is_empty() && v.starts_with(uid))
        };
        derived(a) && !aside(a) && oracle.addresses.values().any(aside)
    };
    let replaceable = one_of(rng, oracle.addresses.values(), replaceable);
    let address = match replaceable.filter(|_| rng.chance(300)) {
        Some(address) => address,
        None => one_of(rng, oracle.addresses.values(), derived)?,
    };
    drop(oracle);
    let key = address.key();
    if rng.chance(250) {
        let attached = address.is_associated();
        let done = ledger.edit(Who::Driver, &key, Part::Status, |a: &mut IPAddress| {
            a.status.get_or_insert_default().associated_to = (!attached).then(|| WorkloadRef {
                kind: "Service".to_owned(),
                namespace: "a".to_owned(),
                name: "web".to_owned(),
                ..WorkloadRef::default()
            });
        });
        return done.then(|| format!("attaches a workload to {key}: {}", !attached));
    }
    let phase = if address.phase().is_some_and(AddressPhase::is_sticky) {
        // What it is set back to is the driver's guess.
        let guesses = match &address.spec.claim_ref {
            Some(_) => [
                None,
                Some(AddressPhase::Bound),
                Some(AddressPhase::Available),
            ],
            None => [
                None,
                Some(AddressPhase::Pending),
                Some(AddressPhase::Available),
            ],
        };
        *rng.pick(&guesses)
    } else {
        Some(*rng.pick(&[
            AddressPhase::Conflict,
            AddressPhase::Lost,
            AddressPhase::Lost,
        ]))
    };
    let done = ledger.edit(Who::Driver, &key, Part::Status, |a: &mut IPAddress| {
        a.status.get_or_insert_default().phase = phase;
    });
    done.then(|| format!("moves {key} to {phase:?}"))
}
