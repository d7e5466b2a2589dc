//! The deterministic simulation of the whole system (design page 7): the shipped binding core and
//! drivers over a simulated ledger with every fault, from one seed, in one thread a seed.
//!
//! `sim --seeds 20000 --steps 200` runs many seeds, `sim --seed 7` replays one and prints it.
// A violated assumption ends the run of a seed by a panic, which is reported with the seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod actors;
mod clock;
mod config;
mod coverage;
mod desk;
mod feed;
mod host;
mod ledger;
mod oracle;
mod rng;
mod third_party;
mod trace;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;
use coverage::Coverage;
use ledger::Who;
use oracle::{Probes, SITUATIONS};
use world::World;

/// Runs the simulation.
#[derive(Parser)]
struct Options {
    /// How many seeds, after those that have failed before.
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this seed, with its whole course.
    #[arg(long)]
    seed: Option<u64>,
    /// Acts and requests a seed.
    #[arg(long, default_value_t = 200)]
    steps: u64,
    /// Threads; each seed is run by one.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Stop after so many failing seeds.
    #[arg(long, default_value_t = 10)]
    failures: usize,
    /// Run each seed once instead of comparing two runs of it.
    #[arg(long)]
    once: bool,
}

/// Seeds that have failed once, each with its steps; they run first for ever.
const KEPT: &str = include_str!("seeds.txt");

/// What became of a seed.
struct Played {
    failure: Option<String>,
    world: World,
}

fn play(seed: u64, steps: u64) -> Played {
    let mut world = World::new(seed);
    let result = catch_unwind(AssertUnwindSafe(|| world.play(steps)));
    let failure = match result {
        Ok(Ok(())) => None,
        Ok(Err(what)) => Some(what),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Some(format!("panic: {}", text.unwrap_or_default()))
        }
    };
    Played { failure, world }
}

/// One seed with its whole course.
fn replay(seed: u64, steps: u64) -> ExitCode {
    let played = play(seed, steps);
    for line in &played.world.trace.lines {
        println!("{line}");
    }
    println!("{}", catch_unwind(AssertUnwindSafe(|| played.world.show())).unwrap_or_default());
    match played.failure {
        None => {
            println!("seed {seed}: nothing is wrong");
            ExitCode::SUCCESS
        }
        Some(what) => {
            println!("seed {seed}: {what}");
            ExitCode::FAILURE
        }
    }
}

/// What all seeds together have given.
#[derive(Default)]
struct Total {
    seeds: u64,
    steps: u64,
    requests: BTreeMap<Who, u64>,
    coverage: Coverage,
    probes: Probes,
    failures: Vec<(u64, u64, String)>,
}

impl Total {
    fn book(&mut self, seed: u64, steps: u64, played: Played) {
        self.seeds += 1;
        self.steps += played.world.steps;
        self.coverage.add(&played.world.coverage);
        match played.failure {
            // The ledger of a run that has panicked cannot be read any more.
            None => {
                self.probes.add(&played.world.probes());
                for (who, n) in played.world.writes() {
                    *self.requests.entry(who).or_default() += n;
                }
            }
            Some(what) => self.failures.push((seed, steps, what)),
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed {
        return replay(seed, options.steps);
    }
    // A panic is reported with its seed, at the end.
    std::panic::set_hook(Box::new(|_| {}));
    let kept = KEPT.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    });
    let mut todo: Vec<(u64, u64)> = kept.collect();
    todo.extend((options.from..options.from + options.seeds).map(|seed| (seed, options.steps)));
    let (next, total) = (AtomicUsize::new(0), Mutex::new(Total::default()));
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                while let Some((seed, steps)) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if total.lock().unwrap().failures.len() >= options.failures {
                        return;
                    }
                    let mut played = play(*seed, *steps);
                    if !options.once
                        && played.failure.is_none()
                        && play(*seed, *steps).world.trace.hash() != played.world.trace.hash()
                    {
                        played.failure = Some("two runs of it differ".to_owned());
                    }
                    total.lock().unwrap().book(*seed, *steps, played);
                }
            });
        }
    });
    report(total.into_inner().unwrap())
}

fn report(mut total: Total) -> ExitCode {
    let (table, zeros) = total.coverage.table();
    println!("faults at each write of each plan:\n{table}\n");
    println!("situations:");
    let mut unreached = 0;
    for what in SITUATIONS {
        let n = total.probes.get(what);
        unreached += usize::from(n == 0);
        println!("{n:>9}  {what}");
    }
    println!();
    total.failures.sort();
    for (seed, steps, what) in &total.failures {
        println!("seed {seed}: {what}");
        println!("    again: tests/run sim --seed {seed} --steps {steps}");
    }
    let Total { seeds, steps, requests, failures, .. } = total;
    println!("{seeds} seeds, {steps} steps, writes: {requests:?}");
    println!("places without a fault: {zeros}; situations never reached: {unreached}");
    let failed = failures.len() as u64;
    println!("test result: ok. {} passed; {failed} failed; 0 ignored", seeds - failed);
    ExitCode::from(u8::from(failed > 0))
}
