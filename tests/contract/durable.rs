//! What outlives the process, on backends that say that they are durable.

use ipledger_core::api::Kind;
use ipledger_core::store::{ListOptions, StoreError, WatchFrom, WatchOptions};
use serde_json::json;

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;
use crate::reader::{Reader, told};

cases![
    every_acknowledged_write_outlives_a_restart,
    what_was_deleted_stays_deleted_after_a_restart,
    revisions_and_uids_go_on_after_a_restart,
    a_watch_across_a_restart_has_no_hole_and_no_repeat,
    a_compaction_outlives_a_restart,
    a_continue_token_works_across_a_restart,
    a_barrier_holds_after_a_restart,
    many_restarts_lose_nothing,
];

async fn every_acknowledged_write_outlives_a_restart(mut l: Ledger) {
    let a = create(
        &*l.store,
        claim("a").label("x", "y").field("extension", json!([1])),
    )
    .await;
    let a = update_status(&*l.store, a.phase("Bound")).await;
    create(&*l.store, claim("b").hold(HOLD)).await;
    let b = delete(&*l.store, &key("b")).await;
    let c = create(&*l.store, class("c")).await;
    if l.restart().await {
        assert_eq!(latest(&*l.store, &key("a")).await, a);
        assert_eq!(latest(&*l.store, &key("b")).await, b);
        assert_eq!(latest(&*l.store, &c.key()).await, c);
        assert_eq!(list_claims(&*l.store).await.items, [a, b]);
    }
}

async fn what_was_deleted_stays_deleted_after_a_restart(mut l: Ledger) {
    create_claims(&*l.store, &["a", "b"]).await;
    create(&*l.store, claim("held").hold(HOLD)).await;
    delete(&*l.store, &key("a")).await;
    let marked = delete(&*l.store, &key("held")).await;
    update(&*l.store, marked.release(HOLD)).await;
    if l.restart().await {
        assert_eq!(names(&list_claims(&*l.store).await.items), ["b"]);
        assert!(is_absent(&*l.store, &key("a")).await);
    }
}

async fn revisions_and_uids_go_on_after_a_restart(mut l: Ledger) {
    let old = create(&*l.store, claim("a")).await;
    let gone = delete(&*l.store, &key("a")).await;
    if l.restart().await {
        assert!(list_claims(&*l.store).await.revision >= revision(&gone));
        let new = create(&*l.store, claim("a")).await;
        assert!(revision(&new) > revision(&gone));
        assert_ne!(new.metadata.uid, old.metadata.uid);
    }
}

/// A backend that promises no history may say that it has forgotten, but not leave anything out.
async fn a_watch_across_a_restart_has_no_hole_and_no_repeat(mut l: Ledger) {
    let mut reader = Reader::claims_from_now(&*l.store).await;
    let before = create_claims(&*l.store, &["a", "b"]).await;
    reader.reach(revision(&before[0])).await;
    let seen = reader.seen;
    assert_eq!(seen, revision(&before[0]));
    drop(reader);
    delete(&*l.store, &key("a")).await;
    if !l.restart().await {
        return;
    }
    let from = WatchOptions::all(WatchFrom::After(seen));
    let resumed = Reader::open(&*l.store, Kind::IPAddressClaim, &from).await;
    let promised = l.capabilities().history_revisions > 0;
    let last = create(&*l.store, claim("c")).await;
    let (events, error) = match resumed {
        Err(e) => (Vec::new(), Some(e)),
        Ok(mut reader) => match reader.item().await {
            Some(Err(e)) => (Vec::new(), Some(e)),
            Some(Ok(first)) => {
                let first = Some(first).filter(crate::reader::is_change);
                let rest = reader.reach(revision(&last)).await;
                (first.into_iter().chain(rest).collect(), None)
            }
            None => panic!("the watch has ended"),
        },
    };
    match error {
        None => assert_eq!(told(&events), ["+b", "-a", "+c"]),
        Some(StoreError::Expired { .. }) if !promised => {}
        Some(e) => panic!("{e}"),
    }
}

async fn a_compaction_outlives_a_restart(mut l: Ledger) {
    let writes = create_claims(&*l.store, &["a", "b", "c"]).await;
    if l.compact(revision(&writes[1])).await && l.restart().await {
        let old = WatchOptions::all(WatchFrom::After(revision(&writes[0])));
        let expired = match l.store.watch(Kind::IPAddressClaim, &old).await {
            Err(e) => Err(e),
            Ok(mut stream) => futures::StreamExt::next(&mut stream).await.unwrap(),
        };
        assert_fails!(expired, Expired);
        let mut reader = Reader::claims(&*l.store, WatchFrom::After(revision(&writes[1]))).await;
        assert_eq!(told(&reader.reach(revision(&writes[2])).await), ["+c"]);
    }
}

async fn a_continue_token_works_across_a_restart(mut l: Ledger) {
    create_claims(&*l.store, &["a", "b", "c"]).await;
    let mut options = ListOptions {
        limit: Some(2),
        ..Default::default()
    };
    let first = list(&*l.store, Kind::IPAddressClaim, &options).await;
    delete(&*l.store, &key("c")).await;
    if l.restart().await {
        options.continue_token = first.continue_token;
        let second = list(&*l.store, Kind::IPAddressClaim, &options).await;
        assert_eq!(second.revision, first.revision);
        assert_eq!(names(&second.items), ["c"]);
    }
}

async fn a_barrier_holds_after_a_restart(mut l: Ledger) {
    let created = create(&*l.store, claim("a")).await;
    create(&*l.store, class("public")).await;
    if l.restart().await {
        let barrier = l.store.barrier(Kind::IPAddressClaim).await.unwrap();
        assert!(barrier >= revision(&created));
        let mut reader = Reader::claims(&*l.store, WatchFrom::Start).await;
        assert_eq!(told(&reader.reach(barrier).await), ["+a"]);
    }
}

async fn many_restarts_lose_nothing(mut l: Ledger) {
    for n in 0..5 {
        create(&*l.store, claim(&format!("c-{n}"))).await;
        if !l.restart().await {
            return;
        }
        assert_eq!(list_claims(&*l.store).await.items.len(), n + 1);
    }
}
