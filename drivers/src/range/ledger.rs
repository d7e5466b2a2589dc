//! The driver's view of everything, fed by changes: who holds what, who wants what, and who gets
//! which free address. Pure and incremental: a change costs O(log n) in addresses and claims.
//!
//! A claim that misses a family is *placed*: free addresses are picked for it, or it is refused
//! and perhaps waits. A pick keeps its IP from everybody else until the object is seen or the
//! attempt to create it has failed. After each change this holds: whoever waits cannot be helped.
//! So nobody is polled, nobody is forgotten, and exactly those are woken for whom something has
//! become possible.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipledger_core::api::{IPAddress, IPAddressClaim, IPAddressClass, Key};
use ipledger_core::mutant::{Mutant, active};
use ipledger_core::net::{Family, Ip, RangeSet};
use ipledger_core::runtime::Change;

use super::class_status::ClassReport;
use super::decide::Refusal;
use super::holdings::{Holdings, Moves, is_leaving};
use super::shared_ranges::SharedRanges;
use super::waiting::{Need, Waiting};
use super::{NAME, ParameterError, Parameters, RangeKey};

mod placement;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Whether every kind has been seen; nothing is picked before (D1).
    started: bool,
    holdings: Holdings,
    /// The classes of this driver, by name.
    classes: BTreeMap<String, Class>,
    /// The addresses that they hand out.
    ranges: SharedRanges,
    /// Claims that carry this driver's stamp, or an annotation that it wrote.
    claims: BTreeMap<Key, Claim>,
    /// Claims that miss a family, by the class that they ask, whether or not it is one of ours.
    wanting: BTreeMap<String, BTreeSet<Key>>,
    waiting: Waiting,
}

/// A class of this driver.
#[derive(Debug)]
struct Class {
    object: Arc<IPAddressClass>,
    parameters: Result<Parameters, ParameterError>,
    /// Names of its address objects that lie outside its ranges.
    outside: BTreeSet<String>,
}

/// A claim that concerns this driver.
#[derive(Clone, Debug)]
struct Claim {
    object: Arc<IPAddressClaim>,
    /// The class that it asks and what it misses, if anything.
    wants: Option<(String, Need)>,
    stand: Stand,
    picks: BTreeMap<Family, Pick>,
    /// Whether an address that named it has changed or gone, or one that may still come was given up.
    /// If it misses a family now, it may have been bound in between, unseen; then it must not get
    /// another one (R5).
    in_doubt: bool,
}

/// How a claim stands.
#[derive(Clone, Debug, PartialEq)]
enum Stand {
    /// Nothing can be done for it.
    Idle,
    /// It is to be placed at its next pass.
    Unplaced,
    /// Every family that it misses is picked.
    Placed,
    /// It gets nothing.
    Refused(Refusal),
}

/// A free address that is kept for a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pick {
    ip: Ip,
    /// Its creation may have been sent: whatever becomes of the class's ranges, this and no other
    /// address is tried until the outcome is known (D2).
    sent: bool,
}

/// What the creation of a pick is that is about to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The first one: whether it has failed is known from its answer.
    First,
    /// A repetition: the earlier one may still take effect, whatever is heard of this one.
    Again,
    /// The IP is no longer kept for the claim; nothing is to be sent.
    Void,
}

/// What a change leads to.
#[derive(Debug, Default)]
struct Effects {
    /// Claims to be looked at again.
    touched: BTreeSet<Key>,
    /// IPs that have become free.
    freed: Vec<Ip>,
    /// Keys that are worth a pass.
    woken: BTreeSet<RangeKey>,
    /// Whether the touched claims are placed anew, apart from what was sent.
    replan: bool,
}

impl Ledger {
    /// Takes in a change and names the keys that are worth a pass.
    pub(super) fn observe(&mut self, change: &Change) -> BTreeSet<RangeKey> {
        let mut effects = Effects::default();
        match change {
            Change::Class { key, new, .. } => {
                self.observe_class(&key.name, new.as_ref(), &mut effects)
            }
            Change::Address { .. } if !self.started && active(Mutant::StartIgnoresWhatExists) => {}
            Change::Address { key, new, .. } => {
                let moves = self.holdings.apply(&key.name, new.clone());
                self.observe_address(&key.name, moves, &mut effects);
            }
            Change::Claim { key, new, .. } => self.observe_claim(key, new.as_ref(), &mut effects),
        }
        self.settle(effects)
    }

