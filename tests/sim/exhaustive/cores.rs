//! What a core can do next.

use super::oracles::Who;
use super::passes::{Answer, Next, Wants};
use super::state::{Core, FLYING, Flying, State};
use super::step::{Fate, Step, Steps, Violation};
use super::table::{ChangeId, Refusal};
use super::world::World;

impl World {
    pub fn core_steps(
        &mut self,
        state: &State,
        at: usize,
        out: &mut Steps,
    ) -> Result<(), Violation> {
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
        let Next { pass, picks } = self
            .passes
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
            if next.flying.len() < FLYING {
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
                && after.flying.len() < FLYING
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
}
