//! Objects so large that answers must be cut.

use futures::StreamExt;
use ipledger_core::api::{Kind, Object};
use ipledger_core::store::{ListOptions, Store, WatchEvent, WatchFrom, WatchOptions};
use ipledger_tests::etcd::{Etcd, EtcdOptions};
use ipledger_tests::load::{PATIENCE, claim, watch};
use tokio::time::timeout;

use crate::cases;
use crate::store::open;

cases![many_large_objects_are_listed_and_watched];

/// More than one answer of etcd may have.
const OBJECTS: usize = 60;

async fn many_large_objects_are_listed_and_watched() {
    let etcd = Etcd::start(&EtcdOptions::default()).unwrap();
    let store = open(vec![etcd.endpoint()]).await;
    let kind = Kind::IPAddressClaim;
    let everything = ListOptions::default();
    let before = store.list(kind, &everything).await.unwrap().revision;
    let mut written = Vec::new();
    for n in 0..OBJECTS {
        let mut object = claim(&format!("c-{n:02}"));
        object
            .fields
            .insert("padding".to_owned(), "x".repeat(1_400_000).into());
        written.push(store.create(object).await.unwrap());
    }
    let page = store.list(kind, &everything).await.unwrap();
    assert!(
        page.items == written,
        "the list has {} of {OBJECTS}",
        page.items.len()
    );
    let from_start = store
        .watch(kind, &WatchOptions::all(WatchFrom::Start))
        .await
        .unwrap();
    let replayed = watch(&*store, before).await;
    for mut stream in [from_start, replayed] {
        let mut objects: Vec<Object> = Vec::new();
        while objects.len() < OBJECTS {
            match timeout(PATIENCE, stream.next())
                .await
                .unwrap()
                .unwrap()
                .unwrap()
            {
                WatchEvent::Applied(object) => objects.push(Object::clone(&object)),
                WatchEvent::Synced(_) | WatchEvent::Bookmark(_) => {}
                other => panic!("{:.200}", format!("{other:?}")),
            }
        }
        assert!(objects == written, "other objects, or in another order");
    }
}
