//! A ledger that the first version wrote is read, watched and written by this one.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use ipledger_core::api::{IPAddress, IPAddressClaim, Key, Kind};
use ipledger_core::store::{
    Part, ReadAt, Revision, Store, StoreExt, WatchEvent, WatchFrom, WatchOptions,
};
use sqlx::Connection;

const SCHEMA_1: &str = include_str!("fixtures/schema1.sql");

#[tokio::test]
async fn a_ledger_of_schema_1_goes_on_working() {
    let folder = Folder::new();
    let mut connection = raw(&folder.file()).await;
    sql(&mut connection, SCHEMA_1).await;
    connection.close().await.unwrap();

    let store = open(&folder.file()).await;
    let key = Key::claim("team-a", "web");
    let claim = store.find(&key, ReadAt::Latest).await.unwrap();
    let claim: IPAddressClaim = claim.unwrap();
    let addresses: Vec<IPAddress> = store.list_all().await.unwrap();
    let [address] = addresses.as_slice() else {
        panic!("{addresses:#?}")
    };
    let holder = address.spec.claim_ref.as_ref().unwrap();
    assert_eq!((holder.key(), holder.uid.as_str()), (key, claim.uid()));

    // Its history is there, with what came and went before.
    let options = WatchOptions::all(WatchFrom::After(Revision(9)));
    let mut watch = store.watch(Kind::IPAddress, &options).await.unwrap();
    let mut gone = Vec::new();
    loop {
        match next_event(&mut watch).await {
            WatchEvent::Deleted(object) => gone.push(object.metadata.name.clone()),
            WatchEvent::Synced(_) => break,
            _ => {}
        }
    }
    assert_eq!(gone, ["ip-192-0-2-77"]);

    // It goes on from its last revision.
    let created = store
        .create(object(Kind::IPAddress, "", "ip-192-0-2-78", 1))
        .await
        .unwrap();
    assert_eq!(revision(&created), Revision(19));
    let changed = with_value(&created, 2);
    let updated = store.update(changed, Part::Main).await.unwrap();
    assert_eq!(
        brief(&next_change(&mut watch).await),
        ("applied", "ip-192-0-2-78".to_owned(), 19)
    );
    assert_eq!(
        brief(&next_change(&mut watch).await),
        ("applied", "ip-192-0-2-78".to_owned(), 20)
    );
    store.close().await.unwrap();
    let store = open(&folder.file()).await;
    let read = store.get(&updated.key(), ReadAt::Latest).await.unwrap();
    assert_eq!(read, updated);
}
