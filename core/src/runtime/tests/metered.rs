//! What a metered store counts; that it passes everything through is proven by the contract suite.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};

use super::{PausedClock, claim};
use crate::api::{Kind, Object};
use crate::runtime::{Clock, Durations, MeteredStore, Operation, StoreStats};
use crate::store::{MemoryStore, Part, ReadAt, Store, WatchFrom, WatchOptions};

fn new_claim(name: &str) -> Object {
    let mut claim = claim(name, "", 0);
    claim.metadata.resource_version = None;
    claim
}

fn metered(clock: &Arc<PausedClock>) -> MeteredStore {
    MeteredStore::new(Arc::new(MemoryStore::default()), clock.clone())
}

fn requests(stats: &StoreStats) -> Vec<(Operation, &'static str, u64)> {
    let of =
        |(&(operation, outcome), &n): (&(Operation, &'static str), &u64)| (operation, outcome, n);
    stats.requests.iter().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn each_request_is_counted_with_its_answer() {
    let store = metered(&PausedClock::new());
    let created = store.create(new_claim("web")).await.unwrap();
    store.create(new_claim("web")).await.unwrap_err();
    store.update(created.clone(), Part::Main).await.unwrap();
    store.update(created.clone(), Part::Status).await.unwrap();
    store.get(&created.key(), ReadAt::Latest).await.unwrap();
    store
        .list(Kind::IPAddressClaim, &Default::default())
        .await
        .unwrap();
    store
        .delete(&created.key(), &Default::default())
        .await
        .unwrap();
    store.get(&created.key(), ReadAt::Latest).await.unwrap_err();
    store.barrier(Kind::IPAddressClaim).await.unwrap();
    assert_eq!(
        requests(&store.stats()),
        [
            (Operation::Get, "not_found", 1),
            (Operation::Get, "ok", 1),
            (Operation::List, "ok", 1),
            (Operation::Create, "already_exists", 1),
            (Operation::Create, "ok", 1),
            (Operation::Update, "ok", 1),
            (Operation::UpdateStatus, "ok", 1),
            (Operation::Delete, "ok", 1),
            (Operation::Barrier, "ok", 1),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_waits_for_any_more_is_counted_as_cancelled() {
    let clock = PausedClock::new();
    let store = metered(&clock);
    let asked = store.ask(Operation::Get, std::future::pending::<Result<(), _>>());
    let mut asked = Box::pin(asked);
    assert!(asked.as_mut().now_or_never().is_none());
    clock.sleep(Duration::from_millis(70)).await;
    drop(asked);
    let stats = store.stats();
    assert_eq!(requests(&stats), [(Operation::Get, "cancelled", 1)]);
    assert_eq!(
        stats.durations[&Operation::Get].sum,
        Duration::from_millis(70)
    );
}

#[tokio::test(start_paused = true)]
async fn watches_are_counted_while_they_are_open() {
    let store = metered(&PausedClock::new());
    store.create(new_claim("web")).await.unwrap();
    let options = WatchOptions::all(WatchFrom::Start);
    let mut watch = store.watch(Kind::IPAddressClaim, &options).await.unwrap();
    watch.next().await.unwrap().unwrap();
    assert_eq!(
        (store.stats().open_watches, store.stats().watch_events),
        (1, 1)
    );
    drop(watch);
    assert_eq!(store.stats().open_watches, 0);
}

#[test]
fn a_duration_falls_into_the_first_bucket_that_holds_it() {
    let mut durations = Durations::default();
    for ms in [0, 1, 2, 10_000, 10_001] {
        durations.add(Duration::from_millis(ms));
    }
    assert_eq!(durations.buckets[..3], [2, 1, 0]);
    assert_eq!(durations.buckets[13..], [1, 1]);
    assert_eq!(durations.count(), 5);
    assert_eq!(durations.sum, Duration::from_millis(20_004));
}
