//! One etcd that goes away and comes back.

use std::time::Duration;

use ipledger_core::api::Kind;
use ipledger_core::store::{ListOptions, Part, Preconditions, ReadAt, Store, StoreError};
use ipledger_tests::etcd::{Etcd, EtcdOptions};
use ipledger_tests::kine::Kine;
use ipledger_tests::load::{History, Load, claim, eventually, key};
use tokio::time::sleep;

use crate::cases;
use crate::store::open;

cases![
    etcd_killed_and_started_under_load_loses_no_write_and_no_event,
    kine_killed_and_started_under_load_loses_no_write_and_no_event,
    etcd_stopped_for_five_seconds_under_load_is_taken_up_again,
    etcd_frozen_under_load_is_waited_for,
    what_is_asked_while_etcd_is_away_is_unavailable_and_not_written,
    a_full_etcd_says_what_to_do_and_not_that_nothing_was_written_and_still_answers_reads,
];

fn etcd() -> Etcd {
    Etcd::start(&EtcdOptions::default()).unwrap()
}

async fn etcd_killed_and_started_under_load_loses_no_write_and_no_event() {
    let mut etcd = etcd();
    let store = open(vec![etcd.endpoint()]).await;
    let load = Load::start(store.clone(), History::Kept).await;
    for _ in 0..5 {
        load.more(100).await;
        etcd.kill();
        etcd.start_again();
    }
    load.more(100).await;
    load.finish().await;
}

async fn kine_killed_and_started_under_load_loses_no_write_and_no_event() {
    let mut kine = Kine::start().unwrap();
    let store = open(vec![kine.endpoint()]).await;
    let load = Load::start(store.clone(), History::Kept).await;
    for _ in 0..3 {
        load.more(100).await;
        kine.kill();
        kine.start_again();
    }
    load.more(100).await;
    load.finish().await;
}

async fn etcd_stopped_for_five_seconds_under_load_is_taken_up_again() {
    let mut etcd = etcd();
    let store = open(vec![etcd.endpoint()]).await;
    let load = Load::start(store.clone(), History::Kept).await;
    load.more(100).await;
    etcd.stop();
    sleep(Duration::from_secs(5)).await;
    etcd.start_again();
    load.more(100).await;
    load.finish().await;
}

async fn etcd_frozen_under_load_is_waited_for() {
    let etcd = etcd();
    let store = open(vec![etcd.endpoint()]).await;
    let load = Load::start(store.clone(), History::Kept).await;
    load.more(100).await;
    etcd.freeze();
    sleep(Duration::from_secs(7)).await;
    etcd.thaw();
    load.more(100).await;
    load.finish().await;
}

async fn what_is_asked_while_etcd_is_away_is_unavailable_and_not_written() {
    let mut etcd = etcd();
    let store = open(vec![etcd.endpoint()]).await;
    let old = store.create(claim("old")).await.unwrap();
    etcd.stop();
    let unavailable = |e: StoreError| assert!(matches!(e, StoreError::Unavailable { .. }), "{e}");
    unavailable(store.get(&key("old"), ReadAt::Latest).await.unwrap_err());
    unavailable(store.create(claim("new")).await.unwrap_err());
    unavailable(store.update(old.clone(), Part::Main).await.unwrap_err());
    unavailable(
        store
            .delete(&key("old"), &Preconditions::default())
            .await
            .unwrap_err(),
    );
    unavailable(store.barrier(Kind::IPAddressClaim).await.unwrap_err());
    etcd.start_again();
    let options = ListOptions::default();
    let page = eventually(|| store.list(Kind::IPAddressClaim, &options)).await;
    assert_eq!(page.items, [old]);
}

async fn a_full_etcd_says_what_to_do_and_not_that_nothing_was_written_and_still_answers_reads() {
    let arguments = vec!["--quota-backend-bytes=1000000".to_owned()];
    let etcd = Etcd::start(&EtcdOptions {
        arguments,
        ..EtcdOptions::default()
    })
    .unwrap();
    let store = open(vec![etcd.endpoint()]).await;
    let mut written = Vec::new();
    let refusal = loop {
        let mut object = claim(&format!("c-{:03}", written.len()));
        object
            .fields
            .insert("padding".to_owned(), "x".repeat(50_000).into());
        match store.create(object).await {
            Ok(created) => written.push(created),
            Err(e) => break e,
        }
        assert!(written.len() < 500, "the quota is never reached");
    };
    match &refusal {
        StoreError::OutcomeUnknown { reason, .. } => {
            assert!(reason.contains("alarm disarm"), "{refusal}");
        }
        other => panic!("{other}"),
    }
    let page = store
        .list(Kind::IPAddressClaim, &ListOptions::default())
        .await
        .unwrap();
    // The last one may have been written all the same.
    let last = format!("c-{:03}", written.len());
    let (others, unknown): (Vec<_>, Vec<_>) = page
        .items
        .into_iter()
        .partition(|c| c.metadata.name != last);
    assert_eq!(others, written);
    assert!(unknown.len() <= 1);
}
