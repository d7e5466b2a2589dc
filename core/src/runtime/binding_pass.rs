//! One pass of the binding core without its I/O: what it asks of the ledger, in which order, and
//! what it makes of each answer. Whoever carries the requests out (the [`Binder`](super::Binder)
//! on a store, the exhaustive search on its own ledger) decides nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cache::Around;
use super::{Cache, Next, Pass};
use crate::api::{IPAddress, IPAddressClaim, IPAddressClass, Key, Kind, Timestamp};
use crate::binding::{Event, Facts, Need, Plan, Step, Write, address, claim};
use crate::mutant::{Mutant, active};
use crate::store::{ErrorClass, Part, Revision, StoreError};

/// What a pass of the binding core is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// A claim, with the addresses that name it.
    Claim(Key),
    /// An address without a living claim, by object name.
    Address(String),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Claim(key) => key.fmt(f),
            Work::Address(name) => Key::address(name).fmt(f),
        }
    }
}

/// The time of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The wall clock.
    pub now: Timestamp,
    /// Time since some fixed point of this process.
    pub monotonic: Duration,
    /// How long a pre-bound address with policy `Delete` waits for its claim; zero means for ever.
    pub grace: Duration,
}

/// What a pass wants done before it goes on.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Wait until the cache covers everything of this kind that was committed before now. Answered
    /// by [`reached`](BindingPass::reached).
    Barrier(Kind),
    /// Read this object at `Latest`. Answered by [`read`](BindingPass::read).
    Read(Key),
    /// Carry this write out, as a swap on the revision that it carries. Answered by
    /// [`wrote`](BindingPass::wrote).
    Write(Write),
    /// Nothing: the pass is over. These events are to be told.
    Done(Pass<Work>, Vec<Event>),
}

/// An object as read at `Latest`; `None` if it does not exist.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// What there is of a class.
    Class(Option<Arc<IPAddressClass>>),
    /// What there is of an address.
    Address(Option<Arc<IPAddress>>),
    /// What there is of a claim.
    Claim(Option<Arc<IPAddressClaim>>),
}

/// A pass over one key: call [`next`](Self::next), carry out what it asks, give the answer (or
/// [`failed`](Self::failed)), and call `next` again until it is done.
#[derive(Clone, Debug)]
pub struct BindingPass {
    work: Work,
    facts: Facts,
    /// What was known when the facts were asked for.
    asked: Option<Around>,
    rounds: u32,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Deciding,
    /// Proof is being fetched: barriers first.
    Proving {
        barriers: Vec<Kind>,
        /// The revision of the claim that is known as they are asked for.
        claim: Option<Revision>,
        reads: Vec<Key>,
        noted: bool,
    },
    Writing(Execution),
    /// A proof was not to be had.
    Unproven(StoreError),
}

/// A plan that is being carried out, up to the first failure.
#[derive(Clone, Debug)]
struct Execution {
    plan: Plan,
    /// Addresses that this plan picks.
    picks: Vec<String>,
    /// The plan's writes that are done.
    done: usize,
    wrote: Vec<(Kind, Revision)>,
    /// The revision of each object that was written.
    revisions: BTreeMap<Key, Revision>,
    failure: Option<StoreError>,
}

/// Each round proves what the last one asked for; a decision asks for little.
const ROUNDS: u32 = 8;

impl BindingPass {
    /// A pass that has not begun.
    pub fn new(work: Work) -> BindingPass {
        BindingPass {
            work,
            facts: Facts::default(),
            asked: None,
            rounds: 0,
            stage: Stage::Deciding,
        }
    }

    /// What the pass is about.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Whether the next ask depends on what the cache says when it is asked for.
    pub fn awaits_decision(&self) -> bool {
        matches!(self.stage, Stage::Deciding)
    }

    /// How many writes of its plan are not answered yet; none before it has a plan.
    pub fn writes_left(&self) -> usize {
        match &self.stage {
            Stage::Writing(execution) => execution.plan.writes.len() - execution.done,
            _ => 0,
        }
    }

