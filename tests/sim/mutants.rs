//! Whether the oracles see anything: each seeded bug of the core and the range driver has to be
//! caught. A survivor is a missing oracle, fault or actor.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ipledger_core::mutant::{self, Mutant};

use crate::run::Job;

/// Every seeded bug: the rule that it breaks (design pages 2, 3, 4 and 7), and how.
const ALL: &[(Mutant, &str, &str)] = &[
    (
        Mutant::NameUnchecked,
        "R1",
        "an object under another name counts",
    ),
    (
        Mutant::DeletionIgnoresHolder,
        "R2",
        "the protection goes while a claim holds the address",
    ),
    (
        Mutant::MatchesDeleting,
        "R2",
        "an address marked for deletion is matched",
    ),
    (
        Mutant::ReclaimsOnCachedAbsence,
        "R3",
        "reclaimed because the cache shows no claim",
    ),
    (
        Mutant::LostUnproven,
        "R3",
        "called Lost because the cache shows no address",
    ),
    (
        Mutant::HolderUidUnchecked,
        "R3",
        "the uid of the holder is not compared",
    ),
    (
        Mutant::ReadsKeptForEver,
        "R3",
        "a read outlives what it was about",
    ),
    (
        Mutant::DyingUidNotLeft,
        "R4",
        "the next claim of the name inherits",
    ),
    (
        Mutant::GraceSkipped,
        "R4",
        "a pre-bound address is deleted at once",
    ),
    (
        Mutant::PreBoundStaysForEver,
        "R4",
        "a pre-bound address is never deleted",
    ),
    (
        Mutant::CompletesAnother,
        "R4",
        "of several the largest name is completed",
    ),
    (
        Mutant::LostMatchedAgain,
        "R5",
        "a lost address is matched anew",
    ),
    (
        Mutant::LostPhaseKept,
        "R5",
        "phase Lost does not break the binding",
    ),
    (
        Mutant::AnyReplacesLost,
        "R5",
        "an extra replaces a lost address by itself",
    ),
    (
        Mutant::ReportedBeforeCondition,
        "R6b",
        "reported before the address says so",
    ),
    (
        Mutant::MarkForgotten,
        "R6a",
        "a match without the mark of the core",
    ),
    (
        Mutant::SurplusUnproven,
        "R6d",
        "an extra is touched without a read at Latest",
    ),
    (
        Mutant::SurplusOfUndecided,
        "R6d",
        "an extra of a claim that is not bound is touched",
    ),
    (
        Mutant::NoBarrierAfterWipe,
        "R6e",
        "no barrier after a wiped status",
    ),
    (
        Mutant::NoFenceAfterWipe,
        "R6e",
        "the winner after a wipe is not swapped",
    ),
    (
        Mutant::BarrierOutlivesWipe,
        "R6e",
        "a barrier counts for a later state of the claim, too",
    ),
    (
        Mutant::MatchNotUndone,
        "R6d",
        "a match that never took effect is not undone",
    ),
    (
        Mutant::ParkedCounts,
        "R7",
        "a parked address is promoted by itself",
    ),
    (
        Mutant::SurplusAlwaysUndone,
        "R7",
        "an address that a driver bound is undone",
    ),
    (
        Mutant::ServeIgnored,
        "R7",
        "an address that an admin lets serve does not",
    ),
    (
        Mutant::StickyOverwritten,
        "R8",
        "the phase of a driver is overwritten",
    ),
    (
        Mutant::StickyNotReclaimed,
        "R8",
        "the phase of a driver goes at reclaim",
    ),
    (
        Mutant::NamedClassUnchecked,
        "R9",
        "addressName: the class is not compared",
    ),
    (
        Mutant::NamedFamilyUnchecked,
        "R9",
        "addressName: the family is not compared",
    ),
    (Mutant::WrongObstacle, "R9", "addressName: a wrong reason"),
    (
        Mutant::StampBeforeMatch,
        "R10",
        "stamped before free addresses are bound",
    ),
    (
        Mutant::StampKeptWhenLost,
        "R10",
        "a Lost claim keeps its stamp",
    ),
    (
        Mutant::StampFollowsClass,
        "R10",
        "the stamp of a bound claim follows its class",
    ),
    (
        Mutant::ClaimFreedFirst,
        "R11",
        "the claim's finalizer goes before its addresses",
    ),
    (
        Mutant::BoundBeforeProtected,
        "R11",
        "bound before the claim is protected",
    ),
    (
        Mutant::TimesMove,
        "R12",
        "transition times move without a flip",
    ),
    (
        Mutant::PartlyBoundUnsaid,
        "R12",
        "half a Dual claim does not say so",
    ),
    (
        Mutant::ReservedReclaimed,
        "R13",
        "a reserved address goes with a claim that it never served",
    ),
    (
        Mutant::ReservedCompletedBySatisfied,
        "R13",
        "a satisfied claim takes a reserved address",
    ),
    (
        Mutant::AnyDriversWord,
        "R14",
        "the word of a driver that is not the stamped one is shown",
    ),
    (Mutant::EventsRepeated, "R15", "an event without a change"),
    (
        Mutant::GoesOnAfterFailure,
        "R11",
        "a plan goes on after a failed write",
    ),
    (
        Mutant::DeletesBlindly,
        "page 2",
        "a deletion without uid and revision",
    ),
    (
        Mutant::WakeForClassLost,
        "bounds",
        "a class that comes wakes nobody",
    ),
    (
        Mutant::BatonDropped,
        "bounds",
        "a claim that cannot use an address wakes nobody",
    ),
    (
        Mutant::RelistHidesDeletes,
        "page 7",
        "a listing hides what is gone",
    ),
    (
        Mutant::OldEventsTaken,
        "page 7",
        "a repeated event counts as news",
    ),
    (
        Mutant::RecreationUnseen,
        "page 7",
        "a re-creation looks like an update",
    ),
    (
        Mutant::WatchesFromNow,
        "page 7",
        "after a gap the watch begins at the present",
    ),
    (
        Mutant::BarrierUnawaited,
        "R6e",
        "a barrier does not wait for the view",
    ),
    (
        Mutant::StartIgnoresWhatExists,
        "D1",
        "what existed before the start is not held",
    ),
    (
        Mutant::TimeOutIsFailure,
        "D2",
        "an unknown outcome counts as a failure",
    ),
    (
        Mutant::HalfADual,
        "D2",
        "a Dual claim gets one family while the other is exhausted",
    ),
    (
        Mutant::ServesWithoutLook,
        "D2",
        "a claim in doubt is served without a look at it",
    ),
    (
        Mutant::EditUnheard,
        "D3",
        "a range that is widened wakes nobody",
    ),
    (
        Mutant::OutsideUncounted,
        "D3",
        "holders outside the range are not reported",
    ),
    (
        Mutant::ClassesAreIslands,
        "D4",
        "the ledger of a class does not know the others",
    ),
    (
        Mutant::OldRangeKept,
        "D3",
        "an edited class hands out of its old range",
    ),
    (
        Mutant::ExcludeIgnored,
        "D2",
        "what the class excludes is handed out",
    ),
    (
        Mutant::EndsHandedOut,
        "D2",
        "the ends of a CIDR are handed out although they are reserved",
    ),
    (
        Mutant::PolicyUncopied,
        "D2",
        "the reclaim policy of the class is not copied",
    ),
    (
        Mutant::RestUnrecorded,
        "D5",
        "the cool-down is not recorded at the creation",
    ),
    (
        Mutant::RestCutShort,
        "D5",
        "let go before the cool-down is over",
    ),
    (Mutant::RestSkipped, "D5", "no cool-down"),
    (Mutant::FreedUnheard, "D6", "a freed address wakes nobody"),
    (
        Mutant::RefusalUnsaid,
        "D6",
        "nothing is said of an exhausted class",
    ),
    (
        Mutant::LetsGoEarly,
        "D7",
        "let go while the core protects it",
    ),
];

