//! What the store is asked, and how it answers.

use std::fmt::Write;

use ipledger_core::runtime::{Durations, StoreStats};

use super::head;

pub(super) fn series(text: &mut String, stats: &StoreStats) {
    let name = "ipledger_store_requests_total";
    let help = "Requests to the store by their answer: ok, an error, or cancelled";
    head(text, name, "counter", help);
    for ((operation, answer), count) in &stats.requests {
        let operation = operation.name();
        let labels = format!("operation=\"{operation}\",answer=\"{answer}\"");
        let _ = writeln!(text, "{name}{{{labels}}} {count}");
    }
    let name = "ipledger_store_request_duration_seconds";
    head(text, name, "histogram", "Time until the store answered");
    for (operation, durations) in &stats.durations {
        let operation = operation.name();
        let mut within = 0;
        for (bucket, bound) in durations.buckets.iter().zip(bounds()) {
            within += bucket;
            let labels = format!("operation=\"{operation}\",le=\"{bound}\"");
            let _ = writeln!(text, "{name}_bucket{{{labels}}} {within}");
        }
        let sum = durations.sum.as_secs_f64();
        let _ = writeln!(text, "{name}_sum{{operation=\"{operation}\"}} {sum}");
        let _ = writeln!(text, "{name}_count{{operation=\"{operation}\"}} {within}");
    }
    let name = "ipledger_store_watches";
    head(text, name, "gauge", "Watches that are open");
    let _ = writeln!(text, "{name} {}", stats.open_watches);
    let name = "ipledger_store_watch_events_total";
    head(text, name, "counter", "What watches have delivered");
    let _ = writeln!(text, "{name} {}", stats.watch_events);
    let name = "ipledger_store_watch_failures_total";
    head(text, name, "counter", "Watches that ended with an error");
    for (error, count) in &stats.watch_failures {
        let _ = writeln!(text, "{name}{{error=\"{error}\"}} {count}");
    }
}

/// The upper bounds of the buckets, in seconds.
fn bounds() -> impl Iterator<Item = String> {
    let seconds = |ms: &u64| (std::time::Duration::from_millis(*ms).as_secs_f64()).to_string();
    let finite = Durations::BOUNDS.iter().map(seconds);
    finite.chain(["+Inf".to_owned()])
}
