//! Who gets which free address, and who waits.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipledger_core::api::{IPAddress, IPAddressClaim, Key};
use ipledger_core::mutant::{Mutant, active};
use ipledger_core::net::{Family, Ip, Occupancy};

use super::{Attempt, Claim, Effects, Ledger, Pick, Stand};
use crate::range::RangeKey;
use crate::range::decide::{self, Cause, Decision, Refusal};
use crate::range::waiting::Need;

impl Ledger {
    /// Begins a pass over a claim: what is to be done now.
    pub(in crate::range) fn begin(&mut self, key: &Key) -> Option<(Arc<IPAddressClaim>, Decision)> {
        if self.started && self.claims.get(key)?.stand == Stand::Unplaced {
            self.place(key, &mut Effects::default());
        }
        let claim = self.claims.get(key)?;
        let decision = match (&claim.stand, &claim.wants) {
            (Stand::Refused(refusal), _) => Decision::Refuse(refusal.clone()),
            (Stand::Placed, Some((name, _))) => {
                let class = self.classes.get(name)?;
                let parameters = class.parameters.as_ref().ok()?;
                let verify = claim.in_doubt || claim.picks.values().any(|pick| pick.sent);
                let picks = claim.picks.values();
                let address = |pick: &Pick| {
                    decide::new_address(pick.ip, &claim.object, &class.object, parameters)
                };
                Decision::Create {
                    addresses: picks.map(address).collect(),
                    verify,
                }
            }
            _ => Decision::Nothing,
        };
        Some((claim.object.clone(), decision))
    }

    /// The creation of this IP for a claim is about to be sent: from here on the pick counts as sent.
    pub(in crate::range) fn attempt(&mut self, claim: &IPAddressClaim, ip: Ip) -> Attempt {
        let known = self.claims.get_mut(&claim.key());
        let known = known.filter(|known| known.object.uid() == claim.uid());
        let pick = known.and_then(|known| known.picks.get_mut(&ip.family()));
        match pick.filter(|pick| pick.ip == ip) {
            None => Attempt::Void,
            Some(pick) if pick.sent => Attempt::Again,
            Some(pick) => {
                pick.sent = true;
                Attempt::First
            }
        }
    }

    /// The first attempt to create this IP has failed for certain: what was picked for the claim and
    /// not sent is given back, and it is placed again at its next pass. Names who can be helped.
    pub(in crate::range) fn give_back(&mut self, key: &Key, failed: Ip) -> BTreeSet<RangeKey> {
        let Some(claim) = self.claims.get_mut(key) else {
            return BTreeSet::new();
        };
        if claim.stand == Stand::Placed {
            claim.stand = Stand::Unplaced;
        }
        let picks = claim.picks.values_mut();
        picks
            .filter(|pick| pick.ip == failed)
            .for_each(|pick| pick.sent = false);
        let unsent = claim.picks.values().filter(|pick| !pick.sent);
        let unsent: Vec<Ip> = unsent.map(|pick| pick.ip).collect();
        let mut effects = Effects::default();
        for ip in unsent {
            self.release(key, ip, &mut effects);
        }
        self.settle(effects)
    }

    /// Looks at the touched claims again, first what they give up, then what they get, and then
    /// at those who waited for what has become free.
    ///
    /// Those who wait already come first, in key order, then the others as they came: all drivers
    /// see that order, also one that starts later, so that they choose alike.
    pub(super) fn settle(&mut self, mut effects: Effects) -> BTreeSet<RangeKey> {
        let touched = std::mem::take(&mut effects.touched);
        let mut before = Vec::new();
        for key in &touched {
            if let Some(claim) = self.claims.get(key) {
                before.push((key, claim.stand.clone(), claim.picks.clone()));
                self.derive(key, &mut effects);
            }
        }
        if self.started {
            let turn = |key: &Key, stand: &Stand| match stand {
                Stand::Refused(_) => None,
                _ => self.claims.get(key)?.object.metadata.resource_version,
            };
            before.sort_by_cached_key(|(key, stand, _)| (turn(key, stand), *key));
            for (key, ..) in &before {
                self.place(key, &mut effects);
            }
            self.promote(&mut effects);
        }
        for (key, stand, picks) in before {
            if self
                .claims
                .get(key)
                .is_some_and(|claim| claim.stand != stand || claim.picks != picks)
            {
                effects.woken.insert(RangeKey::Claim(key.clone()));
            }
        }
        effects.woken
    }

