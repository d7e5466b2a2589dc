//! The exhaustive mode (design page 7): small worlds of which every state is visited, without
//! sampling.
//!
//! # What runs
//! The shipped code decides. A pass is the shipped [`BindingPass`](ipledger_core::runtime::BindingPass)
//! on the shipped [`Cache`](ipledger_core::runtime::Cache), which calls the shipped plans; a write
//! becomes of an object what the shipped [`rules`](ipledger_core::store::rules) make of it. Written
//! here is only what lies around them: when which core goes on, what its view has taken in, what
//! becomes of its requests, what people do, and a driver of another make that names claims without
//! their uid and now and then serves one twice.
//!
//! # What can happen
//! From every state every step is taken that the bounds of its universe leave:
//! * a core takes up any key that does not rest, also one that nothing has called for: this covers
//!   every order of the queue, every resync, and wake-ups that come late;
//! * a pass goes on by one decision, one read, one barrier or one write;
//! * a write is answered; or it is carried out and the answer is lost; or it is not carried out; or
//!   it is carried out at any later time, also after the caller has read again, or never;
//! * an event is taken in by each view at once, or some views stay behind (how many at once and by
//!   how many events is a bound) and take it in at any later time;
//! * a core dies in any state, with its request in the air or not, and starts again from a listing;
//! * tenants delete and re-create claims, admins delete addresses and give back released ones, the
//!   driver provisions, tears down, dies, and repeats itself.
//!
//! # What is checked
//! Every write and the ledger after it (`oracles`): one IP in one live entry; an address for one
//! claim; one address of a family, and never another one; nothing released, deleted or unprotected
//! that a live claim reports; the condition before the report; finalizers; who owns which field.
//! Every state from which the system takes no step by itself (all views are current, and a pass over
//! any key by any core plans nothing): each claim is bound or says why not, and no free or reserved
//! address would serve it; nothing leaks.
//!
//! That the system comes to rest from *every* state follows: each write that changes something
//! raises the version of an object, no version may exceed a bound (to exceed it is a violation), so
//! there is no endless way with infinitely many writes; and once views have caught up, a pass that
//! still plans something writes.
//!
//! # Why nothing is missed
//! * Entries, passes and sets of picks are numbered by their whole content, so equal numbers are
//!   equal things. What the shipped code answers is worked out once for equal input. The cache is
//!   built anew from what was observed: its indexes are functions of that, and its wake-ups
//!   are not needed where every key may be taken up at any time.
//! * Revisions count for each object apart. The core compares revisions of one object only;
//!   what the runtime compares across objects (a key rests, a barrier is reached) is kept with the
//!   events themselves.
//! * The two cores are alike, and so are the passes at work in a core and the writes in the air: of
//!   states that differ in their order only one is visited. The oracles do not know which is which.
//! * A pass that plans nothing is no step: it changes nothing but where it is looked at from.
//! * A write in the air whose object has moved on is forgotten: its swap fails for ever.
//! * Visited states are kept as 64 bits of SipHash. Among ten million states two share one with a
//!   chance of one in 400,000.
//!
//! # What is left to the seeds
//! Time (back-off, grace periods, cool-down), the order of wake-ups, watches and listings themselves,
//! changes of classes, wiped statuses, phases of drivers, our range driver, more than two cores.

mod cores;
mod driver;
mod explore;
mod hash;
mod oracles;
mod passes;
mod people;
mod report;
mod rest;
mod state;
mod step;
mod table;
mod universe;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use universe::Universe;

/// How the exhaustive mode runs.
#[derive(clap::Args)]
pub struct Exhaustive {
    /// Visit every state of small worlds instead of running seeds.
    #[arg(long)]
    pub exhaustive: bool,
    /// Only the universe of this name.
    #[arg(long, requires = "exhaustive")]
    universe: Option<String>,
    /// Follow the steps with these numbers and tell what happens.
    #[arg(long, requires = "universe")]
    path: Option<String>,
    /// Most states of one universe.
    #[arg(long, default_value_t = 40_000_000)]
    states: usize,
    /// Crashes, instead of what each universe has.
    #[arg(long)]
    crashes: Option<u8>,
    /// Unknown outcomes, instead of what each universe has.
    #[arg(long)]
    unknowns: Option<u8>,
    /// Events by which a view lags, instead of what each universe has.
    #[arg(long)]
    lag: Option<usize>,
    /// Views that lag at once, instead of what each universe has.
    #[arg(long)]
    lagging: Option<usize>,
}

impl Exhaustive {
    /// The bounds that are set, as the arguments that set them.
    fn bounds_set(&self) -> String {
        let set = [
            ("crashes", self.crashes.map(usize::from)),
            ("unknowns", self.unknowns.map(usize::from)),
            ("lag", self.lag),
            ("lagging", self.lagging),
        ];
        let told = set
            .iter()
            .filter_map(|(name, n)| Some(format!(" --{name} {}", (*n)?)));
        told.collect()
    }

    fn universes(&self) -> Vec<Universe> {
        let mut all = universe::all();
        if let Some(name) = &self.universe {
            all.retain(|u| u.name == name);
        }
        for universe in &mut all {
            let bounds = &mut universe.bounds;
            bounds.left.crashes = self.crashes.unwrap_or(bounds.left.crashes);
            bounds.left.unknowns = self.unknowns.unwrap_or(bounds.left.unknowns);
            bounds.lag = self.lag.unwrap_or(bounds.lag);
            bounds.lagging = self.lagging.unwrap_or(bounds.lagging);
        }
        all
    }
}

/// Runs the exhaustive mode; whether all is well.
pub fn run(options: &Exhaustive, threads: usize) -> bool {
    let universes = options.universes();
    if universes.is_empty() {
        println!("there is no such universe");
        return false;
    }
    if let (Some(path), [universe]) = (&options.path, universes.as_slice()) {
        let path: Result<Vec<usize>, _> = path.split_whitespace().map(str::parse).collect();
        let well = match path {
            Ok(path) => {
                let (told, well) = report::schedule(universe, &path);
                println!("{told}");
                well
            }
            Err(e) => {
                println!("--path takes numbers of steps: {e}");
                false
            }
        };
        let (verdict, bad) = if well { ("ok", 0) } else { ("FAILED", 1) };
        println!(
            "test result: {verdict}. {} passed; {bad} failed; 0 ignored",
            1 - bad
        );
        return well;
    }
    let (next, done) = (AtomicUsize::new(0), Mutex::new((0_usize, 0_u64)));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(universe) = universes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = explore::explore(universe, options.states);
                    let mut done = done.lock().unwrap();
                    done.0 += usize::from(report::print(&outcome, &options.bounds_set()));
                    done.1 += outcome.states as u64;
                }
            });
        }
    });
    let (good, states) = done.into_inner().unwrap();
    let bad = universes.len() - good;
    let verdict = if bad == 0 { "ok" } else { "FAILED" };
    println!(
        "exhaustive: {states} distinct states in {} universes",
        universes.len()
    );
    println!("test result: {verdict}. {good} passed; {bad} failed; 0 ignored");
    bad == 0
}