/// Puts each in, runs seeds and scripts until it is caught, at most so many, and prints the table;
/// whether all were.
pub fn all(threads: usize, within: u64, steps: u64, only: Option<&str>) -> bool {
    std::panic::set_hook(Box::new(|_| {}));
    let chosen = |(mutant, ..): &&(Mutant, &str, &str)| {
        only.is_none_or(|only| format!("{mutant:?}") == only)
    };
    let mutants: Vec<_> = ALL.iter().filter(chosen).collect();
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some((mutant, ..)) = mutants.get(n) else {
                        return;
                    };
                    let caught = hunt(*mutant, within, steps);
                    eprintln!("{mutant:?}: {caught:?}");
                    rows.lock().unwrap().push((n, caught));
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap();
    rows.sort();
    println!("{:<30} {:<7} {:>6}  caught by", "mutant", "rule", "seeds");
    let mut survivors = 0;
    for (n, caught) in &rows {
        let (mutant, rule, what) = mutants[*n];
        let (seeds, oracle) = match caught {
            Some((runs, oracle)) => (runs.to_string(), oracle.as_str()),
            None => ("-".to_owned(), "NOT CAUGHT"),
        };
        survivors += usize::from(caught.is_none());
        println!(
            "{:<30} {rule:<7} {seeds:>6}  {oracle}",
            format!("{mutant:?}")
        );
        println!("{:<46}({what})", "");
    }
    let caught = rows.len() - survivors;
    let verdict = if survivors == 0 && caught > 0 {
        "ok"
    } else {
        "FAILED"
    };
    println!("test result: {verdict}. {caught} passed; {survivors} failed; 0 ignored");
    survivors == 0 && caught > 0
}

/// Switches the bug of this name on for this thread.
pub fn put_in(name: Option<&str>) {
    let named = ALL.iter().map(|(mutant, ..)| *mutant);
    let mutant = name.and_then(|name| named.into_iter().find(|m| format!("{m:?}") == name));
    assert_eq!(mutant.is_some(), name.is_some(), "there is no such mutant");
    mutant::switch(mutant);
}

/// How many runs it took and what was found; `None` if the mutant has survived.
fn hunt(mutant: Mutant, within: u64, steps: u64) -> Option<(u64, String)> {
    mutant::switch(Some(mutant));
    let caught = (1..=within).find_map(|run| {
        // A script every fifth time.
        let job = match run % 5 {
            0 => Job::Script { seed: run / 5 },
            _ => Job::Seed { seed: run, steps },
        };
        let what = job.play().0.err()?;
        // What is wrong without it, too, has not caught it.
        mutant::switch(None);
        let is_fine = job.play().0.is_ok();
        mutant::switch(Some(mutant));
        is_fine.then(|| (run, oracle(&what)))
    });
    mutant::switch(None);
    caught
}

/// The oracle that spoke, without the names of the moment.
fn oracle(what: &str) -> String {
    let line = what.lines().next().unwrap_or_default();
    let kind = match line {
        _ if line.starts_with("revision ") => "at a revision",
        _ if line.starts_with("at rest: ") => "at rest",
        _ if line.starts_with("round ") => "quiet",
        _ if line.starts_with("ends as") => "differential",
        _ if line.starts_with("panic") => "panic",
        _ => "liveness",
    };
    let said = line.split_once(": ").map_or(line, |(_, said)| said);
    let said: String = said.chars().take(110).collect();
    format!("{kind}: {said}")
}
