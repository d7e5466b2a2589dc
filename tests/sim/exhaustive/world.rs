//! One small world: its states, and how a write changes them.

use std::sync::Arc;

use super::oracles::{Oracles, Who};
use super::passes::{Answer, Passes, Wants};
use super::state::{Core, Flying, Pending, State};
use super::step::{Step, Steps, Violation};
use super::table::{Change, EntryId, Table, Thing};
use super::universe::Universe;

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
    pub fn fresh(&self, state: &State) -> Core {
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

    pub fn wrote(&self, entry: EntryId) -> Answer {
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
            let judged = self.oracles.at_rest(&self.table, &state.ledger);
            judged.map_err(|what| Violation { step: None, what })?;
        }
        self.arrivals(state, out)?;
        self.acts(state, out)
    }

    /// Puts an entry in its place and tells the views: each takes it in at once, or lags, as far as
    /// the bounds allow. With no way left nothing is appended: some view must move on first.
    #[expect(clippy::too_many_arguments, reason = "a step has many parts")]
    pub fn commit(
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
        let mut written = *state;
        written.ledger[place] = entry;
        let fail = |what| Violation {
            step: Some((step(0), Box::new(written))),
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
            .judge(
                &self.universe,
                &self.table,
                &state.ledger,
                place,
                entry,
                who,
            )
            .map_err(fail)?;
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

    pub fn take_in(&mut self, core: &mut Core, place: usize, entry: EntryId) {
        let (table, universe) = (&mut self.table, &self.universe);
        core.picks = self
            .passes
            .observe(table, universe, &core.view, core.picks, place, entry);
        core.view[place] = self.as_seen(entry);
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
}
