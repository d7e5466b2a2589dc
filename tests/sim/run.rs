//! Runs many jobs, each from one seed, and says what they have given.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::coverage::Coverage;
use crate::differential;
use crate::ledger::Who;
use crate::oracle::{Probes, SITUATIONS};
use crate::world::{Failure, World};

/// What is run from one seed. Shown as the arguments that run it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Job {
    /// People, processes and faults, for so many steps.
    Seed { seed: u64, steps: u64 },
    /// A script with and without faults.
    Script { seed: u64 },
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Job::Seed { seed, steps } => write!(f, "--seed {seed} --steps {steps}"),
            Job::Script { seed } => write!(f, "--script {seed}"),
        }
    }
}

impl Job {
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Option<Job> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["--seed", seed, "--steps", steps, ..] => Some(Job::Seed {
                seed: seed.parse().ok()?,
                steps: steps.parse().ok()?,
            }),
            ["--script", seed, ..] => Some(Job::Script {
                seed: seed.parse().ok()?,
            }),
            _ => None,
        }
    }

    /// Reads the lines of a file of jobs; those that begin with `#` say something.
    ///
    /// # Errors
    /// The first line that names no job.
    pub fn parse_all(text: &str) -> Result<Vec<Job>, String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let job = |line: &str| Job::parse(line).ok_or_else(|| line.to_owned());
        lines.map(job).collect()
    }

    /// As `play`; unless `once`, twice, and both runs must be the same.
    pub fn check(self, once: bool) -> (Result<(), Failure>, Option<World>) {
        let (mut result, world) = self.play();
        let hash = |w: &Option<World>| w.as_ref().map(|w| w.trace.hash());
        if !once && result.is_ok() && hash(&self.play().1) != hash(&world) {
            result = Err("two runs of it differ".to_owned());
        }
        (result, world)
    }

    /// Runs it; what it has found wrong, and the world as it was then, unless the run panicked.
    pub fn play(self) -> (Result<(), Failure>, Option<World>) {
        let played = catch_unwind(AssertUnwindSafe(|| match self {
            Job::Seed { seed, steps } => {
                let mut world = World::new(seed);
                let result = catch_unwind(AssertUnwindSafe(|| world.play(steps)));
                (result.unwrap_or_else(|panic| Err(said(&*panic))), world)
            }
            Job::Script { seed } => differential::play(seed),
        }));
        match played {
            Ok((result, world)) => (result, Some(world)),
            Err(panic) => (Err(said(&*panic)), None),
        }
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
    format!("panic: {}", text.unwrap_or_default())
}

/// From so many jobs on a fault that has struck nowhere at some write of a plan, or a situation that
/// was never reached, is a failure. The rarest write, the last of a bind of both families, is made in
/// one of some hundred seeds.
const COMPLETE_FROM: u64 = 20_000;

/// What all jobs together have given.
#[derive(Default)]
pub struct Total {
    jobs: u64,
    steps: u64,
    writes: BTreeMap<Who, u64>,
    coverage: Coverage,
    probes: Probes,
    failures: Vec<(Job, Failure)>,
}

impl Total {
    fn book(&mut self, job: Job, result: Result<(), Failure>, world: Option<World>) {
        self.jobs += 1;
        if let Some(world) = &world {
            self.steps += world.steps;
            self.coverage.add(&world.coverage);
        }
        match (result, world) {
            (Err(what), _) => self.failures.push((job, what)),
            (Ok(()), Some(world)) => {
                self.probes.add(&world.probes());
                for (who, n) in world.writes() {
                    *self.writes.entry(who).or_default() += n;
                }
            }
            (Ok(()), None) => {}
        }
    }

    /// Prints it; whether all is well.
    pub fn report(mut self) -> bool {
        let (table, zeros) = self.coverage.table();
        println!("faults at each write of each plan:\n{table}\n");
        println!("situations:");
        let mut unreached = 0;
        for what in SITUATIONS {
            let n = self.probes.get(what);
            unreached += usize::from(n == 0);
            println!("{n:>9}  {what}");
        }
        println!();
        self.failures.sort();
        for (job, what) in &self.failures {
            println!("{job}: {what}\n    again: tests/run sim {job}");
        }
        let (jobs, steps, failed) = (self.jobs, self.steps, self.failures.len() as u64);
        println!("{jobs} seeds, {steps} steps, writes: {:?}", self.writes);
        println!("places without a fault: {zeros}; situations never reached: {unreached}");
        let holes = jobs >= COMPLETE_FROM && zeros + unreached > 0;
        if holes {
            println!("a run of this size has to strike everywhere and to reach everything");
        }
        let failed = failed + u64::from(holes);
        let verdict = if failed == 0 { "ok" } else { "FAILED" };
        println!(
            "test result: {verdict}. {} passed; {failed} failed; 0 ignored",
            jobs.saturating_sub(failed)
        );
        failed == 0
    }
}

/// Runs the jobs, in order, until that many have failed. Each is run twice, and both runs must be
/// the same, unless `once` says otherwise.
pub fn all(jobs: &[Job], threads: usize, failures: usize, once: bool) -> Total {
    // A panic is reported with its job, at the end.
    std::panic::set_hook(Box::new(|_| {}));
    let (next, total) = (AtomicUsize::new(0), Mutex::new(Total::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if total.lock().unwrap().failures.len() >= failures {
                        return;
                    }
                    let (result, world) = job.check(once);
                    total.lock().unwrap().book(*job, result, world);
                }
            });
        }
    });
    total.into_inner().unwrap()
}
