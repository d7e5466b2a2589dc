//! The file is deleted or replaced while it is open: nothing is acknowledged and lost.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use common::*;
use futures::StreamExt as _;
use ipledger_core::api::Kind;
use ipledger_core::store::{
    ListOptions, Part, Preconditions, ReadAt, Store, StoreError, WatchFrom, WatchOptions,
};
use ipledger_store_sqlite::{OpenError, Options, SqliteStore};

/// A store that does not look at its file by itself, with one object.
async fn inattentive(folder: &Folder) -> SqliteStore {
    let options = Options {
        poll_interval: Duration::from_secs(3_600),
        ..Options::default()
    };
    let store = open_with(&folder.file(), options).await;
    store.create(address("before", 1)).await.unwrap();
    store
}

fn aside(folder: &Folder) -> PathBuf {
    folder.path().join("aside.db")
}

fn says<T: std::fmt::Debug>(answer: Result<T, StoreError>, what: &str) {
    match answer {
        Err(StoreError::Unavailable { reason }) => {
            assert!(reason.contains(what), "{reason}");
            assert!(reason.contains("stop the server"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

/// Everything that can be asked of the store gets the same answer.
async fn all_say(store: &SqliteStore, what: &str) {
    let all = ListOptions::default();
    let watch = WatchOptions::all(WatchFrom::Start);
    says(store.create(address("after", 1)).await, what);
    says(store.update(address("before", 2), Part::Main).await, what);
    let any = Preconditions::default();
    says(store.delete(&key("before"), &any).await, what);
    says(store.get(&key("before"), ReadAt::Latest).await, what);
    says(store.list(Kind::IPAddress, &all).await, what);
    says(store.barrier(Kind::IPAddress).await, what);
    says(store.watch(Kind::IPAddress, &watch).await.map(drop), what);
    assert!(store.health().unwrap_err().contains(what));
}

#[tokio::test]
async fn a_deleted_file_ends_the_watches_and_every_call_says_so() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    store.create(address("before", 1)).await.unwrap();
    let options = WatchOptions::all(WatchFrom::Start);
    let mut watch = store.watch(Kind::IPAddress, &options).await.unwrap();
    store.health().unwrap();
    fs::remove_file(folder.file()).unwrap();
    let ended = async { while watch.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
    all_say(&store, "ledger.db was deleted or moved away").await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn the_first_write_after_a_replacement_is_refused_and_in_neither_file() {
    let folder = Folder::new();
    let other = Folder::new();
    open(&other.file()).await.close().await.unwrap();
    let store = inattentive(&folder).await;
    fs::rename(folder.file(), aside(&folder)).unwrap();
    fs::copy(other.file(), folder.path().join("new.db")).unwrap();
    fs::rename(folder.path().join("new.db"), folder.file()).unwrap();
    let what = "ledger.db was replaced by another file";
    says(store.create(address("after", 1)).await, what);
    all_say(&store, what).await;
    // It stays so.
    fs::rename(aside(&folder), folder.file()).unwrap();
    all_say(&store, what).await;
    store.close().await.unwrap();
    let fresh = open(&other.file()).await;
    assert_eq!(list(&fresh, &ListOptions::default()).await, []);
    let store = open(&folder.file()).await;
    let names = list(&store, &ListOptions::default()).await;
    assert_eq!(names, [("before".to_owned(), 1.into())]);
}

#[tokio::test]
async fn what_was_written_until_then_is_in_the_old_file_even_without_its_log() {
    let folder = Folder::new();
    let store = inattentive(&folder).await;
    fs::rename(folder.file(), aside(&folder)).unwrap();
    let what = "ledger.db was deleted or moved away";
    says(store.get(&key("before"), ReadAt::Latest).await, what);
    says(store.create(address("after", 1)).await, what);
    // The server is killed: nothing is closed in order. Its log has the name of the old place.
    let copy = folder.path().join("copy.db");
    fs::copy(aside(&folder), &copy).unwrap();
    let old = open(&copy).await;
    let names = list(&old, &ListOptions::default()).await;
    assert_eq!(names, [("before".to_owned(), 1.into())]);
}

#[tokio::test]
async fn a_deleted_log_is_noticed_and_its_content_saved() {
    let folder = Folder::new();
    let store = inattentive(&folder).await;
    fs::remove_file(folder.path().join("ledger.db-wal")).unwrap();
    all_say(&store, "ledger.db-wal was deleted or moved away").await;
    store.close().await.unwrap();
    let store = open(&folder.file()).await;
    let names = list(&store, &ListOptions::default()).await;
    assert_eq!(names, [("before".to_owned(), 1.into())]);
}

#[tokio::test]
async fn opening_beside_a_process_whose_log_was_deleted_says_what_to_do() {
    let folder = Folder::new();
    let _first = inattentive(&folder).await;
    fs::remove_file(folder.path().join("ledger.db-wal")).unwrap();
    let Err(e) = SqliteStore::open(&folder.file(), &Options::default()).await else {
        panic!("it was opened");
    };
    assert!(matches!(e, OpenError::Failed { .. }), "{e:?}");
    let text = e.to_string();
    assert!(
        text.contains("its -wal file was deleted or replaced, end that process first"),
        "{text}"
    );
}
