//! What a search tells: its figures, and a violation as a readable schedule.

use std::collections::BTreeMap;
use std::fmt::Write;

use ipledger_core::api::{Condition, ConditionStatus, find_condition, names};
use ipledger_core::store::Part;

use super::explore::{End, Outcome};
use super::passes::Wants;
use super::state::State;
use super::step::{Fate, Step};
use super::table::{Change, Entry, Thing};
use super::universe::Universe;
use super::world::World;

/// How many steps there were of each kind.
#[derive(Clone, Debug, Default)]
pub struct Kinds(BTreeMap<&'static str, u64>);

impl Kinds {
    pub fn count(&mut self, step: &Step) {
        *self.0.entry(kind(step)).or_default() += 1;
    }
}

fn kind(step: &Step) -> &'static str {
    match step {
        Step::Begin { .. } => "passes begun",
        Step::Decide { .. } => "decided with proof",
        Step::Barrier { .. } => "barriers",
        Step::Read { .. } => "reads",
        Step::Write { fate, .. } => match fate {
            Fate::Answered => "writes answered",
            Fate::NotApplied => "writes lost",
            Fate::Applied => "answers lost",
            Fate::Late => "writes late",
        },
        Step::Observe { .. } => "late events",
        Step::Crash { flies: None, .. } => "crashes",
        Step::Crash { flies: Some(_), .. } => "crashes with a write in the air",
        Step::Arrive { .. } => "late writes applied",
        Step::DeleteClaim { .. } => "claims deleted",
        Step::CreateClaim { .. } => "claims re-created",
        Step::DeleteAddress { .. } => "addresses deleted",
        Step::Clear { .. } => "addresses given back",
        Step::Provision { double: false, .. } => "provisionings",
        Step::Provision { double: true, .. } => "double provisionings",
        Step::CreateAddress { .. } => "addresses created",
        Step::DriverCrash => "crashes of the driver",
        Step::TearDown { .. } => "addresses torn down",
    }
}

/// Prints what a search with these options has found; whether all is well.
pub fn print(outcome: &Outcome, options: &str) -> bool {
    let Outcome {
        universe,
        states,
        steps,
        depth,
        took,
        counts: [entries, passes, local, judged, rested],
        kinds,
        end,
    } = outcome;
    let name = universe.name;
    println!("universe {name}: {}", universe.about);
    println!(
        "  {} claims, {} addresses, {} driver; {}",
        universe.claims.len(),
        universe.addresses.len(),
        universe.drivers(),
        universe.bounds
    );
    println!(
        "  {states} distinct states, {steps} steps, longest way {depth}, {:.1} s",
        took.as_secs_f64()
    );
    println!(
        "  {entries} distinct objects, {passes} distinct passes, {local} distinct steps of the \
         shipped code, {judged} distinct writes judged, {rested} distinct ledgers at rest"
    );
    let kinds: Vec<String> = kinds.0.iter().map(|(k, n)| format!("{k} {n}")).collect();
    println!("  {}", kinds.join(", "));
    match end {
        End::Complete => true,
        End::TooMany => {
            println!("  NOT COMPLETE: there are more states than --states allows");
            false
        }
        End::Violation(path, what) => {
            println!("  VIOLATION: {what}\n{}", schedule(universe, path).0);
            let path: Vec<String> = path.iter().map(ToString::to_string).collect();
            println!(
                "    again: tests/run sim --exhaustive --universe {name}{options} --path '{}'",
                path.join(" ")
            );
            false
        }
    }
}