    /// Finds out again what a claim misses, and gives up the picks that it cannot use.
    fn derive(&mut self, key: &Key, effects: &mut Effects) {
        let Some(claim) = self.claims.get(key) else {
            return;
        };
        let wants = decide::class_asked(&claim.object).and_then(|class| {
            let need = decide::missing(&claim.object, self.holdings.of_claim(key))?;
            Some((class.to_owned(), need))
        });
        let moved =
            claim.wants.as_ref().map(|(class, _)| class) != wants.as_ref().map(|(class, _)| class);
        let usable = wants.as_ref().and_then(|(class, need)| {
            let parameters = self.classes.get(class)?.parameters.as_ref().ok()?;
            Some((&parameters.usable, need.families()))
        });
        let useful = |pick: &Pick| {
            usable.is_some_and(|(usable, families)| {
                families.contains(&pick.ip.family())
                    && (pick.sent || (!effects.replan && usable.contains(pick.ip)))
            })
        };
        let picks = claim.picks.values();
        let given_up: Vec<Ip> = picks
            .filter(|pick| moved || !useful(pick))
            .map(|pick| pick.ip)
            .collect();
        self.forget_wants(key);
        if let Some((class, _)) = &wants {
            self.wanting
                .entry(class.clone())
                .or_default()
                .insert(key.clone());
        }
        for ip in given_up {
            self.release(key, ip, effects);
        }
        if let Some(claim) = self.claims.get_mut(key) {
            claim.stand = if wants.is_some() {
                Stand::Unplaced
            } else {
                Stand::Idle
            };
            claim.wants = wants;
        }
    }

    /// Picks what the claim misses, all of it or nothing, or refuses it.
    fn place(&mut self, key: &Key, effects: &mut Effects) {
        let Some(claim) = self.claims.get(key) else {
            return;
        };
        let Some((name, need)) = claim.wants.clone() else {
            return;
        };
        let refuse = |cause| {
            Stand::Refused(Refusal {
                class: name.clone(),
                cause,
            })
        };
        let stand = match self.classes.get(&name).map(|class| &class.parameters) {
            // The core has not noticed yet that the class is gone or another driver's.
            None => Stand::Idle,
            Some(Err(error)) => refuse(Cause::InvalidParameters(error.to_string())),
            Some(Ok(parameters)) => {
                let families = need.families().iter().copied();
                let open: Vec<Family> = families.filter(|f| !claim.picks.contains_key(f)).collect();
                let own = || Occupancy::of(self.holdings.of_class(&name).filter_map(IPAddress::ip));
                let island = active(Mutant::ClassesAreIslands).then(own);
                let occupied = island.as_ref().unwrap_or(self.holdings.occupied());
                let choice =
                    |family| decide::choose(parameters, occupied, claim.object.uid(), family);
                let unlisted = open.iter().find(|family| !parameters.lists(**family));
                let exhausted = exhausted(&name, claim, &open, choice)
                    .filter(|_| open.len() == 1 || !active(Mutant::HalfADual));
                match (unlisted, exhausted) {
                    (Some(family), _) => refuse(Cause::FamilyUnavailable(*family)),
                    (None, Some(family)) => refuse(Cause::Exhausted(family)),
                    (None, None) => {
                        let chosen: Vec<Ip> =
                            open.iter().filter_map(|family| choice(*family)).collect();
                        for ip in chosen {
                            self.pick(key, ip);
                        }
                        Stand::Placed
                    }
                }
            }
        };
        if let Stand::Refused(refusal) = &stand {
            if let Cause::Exhausted(told) = refusal.cause {
                self.waiting.insert(&name, need, told, key.clone());
            }
            self.release_all(key, effects);
        }
        if let Some(claim) = self.claims.get_mut(key) {
            claim.stand = stand;
        }
    }

