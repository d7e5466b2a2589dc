//! Every step that can be taken from a state.

use std::sync::Arc;

use ipledger_core::api::{AddressPhase, ClaimPhase, names};
use ipledger_core::store::{Part, Preconditions};

use super::oracles::{Oracles, Who};
use super::passes::{Answer, Next, Passes, Wants};
use super::state::{Core, Flying, Pending, State};
use super::table::{Change, ChangeId, EntryId, Refusal, Table, Thing};
use super::universe::{CLOUD, DRIVER, TEARDOWN, Universe, reserved_for};

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out or refused, and the caller hears so.
    Answered,
    /// It is not carried out, and the caller does not know.
    NotApplied,
    /// It is carried out, and the caller does not know.
    Applied,
    /// It stays in the air, and the caller does not know.
    Late,
}

/// One step. Places are numbers; `lags` is the set of cores whose view does not take in the event
/// at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A core takes up a key and decides.
    Begin { core: usize, place: usize },
    /// A core decides with what it has read.
    Decide { core: usize, place: usize },
    /// A core asks for a barrier; it is there already, or the pass waits for it.
    Barrier { core: usize, place: usize },
    /// A core reads at `Latest`.
    Read {
        core: usize,
        place: usize,
        what: usize,
    },
    /// A core writes.
    Write {
        core: usize,
        place: usize,
        what: usize,
        fate: Fate,
        lags: u8,
    },
    /// A view takes in its next event.
    Observe { core: usize, kind: usize },
    /// A core dies and starts again; the write that it has asked for last may still arrive.
    Crash { core: usize, flies: Option<usize> },
    /// A write arrives whose caller has given up on it.
    Arrive { what: usize, lags: u8 },
    /// A tenant deletes a claim.
    DeleteClaim { what: usize, lags: u8 },
    /// A tenant creates a claim under a name that was used before.
    CreateClaim { what: usize, lags: u8 },
    /// An admin deletes an address.
    DeleteAddress { what: usize, lags: u8 },
    /// An admin clears the claimRef of a released address.
    Clear { what: usize, lags: u8 },
    /// The driver decides to serve a claim. `double`: from a view that does not show that it has
    /// done so before.
    Provision {
        claim: usize,
        address: usize,
        double: bool,
    },
    /// The driver creates the address.
    CreateAddress { what: usize, fate: Fate, lags: u8 },
    /// The driver dies before it has created the address.
    DriverCrash,
    /// The driver lets an address go.
    TearDown { what: usize, lags: u8 },
}

impl Step {
    /// Whether the system takes it by itself, without people or faults.
    fn is_own(&self) -> bool {
        matches!(
            self,
            Step::Begin { .. }
                | Step::Decide { .. }
                | Step::Barrier { .. }
                | Step::Read { .. }
                | Step::Write {
                    fate: Fate::Answered,
                    ..
                }
                | Step::Observe { .. }
                | Step::Provision { double: false, .. }
                | Step::CreateAddress {
                    fate: Fate::Answered,
                    ..
                }
                | Step::TearDown { .. }
        )
    }
}

/// The steps from one state, and where each leads.
pub type Steps = Vec<(Step, State)>;

/// What is wrong, and with which step.
pub struct Violation {
    pub step: Option<Step>,
    pub what: String,
}

/// A small world with all that was worked out about it.
pub struct World {
    pub universe: Universe,
    pub table: Table,
    pub passes: Passes,
    pub oracles: Oracles,
}

impl World {
    pub fn new(universe: Universe) -> World {
        World {
            universe,
            table: Table::new(),
            passes: Passes::new(),
            oracles: Oracles::default(),
        }
    }

