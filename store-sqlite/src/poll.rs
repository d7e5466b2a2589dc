//! Looks for the writes of other processes and moves the feed on, and for the loss of the file.

use std::sync::Arc;

use ipledger_core::store::StoreError;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row};
use tokio::time::Instant;

use crate::feed::MAX_EVENTS;
use crate::read;
use crate::shared::Shared;

/// Runs until the feed is closed, and closes it if the file is lost.
pub(crate) async fn run(shared: Arc<Shared>, mut connection: SqliteConnection) {
    let mut tail = shared.feed.subscribe();
    let mut seen = None;
    let mut failing = false;
    let mut next = Instant::now();
    loop {
        tokio::select! {
            biased;
            _ = tail.wait_for(|tail| tail.closed) => break,
            () = shared.feed.foreign.notified() => seen = None,
            () = tokio::time::sleep_until(next) => {}
        }
        if let Err(lost) = shared.identity.check() {
            tracing::error!(error = %lost, "the store has stopped");
            // Whoever follows a watch learns the reason when it opens the next one.
            shared.feed.close();
            break;
        }
        match look(&shared, &mut connection, &mut seen).await {
            Ok(()) => failing = false,
            Err(e) => {
                if !failing {
                    tracing::warn!(error = %e, "cannot look for the writes of other processes; trying again");
                }
                failing = true;
            }
        }
        next = Instant::now() + shared.options.poll_interval;
    }
    if let Err(e) = connection.close().await {
        tracing::warn!(error = %e, "the polling connection did not close well");
    }
}

/// `seen` is the data version up to which the feed is complete; it changes with every commit of
/// another connection.
async fn look(
    shared: &Shared,
    connection: &mut SqliteConnection,
    seen: &mut Option<i64>,
) -> Result<(), StoreError> {
    let fail = |e: sqlx::Error| shared.fail(&e);
    let row = sqlx::query("PRAGMA data_version")
        .fetch_one(&mut *connection)
        .await
        .map_err(fail)?;
    let version: i64 = row.try_get(0).map_err(fail)?;
    if *seen == Some(version) {
        return Ok(());
    }
    let tail = shared.feed.tail();
    let now = read::counters(connection, None)
        .await
        .map_err(fail)?
        .revision;
    if now > tail {
        if now - tail > MAX_EVENTS as u64 {
            shared.feed.jump(now);
        } else {
            let events = read::events(connection, (tail, now)).await.map_err(fail)?;
            let kept = read::counters(connection, None)
                .await
                .map_err(fail)?
                .compacted
                <= tail;
            if kept {
                shared
                    .feed
                    .append(tail, now, events.into_iter().map(Arc::new).collect());
            } else {
                shared.feed.jump(now);
            }
        }
    }
    *seen = Some(version);
    Ok(())
}
