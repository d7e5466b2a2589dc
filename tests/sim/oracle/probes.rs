//! Which situations a run has reached: a simulation that never gets a claim `Lost` proves nothing
//! about it.

use std::collections::BTreeMap;

use ipledger_core::api::{
    AddressPhase, ClaimPhase, IPAddress, IPAddressClaim, find_condition, names,
};

use super::{Verb, Written, holder};
use crate::ledger::Who;

/// How often each situation was reached.
#[derive(Clone, Default)]
pub struct Probes(BTreeMap<&'static str, u64>);

/// All situations. One that is never reached in a long run is a hole in the simulation.
pub const ALL: [&str; 26] = [
    "a claim becomes Bound",
    "a claim of both families becomes Bound",
    "a claim of both families holds one",
    "a claim becomes Lost",
    "a claim comes back from Lost",
    "a claim comes back from Lost with another address",
    "a claim's address is marked for deletion",
    "a claim without a status is recomputed",
    "a claim's stamp is taken away",
    "a claim that names an address becomes Bound",
    "a free address is matched",
    "a pre-binding is completed",
    "a dying uid is left",
    "a match is undone for a living claim",
    "a match is undone for a dead claim",
    "the mark of the core is dropped",
    "an address is parked",
    "an address is let serve",
    "an address is released",
    "an address is reclaimed in a driver's phase",
    "an address is deleted by the core",
    "a reserved address waits for the next claim",
    "the range driver hands out an address",
    "the range driver lets an address go",
    "a protection is held against a deletion",
    "an invalid address is reclaimed",
];

impl Probes {
    fn hit(&mut self, what: &'static str) {
        debug_assert!(ALL.contains(&what), "{what} is not listed");
        *self.0.entry(what).or_default() += 1;
    }

    pub fn get(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    pub fn add(&mut self, other: &Probes) {
        for (what, n) in &other.0 {
            *self.0.entry(what).or_default() += n;
        }
    }

    pub(super) fn claim(
        &mut self,
        w: &Written,
        before: Option<&IPAddressClaim>,
        now: &IPAddressClaim,
        was_wiped: bool,
    ) {
        let Some(before) = before.filter(|_| w.who == Who::Core) else {
            return;
        };
        let both = now.spec.family.families().len() == 2;
        let shown = |c: &IPAddressClaim| {
            c.status
                .as_ref()
                .map(|s| s.addresses.clone())
                .unwrap_or_default()
        };
        match (before.phase(), now.phase()) {
            (None | Some(ClaimPhase::Pending), Some(ClaimPhase::Bound)) => {
                self.hit("a claim becomes Bound");
                if both {
                    self.hit("a claim of both families becomes Bound");
                }
                if !now.spec.address_name.is_empty() {
                    self.hit("a claim that names an address becomes Bound");
                }
            }
            (Some(ClaimPhase::Bound), Some(ClaimPhase::Lost)) => self.hit("a claim becomes Lost"),
            (Some(ClaimPhase::Lost), Some(ClaimPhase::Bound)) => {
                self.hit("a claim comes back from Lost");
                let lost = before.status.iter().flat_map(|s| &s.lost_addresses);
                if lost.into_iter().any(|l| !shown(now).contains(l)) {
                    self.hit("a claim comes back from Lost with another address");
                }
            }
            (_, Some(ClaimPhase::Pending)) if both && shown(now).len() == 1 => {
                self.hit("a claim of both families holds one");
            }
            _ => {}
        }
        let deleting = |c: &IPAddressClaim| {
            find_condition(c.conditions(), names::condition::ADDRESS_DELETING).is_some()
        };
        if deleting(now) && !deleting(before) {
            self.hit("a claim's address is marked for deletion");
        }
        if was_wiped && before.status.is_none() && now.status.is_some() {
            self.hit("a claim without a status is recomputed");
        }
        if before.stamp().is_some() && now.stamp().is_none() {
            self.hit("a claim's stamp is taken away");
        }
    }

    pub(super) fn address(
        &mut self,
        w: &Written,
        before: Option<&IPAddress>,
        now: &IPAddress,
        claim_lives: bool,
    ) {
        let parked = |a: &IPAddress| a.metadata.annotation(names::PARKED_FOR).map(str::to_owned);
        match (w.who, &w.verb) {
            (Who::Range, Verb::Create) => self.hit("the range driver hands out an address"),
            (Who::Range, _) if w.gone => self.hit("the range driver lets an address go"),
            (Who::Admin, Verb::Update(_))
                if now.is_reserved()
                    && holder(now).is_empty()
                    && before.is_some_and(|b| !holder(b).is_empty())
                    && now.spec.claim_ref.is_some() =>
            {
                self.hit("a reserved address waits for the next claim");
            }
            (Who::Admin, Verb::Update(_))
                if parked(now).is_some_and(|v| v.ends_with(names::SERVE_SUFFIX)) =>
            {
                self.hit("an address is let serve");
            }
            (Who::Admin, Verb::Delete(_)) if claim_lives && !w.gone => {
                self.hit("a protection is held against a deletion");
            }
            _ => {}
        }
        let Some(before) = before.filter(|_| w.who == Who::Core) else {
            return;
        };
        if matches!(w.verb, Verb::Delete(_)) {
            self.hit("an address is deleted by the core");
            return;
        }
        match (&before.spec.claim_ref, &now.spec.claim_ref) {
            (None, Some(_)) => self.hit("a free address is matched"),
            (Some(_), None) if claim_lives => self.hit("a match is undone for a living claim"),
            (Some(_), None) => self.hit("a match is undone for a dead claim"),
            (Some(a), Some(b)) if a != b && claim_lives => self.hit("a pre-binding is completed"),
            (Some(a), Some(b)) if a != b => self.hit("a dying uid is left"),
            _ => {}
        }
        let mark = |a: &IPAddress| a.metadata.annotation(names::BOUND_BY_CORE).is_some();
        if mark(before) && !mark(now) && now.spec.claim_ref.is_some() {
            self.hit("the mark of the core is dropped");
        }
        if parked(now).is_some() && parked(before) != parked(now) {
            self.hit("an address is parked");
        }
        let released = |a: &IPAddress| a.phase() == Some(AddressPhase::Released);
        if released(now) && !released(before) {
            self.hit("an address is released");
        }
        let reclaimed =
            |a: &IPAddress| find_condition(a.conditions(), names::condition::RECLAIMED).is_some();
        if reclaimed(now) && !reclaimed(before) {
            let sticky = now.phase().is_some_and(AddressPhase::is_sticky);
            self.hit(if sticky {
                "an address is reclaimed in a driver's phase"
            } else {
                "an invalid address is reclaimed"
            });
        }
    }
}