    /// The state before the first step: the addresses of the admin are known and free, the claims
    /// are there, and nobody has looked at them.
    pub fn start(&mut self) -> State {
        let mut state = State {
            count: self.universe.bounds.cores,
            left: self.universe.bounds.left,
            ..State::default()
        };
        let claims = self.universe.claims.len();
        for (n, (address, there)) in self.universe.addresses.clone().into_iter().enumerate() {
            if there {
                let place = claims + n;
                let thing = Thing::Address(Arc::new(address));
                state.ledger[place] = self.create(0, thing);
                self.settle(&mut state, place);
            }
        }
        for (place, claim) in self.universe.claims.clone().into_iter().enumerate() {
            state.ledger[place] = self.create(0, Thing::Claim(Arc::new(claim)));
        }
        for core in 0..usize::from(state.count) {
            state.cores[core] = self.fresh(&state);
        }
        state
    }

    fn create(&mut self, entry: EntryId, thing: Thing) -> EntryId {
        let change = self.table.number_of(Change::Create(thing));
        self.table.apply(entry, change).unwrap()
    }

    /// Lets one core bring an address into order, without anything in between.
    fn settle(&mut self, state: &mut State, place: usize) {
        loop {
            let view = self.fresh(state).view;
            let (table, universe) = (&mut self.table, &self.universe);
            let mut next = self.passes.begin(table, universe, &view, 0, place);
            if next.pass == 0 {
                return;
            }
            while next.pass != 0 {
                let Wants::Write(what, change) = self.passes.get(next.pass).wants else {
                    panic!("an address without a claim needs no proof");
                };
                let entry = self.table.apply(state.ledger[what], change).unwrap();
                state.ledger[what] = entry;
                let answer = self.wrote(entry);
                let (table, universe) = (&mut self.table, &self.universe);
                next = self
                    .passes
                    .answer(table, universe, &view, 0, next.pass, answer);
            }
        }
    }

    /// A core that has just listed everything.
    fn fresh(&self, state: &State) -> Core {
        let mut core = Core::default();
        for place in 0..self.universe.places() {
            core.view[place] = self.as_seen(state.ledger[place]);
        }
        core
    }

    /// What a view keeps of an entry: of what is gone, nothing.
    fn as_seen(&self, entry: EntryId) -> EntryId {
        if self.table.get(entry).object.is_some() {
            entry
        } else {
            0
        }
    }

    fn wrote(&self, entry: EntryId) -> Answer {
        Answer::Wrote(self.table.get(entry).version as u32)
    }

    /// All steps from a state. A state from which the system takes none by itself is judged as one
    /// at rest.
    pub fn steps(&mut self, state: &State, out: &mut Steps) -> Result<(), Violation> {
        out.clear();
        for core in 0..usize::from(state.count) {
            self.core_steps(state, core, out)?;
        }
        self.driver_steps(state, out)?;
        if !out.iter().any(|(step, _)| step.is_own()) {
            let entries = state.ledger.map(|id| self.table.get(id));
            let judged = self.oracles.at_rest(&entries);
            judged.map_err(|what| Violation { step: None, what })?;
        }
        self.arrivals(state, out)?;
        self.acts(state, out)
    }

    fn core_steps(&mut self, state: &State, at: usize, out: &mut Steps) -> Result<(), Violation> {
        let core = &state.cores[at];
        for kind in 0..core.behind.len() {
            if !core.behind[kind].is_empty() {
                let mut next = *state;
                self.observe(&mut next.cores[at], kind);
                out.push((Step::Observe { core: at, kind }, next));
            }
        }
        if core.passes.len() < self.universe.bounds.workers {
            self.begins(state, at, out);
        }
        for n in 0..core.passes.len() {
            self.pass_steps(state, at, n, out)?;
        }
        if state.left.crashes > 0 {
            self.crashes(state, at, out);
        }
        Ok(())
    }

