//! The history stays within its limits, and the write-ahead log small.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use futures::future::join_all;
use ipledger_core::api::Timestamp;
use ipledger_core::store::{ListOptions, Part, Revision, Store};
use ipledger_store_sqlite::Options;

/// Looks for what may go all the time; the clock stands until it is moved.
fn eager(clock: &Arc<AtomicU64>) -> Options {
    let clock = clock.clone();
    Options {
        history_min_age: Duration::from_secs(300),
        history_min_revisions: 10,
        compaction_interval: Duration::from_millis(2),
        now: Arc::new(move || Timestamp::from_unix(clock.load(Ordering::Relaxed))),
        ..Options::default()
    }
}

#[tokio::test]
async fn events_past_both_limits_go_and_no_others() {
    let folder = Folder::new();
    let clock = Arc::new(AtomicU64::new(1_000));
    let store = open_with(&folder.file(), eager(&clock)).await;
    for n in 0..20 {
        store.create(address(&format!("old-{n}"), n)).await.unwrap();
    }
    clock.store(1_200, Ordering::Relaxed);
    for n in 0..20 {
        store
            .create(address(&format!("young-{n}"), n))
            .await
            .unwrap();
    }
    assert_eq!(store.stats().events_compacted, 0, "too young, all of them");
    // Now the first 20 are old enough, and 20 come after them.
    clock.store(1_301, Ordering::Relaxed);
    until("the old ones are gone", async || {
        store.stats().events_compacted >= 20
    })
    .await;
    let mut connection = raw(&folder.file()).await;
    assert_eq!(
        number(&mut connection, "SELECT min(revision) FROM events").await,
        22
    );
    // All are old, but 10 stay.
    clock.store(9_999, Ordering::Relaxed);
    until("10 are left", async || store.stats().events_compacted >= 30).await;
    assert_eq!(
        number(&mut connection, "SELECT count(*) FROM events").await,
        10
    );
    let compacted = "SELECT value FROM counters WHERE name = 'compacted'";
    assert_eq!(number(&mut connection, compacted).await, 31);
    let bytes = "SELECT value FROM counters WHERE name = 'history_bytes'";
    let counted = "SELECT sum(octet_length(body) + coalesce(octet_length(before), 0)) FROM events";
    assert_eq!(
        number(&mut connection, bytes).await,
        number(&mut connection, counted).await
    );
    assert_eq!(list(&store, &ListOptions::default()).await.len(), 40);
}

#[tokio::test]
async fn a_history_that_is_too_large_is_cut_however_young() {
    let folder = Folder::new();
    let clock = Arc::new(AtomicU64::new(1_000));
    let options = Options {
        max_history_bytes: 10_000,
        ..eager(&clock)
    };
    let store = open_with(&folder.file(), options).await;
    let mut object = store.create(address("ip-1", 0)).await.unwrap();
    for n in 1..100 {
        object = store
            .update(with_value(&object, n), Part::Main)
            .await
            .unwrap();
    }
    let mut connection = raw(&folder.file()).await;
    let bytes = "SELECT value FROM counters WHERE name = 'history_bytes'";
    until("the history is small", async || {
        number(&mut connection, bytes).await <= 10_000
    })
    .await;
    assert!(number(&mut connection, "SELECT count(*) FROM events").await > 5);
}

#[tokio::test]
async fn compaction_to_a_revision_is_done_when_it_returns_and_stops_at_the_present() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    // More than one step.
    for chunk in 0..5 {
        let creates = (0..500).map(|n| store.create(address(&format!("ip-{chunk}-{n}"), n)));
        join_all(creates).await;
    }
    let mut connection = raw(&folder.file()).await;
    assert_eq!(
        store.compact_to(Revision(2_001)).await.unwrap(),
        Revision(2_001)
    );
    assert_eq!(
        number(&mut connection, "SELECT min(revision) FROM events").await,
        2_002
    );
    assert_eq!(
        store.compact_to(Revision(5)).await.unwrap(),
        Revision(2_001)
    );
    assert_eq!(
        store.compact_to(Revision(u64::MAX)).await.unwrap(),
        Revision(2_501)
    );
    assert_eq!(
        number(&mut connection, "SELECT count(*) FROM events").await,
        0
    );
    assert_eq!(store.stats().events_compacted, 2_500);
    let next = store.create(address("ip-9", 1)).await.unwrap();
    assert_eq!(revision(&next), Revision(2_502));
}