    /// What is to be done next, as the cache is now. Asked again without an answer in between, it
    /// says the same.
    pub fn next(&mut self, cache: &mut Cache, moment: Moment) -> Request {
        loop {
            match &mut self.stage {
                Stage::Deciding => {
                    if self.rounds == ROUNDS {
                        return self.end(cache, Next::Again, true);
                    }
                    self.rounds += 1;
                    match self.decide(cache, moment) {
                        None => {
                            let mut pass = Pass::settled();
                            pass.next = Next::Again;
                            return Request::Done(pass, Vec::new());
                        }
                        Some(stage) => self.stage = stage,
                    }
                }
                Stage::Proving {
                    barriers,
                    reads,
                    noted,
                    ..
                } => {
                    if let Some(kind) = barriers.first() {
                        return Request::Barrier(*kind);
                    }
                    if !*noted {
                        *noted = true;
                        // What is read proves something about what was known when it was asked
                        // for, and about nothing that is observed later: once that has moved, all
                        // is read again.
                        let around = cache.around(&self.work);
                        if self.asked.as_ref().is_some_and(|a| *a != around) {
                            self.facts.forget_reads();
                        }
                        self.asked = Some(around);
                    }
                    match reads.first() {
                        Some(key) => return Request::Read(key.clone()),
                        None => self.stage = Stage::Deciding,
                    }
                }
                Stage::Writing(execution) => {
                    return match execution.next() {
                        Some(write) => Request::Write(write),
                        None => execution.end(cache, &self.work),
                    };
                }
                Stage::Unproven(error) => {
                    let next = Next::Failed(error.to_string());
                    let again = is_transient(error);
                    return self.end(cache, next, again);
                }
            }
        }
    }

    /// The cache has come as far as was asked.
    pub fn reached(&mut self) {
        if let Stage::Proving {
            barriers, claim, ..
        } = &mut self.stage
            && !barriers.is_empty()
        {
            self.facts.barriers.insert(barriers.remove(0), *claim);
        }
    }

    /// What was asked for was read.
    pub fn read(&mut self, found: Found) {
        if let Stage::Proving { reads, .. } = &mut self.stage
            && !reads.is_empty()
        {
            let key = reads.remove(0);
            match found {
                Found::Class(class) => drop(self.facts.classes.insert(key.name, class)),
                Found::Address(address) => drop(self.facts.addresses.insert(key.name, address)),
                Found::Claim(claim) => drop(self.facts.claims.insert(key, claim)),
            }
            if reads.is_empty() {
                self.stage = Stage::Deciding;
            }
        }
    }

    /// What was asked for was written, at this revision.
    pub fn wrote(&mut self, revision: Revision) {
        if let Stage::Writing(execution) = &mut self.stage
            && let Some(write) = execution.plan.writes.get(execution.done)
        {
            let key = write.key();
            execution.wrote.push((key.kind, revision));
            execution.revisions.insert(key, revision);
            execution.done += 1;
        }
    }

    /// What was asked for did not succeed, or it is not known whether it did. Nothing of the plan
    /// is carried out any more: the next pass starts from a fresh view.
    pub fn failed(&mut self, error: StoreError) {
        match &mut self.stage {
            Stage::Writing(execution) => {
                execution.done += usize::from(active(Mutant::GoesOnAfterFailure));
                execution.failure = Some(error);
            }
            stage => *stage = Stage::Unproven(error),
        }
    }

    /// Decides what the pass does, as far as the facts go, and keeps the addresses that it picks
    /// from other passes. `None`: a pick was lost to another pass.
    fn decide(&mut self, cache: &mut Cache, moment: Moment) -> Option<Stage> {
        let work = &self.work;
        if self
            .asked
            .as_ref()
            .is_some_and(|a| *a != cache.around(work))
        {
            self.facts.forget_reads();
        }
        let facts = &self.facts;
        let step = match work {
            Work::Claim(key) => step_claim(cache, key, facts, moment),
            Work::Address(name) if cache.group_of(name).is_some() => Step::nothing(),
            Work::Address(name) => step_address(cache, name, facts, moment),
        };
        let plan = match step {
            Step::Need(needs) => {
                let claim = match work {
                    Work::Claim(key) => cache.claim_revision(key, facts),
                    Work::Address(_) => None,
                };
                return Some(proving(needs, claim));
            }
            Step::Do(plan) => plan,
        };
        let picks = match work {
            Work::Claim(key) => pick(cache, key, &plan)?,
            Work::Address(_) => Vec::new(),
        };
        Some(Stage::Writing(Execution {
            plan,
            picks,
            done: 0,
            wrote: Vec::new(),
            revisions: BTreeMap::new(),
            failure: None,
        }))
    }

