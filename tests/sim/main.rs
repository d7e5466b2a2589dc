//! The deterministic simulation of the whole system (design page 7): the shipped binding core and
//! drivers over a simulated ledger with every fault, from one seed, in one thread a seed.
//!
//! `tests/run sim --seeds 20000` runs many seeds, `tests/run sim --seed 7` replays one and prints
//! its course.
// A violated assumption ends the run of a seed by a panic, which is reported with the seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod actors;
mod clock;
mod config;
mod coverage;
mod desk;
mod differential;
mod exhaustive;
mod feed;
mod host;
mod ledger;
#[cfg(feature = "mutants")]
mod mutants;
mod oracle;
mod pool;
mod rng;
mod run;
mod third_party;
mod trace;
mod world;

use std::process::ExitCode;

use clap::Parser;
use run::Job;

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
    #[arg(long, group = "one")]
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
    /// How many scripts to compare with their runs without faults.
    #[arg(long, default_value_t = 500)]
    scripts: u64,
    /// Only the script of this seed, with its whole course.
    #[arg(long, group = "one")]
    script: Option<u64>,
    /// Run each seed once instead of comparing two runs of it.
    #[arg(long)]
    once: bool,
    /// Run the seeded bugs instead, all or the one of this name: each has to be caught.
    #[cfg(feature = "mutants")]
    #[arg(long, num_args = 0..=1)]
    mutants: Option<Option<String>>,
    /// Put this seeded bug into the one seed or script.
    #[cfg(feature = "mutants")]
    #[arg(long, requires = "one")]
    mutant: Option<String>,
    #[command(flatten)]
    exhaustive: exhaustive::Exhaustive,
}

/// What has failed once; it runs first for ever.
const KEPT: &str = include_str!("seeds.txt");

fn main() -> ExitCode {
    let options = Options::parse();
    #[cfg(feature = "mutants")]
    if let Some(only) = &options.mutants {
        let well = mutants::all(
            options.threads,
            options.seeds,
            options.steps,
            only.as_deref(),
        );
        return ExitCode::from(u8::from(!well));
    }
    #[cfg(feature = "mutants")]
    mutants::put_in(options.mutant.as_deref());
    if options.exhaustive.exhaustive {
        let well = exhaustive::run(&options.exhaustive, options.threads);
        return ExitCode::from(u8::from(!well));
    }
    let one = match (options.seed, options.script) {
        (Some(seed), _) => Some(Job::Seed {
            seed,
            steps: options.steps,
        }),
        (None, script) => script.map(|seed| Job::Script { seed }),
    };
    let well = match one {
        Some(job) => replay(job, options.once),
        None => {
            let mut jobs = match Job::parse_all(KEPT) {
                Ok(jobs) => jobs,
                Err(line) => {
                    eprintln!("tests/sim/seeds.txt: no job is read from `{line}`");
                    return ExitCode::FAILURE;
                }
            };
            let to = |n: u64| options.from..options.from + n;
            let steps = options.steps;
            jobs.extend(to(options.seeds).map(|seed| Job::Seed { seed, steps }));
            jobs.extend(to(options.scripts).map(|seed| Job::Script { seed }));
            run::all(&jobs, options.threads, options.failures, options.once).report()
        }
    };
    ExitCode::from(u8::from(!well))
}

/// One job with its whole course.
fn replay(job: Job, once: bool) -> bool {
    let (result, world) = job.check(once);
    if let Some(world) = world {
        for line in &world.trace.lines {
            println!("{line}");
        }
        println!("{}", world.show());
    }
    match &result {
        Ok(()) => {
            println!("{job}: nothing is wrong\ntest result: ok. 1 passed; 0 failed; 0 ignored")
        }
        Err(what) => {
            println!("{job}: {what}\ntest result: FAILED. 0 passed; 1 failed; 0 ignored");
        }
    }
    result.is_ok()
}
