//! A copy of a ledger goes on under revisions that the ledger itself never reaches.
//!
//! Whoever watched or listed the ledger holds revisions that the copy would give to other writes: it
//! would then miss events without noticing. So a copy carries a mark, and opening it moves the
//! revision far ahead and forgets the history. Every watch and continue token from before then gets
//! `Expired`.

use std::collections::BTreeMap;

use ipledger_core::api::Timestamp;
use sqlx::Error;
use sqlx::sqlite::SqliteConnection;

use crate::prepare::set_counters;
use crate::{read, schema};

/// Revisions for each second since 1970, more than any ledger writes. So every revision of the
/// ledger and of the copies that were opened before is smaller than that of a copy that is opened
/// now, also if two are made from one backup. Until the year 2242 it stays below 2^53, up to which
/// JSON numbers are exact everywhere.
const A_SECOND: u64 = 1 << 20;
/// How far the revision moves if the clock does not lead ahead.
const WITHOUT_CLOCK: u64 = 1 << 30;

/// Marks the file as a copy. Inside or outside of a transaction.
pub(crate) async fn mark(connection: &mut SqliteConnection) -> Result<(), Error> {
    set_counters(
        connection,
        &BTreeMap::from([(schema::COPIED.to_owned(), 1)]),
    )
    .await
}

/// If the file is marked as a copy, moves its revision and takes the mark away. Inside a transaction
/// that holds the write lock; whether there is something to commit.
pub(crate) async fn jump_if_marked(
    connection: &mut SqliteConnection,
    now: Timestamp,
) -> Result<bool, Error> {
    let unmarked = sqlx::query(schema::UNMARK)
        .execute(&mut *connection)
        .await?;
    if unmarked.rows_affected() == 0 {
        return Ok(false);
    }
    let last = read::counters(connection, None).await?.revision;
    let revision = target(last, now);
    sqlx::query(schema::DELETE_ALL_EVENTS)
        .execute(&mut *connection)
        .await?;
    let counters = [
        (schema::REVISION, revision),
        (schema::COMPACTED, revision),
        (schema::HISTORY_BYTES, 0),
    ];
    let counters = counters.map(|(name, value)| (name.to_owned(), value));
    set_counters(connection, &BTreeMap::from(counters)).await?;
    tracing::info!(
        last,
        revision,
        "the ledger is a copy; its revision was moved"
    );
    Ok(true)
}

fn target(last: u64, now: Timestamp) -> u64 {
    let by_clock = now.unix().saturating_mul(A_SECOND);
    if by_clock > last {
        by_clock
    } else {
        last.saturating_add(WITHOUT_CLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_copy_of_one_backup_gets_revisions_of_its_own() {
        let at = |now| target(500, Timestamp::from_unix(now));
        assert!(at(1_800_000_000) > 500 + (1 << 30));
        assert_eq!(at(1_800_000_001) - at(1_800_000_000), 1 << 20);
        assert!(at(1 << 32) < 1 << 53);
    }

    #[test]
    fn a_clock_that_is_behind_moves_nothing_back() {
        assert_eq!(
            target(1 << 50, Timestamp::from_unix(7)),
            (1 << 50) + (1 << 30)
        );
    }
}
