//! Compaction: the oldest events go, a small step at a time, between two batches.
//!
//! The end of a run is fixed when it begins, so that it ends under any load. A step that fails
//! (another process holds the lock, the disk is full) is tried again; nothing stops the runs for
//! good.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ipledger_core::store::Revision;
use sqlx::Error;
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;
use tokio::time::Instant;

use crate::options::Options;
use crate::prepare::set_counters;
use crate::read::{self, Counters, number, stored};
use crate::schema;
use crate::session::{Session, run};
use crate::shared::Shared;
use crate::writer::Reply;

/// How many events go in one step at most.
const STEP: usize = 1_000;
/// The pause between two steps of a run, for the writes.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a step waits for another process. The writes wait meanwhile.
const PATIENCE: Duration = Duration::from_millis(250);
/// The pause after a step that failed.
const RETRY: Duration = Duration::from_millis(200);

pub(crate) struct Compactor {
    interval: Duration,
    due: Instant,
    /// The last revision when the present run began.
    end: Option<u64>,
    /// Revisions up to which somebody wants the history to be forgotten.
    asked: Vec<(u64, Reply<Revision>)>,
}

/// What a step did.
struct Step {
    compacted: u64,
    events: usize,
    /// Whether there may be more to do.
    more: bool,
}

impl Compactor {
    pub(crate) fn new(interval: Duration) -> Compactor {
        Compactor {
            interval,
            due: Instant::now() + interval,
            end: None,
            asked: Vec::new(),
        }
    }

    /// When the next step is to be made.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    pub(crate) fn is_due(&self) -> bool {
        self.due <= Instant::now()
    }

    /// Forgets the history up to a revision (at most the current one) as the next thing.
    pub(crate) fn force(&mut self, revision: Revision, reply: Reply<Revision>) {
        self.asked.push((revision.0, reply));
        self.due = Instant::now();
    }

    /// One step, the first or a further one of a run.
    pub(crate) async fn step(&mut self, shared: &Shared, session: &mut Session) {
        let pause = match self.try_step(&shared.options, session).await {
            Ok(step) => {
                shared
                    .stats
                    .events_compacted
                    .fetch_add(step.events as u64, Relaxed);
                if step.more {
                    if self.asked.is_empty() {
                        PAUSE
                    } else {
                        Duration::ZERO
                    }
                } else {
                    self.end = None;
                    for (_, reply) in self.asked.drain(..) {
                        let _ = reply.send(Ok(Revision(step.compacted)));
                    }
                    self.interval
                }
            }
            Err(e) => {
                session.roll_back().await;
                shared.stats.compaction_failures.fetch_add(1, Relaxed);
                let e = shared.fail(&e);
                if shared.identity.known().is_ok() {
                    tracing::warn!(error = %e, "a step of compaction failed; it is tried again");
                }
                for (_, reply) in self.asked.drain(..) {
                    let _ = reply.send(Err(e.clone()));
                }
                RETRY
            }
        };
        self.due = Instant::now() + pause;
    }

    async fn try_step(&mut self, options: &Options, session: &mut Session) -> Result<Step, Error> {
        let connection = session.begin(PATIENCE.min(options.busy_timeout)).await?;
        let counters = read::counters(connection, None).await?;
        let oldest = oldest_events(connection).await?;
        let asked = self
            .asked
            .iter()
            .map(|(revision, _)| *revision)
            .max()
            .unwrap_or(0);
        let asked = asked.min(counters.revision);
        let limits = Limits {
            end: *self.end.get_or_insert(counters.revision),
            before: (options.now)()
                .unix()
                .saturating_sub(options.history_min_age.as_secs()),
            options,
        };
        let mut bytes = 0;
        let mut events = 0;
        let mut compacted = counters.compacted;
        let mut after = BTreeMap::new();
        for old in &oldest {
            if old.revision > asked && !limits.let_go(old, &counters, bytes) {
                break;
            }
            bytes += old.bytes;
            events += 1;
            compacted = compacted.max(old.revision);
            after.insert(schema::compacted_of(&old.kind), old.revision);
        }
        let more = events == STEP;
        if !more {
            compacted = compacted.max(asked);
        }
        if compacted > counters.compacted {
            sqlx::query(schema::DELETE_EVENTS)
                .bind(stored(compacted))
                .execute(&mut *connection)
                .await?;
            let left = counters.history_bytes.saturating_sub(bytes);
            after.insert(schema::COMPACTED.to_owned(), compacted);
            after.insert(schema::HISTORY_BYTES.to_owned(), left);
            set_counters(connection, &after).await?;
            run(connection, "COMMIT").await?;
        } else {
            session.roll_back().await;
        }
        Ok(Step {
            compacted,
            events,
            more,
        })
    }
}

/// One event, without its bodies.
struct Old {
    revision: u64,
    kind: String,
    time: u64,
    bytes: u64,
}

async fn oldest_events(connection: &mut SqliteConnection) -> Result<Vec<Old>, Error> {
    let rows = sqlx::query(schema::OLDEST_EVENTS)
        .bind(i64::try_from(STEP).unwrap_or(i64::MAX))
        .fetch_all(connection)
        .await?;
    let old = rows.iter().map(|row| {
        Ok(Old {
            revision: number(row, 0)?,
            kind: row.try_get(1)?,
            time: number(row, 2)?,
            bytes: number(row, 3)?,
        })
    });
    old.collect()
}

/// How much history is kept.
struct Limits<'a> {
    options: &'a Options,
    /// Events of before this second are old.
    before: u64,
    /// Nothing after this revision goes in this run.
    end: u64,
}

impl Limits<'_> {
    /// Whether an event may go when older ones of so many bytes have gone: it must be past both
    /// limits, or the history too large.
    fn let_go(&self, old: &Old, counters: &Counters, gone: u64) -> bool {
        let last = counters
            .revision
            .saturating_sub(self.options.history_min_revisions);
        let past = old.revision <= last && old.time < self.before;
        let too_large =
            counters.history_bytes.saturating_sub(gone) > self.options.max_history_bytes;
        old.revision <= self.end && (past || too_large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTERS: Counters = Counters {
        revision: 100,
        compacted: 1,
        history_bytes: 1_000,
        of_kind: 1,
        compacted_of_kind: 0,
    };

    fn let_go(revision: u64, time: u64, gone: u64, max_history_bytes: u64) -> bool {
        let options = Options {
            history_min_revisions: 10,
            max_history_bytes,
            ..Options::default()
        };
        let limits = Limits {
            options: &options,
            before: 500,
            end: 95,
        };
        let old = Old {
            revision,
            kind: "IPAddress".to_owned(),
            time,
            bytes: 1,
        };
        limits.let_go(&old, &COUNTERS, gone)
    }

    #[test]
    fn an_event_goes_only_when_it_is_past_both_limits() {
        assert!(let_go(90, 499, 0, 5_000));
        assert!(!let_go(91, 499, 0, 5_000));
        assert!(!let_go(90, 500, 0, 5_000));
    }

    #[test]
    fn a_history_that_is_too_large_loses_young_events_too() {
        assert!(let_go(95, 900, 0, 999));
        assert!(let_go(95, 900, 499, 500));
        assert!(!let_go(95, 900, 500, 500));
    }

    #[test]
    fn what_was_written_after_the_run_began_stays() {
        assert!(!let_go(96, 0, 0, 0));
    }
}
