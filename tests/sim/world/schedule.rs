//! What happens next, and what goes wrong with it.

use std::time::Duration;

use ipledger_core::api::{IPAddress, Kind};
use ipledger_core::store::{Part, StoreError};

use super::World;
use crate::actors;
use crate::config::{Fault, Trouble};
use crate::desk::{Answer, Op, Request, State};
use crate::ledger::Who;

impl World {
    /// One thing happens. Without faults it is only what the processes do. False if nothing could.
    pub(super) fn tick(&mut self, faults: bool) -> bool {
        self.ticks += 1;
        let asked = self.desk.find(|op| matches!(op.state, State::Asked));
        let now = self.ticks;
        let abandoned = self
            .desk
            .find(|op| matches!(op.state, State::Abandoned) && (!faults || op.not_before <= now));
        let paused: Vec<bool> = self
            .paused
            .iter()
            .map(|until| *until > self.ticks)
            .collect();
        let applied = self
            .desk
            .find(|op| matches!(op.state, State::Applied(_)) && !paused[op.caller.process]);
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
        let busy = [&asked, &applied].iter().any(|ids| !ids.is_empty())
            || !feeds.is_empty()
            || !idle_workers.is_empty();
        let act_rate = if busy {
            self.config.busy_act_rate
        } else {
            self.config.act_rate
        };
        let weights = [
            of(!asked.is_empty(), 30),
            of(
                !abandoned.is_empty(),
                if faults { self.config.late_rate } else { 30 },
            ),
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
                let old = self
                    .old
                    .get(&kind)
                    .filter(|_| faults && self.rng.chance(500));
                self.processes[n].feed_step(f, &self.ledger, self.config.page, old);
                if kind == Kind::IPAddress && self.processes[n].who() == Who::Core {
                    self.overtake_the_first_in_line(n, f);
                }
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
                if let Some(what) = actors::act(&self.config.universe, &self.ledger, &mut self.rng)
                {
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

    pub(super) fn pass_time(&mut self, by: Duration) {
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
            .map(|i| Fault::ALL[i])
            .or_else(|| self.late_match(&op).filter(|_| faults));
        let who = self.processes[n].who();
        self.ledger.oracle().asked(who, op.caller, &op.request);
        self.coverage
            .asked(self.processes[n].who(), &op, &self.ledger.oracle());
        // Somebody has to get ahead first.
        if let Some(fault) = fault.filter(|f| *f != Fault::Overtaken) {
            self.coverage.fault(fault, &op);
        }
        let unknown = || StoreError::OutcomeUnknown {
            key: op.request.key(),
            reason: "the connection broke".to_owned(),
        };
        match fault {
            Some(Fault::Refused) => {
                let error = StoreError::Unavailable {
                    reason: "out of order".to_owned(),
                };
                self.log(&op, "is refused");
                self.answer(id, Answer::failure(&op.request, error));
            }
            Some(Fault::Late) if op.request.is_write() => {
                self.log(&op, "is lost or late");
                let answer = Answer::failure(&op.request, unknown());
                self.ledger
                    .oracle()
                    .heard(who, op.caller, &op.request, &answer);
                let is_given_up = self.give_up_waiting(&op);
                let wait = if is_given_up {
                    // It arrives when the claim is gone.
                    self.rng.between(200, 400)
                } else if self.rng.chance(300) {
                    self.rng.between(50, 400)
                } else {
                    0
                };
                let not_before = self.ticks + wait as u64;
                self.desk.answer_and_abandon(id, answer, not_before);
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
                if fault == Some(Fault::Overtaken) && self.overtake(&op) {
                    self.coverage.fault(Fault::Overtaken, &op);
                }
                let answer = self.apply(&op);
                self.ledger
                    .oracle()
                    .heard(who, op.caller, &op.request, &answer);
                let outdated = fault == Some(Fault::Overtaken) && self.outdate(&op);
                if outdated || self.rng.chance(400) {
                    self.desk.set(id, State::Applied(answer));
                } else {
                    self.answer(id, answer);
                }
                if outdated {
                    self.show_addresses(n);
                }
            }
        }
    }

    fn apply(&mut self, op: &Op) -> Answer {
        let (who, _) = self.who(op);
        let answer = self.ledger.execute(who, op.caller, &op.request);
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
        let op = self.desk.op(id);
        let (who, _) = self.who(&op);
        self.ledger
            .oracle()
            .heard(who, op.caller, &op.request, &answer);
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

    /// Somebody gets ahead: changes the object just before, in a way that means nothing, or takes
    /// the name that is to be created. Whether it was done.
    fn overtake(&mut self, op: &Op) -> bool {
        let key = op.request.key();
        let done = match (&op.request, self.ledger.get(&key)) {
            (_, Ok(mut object)) => {
                object
                    .metadata
                    .annotations
                    .insert("example.com/touched".to_owned(), self.ticks.to_string());
                self.ledger.update(Who::Admin, object, Part::Main).is_ok()
            }
            // A script ends as without faults only if nobody else makes anything.
            (Request::Create(wanted), Err(_)) if self.config.act_rate > 0 => {
                IPAddress::from_object(wanted).is_ok_and(|wanted| {
                    let mut other = IPAddress::default();
                    other.metadata.name = wanted.metadata.name.clone();
                    other.spec.address = wanted.spec.address.clone();
                    other.spec.class_name = wanted.spec.class_name.clone();
                    self.ledger.add(Who::Admin, &other)
                })
            }
            _ => return false,
        };
        self.say(format!("somebody gets ahead of it at {key}: {done}"));
        done
    }

    fn restart(&mut self, n: usize) {
        let name = self.processes[n].name().to_owned();
        self.say(format!("{name} dies and starts again"));
        self.processes[n].restart();
        self.paused[n] = 0;
    }

    fn trouble(&mut self) {
        let Some(i) = self.rng.weighted(&self.config.troubles) else {
            return;
        };
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
            Trouble::Break => self.processes[n].feeds()[f].resume(),
            Trouble::Relist => {
                if kind == Kind::IPAddressClaim && self.rng.chance(300) {
                    self.replace_unseen();
                }
                self.processes[n].feeds()[f].relist();
            }
            Trouble::Repeat => {
                let back = self.rng.below(6);
                self.processes[n].feed_repeat(f, back);
            }
            Trouble::Stall => {
                let until = self.ticks + self.rng.between(20, 400) as u64;
                let hides = self.rng.chance(400);
                let feed = &mut self.processes[n].feeds()[f];
                feed.stalled_until = until;
                if hides {
                    // What happens meanwhile is never shown, only what it leads to.
                    feed.relist();
                }
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
                    let page = self.ledger.first_page(kind, self.config.page);
                    self.old.insert(kind, page);
                }
            }
            Trouble::Resync => self.processes[n].resync(),
        }
    }
}