    /// Places all claims once every kind has been seen. Without effect after the first time.
    pub(super) fn start(&mut self) -> BTreeSet<RangeKey> {
        if self.started {
            return BTreeSet::new();
        }
        self.started = true;
        let touched = self.wanting.values().flatten().cloned().collect();
        self.settle(Effects {
            touched,
            ..Effects::default()
        })
    }

    /// There is an object of this name that cannot be read, so its IP is taken.
    pub(super) fn block(&mut self, name: &str) -> BTreeSet<RangeKey> {
        let mut effects = Effects::default();
        let moves = self.holdings.block(name);
        self.observe_address(name, moves, &mut effects);
        self.settle(effects)
    }

    /// The address object of this name.
    pub(super) fn address(&self, name: &str) -> Option<Arc<IPAddress>> {
        self.holdings.get(name).cloned()
    }

    /// What there is to say about a class; `None` if it is not one of this driver.
    pub(super) fn report(&self, name: &str) -> Option<ClassReport> {
        let class = self.classes.get(name)?;
        let mut report = ClassReport::new(class.object.clone());
        match &class.parameters {
            Err(error) => report.problem = Some(error.to_string()),
            Ok(parameters) => {
                let outside = class.outside.iter();
                let outside = outside
                    .filter_map(|name| Some((name, self.holdings.get(name)?.ip()?.family())));
                report.count(parameters, &self.holdings, outside);
                report.older = self.older_overlap(class, parameters);
            }
        }
        Some(report)
    }

    /// The classes of this driver.
    pub(super) fn class_names(&self) -> impl Iterator<Item = &String> {
        self.classes.keys()
    }

    /// Every key, for the safety net.
    pub(super) fn keys(&self) -> Vec<RangeKey> {
        let classes = self.classes.keys().cloned().map(RangeKey::Class);
        let claims = self.claims.keys().cloned().map(RangeKey::Claim);
        let leaving = self.holdings.leaving().cloned().map(RangeKey::Address);
        classes.chain(claims).chain(leaving).collect()
    }

    fn observe_class(
        &mut self,
        name: &str,
        new: Option<&Arc<IPAddressClass>>,
        effects: &mut Effects,
    ) {
        let new = new.filter(|class| class.spec.provisioner == NAME);
        let old = self.classes.get_mut(name);
        if old.is_none() && new.is_none() {
            return;
        }
        effects.woken.insert(RangeKey::Class(name.to_owned()));
        match (old, new) {
            // A status or an annotation moved; perhaps the status was wiped.
            (Some(old), Some(new))
                if old.object.spec == new.spec && old.object.uid() == new.uid() =>
            {
                old.object = new.clone();
                return;
            }
            (_, None) => self.forget_class(name, effects),
            (_, Some(object)) => {
                let old = self
                    .classes
                    .get(name)
                    .filter(|_| active(Mutant::OldRangeKept));
                let spec = &old.map_or(object, |old| &old.object).spec;
                let parameters = Parameters::parse(spec.parameters.as_ref());
                self.forget_class(name, effects);
                let outside = match &parameters {
                    Err(_) => BTreeSet::new(),
                    Ok(parameters) => {
                        let all = self.holdings.of_class(name);
                        let outside = all.filter(|address| is_outside(address, parameters));
                        outside
                            .map(|address| address.metadata.name.clone())
                            .collect()
                    }
                };
                if let Ok(parameters) = &parameters {
                    self.wake_sharers(&parameters.usable, effects);
                    self.ranges.insert(name, &parameters.usable);
                }
                let class = Class {
                    object: object.clone(),
                    parameters,
                    outside,
                };
                self.classes.insert(name.to_owned(), class);
            }
        }
        if active(Mutant::EditUnheard) {
            return;
        }
        effects
            .touched
            .extend(self.wanting.get(name).into_iter().flatten().cloned());
    }

    fn forget_class(&mut self, name: &str, effects: &mut Effects) {
        if let Some(class) = self.classes.remove(name)
            && let Ok(parameters) = &class.parameters
        {
            self.ranges.remove(name, &parameters.usable);
            self.wake_sharers(&parameters.usable, effects);
        }
    }

    /// Wakes the classes with any of these addresses: whom they overlap has changed.
    fn wake_sharers(&self, usable: &RangeSet, effects: &mut Effects) {
        let sharers = self.ranges.with_any_of(usable).into_iter();
        let sharers = sharers.map(|name| RangeKey::Class(name.to_string()));
        effects.woken.extend(sharers);
    }