/// The steps of a path, one a line, and what is wrong at its end; whether nothing is, and the path
/// is there.
pub fn schedule(universe: &Universe, path: &[usize]) -> (String, bool) {
    let mut world = World::new(universe.clone());
    let (mut state, mut steps) = (world.start(), Vec::new());
    let mut text = String::new();
    let first = ledger(&world, &state);
    let _ = writeln!(text, "    at first: {first}");
    for (n, taken) in path.iter().enumerate() {
        if let Err(violation) = world.steps(&state, &mut steps) {
            let _ = writeln!(text, "    {:>3}. wrong already: {}", n + 1, violation.what);
            return (text, false);
        }
        let Some((step, next)) = steps.get(*taken).copied() else {
            let _ = writeln!(text, "    {:>3}. there is no step {taken}", n + 1);
            return (text, false);
        };
        let line = tell(&world, &state, &step, Some(&next));
        let _ = writeln!(text, "    {:>3}. {line}", n + 1);
        state = next;
    }
    let end = world.steps(&state, &mut steps);
    let well = end.is_ok();
    let end = match end {
        Ok(()) => "nothing is wrong".to_owned(),
        Err(violation) => match violation.step {
            Some((step, next)) => {
                let told = tell(&world, &state, &step, Some(&next));
                format!("{told}\n         {}", violation.what)
            }
            None => format!("at rest: {}", violation.what),
        },
    };
    let _ = writeln!(text, "    {:>3}. {end}", path.len() + 1);
    let _ = writeln!(text, "    at last: {}", ledger(&world, &state));
    (text, well)
}

fn core(at: usize) -> char {
    if at == 0 { 'A' } else { 'B' }
}

fn tell(world: &World, state: &State, step: &Step, next: Option<&State>) -> String {
    let name = |place: usize| world.universe.key(place).name;
    let lagging = |lags: &u8| match lags {
        0 => "",
        1 => " (A does not see it yet)",
        2 => " (B does not see it yet)",
        _ => " (nobody sees it yet)",
    };
    let plan = |at: usize, place: usize| match next.and_then(|n| pass_of(world, n, at, place)) {
        None => "is done".to_owned(),
        Some(wants) => match wants {
            Wants::ToDecide => "has to decide".to_owned(),
            Wants::Barrier(kind) => format!("wants a barrier of kind {kind}"),
            Wants::Read(what) => format!("wants to read {}", name(*what)),
            Wants::Write(what, _) => format!("wants to write {}", name(*what)),
        },
    };
    let now = |what: usize| match next {
        Some(next) if next.ledger[what] != state.ledger[what] => {
            show(world.table.get(next.ledger[what]))
        }
        _ => "it stays as it is".to_owned(),
    };
    match step {
        Step::Begin { core: at, place } => {
            let (who, key) = (core(*at), name(*place));
            format!("{who} takes up {key} and {}", plan(*at, *place))
        }
        Step::Decide { core: at, place } => {
            format!(
                "{} goes on with {} and {}",
                core(*at),
                name(*place),
                plan(*at, *place)
            )
        }
        Step::Barrier { core: at, .. } => format!("{} asks for a barrier", core(*at)),
        Step::Read { core: at, what, .. } => {
            let found = show(world.table.get(state.ledger[*what]));
            format!("{} reads {}: {found}", core(*at), name(*what))
        }
        Step::Write {
            core: at,
            place,
            what,
            fate,
            lags,
        } => {
            let asked = match pass_of(world, state, *at, *place) {
                Some(Wants::Write(_, change)) => asked(world.table.change(*change)),
                _ => "",
            };
            let fate = match fate {
                Fate::Answered => "",
                Fate::NotApplied => ", never done and never answered",
                Fate::Applied => ", done and never answered",
                Fate::Late => ", not done yet and given up",
            };
            format!(
                "{} ({}) {asked} {}{fate}: {}{}",
                core(*at),
                name(*place),
                name(*what),
                now(*what),
                lagging(lags)
            )
        }
        Step::Observe { core: at, kind } => {
            let event = state.cores[*at].behind[*kind].as_slice()[0];
            let seen = show(world.table.get(event.entry));
            format!(
                "{} sees {}: {seen}",
                core(*at),
                name(usize::from(event.place))
            )
        }
        Step::Crash { core: at, flies } => match flies {
            None => format!("{} dies and starts again", core(*at)),
            Some(what) => format!(
                "{} dies with a write of {} in the air and starts again",
                core(*at),
                name(*what)
            ),
        },
        Step::Arrive { what, lags } => {
            format!(
                "a late write arrives at {}: {}{}",
                name(*what),
                now(*what),
                lagging(lags)
            )
        }
        Step::DeleteClaim { what, lags } => {
            format!(
                "a tenant deletes {}: {}{}",
                name(*what),
                now(*what),
                lagging(lags)
            )
        }
        Step::CreateClaim { what, lags } => {
            format!(
                "a tenant creates {}: {}{}",
                name(*what),
                now(*what),
                lagging(lags)
            )
        }
        Step::DeleteAddress { what, lags } => {
            format!(
                "an admin deletes {}: {}{}",
                name(*what),
                now(*what),
                lagging(lags)
            )
        }
        Step::Clear { what, lags } => {
            format!(
                "an admin gives {} back: {}{}",
                name(*what),
                now(*what),
                lagging(lags)
            )
        }
        Step::Provision {
            claim,
            address,
            double,
        } => {
            let again = if *double { " once more" } else { "" };
            format!(
                "the driver decides to make {} for {}{again}",
                name(*address),
                name(*claim)
            )
        }
        Step::CreateAddress { what, fate, lags } => {
            let late = if *fate == Fate::Late { ", late" } else { "" };
            format!(
                "the driver creates {}{late}: {}{}",
                name(*what),
                now(*what),
                lagging(lags)
            )
        }
        Step::DriverCrash => "the driver dies before it creates anything".to_owned(),
        Step::TearDown { what, lags } => {
            format!(
                "the driver tears {} down: {}{}",
                name(*what),
                now(*what),
                lagging(lags)
            )
        }
    }
}

