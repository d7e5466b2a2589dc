//! What is brought about on purpose, because chance alone would bring it about too rarely.

use std::sync::atomic::Ordering;

use ipledger_core::api::{AddressPhase, ClaimPhase, IPAddress, IPAddressClaim, Kind, names};
use ipledger_core::store::{Part, Preconditions, WatchEvent};

use super::World;
use crate::config::Fault;
use crate::desk::{Op, Request};
use crate::ledger::Who;

/// Whether a request gives a claim an address that was free, as a core does.
fn is_match(request: &Request) -> bool {
    let Request::Update(object, Part::Main) = request else {
        return false;
    };
    IPAddress::from_object(object).is_ok_and(|a| {
        let uid = a.spec.claim_ref.as_ref().map(|r| r.uid.as_str());
        uid.is_some() && a.metadata.annotation(names::BOUND_BY_CORE) == uid
    })
}

impl World {
    /// A match is late more often than other writes.
    pub(super) fn late_match(&mut self, op: &Op) -> Option<Fault> {
        let late = Fault::ALL.iter().position(|f| *f == Fault::Late)?;
        let happens = self.config.fault_rate > 0 && self.config.faults[late] > 0;
        (happens && is_match(&op.request) && self.rng.chance(50)).then_some(Fault::Late)
    }

    /// While a binding is on its way and nobody knows, its claim may be deleted. Whether it was.
    pub(super) fn give_up_waiting(&mut self, op: &Op) -> bool {
        let Request::Update(object, Part::Main) = &op.request else {
            return false;
        };
        let claim_ref = IPAddress::from_object(object)
            .ok()
            .and_then(|a| a.spec.claim_ref);
        let Some(r) = claim_ref.filter(|_| self.config.act_rate > 0) else {
            return false;
        };
        let chance = if is_match(&op.request) { 700 } else { 250 };
        if !self.rng.chance(chance) {
            return false;
        }
        let key = r.key();
        let plain = Preconditions::default();
        let done = self.ledger.delete(Who::Tenant, &key, &plain).is_ok();
        self.say(format!("somebody gives {key} up: {done}"));
        done
    }

    /// A core is told that an address has become free, and before it acts the claim that is first in
    /// line is deleted.
    pub(super) fn overtake_the_first_in_line(&mut self, n: usize, f: usize) {
        let Some(WatchEvent::Applied(object)) = self.processes[n].feeds()[f].repeated(0) else {
            return;
        };
        let Ok(address) = IPAddress::from_object(&object) else {
            return;
        };
        if address.phase() != Some(AddressPhase::Available)
            || self.config.act_rate == 0
            || self.calm.load(Ordering::Relaxed)
            || !self.rng.chance(400)
        {
            return;
        }
        let oracle = self.ledger.oracle();
        let mut line = oracle.claims.iter().filter(|(_, c)| {
            let waits = c.phase() == Some(ClaimPhase::Pending) && !c.metadata.is_deleting();
            let wanted = c.spec.family.families().iter().copied();
            waits
                && c.resolved_class() == address.spec.class_name
                && address
                    .ip()
                    .is_some_and(|ip| wanted.into_iter().any(|f| f == ip.family()))
        });
        let (first, next) = (
            line.next().map(|(key, _)| key.clone()),
            line.next().is_some(),
        );
        drop(line);
        drop(oracle);
        if let Some(key) = first.filter(|_| next) {
            let done = self
                .ledger
                .delete(Who::Tenant, &key, &Preconditions::default());
            self.say(format!("somebody deletes {key}: {}", done.is_ok()));
            // Before anything else wakes those behind it.
            self.rest_soon = self.rng.chance(700);
        }
    }

    /// After a core has read a claim, an address that names it changes, in a way that means nothing.
    pub(super) fn outdate(&mut self, op: &Op) -> bool {
        let Request::Get(claim) = &op.request else {
            return false;
        };
        let names_it = |a: &&IPAddress| {
            let claim_ref = a.spec.claim_ref.as_ref();
            claim_ref.is_some_and(|r| r.key() == *claim)
        };
        let named = {
            let oracle = self.ledger.oracle();
            oracle.addresses.values().find(names_it).map(IPAddress::key)
        };
        let Some(key) = named else {
            return false;
        };
        let touched = self.ticks.to_string();
        let annotation = ("example.com/touched".to_owned(), touched);
        let edit = |a: &mut IPAddress| a.metadata.annotations.extend([annotation]);
        let done = self.ledger.edit(Who::Admin, &key, Part::Main, edit);
        self.say(format!("somebody changes {key} after that: {done}"));
        done
    }

    /// A process sees all addresses as they are, unless that view stands still.
    pub(super) fn show_addresses(&mut self, n: usize) {
        let ticks = self.ticks;
        let feeds = self.processes[n].feeds();
        let Some(f) = feeds.iter().position(|f| f.kind == Kind::IPAddress) else {
            return;
        };
        while self.processes[n].feeds()[f].stalled_until <= ticks
            && self.processes[n].feeds()[f].is_due()
        {
            self.processes[n].feed_step(f, &self.ledger, self.config.page, None);
        }
    }

    /// A claim is taken away past its finalizers and made again, and no watch tells that it was gone.
    pub(super) fn replace_unseen(&mut self) {
        let claims: Vec<IPAddressClaim> = {
            let oracle = self.ledger.oracle();
            let bound = |c: &&IPAddressClaim| c.phase() == Some(ClaimPhase::Bound);
            oracle.claims.values().filter(bound).cloned().collect()
        };
        let weights = self.config.universe.weights;
        if claims.is_empty() || weights.vandal == 0 || self.config.act_rate == 0 {
            return;
        }
        let claim = self.rng.pick(&claims);
        let key = claim.key();
        let mut again = IPAddressClaim::default();
        again.metadata.namespace = key.namespace.clone();
        again.metadata.name = key.name.clone();
        again.spec = claim.spec.clone();
        let strip = |c: &mut IPAddressClaim| c.metadata.finalizers.clear();
        self.ledger.edit(Who::Vandal, &key, Part::Main, strip);
        let plain = Preconditions::default();
        let _ = self.ledger.delete(Who::Vandal, &key, &plain);
        let done = self.ledger.add(Who::Tenant, &again);
        self.say(format!("somebody replaces {key}, unseen: {done}"));
        for process in &mut self.processes {
            let feeds = process.feeds().iter_mut();
            feeds
                .filter(|f| f.kind == Kind::IPAddressClaim)
                .for_each(|f| f.relist());
        }
    }
}