    /// Ends a pass that has written nothing; one that tries again keeps its turn.
    fn end(&self, cache: &mut Cache, next: Next, again: bool) -> Request {
        let mut pass = Pass::settled();
        pass.next = next;
        if let Work::Claim(key) = &self.work
            && !again
        {
            pass.wake.extend(cache.passed(key));
        }
        Request::Done(pass, Vec::new())
    }
}

impl Execution {
    /// The next write, on the revision that the plan itself has made of the object, if it has.
    fn next(&self) -> Option<Write> {
        if self.failure.is_some() && !active(Mutant::GoesOnAfterFailure) {
            return None;
        }
        let mut write = self.plan.writes.get(self.done)?.clone();
        if let Some(revision) = self.revisions.get(&write.key()) {
            let seen = match &mut write {
                Write::Claim { object, .. } => &mut object.metadata.resource_version,
                Write::Address { object, .. } => &mut object.metadata.resource_version,
                Write::DeleteAddress { preconditions, .. } => &mut preconditions.revision,
            };
            *seen = Some(*revision);
        }
        Some(write)
    }

    fn end(&self, cache: &mut Cache, work: &Work) -> Request {
        let mut pass = Pass::settled();
        if let Work::Claim(key) = work {
            for name in &self.picks {
                match self.revisions.get(&Key::address(name)) {
                    Some(at) => pass.wake.extend(cache.settle_pick(name, key, *at)),
                    None => cache.give_back(name, key),
                }
            }
            // One that tries again, after a while, keeps its turn: to wake others at once would go
            // round among them as fast as the store refuses, for as long as the view is old.
            if !self.failure.as_ref().is_some_and(is_transient) {
                pass.wake.extend(cache.passed(key));
            }
        }
        pass.wrote = self.wrote.clone();
        pass.next = match (&self.failure, self.plan.again_after) {
            (Some(e), _) if e.class() == ErrorClass::Refresh => Next::Again,
            (Some(e), _) => Next::Failed(e.to_string()),
            (None, Some(after)) => Next::After(after),
            (None, None) => Next::Wait,
        };
        let events = match self.failure {
            None => self.plan.events.clone(),
            Some(_) => Vec::new(),
        };
        Request::Done(pass, events)
    }
}

/// Whether the pass that met this error is to be tried again as it was.
fn is_transient(error: &StoreError) -> bool {
    error.class() != ErrorClass::Permanent
}

fn proving(needs: Vec<Need>, claim: Option<Revision>) -> Stage {
    let (mut barriers, mut reads) = (Vec::new(), Vec::new());
    for need in needs {
        match need {
            Need::Barrier(kind) => barriers.push(kind),
            Need::Read(key) => reads.push(key),
        }
    }
    Stage::Proving {
        barriers,
        claim,
        reads,
        noted: false,
    }
}

fn step_claim(cache: &mut Cache, key: &Key, facts: &Facts, moment: Moment) -> Step {
    match claim::plan(&cache.claim_view(key, facts, moment.now)) {
        Step::Do(plan) if plan == Plan::default() => {}
        decided => return decided,
    }
    // Only once the claim itself is settled: most of what its addresses need comes with it.
    let (mut all, mut needs) = (Plan::default(), Vec::new());
    for name in cache.group(key) {
        match step_address(cache, &name, facts, moment) {
            Step::Do(plan) => all.extend(plan),
            Step::Need(more) => needs.extend(more),
        }
    }
    if needs.is_empty() {
        Step::Do(all)
    } else {
        Step::Need(needs)
    }
}

fn step_address(cache: &mut Cache, name: &str, facts: &Facts, moment: Moment) -> Step {
    match cache.address_view(name, facts, moment.now, moment.monotonic, moment.grace) {
        Some(view) => address::plan(&view),
        None => Step::nothing(),
    }
}

/// Keeps the free addresses that a plan binds from other passes; `None` if another pass has one.
fn pick(cache: &mut Cache, key: &Key, plan: &Plan) -> Option<Vec<String>> {
    let mut picks: Vec<String> = Vec::new();
    for write in &plan.writes {
        if let Write::Address {
            object,
            part: Part::Main,
        } = write
            && cache.is_free(&object.metadata.name)
            && object.spec.claim_ref.is_some()
        {
            if !cache.pick(&object.metadata.name, key) {
                for name in &picks {
                    cache.give_back(name, key);
                }
                return None;
            }
            picks.push(object.metadata.name.clone());
        }
    }
    Some(picks)
}
