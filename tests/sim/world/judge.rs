//! The end of a run: the faults stop, everything comes to rest, and is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use ipledger_core::api::names::reason;
use ipledger_core::api::{IPAddress, IPAddressClass, Key};
use ipledger_core::net::{Family, Ip};
use ipledger_drivers::range;

use super::{Failure, World};
use crate::ledger::Who;
use crate::oracle::Outside;
use crate::pool::Pool;
use crate::third_party;

/// How long the world may take to come to rest once the faults have stopped, in virtual time.
const REST_WITHIN: Duration = Duration::from_secs(7200);
/// How many things may happen until then.
const REST_STEPS: usize = 30_000;

impl World {
    /// The faults stop.
    pub(super) fn calm(&mut self) {
        self.say("-- the faults stop".to_owned());
        self.old.clear();
        self.calm.store(true, Ordering::Relaxed);
        if !self.config.drivers_survive {
            // Dead processes are the last ones that stand still for ever.
            for n in 0..self.processes.len() {
                let dead = self.processes[n].who() != Who::Core;
                self.paused[n] = if dead { u64::MAX } else { 0 };
            }
        } else {
            self.paused.fill(0);
        }
        for process in &mut self.processes {
            process.feeds().iter_mut().for_each(|f| f.stalled_until = 0);
        }
    }

    fn is_dead(&self, n: usize) -> bool {
        self.paused[n] == u64::MAX
    }

    /// Lets everything run until nothing is left to do.
    pub(super) fn come_to_rest(&mut self) -> Result<(), Failure> {
        let start = self.time.now();
        for _ in 0..REST_STEPS {
            let moved = self.tick(false);
            self.sound()?;
            if moved {
                continue;
            }
            let alive: Vec<usize> = (0..self.processes.len())
                .filter(|n| !self.is_dead(*n))
                .collect();
            let deadlines = alive
                .iter()
                .filter_map(|n| self.processes[*n].next_deadline());
            let Some(next) = deadlines.chain(self.time.next_alarm()).min() else {
                let idle = alive.iter().all(|n| self.processes[*n].is_idle());
                let work: Vec<&str> = alive
                    .iter()
                    .filter(|n| !self.processes[**n].is_idle())
                    .map(|n| self.processes[*n].name())
                    .collect();
                return if idle {
                    Ok(())
                } else {
                    Err(format!("{work:?} wait for what never comes"))
                };
            };
            if next.saturating_sub(start) > REST_WITHIN {
                return Err(format!(
                    "no rest within {REST_WITHIN:?} after the faults stopped"
                ));
            }
            self.pass_time(next.saturating_sub(self.time.now()));
        }
        Err(format!(
            "no rest within {REST_STEPS} steps after the faults stopped"
        ))
    }

    pub(super) fn judge_rest(&mut self) -> Result<(), Failure> {
        let oracle = self.ledger.oracle();
        let mut outside = Outside {
            alive: BTreeSet::new(),
            finalizers: BTreeSet::new(),
            could_provide: &|class, family| {
                oracle
                    .classes
                    .get(class)
                    .is_some_and(|c| has_free(c, family, &oracle.addresses))
            },
            refusal: &|class, family| {
                let class = oracle.classes.get(class)?;
                if !is_usable(class) {
                    return Some(reason::INVALID_PARAMETERS);
                }
                let listed = Pool::of(class).unwrap_or_default().listed;
                let any = Pool::of_family(&listed, family).next().is_some();
                if has_free(class, family, &oracle.addresses) {
                    None
                } else if any || class.spec.provisioner == third_party::NAME {
                    Some(reason::POOL_EXHAUSTED)
                } else {
                    Some(reason::FAMILY_UNAVAILABLE)
                }
            },
        };
        for (n, process) in self.processes.iter().enumerate() {
            let (name, finalizer) = match process.who() {
                Who::Driver => (third_party::NAME, third_party::FINALIZER),
                Who::Range => (range::NAME, range::FINALIZER),
                _ => continue,
            };
            if !self.is_dead(n) {
                outside.alive.insert(name.to_owned());
                outside.finalizers.insert(finalizer.to_owned());
            }
        }
        let mut told: BTreeMap<&Key, usize> = BTreeMap::new();
        let heard = self.heard.0.lock().unwrap();
        for event in heard.iter().filter(|e| e.reason != reason::ADDRESS_PARKED) {
            *told.entry(&event.about).or_default() += 1;
        }
        for (key, told) in told {
            let turns = oracle.turns.get(key).copied().unwrap_or(0);
            if told > turns {
                return Err(format!(
                    "{told} events tell of {turns} changes of {key} (R15)"
                ));
            }
        }
        match oracle.at_rest(&outside).into_iter().next() {
            Some(what) => Err(format!("at rest: {what}")),
            None => Ok(()),
        }
    }

    /// Looking at everything again writes nothing, nor does starting again.
    pub(super) fn stay_quiet(&mut self) -> Result<(), Failure> {
        for round in 0..4 {
            let revision = self.ledger.revision();
            let events = self.heard.0.lock().unwrap().len();
            for n in 0..self.processes.len() {
                if self.is_dead(n) {
                    continue;
                }
                if round == 2 {
                    self.processes[n].restart();
                } else {
                    self.processes[n].resync();
                }
            }
            self.say(format!("-- quiet round {round}"));
            self.come_to_rest()?;
            if self.ledger.revision() != revision {
                return Err(format!("round {round}: a ledger at rest is written"));
            }
            if self.heard.0.lock().unwrap().len() != events {
                return Err(format!("round {round}: a ledger at rest makes events"));
            }
        }
        Ok(())
    }
}

/// Whether the driver of the class can read its parameters.
fn is_usable(class: &IPAddressClass) -> bool {
    class.spec.provisioner != range::NAME || Pool::of(class).is_some()
}

fn has_free(
    class: &IPAddressClass,
    family: Family,
    addresses: &BTreeMap<String, IPAddress>,
) -> bool {
    let taken = |ip: &Ip| {
        addresses.contains_key(&ip.object_name()) || addresses.values().any(|a| a.ip() == Some(*ip))
    };
    let usable = Pool::of(class).unwrap_or_default().usable;
    Pool::of_family(&usable, family).any(|ip| !taken(&ip))
}
