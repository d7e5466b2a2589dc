//! The table backend × case of what was run, printed at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

static RESULTS: Mutex<BTreeMap<(&str, &str), Outcome>> = Mutex::new(BTreeMap::new());

/// What became of a case on a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It holds.
    Holds,
    /// It was begun, and did not come to its end.
    Failed,
    /// It is about what this backend cannot be brought to do.
    #[cfg(feature = "etcd")]
    Refused,
}

/// Notes an outcome; the last word counts.
pub(crate) fn note(case: &'static str, backend: &'static str, outcome: Outcome) {
    let mut results = RESULTS.lock().unwrap_or_else(PoisonError::into_inner);
    results.insert((case, backend), outcome);
}

/// What was noted; empty if nothing was.
pub(crate) fn text() -> String {
    let results = RESULTS.lock().unwrap_or_else(PoisonError::into_inner);
    let backends: BTreeSet<&str> = results.keys().map(|(_, backend)| *backend).collect();
    let cases: BTreeSet<&str> = results.keys().map(|(case, _)| *case).collect();
    let mut text = String::new();
    if cases.is_empty() {
        return text;
    }
    let width = cases.iter().map(|case| case.len()).max().unwrap_or(0);
    let row = |text: &mut String, first: &str, cells: &mut dyn Iterator<Item = String>| {
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(text, "{first:width$}  {}", cells.join("  ").trim_end());
    };
    let aligned = |backend: &str, cell: &str| format!("{cell:n$}", n = backend.len().max(6));
    let heads = backends.iter().map(|b| aligned(b, b));
    row(&mut text, "case", &mut { heads });
    for case in &cases {
        let cells = backends.iter().map(|backend| {
            let cell = match results.get(&(*case, *backend)) {
                Some(Outcome::Holds) => "ok",
                Some(Outcome::Failed) => "FAILED",
                #[cfg(feature = "etcd")]
                Some(Outcome::Refused) => "none",
                None => "",
            };
            aligned(backend, cell)
        });
        row(&mut text, case, &mut { cells });
    }
    let sums = backends.iter().map(|backend| {
        let of = |(key, outcome): &(&(&str, &str), &Outcome)| {
            key.1 == *backend && **outcome == Outcome::Holds
        };
        aligned(backend, &results.iter().filter(of).count().to_string())
    });
    row(&mut text, "cases that hold", &mut { sums });
    text
}