    /// Places those who wait for what has become free, in key order, as far as it goes.
    fn promote(&mut self, effects: &mut Effects) {
        if effects.freed.is_empty() || active(Mutant::FreedUnheard) {
            return;
        }
        let classes: Vec<String> = self.waiting.classes().cloned().collect();
        for name in classes {
            while let Some(key) = self.first_helped(&name, &effects.freed) {
                self.waiting.remove(&name, &key);
                self.place(&key, effects);
                effects.woken.insert(RangeKey::Claim(key));
            }
            for key in self.told_wrong(&name, &effects.freed) {
                self.waiting.remove(&name, &key);
                self.place(&key, effects);
                effects.woken.insert(RangeKey::Claim(key));
            }
        }
    }

    /// The claims that cannot be helped and were told that a family is exhausted which no longer is:
    /// the other one is (D6).
    fn told_wrong(&self, class: &str, freed: &[Ip]) -> Vec<Key> {
        let Some(Ok(parameters)) = self.classes.get(class).map(|class| &class.parameters) else {
            return Vec::new();
        };
        let usable = &parameters.usable;
        let families = Family::ALL.into_iter().filter(|family| {
            let freed = freed.iter().filter(|ip| ip.family() == *family);
            freed.into_iter().any(|ip| usable.contains(*ip))
                && self
                    .holdings
                    .occupied()
                    .first_free(usable, *family)
                    .is_some()
        });
        families
            .flat_map(|family| self.waiting.told(class, family))
            .collect()
    }

    /// The first claim that waits for this class and can be given all that it misses, if one of
    /// the freed IPs concerns the class at all.
    fn first_helped(&self, class: &str, freed: &[Ip]) -> Option<Key> {
        let parameters = self.classes.get(class)?.parameters.as_ref().ok()?;
        let usable = &parameters.usable;
        if !freed.iter().any(|ip| usable.contains(*ip)) {
            return None;
        }
        let free = |family: &Family| {
            self.holdings
                .occupied()
                .first_free(usable, *family)
                .is_some()
        };
        let can_meet = |need: Need| need.families().iter().all(free);
        self.waiting.first(class, can_meet).cloned()
    }

    fn pick(&mut self, key: &Key, ip: Ip) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.picks.insert(ip.family(), Pick { ip, sent: false });
            self.holdings.pick(ip, key.clone());
        }
    }

    fn release(&mut self, key: &Key, ip: Ip, effects: &mut Effects) {
        if let Some(claim) = self.claims.get_mut(key) {
            let pick = claim.picks.remove(&ip.family());
            claim.in_doubt |= pick.is_some_and(|pick| pick.sent);
        }
        self.holdings.release(ip);
        effects.freed.push(ip);
    }

    pub(super) fn release_all(&mut self, key: &Key, effects: &mut Effects) {
        let picks = self
            .claims
            .get(key)
            .map(|claim| claim.picks.clone())
            .unwrap_or_default();
        for pick in picks.into_values() {
            self.release(key, pick.ip, effects);
        }
    }

    /// Takes a claim out of everything: it is gone, or another one has its name.
    pub(super) fn unplace(&mut self, key: &Key, effects: &mut Effects) {
        self.forget_wants(key);
        self.release_all(key, effects);
    }

    fn forget_wants(&mut self, key: &Key) {
        if let Some((class, _)) = self.claims.get(key).and_then(|claim| claim.wants.as_ref()) {
            self.waiting.remove(class, key);
            if let Some(keys) = self.wanting.get_mut(class) {
                keys.remove(key);
                if keys.is_empty() {
                    self.wanting.remove(class);
                }
            }
        }
    }
}

/// The family to name as exhausted: the one that the claim was told already as long as that is true,
/// so that a driver which starts later says the same; otherwise the first.
fn exhausted(
    class: &str,
    claim: &Claim,
    open: &[Family],
    choice: impl Fn(Family) -> Option<Ip>,
) -> Option<Family> {
    let told = claim.object.provisioning_status();
    let is_told = |family: Family| {
        let refusal = Refusal {
            class: class.to_owned(),
            cause: Cause::Exhausted(family),
        };
        told.as_ref() == Some(&refusal.status())
    };
    let exhausted = open.iter().copied().filter(|f| choice(*f).is_none());
    exhausted.reduce(|first, other| if is_told(other) { other } else { first })
}