#[tokio::test]
async fn compaction_goes_on_after_the_database_was_locked() {
    let folder = Folder::new();
    let clock = Arc::new(AtomicU64::new(1_000));
    let options = Options {
        busy_timeout: Duration::from_millis(5),
        ..eager(&clock)
    };
    let store = open_with(&folder.file(), options).await;
    for n in 0..30 {
        store.create(address(&format!("ip-{n}"), n)).await.unwrap();
    }
    let mut connection = raw(&folder.file()).await;
    sql(&mut connection, "BEGIN IMMEDIATE").await;
    clock.store(9_999, Ordering::Relaxed);
    until("it has failed ten times", async || {
        store.stats().compaction_failures >= 10
    })
    .await;
    assert_eq!(store.stats().events_compacted, 0);
    assert!(store.compact_to(Revision(5)).await.is_err());
    sql(&mut connection, "ROLLBACK").await;
    until("it goes on", async || store.stats().events_compacted == 20).await;
}

#[tokio::test]
async fn compaction_gets_to_its_end_while_writers_go_on() {
    let folder = Folder::new();
    let clock = Arc::new(AtomicU64::new(1_000));
    let store = open_with(&folder.file(), eager(&clock)).await;
    for chunk in 0..6 {
        let creates = (0..500).map(|n| store.create(address(&format!("ip-{chunk}-{n}"), n)));
        join_all(creates).await;
    }
    let over = AtomicBool::new(false);
    let writers = (0..8).map(|w| {
        let (store, over) = (&store, &over);
        async move {
            let mut object = store
                .create(address(&format!("busy-{w}"), 0))
                .await
                .unwrap();
            let mut writes = 0;
            while !over.load(Ordering::Relaxed) {
                writes += 1;
                let next = with_value(&object, writes);
                object = store.update(next, Part::Main).await.unwrap();
            }
            writes
        }
    });
    let compaction = async {
        // The run in the background, which lets the young ones be.
        clock.store(9_999, Ordering::Relaxed);
        until("the old events are gone", async || {
            store.stats().events_compacted >= 2_990
        })
        .await;
        // And one that is asked for.
        let asked = store.compact_to(Revision(u64::MAX));
        let end = tokio::time::timeout(PATIENCE, asked).await;
        over.store(true, Ordering::Relaxed);
        end.expect("it ends under load").unwrap()
    };
    let (writes, end) = futures::future::join(join_all(writers), compaction).await;
    assert!(end > Revision(3_001), "{end}");
    assert!(
        writes.iter().all(|n| *n > 5),
        "the writers had to wait: {writes:?}"
    );
}

#[tokio::test]
async fn the_write_ahead_log_stays_small() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let wal = folder.path().join("ledger.db-wal");
    let size = || std::fs::metadata(&wal).unwrap().len();
    let mut largest = 0;
    for round in 0..20 {
        let body = "x".repeat(200_000);
        let creates =
            (0..8).map(|n| store.create(address(&format!("ip-{round}-{n}"), body.clone())));
        join_all(creates).await;
        largest = largest.max(size());
    }
    // 64 MB were written.
    assert!(largest > 0 && largest < 20 << 20, "{largest}");
}

#[tokio::test]
async fn two_processes_that_both_write_get_on_and_neither_starves() {
    let folder = Folder::new();
    let stores = [open(&folder.file()).await, open(&folder.file()).await];
    let slowest = AtomicU64::new(0);
    let end = Instant::now() + Duration::from_secs(3);
    let all = stores.iter().enumerate().map(|(s, store)| {
        let slowest = &slowest;
        let writers = (0..8).map(move |w| async move {
            let mut writes = 0;
            while Instant::now() < end {
                let began = Instant::now();
                let new = address(&format!("ip-{s}-{w}-{writes}"), writes);
                store.create(new).await.unwrap();
                writes += 1;
                let took = u64::try_from(began.elapsed().as_millis()).unwrap();
                slowest.fetch_max(took, Ordering::Relaxed);
            }
            writes
        });
        async { join_all(writers).await.into_iter().sum::<usize>() }
    });
    let writes = join_all(all).await;
    let there = list(&stores[0], &ListOptions::default()).await.len();
    assert_eq!(there, writes.iter().sum::<usize>());
    let (few, many) = (writes[0].min(writes[1]), writes[0].max(writes[1]));
    assert!(few > 0 && few >= many / 4, "one had to wait: {writes:?}");
    let slowest = slowest.into_inner();
    assert!(slowest < 3_000, "a write took {slowest} ms");
}
