//! One seed: the processes, the people, and the scheduler that decides what happens next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipledger_core::api::names::reason;
use ipledger_core::api::{IPAddressClass, Kind};
use ipledger_core::binding::Event;
use ipledger_core::net::{Family, Ip};
use ipledger_core::runtime::{Binder, BinderOptions, EventSink};
use ipledger_core::store::{ListPage, StoreError};
use ipledger_drivers::range::{self, RangeDriver};

use crate::actors;
use crate::clock::{ProcessClock, Time};
use crate::config::{Config, Fault, Trouble};
use crate::coverage::Coverage;
use crate::desk::{Answer, Desk, Op, State};
use crate::host::{Host, Process};
use crate::ledger::{Ledger, Who};
use crate::oracle::{Outside, Probes};
use crate::rng::Rng;
use crate::third_party::{self, ThirdParty};
use crate::trace::Trace;

/// How long the world may take to come to rest once the faults have stopped, in virtual time.
const REST_WITHIN: Duration = Duration::from_secs(7200);
/// How many things may happen until then.
const REST_STEPS: usize = 30_000;

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
    old: BTreeMap<Kind, Vec<ListPage>>,
    heard: Heard,
    calm: Arc<AtomicBool>,
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
    pub fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let config = Config::of(&mut rng);
        let time = Time::default();
        let (ledger, desk) = (Ledger::new(time.clone()), Desk::default());
        let mut world = World {
            processes: Vec::new(),
            paused: Vec::new(),
            old: BTreeMap::new(),
            heard: Heard::default(),
            calm: Arc::default(),
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
            self.run(format!("core-{n}"), Who::Core, Box::new(move |store, clock, progress| {
                let sink = Arc::new(heard.clone());
                Binder::new(store, clock, progress, sink, BinderOptions::default())
            }));
        }
        if let Some(manners) = self.config.third {
            let (rng, calm) = (Mutex::new(self.rng.fork()), self.calm.clone());
            self.run("third".to_owned(), Who::Driver, Box::new(move |store, _, _| {
                ThirdParty::new(store, manners, calm.clone(), rng.lock().unwrap().fork())
            }));
        }
        for n in 0..self.config.ranges {
            self.run(format!("range-{n}"), Who::Range, Box::new(|store, clock, _| {
                RangeDriver::new(store, clock)
            }));
        }
        self.say(format!("{:?}", self.config));
        if self.config.furnished {
            actors::furnish(&self.config.universe, &self.ledger, &mut self.rng);
        }
    }

    fn run<R: ipledger_core::runtime::Reconciler>(
        &mut self,
        name: String,
        who: Who,
        make: crate::host::Make<R>,
    ) {
        let clock = ProcessClock::new(self.time.clone());
        let number = self.processes.len();
        let host =
            Host::new(name, number, who, self.config.workers, self.desk.clone(), clock, make);
        self.processes.push(Box::new(host));
        self.paused.push(0);
    }

    fn say(&mut self, what: String) {
        self.trace.say(&what);
    }

    /// Lets so many steps happen, with faults; then stops the faults and judges.
    ///
    /// # Errors
    /// The first thing that is found wrong.
    pub fn play(&mut self, steps: u64) -> Result<(), Failure> {
        let limit = steps * 200 + 1000;
        while self.steps < steps && self.ticks < limit {
            self.tick(true);
            self.sound()?;
        }
        self.calm();
        self.come_to_rest()?;
        self.judge_rest()?;
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

    /// One thing happens. Without faults it is only what the processes do. False if nothing could.
    fn tick(&mut self, faults: bool) -> bool {
        self.ticks += 1;
        let asked = self.desk.find(|op| matches!(op.state, State::Asked));
        let abandoned = self.desk.find(|op| matches!(op.state, State::Abandoned));
        let paused: Vec<bool> = self.paused.iter().map(|until| *until > self.ticks).collect();
        let applied = self.desk.find(|op| {
            matches!(op.state, State::Applied(_)) && !paused[op.caller.process]
        });
        let ticks = self.ticks;
        let mut feeds = Vec::new();
        let mut idle_workers = Vec::new();
        for (n, process) in self.processes.iter_mut().enumerate() {
            if paused[n] {
                continue;
            }
            for (f, feed) in process.feeds().iter_mut().enumerate() {
                let slow = faults && self.config.slow.contains(&(n, f)) && !self.rng.chance(30);
                if !slow && feed.stalled_until <= ticks && feed.is_due() {
                    feeds.push((n, f));
                }
            }
            if process.can_start() {
                idle_workers.push(n);
            }
        }
        let of = |any: bool, weight: u32| if any { weight } else { 0 };
        let busy = !(asked.is_empty() && applied.is_empty() && feeds.is_empty())
            || !idle_workers.is_empty();
        let act_rate = if busy { self.config.busy_act_rate } else { self.config.act_rate };
        let weights = [
            of(!asked.is_empty(), 30),
            of(!abandoned.is_empty(), if faults { 2 } else { 30 }),
            of(!applied.is_empty(), 30),
            of(!feeds.is_empty(), self.config.delivery_rate),
            of(!idle_workers.is_empty(), 15),
            of(faults, act_rate),
            of(faults, self.config.trouble_rate),
            of(faults, 2),
        ];
        match self.rng.weighted(&weights) {
            None => false,
            Some(0) => {
                let id = *self.rng.pick(&asked);
                self.carry_out(id, faults);
                true
            }
            Some(1) => {
                let id = *self.rng.pick(&abandoned);
                self.late(id);
                true
            }
            Some(2) => {
                let id = *self.rng.pick(&applied);
                self.deliver(id);
                true
            }
            Some(3) => {
                let (n, f) = *self.rng.pick(&feeds);
                let kind = self.processes[n].feeds()[f].kind;
                let old = self.old.get(&kind).filter(|_| faults && self.rng.chance(500));
                self.processes[n].feed_step(f, &self.ledger, self.config.page, old);
                true
            }
            Some(4) => {
                let n = *self.rng.pick(&idle_workers);
                if let Some(what) = self.processes[n].start() {
                    let name = self.processes[n].name().to_owned();
                    self.say(format!("{name} looks at {what}"));
                }
                true
            }
            Some(5) => {
                if let Some(what) = actors::act(&self.config.universe, &self.ledger, &mut self.rng) {
                    self.steps += 1;
                    let revision = self.ledger.oracle().revision;
                    self.say(format!("{revision}: somebody {what}"));
                }
                true
            }
            Some(6) => {
                self.trouble();
                true
            }
            Some(_) => {
                let by = match self.rng.below(20) {
                    0 => 700,
                    1..=3 => 30,
                    _ => 1,
                };
                self.pass_time(Duration::from_secs(by));
                true
            }
        }
    }

    fn pass_time(&mut self, by: Duration) {
        self.time.advance(by);
        for process in &mut self.processes {
            process.poke();
        }
    }

    fn who(&self, op: &Op) -> (Who, String) {
        let process = &self.processes[op.caller.process];
        (process.who(), process.name().to_owned())
    }

    /// The ledger gets a request, and perhaps something goes wrong.
    fn carry_out(&mut self, id: u64, faults: bool) {
        let op = self.desk.op(id);
        let n = op.caller.process;
        self.steps += 1;
        let fault = (faults && self.rng.chance(self.config.fault_rate))
            .then(|| self.rng.weighted(&self.config.faults))
            .flatten()
            .map(|i| Fault::ALL[i]);
        self.coverage.asked(self.processes[n].who(), &op, &self.ledger.oracle());
        if let Some(fault) = fault {
            self.coverage.fault(fault, &op);
        }
        let unknown = || StoreError::OutcomeUnknown {
            key: op.request.key(),
            reason: "the connection broke".to_owned(),
        };
        match fault {
            Some(Fault::Refused) => {
                let error = StoreError::Unavailable { reason: "out of order".to_owned() };
                self.log(&op, "is refused");
                self.answer(id, Answer::failure(&op.request, error));
            }
            Some(Fault::Late) if op.request.is_write() => {
                self.log(&op, "is lost or late");
                self.desk.answer_and_abandon(id, Answer::failure(&op.request, unknown()));
                self.processes[n].poke();
            }
            Some(Fault::AnswerLost) if op.request.is_write() => {
                self.apply(&op);
                self.answer(id, Answer::failure(&op.request, unknown()));
            }
            Some(Fault::DiesBefore) => {
                self.log(&op, "is on its way");
                self.restart(n);
            }
            Some(Fault::DiesAfter) => {
                self.apply(&op);
                self.desk.remove(id);
                self.restart(n);
            }
            _ => {
                if fault == Some(Fault::Overtaken) {
                    self.overtake(&op);
                }
                let answer = self.apply(&op);
                if self.rng.chance(400) {
                    self.desk.set(id, State::Applied(answer));
                } else {
                    self.answer(id, answer);
                }
            }
        }
    }

    fn apply(&mut self, op: &Op) -> Answer {
        let (who, _) = self.who(op);
        let answer = self.ledger.execute(who, &op.request);
        let outcome = match answer.error() {
            None => "is done".to_owned(),
            Some(error) => format!("fails: {error}"),
        };
        self.log(op, &outcome);
        answer
    }

    fn log(&mut self, op: &Op, outcome: &str) {
        let (_, name) = self.who(op);
        let revision = self.ledger.oracle().revision;
        let what = self.trace.describe(&op.request);
        self.say(format!("{revision}: {name} {what} {outcome}"));
    }

    fn answer(&mut self, id: u64, answer: Answer) {
        self.desk.set(id, State::Applied(answer));
        self.deliver(id);
    }

    fn deliver(&mut self, id: u64) {
        let op = self.desk.op(id);
        if let State::Applied(answer) = op.state {
            self.desk.set(id, State::Answered(answer));
        }
        self.processes[op.caller.process].poke();
    }

    /// A write that nobody waits for arrives, or never does.
    fn late(&mut self, id: u64) {
        let op = self.desk.op(id);
        self.desk.remove(id);
        if self.rng.chance(600) {
            self.apply(&op);
        } else {
            self.log(&op, "never arrives");
        }
    }

    /// Somebody changes the object just before, in a way that means nothing.
    fn overtake(&mut self, op: &Op) {
        let key = op.request.key();
        let note = format!("{}", self.ticks);
        let Ok(mut object) = self.ledger.get(&key) else { return };
        object.metadata.annotations.insert("example.com/touched".to_owned(), note);
        let done = self.ledger.update(Who::Admin, object, ipledger_core::store::Part::Main).is_ok();
        self.say(format!("somebody touches {key}: {done}"));
    }

    fn restart(&mut self, n: usize) {
        let name = self.processes[n].name().to_owned();
        self.say(format!("{name} dies and starts again"));
        self.processes[n].restart();
        self.paused[n] = 0;
    }

    fn trouble(&mut self) {
        let Some(i) = self.rng.weighted(&self.config.troubles) else { return };
        let n = self.rng.below(self.processes.len());
        let f = self.rng.below(self.processes[n].feeds().len());
        let trouble = Trouble::ALL[i];
        self.coverage.trouble(trouble);
        let name = self.processes[n].name().to_owned();
        let kind = self.processes[n].feeds()[f].kind;
        self.say(format!("trouble: {trouble:?} ({name}, {kind})"));
        match trouble {
            Trouble::Restart => self.restart(n),
            Trouble::Pause => self.paused[n] = self.ticks + self.rng.between(20, 400) as u64,
            Trouble::Break => self.processes[n].feeds()[f].resume(&self.ledger),
            Trouble::Relist => self.processes[n].feeds()[f].relist(),
            Trouble::Repeat => self.processes[n].feed_repeat(f),
            Trouble::Stall => {
                let until = self.ticks + self.rng.between(20, 400) as u64;
                self.processes[n].feeds()[f].stalled_until = until;
            }
            Trouble::Jump => {
                // Farther than a cool-down is allowed to take, or the world would wait for it.
                let skew = *self.rng.pick(&[-1800, -60, -1, 0, 1, 60, 1800]);
                self.processes[n].clock().jump(skew);
            }
            Trouble::Bookmark => self.ledger.bookmark_all(),
            Trouble::Compact => self.ledger.compact(),
            Trouble::Remember => {
                for kind in Kind::ALL {
                    let pages = self.ledger.pages(kind, self.config.page);
                    self.old.insert(kind, pages);
                }
            }
            Trouble::Resync => self.processes[n].resync(),
        }
    }

    /// The faults stop.
    fn calm(&mut self) {
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
    fn come_to_rest(&mut self) -> Result<(), Failure> {
        let start = self.time.now();
        for _ in 0..REST_STEPS {
            let moved = self.tick(false);
            self.sound()?;
            if moved {
                continue;
            }
            let alive: Vec<usize> =
                (0..self.processes.len()).filter(|n| !self.is_dead(*n)).collect();
            let deadlines = alive.iter().filter_map(|n| self.processes[*n].next_deadline());
            let Some(next) = deadlines.chain(self.time.next_alarm()).min() else {
                let idle = alive.iter().all(|n| self.processes[*n].is_idle());
                let work: Vec<&str> = alive
                    .iter()
                    .filter(|n| !self.processes[**n].is_idle())
                    .map(|n| self.processes[*n].name())
                    .collect();
                return if idle { Ok(()) } else { Err(format!("{work:?} wait for what never comes")) };
            };
            if next.saturating_sub(start) > REST_WITHIN {
                return Err(format!("no rest within {REST_WITHIN:?} after the faults stopped"));
            }
            self.pass_time(next.saturating_sub(self.time.now()));
        }
        Err(format!("no rest within {REST_STEPS} steps after the faults stopped"))
    }

    fn judge_rest(&mut self) -> Result<(), Failure> {
        let oracle = self.ledger.oracle();
        let mut outside = Outside {
            alive: BTreeSet::new(),
            finalizers: BTreeSet::new(),
            could_provide: &|class, family| {
                oracle.classes.get(class).is_some_and(|c| has_free(c, family, &oracle.addresses))
            },
            refusal: &|class, family| {
                let class = oracle.classes.get(class)?;
                let any = third_party::listed(class).iter().any(|ip| ip.family() == family);
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
        match oracle.at_rest(&outside).into_iter().next() {
            Some(what) => Err(format!("at rest: {what}")),
            None => Ok(()),
        }
    }

    /// Looking at everything again writes nothing, nor does starting again.
    fn stay_quiet(&mut self) -> Result<(), Failure> {
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
            text += &format!("{}\n", serde_json::to_string(&claim.to_object().unwrap()).unwrap());
        }
        for address in oracle.addresses.values() {
            text += &format!("{}\n", serde_json::to_string(&address.to_object().unwrap()).unwrap());
        }
        for class in oracle.classes.values() {
            text += &format!("{}\n", serde_json::to_string(&class.to_object().unwrap()).unwrap());
        }
        text
    }
}

fn has_free(
    class: &IPAddressClass,
    family: Family,
    addresses: &BTreeMap<String, ipledger_core::api::IPAddress>,
) -> bool {
    let taken = |ip: &Ip| {
        addresses.contains_key(&ip.object_name()) || addresses.values().any(|a| a.ip() == Some(*ip))
    };
    third_party::listed(class).iter().any(|ip| ip.family() == family && !taken(ip))
}