    fn begins(&mut self, state: &State, at: usize, out: &mut Steps) {
        let core = &state.cores[at];
        for place in 0..self.universe.places() {
            let bit = 1 << place;
            let rests = core
                .behind
                .iter()
                .flat_map(|b| b.as_slice())
                .any(|e| e.rests & bit != 0);
            let in_work = core
                .passes
                .as_slice()
                .iter()
                .any(|p| self.passes.get(*p).place == place);
            if core.view[place] == 0 || rests || in_work {
                continue;
            }
            let (table, universe) = (&mut self.table, &self.universe);
            let next = self
                .passes
                .begin(table, universe, &core.view, core.picks, place);
            // A pass that plans nothing changes nothing.
            if next.pass != 0 {
                let mut after = *state;
                after.cores[at].picks = next.picks;
                after.cores[at].passes.push(next.pass);
                out.push((Step::Begin { core: at, place }, after));
            }
        }
    }

    /// Gives the answer to a core's pass.
    fn answer(&mut self, core: &mut Core, n: usize, answer: Answer) {
        let pass = core.passes.as_slice()[n];
        let (table, universe) = (&mut self.table, &self.universe);
        let Next { pass, picks } =
            self.passes
                .answer(table, universe, &core.view, core.picks, pass, answer);
        core.picks = picks;
        if pass == 0 {
            core.passes.remove(n);
        } else {
            core.passes.as_mut_slice()[n] = pass;
        }
    }

    fn pass_steps(
        &mut self,
        state: &State,
        at: usize,
        n: usize,
        out: &mut Steps,
    ) -> Result<(), Violation> {
        let core = &state.cores[at];
        let at_work = self.passes.get(core.passes.as_slice()[n]);
        let (place, bit) = (at_work.place, 1 << at_work.place);
        match at_work.wants.clone() {
            Wants::ToDecide => {
                let mut next = *state;
                self.answer(&mut next.cores[at], n, Answer::None);
                out.push((Step::Decide { core: at, place }, next));
            }
            Wants::Barrier(kind) => {
                let mut next = *state;
                let behind = next.cores[at].behind[kind].as_mut_slice();
                if behind.iter().any(|e| e.barriers & bit != 0) {
                    return Ok(());
                }
                match behind.last_mut() {
                    Some(last) => last.barriers |= bit,
                    None => self.answer(&mut next.cores[at], n, Answer::Reached),
                }
                out.push((Step::Barrier { core: at, place }, next));
            }
            Wants::Read(what) => {
                let mut next = *state;
                self.answer(&mut next.cores[at], n, Answer::Read(state.ledger[what]));
                let step = Step::Read {
                    core: at,
                    place,
                    what,
                };
                out.push((step, next));
            }
            Wants::Write(what, change) => {
                return self.writes(state, (at, n, place), what, change, out);
            }
        }
        Ok(())
    }

    /// A write with each fate that it can have.
    fn writes(
        &mut self,
        state: &State,
        (at, n, place): (usize, usize, usize),
        what: usize,
        change: ChangeId,
        out: &mut Steps,
    ) -> Result<(), Violation> {
        let step = |fate, lags| Step::Write {
            core: at,
            place,
            what,
            fate,
            lags,
        };
        let before = state.ledger[what];
        let result = self.table.apply(before, change);
        match result {
            Err(refusal) => {
                let mut next = *state;
                let answer = match refusal {
                    Refusal::NotFound => Answer::NotFound,
                    Refusal::Exists | Refusal::Overtaken => Answer::Overtaken,
                };
                self.answer(&mut next.cores[at], n, answer);
                out.push((step(Fate::Answered, 0), next));
            }
            Ok(entry) => {
                let author = Some((at, place));
                let from = out.len();
                self.commit(state, what, entry, author, Who::Core, out, |lags| {
                    step(Fate::Answered, lags)
                })?;
                let answer = self.wrote(entry);
                for (_, next) in &mut out[from..] {
                    self.answer(&mut next.cores[at], n, answer);
                }
            }
        }
        if state.left.unknowns == 0 {
            return Ok(());
        }
        let mut unknown = *state;
        unknown.left.unknowns -= 1;
        let mut next = unknown;
        self.answer(&mut next.cores[at], n, Answer::Unknown);
        out.push((step(Fate::NotApplied, 0), next));
        if let Ok(entry) = result
            && entry != before
        {
            if next.flying.len() < super::state::FLYING {
                next.flying.push(Flying {
                    place: what as u8,
                    change,
                });
                out.push((step(Fate::Late, 0), next));
            }
            let from = out.len();
            self.commit(&unknown, what, entry, None, Who::Core, out, |lags| {
                step(Fate::Applied, lags)
            })?;
            for (_, next) in &mut out[from..] {
                self.answer(&mut next.cores[at], n, Answer::Unknown);
            }
        }
        Ok(())
    }