    fn observe_address(&mut self, name: &str, moves: Moves, effects: &mut Effects) {
        let new = self.holdings.get(name);
        if new.is_some_and(|address| is_leaving(address)) {
            effects.woken.insert(RangeKey::Address(name.to_owned()));
        }
        let claim_of = |address: &Arc<IPAddress>| address.spec.claim_ref.as_ref().map(|r| r.key());
        let (before, holder) = (
            moves.old.as_ref().and_then(claim_of),
            new.and_then(claim_of),
        );
        if let Some(claim) = before.as_ref().and_then(|key| self.claims.get_mut(key)) {
            claim.in_doubt = true;
        }
        effects
            .touched
            .extend(before.iter().chain(&holder).cloned());
        for (ip, key) in &moves.ended {
            let Some(claim) = self.claims.get_mut(key) else {
                continue;
            };
            let pick = claim.picks.remove(&ip.family());
            claim.in_doubt |= pick.is_some_and(|pick| pick.sent);
            // Another driver chooses otherwise. If every claim were moved to the end when its
            // turn comes, that would go on for ever.
            if holder.as_ref() != Some(key)
                && let Some((class, _)) = &claim.wants
            {
                effects.replan = true;
                effects
                    .touched
                    .extend(self.wanting.get(class).into_iter().flatten().cloned());
            }
            effects.touched.insert(key.clone());
        }
        effects.freed.extend(&moves.freed);
        self.recount(name, &moves, effects);
    }

    /// Keeps what classes report of an address that has changed.
    fn recount(&mut self, name: &str, moves: &Moves, effects: &mut Effects) {
        let new = self.holdings.get(name);
        let outside = |address: &Arc<IPAddress>| {
            let class = self.classes.get(&address.spec.class_name)?;
            let outside = is_outside(address, class.parameters.as_ref().ok()?)
                && !active(Mutant::OutsideUncounted);
            outside.then(|| address.spec.class_name.clone())
        };
        let (was, is) = (moves.old.as_ref().and_then(outside), new.and_then(outside));
        let moved = was != is;
        if let Some(class) = was.as_ref().and_then(|class| self.classes.get_mut(class)) {
            class.outside.remove(name);
        }
        if let Some(class) = is.as_ref().and_then(|class| self.classes.get_mut(class)) {
            class.outside.insert(name.to_owned());
        }
        let counted = [&moves.freed, &moves.taken, &moves.cooled];
        let classes = counted
            .into_iter()
            .flatten()
            .flat_map(|ip| self.ranges.at(*ip));
        let classes = classes.map(|name| name.to_string());
        let moved = was.into_iter().chain(is).filter(|_| moved);
        effects
            .woken
            .extend(classes.chain(moved).map(RangeKey::Class));
    }

    fn observe_claim(
        &mut self,
        key: &Key,
        new: Option<&Arc<IPAddressClaim>>,
        effects: &mut Effects,
    ) {
        let known = self.claims.get_mut(key);
        match (known, new.filter(|claim| concerns_us(claim))) {
            (None, None) => return,
            (Some(_), None) => {
                self.unplace(key, effects);
                self.claims.remove(key);
                return;
            }
            (Some(claim), Some(new)) if claim.object.uid() == new.uid() => {
                claim.object = new.clone()
            }
            (_, Some(new)) => {
                self.unplace(key, effects);
                let claim = Claim {
                    object: new.clone(),
                    wants: None,
                    stand: Stand::Idle,
                    picks: BTreeMap::new(),
                    in_doubt: false,
                };
                self.claims.insert(key.clone(), claim);
            }
        }
        effects.woken.insert(RangeKey::Claim(key.clone()));
        effects.touched.insert(key.clone());
    }

    /// The oldest class of this driver that is older than this one and shares addresses with it.
    fn older_overlap(&self, class: &Class, parameters: &Parameters) -> Option<String> {
        let age = |class: &Class| {
            let meta = &class.object.metadata;
            (meta.creation_timestamp, meta.name.clone())
        };
        let own = age(class);
        let sharing = self.ranges.with_any_of(&parameters.usable);
        let sharing = sharing.iter().filter_map(|name| self.classes.get(&**name));
        let older = sharing.map(age).filter(|other| *other < own);
        older.min().map(|(_, name)| name)
    }
}

/// Whether the driver has anything to do with the claim.
fn concerns_us(claim: &IPAddressClaim) -> bool {
    claim.stamp() == Some(NAME)
        || claim
            .provisioning_status()
            .is_some_and(|status| status.provisioner == NAME)
}

fn is_outside(address: &IPAddress, parameters: &Parameters) -> bool {
    address
        .ip()
        .is_some_and(|ip| !parameters.usable.contains(ip))
}

#[cfg(test)]
mod tests;
