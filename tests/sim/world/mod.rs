//! One seed: the processes and the people of a small world.
//!
//! | question | file |
//! |---|---|
//! | what happens next, and what goes wrong with it? | `schedule.rs` |
//! | what is brought about on purpose? | `arranged.rs` |
//! | when is the world at rest, and is it as it should be then? | `judge.rs` |

mod arranged;
mod judge;
mod schedule;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ipledger_core::api::Kind;
use ipledger_core::binding::Event;
use ipledger_core::runtime::{Binder, BinderOptions, EventSink, Reconciler};
use ipledger_core::store::ListPage;
use ipledger_drivers::range::RangeDriver;

use crate::actors;
use crate::clock::{ProcessClock, Time};
use crate::config::Config;
use crate::coverage::Coverage;
use crate::desk::Desk;
use crate::host::{Host, Make, Process};
use crate::ledger::{Ledger, Who};
use crate::oracle::Probes;
use crate::rng::Rng;
use crate::third_party::ThirdParty;
use crate::trace::Trace;

/// Counts the events for the owners of objects.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Event>>>);

impl EventSink for Heard {
    fn emit(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// The world of one seed.
pub struct World {
    config: Config,
    rng: Rng,
    time: Time,
    ledger: Ledger,
    desk: Desk,
    processes: Vec<Box<dyn Process>>,
    /// Until which moment of the schedule each process stands still.
    paused: Vec<u64>,
    /// Earlier states, which a listing may show.
    old: BTreeMap<Kind, ListPage>,
    heard: Heard,
    calm: Arc<AtomicBool>,
    /// Whether everything is to come to rest at once.
    rest_soon: bool,
    /// How often the scheduler has decided.
    ticks: u64,
    /// Acts of people and requests carried out.
    pub steps: u64,
    pub coverage: Coverage,
    pub trace: Trace,
}

/// What was found wrong.
pub type Failure = String;

impl World {
    /// The world of a seed, with people.
    pub fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let config = Config::of(&mut rng);
        let mut world = World::empty(rng, config);
        if world.config.furnished {
            actors::furnish(&world.config.universe, &world.ledger, &mut world.rng);
        }
        world
    }

    /// A world without people, for a script.
    pub fn scripted(seed: u64, furnish: impl FnOnce(&Ledger)) -> World {
        let mut rng = Rng::new(seed);
        let config = Config::for_script(&mut rng);
        let world = World::empty(rng, config);
        furnish(&world.ledger);
        world
    }

    fn empty(rng: Rng, config: Config) -> World {
        let time = Time::default();
        let (ledger, desk) = (Ledger::new(time.clone()), Desk::default());
        let mut world = World {
            processes: Vec::new(),
            paused: Vec::new(),
            old: BTreeMap::new(),
            heard: Heard::default(),
            calm: Arc::default(),
            rest_soon: false,
            ticks: 0,
            steps: 0,
            coverage: Coverage::default(),
            trace: Trace::default(),
            config,
            rng,
            time,
            ledger,
            desk,
        };
        world.start_processes();
        world
    }

    fn start_processes(&mut self) {
        for n in 0..self.config.cores {
            let heard = self.heard.clone();
            self.run(
                format!("core-{n}"),
                Who::Core,
                Box::new(move |store, clock, progress| {
                    let sink = Arc::new(heard.clone());
                    Binder::new(store, clock, progress, sink, BinderOptions::default())
                }),
            );
        }
        if let Some(manners) = self.config.third {
            let (rng, calm) = (Mutex::new(self.rng.fork()), self.calm.clone());
            self.run(
                "third".to_owned(),
                Who::Driver,
                Box::new(move |store, _, _| {
                    ThirdParty::new(store, manners, calm.clone(), rng.lock().unwrap().fork())
                }),
            );
        }
        for n in 0..self.config.ranges {
            self.run(
                format!("range-{n}"),
                Who::Range,
                Box::new(|store, clock, _| RangeDriver::new(store, clock)),
            );
        }
        self.say(format!("{:?}", self.config));
    }

    fn run<R: Reconciler>(&mut self, name: String, who: Who, make: Make<R>) {
        let clock = ProcessClock::new(self.time.clone());
        let number = self.processes.len();
        let host = Host::new(
            name,
            number,
            who,
            self.config.workers,
            self.desk.clone(),
            clock,
            make,
        );
        self.processes.push(Box::new(host));
        self.paused.push(0);
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn say(&mut self, what: String) {
        self.trace.say(&what);
    }

    /// Lets so many steps happen, with faults; then stops the faults and judges.
    ///
    /// # Errors
    /// The first thing that is found wrong.
    pub fn play(&mut self, steps: u64) -> Result<(), Failure> {
        let limit = steps * 200 + 1000;
        let rests = self.config.rests;
        for part in 1..=rests + 1 {
            self.calm.store(false, Ordering::Relaxed);
            while self.steps < steps * part / (rests + 1) && self.ticks < limit {
                self.tick(true);
                self.sound()?;
                if std::mem::take(&mut self.rest_soon) && self.config.drivers_survive {
                    self.settle()?;
                    self.calm.store(false, Ordering::Relaxed);
                }
            }
            self.settle()?;
        }
        self.stay_quiet()
    }

    /// Lets things happen for a while, with faults.
    pub fn trouble_for(&mut self, ticks: usize) {
        self.calm.store(false, Ordering::Relaxed);
        for _ in 0..ticks {
            self.tick(true);
        }
    }

    /// The faults stop, and everything comes to rest as it should be.
    ///
    /// # Errors
    /// The first thing that is found wrong.
    pub fn settle(&mut self) -> Result<(), Failure> {
        self.calm();
        self.come_to_rest()?;
        self.judge_rest()
    }

    /// At rest, nothing is written any more.
    ///
    /// # Errors
    /// What is written.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.stay_quiet()
    }

    /// Nothing was found wrong so far.
    fn sound(&mut self) -> Result<(), Failure> {
        let found = self.ledger.oracle().violations.first().cloned();
        match found {
            None => Ok(()),
            Some(what) => Err(what),
        }
    }

    /// How many writes each has made.
    pub fn writes(&self) -> BTreeMap<Who, u64> {
        self.ledger.oracle().writes.clone()
    }

    /// Which situations were reached.
    pub fn probes(&self) -> Probes {
        self.ledger.oracle().probes.clone()
    }

    /// The ledger as it is, for people.
    pub fn show(&self) -> String {
        let oracle = self.ledger.oracle();
        let mut text = String::new();
        for claim in oracle.claims.values() {
            text += &format!(
                "{}\n",
                serde_json::to_string(&claim.to_object().unwrap()).unwrap()
            );
        }
        for address in oracle.addresses.values() {
            text += &format!(
                "{}\n",
                serde_json::to_string(&address.to_object().unwrap()).unwrap()
            );
        }
        for class in oracle.classes.values() {
            text += &format!(
                "{}\n",
                serde_json::to_string(&class.to_object().unwrap()).unwrap()
            );
        }
        text
    }
}