fn pass_of<'a>(world: &'a World, state: &State, at: usize, place: usize) -> Option<&'a Wants> {
    let mut passes = state.cores[at].passes.as_slice().iter();
    let pass = passes.find(|p| world.passes.get(**p).place == place)?;
    Some(&world.passes.get(*pass).wants)
}

fn asked(change: &Change) -> &'static str {
    match change {
        Change::Update(_, Part::Main) => "writes",
        Change::Update(_, Part::Status) => "writes the status of",
        Change::Delete(_) => "deletes",
        Change::Create(_) => "creates",
    }
}

fn ledger(world: &World, state: &State) -> String {
    let places = 0..world.universe.places();
    let all: Vec<String> = places
        .map(|place| {
            let name = world.universe.key(place).name;
            format!("{name} {}", show(world.table.get(state.ledger[place])))
        })
        .collect();
    all.join("; ")
}

fn said(conditions: &[Condition]) -> String {
    match find_condition(conditions, names::condition::BOUND) {
        None => String::new(),
        Some(c) if c.status == ConditionStatus::True => " Bound=True".to_owned(),
        Some(c) => format!(" Bound=False:{}", c.reason),
    }
}

/// One object in a few words.
fn show(entry: &Entry) -> String {
    let Some(thing) = &entry.object else {
        return "gone".to_owned();
    };
    let meta = thing.meta();
    let mut text = format!("v{} uid {}", entry.version, meta.uid);
    for finalizer in &meta.finalizers {
        let short = finalizer.rsplit('/').next().unwrap_or_default();
        let _ = write!(text, " +{short}");
    }
    if meta.is_deleting() {
        text.push_str(" DELETED");
    }
    for (name, value) in &meta.annotations {
        let short = name.rsplit('/').next().unwrap_or_default();
        let _ = write!(text, " {short}={value}");
    }
    match thing {
        Thing::Claim(claim) => {
            if let Some(status) = &claim.status {
                let phase = status.phase;
                let _ = write!(text, " {phase:?} {}", status.address_text);
            }
            text.push_str(&said(claim.conditions()));
        }
        Thing::Address(address) => {
            if let Some(holder) = &address.spec.claim_ref {
                let _ = write!(text, " for {}({})", holder.name, holder.uid);
            }
            if let Some(phase) = address.phase() {
                let _ = write!(text, " {phase:?}");
            }
            text.push_str(&said(address.conditions()));
        }
    }
    format!("[{text}]")
}
