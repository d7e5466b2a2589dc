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

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use coverage::Coverage;
use oracle::{Probes, SITUATIONS};
use world::World;

/// Runs the simulation.
#[derive(Parser)]
struct Options {
    /// How many seeds.
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
}

/// What became of a seed.
struct Played {
    failure: Option<String>,
    steps: u64,
    hash: u64,
    world: Option<World>,
    coverage: Coverage,
    probes: Probes,
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
    Played {
        steps: world.steps,
        hash: world.trace.hash(),
        coverage: world.coverage.clone(),
        probes: catch_unwind(AssertUnwindSafe(|| world.probes())).unwrap_or_default(),
        world: failure.is_some().then_some(world),
        failure,
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed {
        let mut world = World::new(seed);
        let result = catch_unwind(AssertUnwindSafe(|| world.play(options.steps)));
        for line in &world.trace.lines {
            println!("{line}");
        }
        println!("{}", catch_unwind(AssertUnwindSafe(|| world.show())).unwrap_or_default());
        println!("seed {seed}: {result:?}");
        return ExitCode::from(u8::from(!matches!(result, Ok(Ok(())))));
    }
    std::panic::set_hook(Box::new(|_| {}));
    let next = AtomicU64::new(options.from);
    let (steps, passed) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures: Mutex<Vec<(u64, String)>> = Mutex::default();
    let coverage: Mutex<Coverage> = Mutex::default();
    let probes: Mutex<Probes> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let enough = failures.lock().unwrap().len() >= options.failures;
                    if seed >= options.from + options.seeds || enough {
                        return;
                    }
                    let played = play(seed, options.steps);
                    steps.fetch_add(played.steps, Ordering::Relaxed);
                    coverage.lock().unwrap().add(&played.coverage);
                    probes.lock().unwrap().add(&played.probes);
                    let _ = (played.hash, &played.world);
                    match played.failure {
                        None => {
                            passed.fetch_add(1, Ordering::Relaxed);
                        }
                        Some(what) => failures.lock().unwrap().push((seed, what)),
                    }
                }
            });
        }
    });
    let coverage = coverage.into_inner().unwrap();
    println!("{:?}", coverage.troubles);
    let probes = probes.into_inner().unwrap();
    for what in SITUATIONS {
        println!("{:>9}  {what}", probes.get(what));
    }
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    for (seed, what) in &failures {
        println!("seed {seed}: {what}");
    }
    let passed = passed.load(Ordering::Relaxed);
    println!("{} steps", steps.load(Ordering::Relaxed));
    println!("test result: {passed} passed; {} failed; 0 ignored", failures.len());
    ExitCode::from(u8::from(!failures.is_empty()))
}
