//! The exhaustive mode.

mod cores;
mod driver;
mod explore;
mod hash;
mod oracles;
mod passes;
mod people;
mod report;
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
        match path {
            Ok(path) => println!("{}", report::schedule(universe, &path)),
            Err(e) => println!("--path takes numbers of steps: {e}"),
        }
        return true;
    }
    let (next, done) = (AtomicUsize::new(0), Mutex::new((0_usize, 0_u64)));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(universe) = universes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = explore::explore(universe, options.states);
                    let mut done = done.lock().unwrap();
                    done.0 += usize::from(report::print(&outcome));
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
