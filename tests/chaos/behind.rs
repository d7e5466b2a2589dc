//! What others do to the keys of the ledger without the store.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::DeleteOptions;
use futures::{StreamExt, TryStreamExt, stream};
use ipledger_core::api::Kind;
use ipledger_core::store::{ListOptions, Revision, Store, WatchEvent, WatchStream};
use ipledger_store_etcd::EtcdStore;
use ipledger_tests::etcd::{Etcd, EtcdOptions, client};
use ipledger_tests::load::{PATIENCE, claim, watch};
use tokio::time::{sleep, timeout};

use crate::cases;
use crate::store::open;

cases![
    ten_objects_deleted_by_one_request_are_ten_events,
    more_objects_than_a_queue_or_an_answer_holds_deleted_by_one_request_are_one_event_each,
    a_leader_whose_key_is_deleted_lets_another_one_lead,
];

async fn ten_objects_deleted_by_one_request_are_ten_events() {
    let etcd = Etcd::start(&EtcdOptions::default()).unwrap();
    let store = open(vec![etcd.endpoint()]).await;
    let from = create(&store, 10, 1).await;
    let mut stream = watch(&*store, from).await;
    let end = delete_all(&etcd).await;
    assert_eq!(deleted(&mut stream, 10, end).await.len(), 10);
}

/// 1,500 events are more than the queue of a watch holds; with 3 kB each, they are several answers of
/// etcd. The reader begins late, so that the watch is given back to etcd in the middle of the revision.
async fn more_objects_than_a_queue_or_an_answer_holds_deleted_by_one_request_are_one_event_each() {
    let etcd = Etcd::start(&EtcdOptions::default()).unwrap();
    let store = open(vec![etcd.endpoint()]).await;
    let from = create(&store, 1_500, 3_000).await;
    let mut stream = watch(&*store, from).await;
    let end = delete_all(&etcd).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(deleted(&mut stream, 1_500, end).await.len(), 1_500);
}

async fn create(store: &EtcdStore, number: usize, padding: usize) -> Revision {
    let create = |n: usize| {
        let mut object = claim(&format!("c-{n:04}"));
        let padding = "x".repeat(padding);
        object.fields.insert("padding".to_owned(), padding.into());
        store.create(object)
    };
    let all = stream::iter(0..number).map(create).buffer_unordered(64);
    all.try_for_each(|_| async { Ok(()) }).await.unwrap();
    let options = ListOptions::default();
    let page = store.list(Kind::IPAddressClaim, &options).await.unwrap();
    page.revision
}

/// Deletes all claims with one request and returns its revision.
async fn delete_all(etcd: &Etcd) -> Revision {
    let mut client = client(&etcd.endpoint()).await.unwrap();
    let options = DeleteOptions::new().with_prefix();
    let answer = client
        .delete("/chaos/ipaddressclaims/", Some(options))
        .await;
    Revision(u64::try_from(answer.unwrap().header().unwrap().revision()).unwrap())
}

/// The names of so many objects that are deleted under this revision; each comes once, and nothing else
/// comes until the watch tells that it has got there.
async fn deleted(stream: &mut WatchStream, number: usize, at: Revision) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    loop {
        let event = timeout(PATIENCE, stream.next()).await.unwrap().unwrap();
        match event.unwrap() {
            WatchEvent::Deleted(last) => {
                assert_eq!(last.revision(), Some(at));
                let name = last.metadata.name.clone();
                assert!(names.insert(name), "{} is deleted twice", last.key());
            }
            WatchEvent::Synced(told) | WatchEvent::Bookmark(told) if told >= at => {
                assert_eq!(names.len(), number, "when {told} is told");
                return names;
            }
            WatchEvent::Synced(_) | WatchEvent::Bookmark(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The other one looks once a second; here it looks half a second later than the old leader notices.
async fn a_leader_whose_key_is_deleted_lets_another_one_lead() {
    let etcd = Etcd::start(&EtcdOptions::default()).unwrap();
    let store = open(vec![etcd.endpoint()]).await;
    let (old, other) = (store.election("old"), store.election("other"));
    let mut term = old.win(&|_| {}).await;
    let mut client = client(&etcd.endpoint()).await.unwrap();
    client.delete("/chaos/leader", None).await.unwrap();
    timeout(PATIENCE, term.over()).await.unwrap();
    let other = async {
        sleep(Duration::from_millis(500)).await;
        other.win(&|_| {}).await
    };
    tokio::select! {
        _ = old.win(&|_| {}) => panic!("the old leader leads again"),
        term = timeout(PATIENCE, other) => drop(term.unwrap()),
    }
}