    /// Puts an entry in its place and tells the views: each takes it in at once, or lags, as far as
    /// the bounds allow. With no way left nothing is appended: some view must move on first.
    #[expect(clippy::too_many_arguments, reason = "a step has many parts")]
    fn commit(
        &mut self,
        state: &State,
        place: usize,
        entry: EntryId,
        author: Option<(usize, usize)>,
        who: Who,
        out: &mut Steps,
        step: impl Fn(u8) -> Step,
    ) -> Result<(), Violation> {
        if state.ledger[place] == entry {
            out.push((step(0), *state));
            return Ok(());
        }
        let fail = |what| Violation {
            step: Some(step(0)),
            what,
        };
        let bounds = self.universe.bounds;
        if self.table.get(entry).version > bounds.versions {
            let key = self.universe.key(place);
            return Err(fail(format!(
                "{key} is written more than {} times: it never comes to rest",
                bounds.versions
            )));
        }
        self.oracles
            .judge(&self.universe, &self.table, &state.ledger, place, entry, who)
            .map_err(fail)?;
        let mut written = *state;
        written.ledger[place] = entry;
        self.drop_hopeless(&mut written, place);
        let (kind, count) = (self.universe.kind(place), usize::from(state.count));
        'ways: for lags in 0..1_u8 << count {
            let mut next = written;
            for at in 0..count {
                let lagging = lags & 1 << at != 0;
                let core = &mut next.cores[at];
                let behind = &mut core.behind[kind];
                if !lagging && !behind.is_empty() || behind.len() == bounds.lag {
                    continue 'ways;
                }
                if lagging {
                    let rests = match author {
                        Some((author, key)) if author == at => 1 << key,
                        _ => 0,
                    };
                    behind.push(Pending {
                        place: place as u8,
                        entry,
                        rests,
                        barriers: 0,
                    });
                } else {
                    self.take_in(core, place, entry);
                }
            }
            let behind = next.cores[..count].iter().flat_map(|c| &c.behind);
            if behind.filter(|b| !b.is_empty()).count() <= bounds.lagging {
                out.push((step(lags), next));
            }
        }
        Ok(())
    }

    /// A write in the air whose object has moved on can never be carried out any more, except that a
    /// create can once the place is free again.
    fn drop_hopeless(&mut self, state: &mut State, place: usize) {
        let mut n = 0;
        while let Some(write) = state.flying.as_slice().get(n) {
            let stands = state.ledger[place];
            if usize::from(write.place) == place
                && !matches!(self.table.change(write.change), Change::Create(_))
                && !self.table.can_apply(stands, write.change)
            {
                state.flying.remove(n);
            } else {
                n += 1;
            }
        }
    }

    fn take_in(&mut self, core: &mut Core, place: usize, entry: EntryId) {
        let (table, universe) = (&mut self.table, &self.universe);
        core.picks = self
            .passes
            .observe(table, universe, &core.view, core.picks, place, entry);
        core.view[place] = self.as_seen(entry);
    }

    fn observe(&mut self, core: &mut Core, kind: usize) {
        let event = core.behind[kind].remove(0);
        self.take_in(core, usize::from(event.place), event.entry);
        for n in (0..core.passes.len()).rev() {
            let place = self.passes.get(core.passes.as_slice()[n]).place;
            if event.barriers & 1 << place != 0 {
                self.answer(core, n, Answer::Reached);
            }
        }
    }

    fn crashes(&mut self, state: &State, at: usize, out: &mut Steps) {
        let mut after = *state;
        after.left.crashes -= 1;
        after.cores[at] = self.fresh(state);
        if after.cores[at] == state.cores[at] {
            return;
        }
        out.push((
            Step::Crash {
                core: at,
                flies: None,
            },
            after,
        ));
        for pass in state.cores[at].passes.as_slice() {
            if let Wants::Write(what, change) = self.passes.get(*pass).wants
                && after.flying.len() < super::state::FLYING
                && self.table.can_apply(state.ledger[what], change)
            {
                let mut next = after;
                next.flying.push(Flying {
                    place: what as u8,
                    change,
                });
                let flies = Some(what);
                out.push((Step::Crash { core: at, flies }, next));
            }
        }
    }

    fn arrivals(&mut self, state: &State, out: &mut Steps) -> Result<(), Violation> {
        for n in 0..state.flying.len() {
            let mut next = *state;
            let Flying { place, change } = next.flying.remove(n);
            let what = usize::from(place);
            if let Ok(entry) = self.table.apply(state.ledger[what], change) {
                let who = match self.table.change(change) {
                    Change::Create(_) => Who::Driver,
                    _ => Who::Core,
                };
                self.commit(&next, what, entry, None, who, out, |lags| Step::Arrive {
                    what,
                    lags,
                })?;
            }
        }
        Ok(())
    }

    /// Somebody who looks at the object as it is changes it.
    fn change(
        &mut self,
        state: &State,
        place: usize,
        change: Change,
        who: Who,
        out: &mut Steps,
        step: impl Fn(u8) -> Step,
    ) -> Result<(), Violation> {
        let change = self.table.number_of(change);
        match self.table.apply(state.ledger[place], change) {
            Ok(entry) => self.commit(state, place, entry, None, who, out, step),
            Err(_) => Ok(()),
        }
    }

    fn acts(&mut self, state: &State, out: &mut Steps) -> Result<(), Violation> {
        let anyone = || Change::Delete(Preconditions::default());
        for what in 0..self.universe.places() {
            let mut next = *state;
            match self.table.get(state.ledger[what]).object.clone() {
                Some(Thing::Claim(claim)) => {
                    if state.left.claim_deletes > 0 && !claim.metadata.is_deleting() {
                        next.left.claim_deletes -= 1;
                        self.change(&next, what, anyone(), Who::Tenant, out, |lags| {
                            Step::DeleteClaim { what, lags }
                        })?;
                    }
                }
                Some(Thing::Address(address)) => {
                    let deleting = address.metadata.is_deleting();
                    if state.left.address_deletes > 0 && !deleting {
                        next.left.address_deletes -= 1;
                        self.change(&next, what, anyone(), Who::Admin, out, |lags| {
                            Step::DeleteAddress { what, lags }
                        })?;
                    }
                    let released = address.phase() == Some(AddressPhase::Released);
                    if state.left.clears > 0 && released && address.spec.claim_ref.is_some() {
                        let mut next = *state;
                        next.left.clears -= 1;
                        let mut free = (*address).clone();
                        free.spec.claim_ref = None;
                        let free = Thing::Address(Arc::new(free));
                        let free = Change::Update(free, Part::Main);
                        self.change(&next, what, free, Who::Admin, out, |lags| Step::Clear {
                            what,
                            lags,
                        })?;
                    }
                }
                None if self.universe.is_claim(what) && state.left.claim_creates > 0 => {
                    next.left.claim_creates -= 1;
                    let new = Thing::Claim(Arc::new(self.universe.claims[what].clone()));
                    let new = Change::Create(new);
                    self.change(&next, what, new, Who::Tenant, out, |lags| {
                        Step::CreateClaim { what, lags }
                    })?;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn driver_steps(&mut self, state: &State, out: &mut Steps) -> Result<(), Violation> {
        if self.universe.drivers() == 0 {
            return Ok(());
        }
        if state.driver == 0 {
            self.provisions(state, out);
        } else {
            self.creates(state, out)?;
            if state.left.crashes > 0 {
                let mut next = *state;
                next.left.crashes -= 1;
                next.driver = 0;
                out.push((Step::DriverCrash, next));
            }
        }
        for what in self.universe.claims.len()..self.universe.places() {
            let Some(address) = self.table.get(state.ledger[what]).address().cloned() else {
                continue;
            };
            let meta = &address.metadata;
            if meta.is_deleting()
                && meta.has_finalizer(TEARDOWN)
                && !meta.has_finalizer(names::ADDRESS_PROTECTION)
            {
                let mut gone = (*address).clone();
                gone.metadata.remove_finalizer(TEARDOWN);
                let gone = Change::Update(Thing::Address(Arc::new(gone)), Part::Main);
                self.change(state, what, gone, Who::Driver, out, |lags| {
                    Step::TearDown { what, lags }
                })?;
            }
        }
        Ok(())
    }

    /// The driver looks for a claim that is stamped with its name and has no address.
    fn provisions(&mut self, state: &State, out: &mut Steps) {
        let claims = self.universe.claims.len();
        let free = (claims..self.universe.places()).find(|place| {
            let (address, _) = &self.universe.addresses[place - claims];
            address.spec.class_name == CLOUD && self.table.get(state.ledger[*place]).object.is_none()
        });
        let Some(address) = free else {
            return;
        };
        for place in 0..claims {
            let Some(claim) = self.table.get(state.ledger[place]).claim() else {
                continue;
            };
            let waits = claim.stamp() == Some(DRIVER)
                && claim.phase() == Some(ClaimPhase::Pending)
                && !claim.metadata.is_deleting();
            if !waits {
                continue;
            }
            let served = (claims..self.universe.places()).any(|a| {
                let address = self.table.get(state.ledger[a]).address();
                let holder = address.and_then(|a| a.spec.claim_ref.as_ref());
                holder.is_some_and(|r| {
                    r.key() == claim.key() && (r.uid.is_empty() || r.uid == claim.metadata.uid)
                })
            });
            let mut next = *state;
            if served {
                if state.left.doubles == 0 {
                    continue;
                }
                next.left.doubles -= 1;
            }
            next.driver = 1 + (place * 8 + address) as u8;
            out.push((
                Step::Provision {
                    claim: place,
                    address,
                    double: served,
                },
                next,
            ));
        }
    }

    fn creates(&mut self, state: &State, out: &mut Steps) -> Result<(), Violation> {
        let code = usize::from(state.driver - 1);
        let (claim, what) = (code / 8, code % 8);
        let reservation = &self.universe.addresses[what - self.universe.claims.len()].0;
        let new = reserved_for(&self.universe.claims[claim], reservation);
        let new = self
            .table
            .number_of(Change::Create(Thing::Address(Arc::new(new))));
        let mut next = *state;
        next.driver = 0;
        let step = |fate, lags| Step::CreateAddress { what, fate, lags };
        match self.table.apply(state.ledger[what], new) {
            Err(_) => out.push((step(Fate::Answered, 0), next)),
            Ok(entry) => {
                self.commit(&next, what, entry, None, Who::Driver, out, |lags| {
                    step(Fate::Answered, lags)
                })?;
                if next.left.unknowns > 0 && next.flying.len() < super::state::FLYING {
                    next.left.unknowns -= 1;
                    next.flying.push(Flying {
                        place: what as u8,
                        change: new,
                    });
                    out.push((step(Fate::Late, 0), next));
                }
            }
        }
        Ok(())
    }
}
