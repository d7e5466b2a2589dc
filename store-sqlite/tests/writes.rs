//! Writes: group commit, durability, full disk, callers that give up.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use futures::future::join_all;
use ipledger_core::api::Kind;
use ipledger_core::store::{Deletion, ListOptions, Part, Preconditions, ReadAt, Store, StoreError};
use ipledger_store_sqlite::Options;
use sqlx::Connection;

#[tokio::test]
async fn an_object_is_created_read_updated_and_deleted() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let created = store.create(address("ip-1", 1)).await.unwrap();
    assert_eq!((created.metadata.generation, revision(&created).0), (1, 2));
    assert_eq!(
        store.get(&key("ip-1"), ReadAt::Latest).await.unwrap(),
        created
    );
    let updated = store
        .update(with_value(&created, 2), Part::Main)
        .await
        .unwrap();
    assert_eq!((updated.metadata.generation, revision(&updated).0), (2, 3));
    assert_eq!(
        store.get(&key("ip-1"), ReadAt::Latest).await.unwrap(),
        updated
    );
    let e = store
        .update(with_value(&created, 3), Part::Main)
        .await
        .unwrap_err();
    assert!(matches!(e, StoreError::Conflict { .. }), "{e}");
    let same = store.update(updated.clone(), Part::Main).await.unwrap();
    assert_eq!(same, updated);
    let Deletion::Gone(last) = store
        .delete(&key("ip-1"), &Preconditions::default())
        .await
        .unwrap()
    else {
        panic!("it has no finalizers")
    };
    assert_eq!(revision(&last).0, 4);
    let e = store.get(&key("ip-1"), ReadAt::Latest).await.unwrap_err();
    assert!(matches!(e, StoreError::NotFound { .. }), "{e}");
    assert_eq!(store.stats().writes, 3);
}

#[tokio::test]
async fn writers_that_wait_share_a_commit_and_each_gets_its_own_answer() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    // Half of them ask for a name that is taken.
    let creates = (0..64).map(|n| store.create(address(&format!("ip-{}", n / 2), n)));
    let answers = join_all(creates).await;
    for pair in answers.chunks(2) {
        let [Ok(first), Err(StoreError::AlreadyExists { uid, .. })] = pair else {
            panic!("{pair:?}")
        };
        assert_eq!(*uid, first.metadata.uid);
    }
    let stats = store.stats();
    assert_eq!(stats.writes, 32);
    assert!(stats.commits <= 8, "{stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_on_one_counter_lose_no_update() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder.file()).await);
    store.create(address("ip-1", 0)).await.unwrap();
    let writers = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut done = 0;
            while done < 10 {
                let current = store.get(&key("ip-1"), ReadAt::Latest).await.unwrap();
                let next = with_value(&current, value(&current).as_u64().unwrap() + 1);
                match store.update(next, Part::Main).await {
                    Ok(_) => done += 1,
                    Err(StoreError::Conflict { .. }) => {}
                    Err(e) => panic!("{e}"),
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let last = store.get(&key("ip-1"), ReadAt::Latest).await.unwrap();
    assert_eq!(value(&last), 80);
}

#[tokio::test]
async fn one_batch_may_create_update_delete_and_create_again() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let kept = store.create(address("ip-9", 1)).await.unwrap();
    let (preconditions, gone) = (Preconditions::default(), key("ip-9"));
    let (created, deleted, again, updated) = tokio::join!(
        store.create(address("ip-1", 1)),
        store.delete(&gone, &preconditions),
        store.create(address("ip-9", 2)),
        // Its revision is that of the object that the same batch deletes.
        store.update(with_value(&kept, 3), Part::Main),
    );
    assert_eq!(store.stats().commits, 2, "it was to be one batch");
    created.unwrap();
    deleted.unwrap();
    let again = again.unwrap();
    assert_ne!(again.metadata.uid, kept.metadata.uid);
    let e = updated.unwrap_err();
    assert!(matches!(e, StoreError::PreconditionFailed { .. }), "{e}");
    assert_eq!(
        store.get(&key("ip-9"), ReadAt::Latest).await.unwrap(),
        again
    );
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_opening_again_and_revisions_go_on() {
    let folder = Folder::new();
    let mut last = 1;
    for round in 0..3 {
        let store = open(&folder.file()).await;
        for n in 0..5 {
            let created = store
                .create(address(&format!("ip-{round}-{n}"), n))
                .await
                .unwrap();
            assert_eq!(revision(&created).0, last + 1);
            last += 1;
        }
        // The second time it is not closed in order.
        if round != 1 {
            store.close().await.unwrap();
        }
    }
    let store = open(&folder.file()).await;
    assert_eq!(list(&store, &ListOptions::default()).await.len(), 15);
}

#[tokio::test]
async fn a_large_batch_is_written_whole() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let creates = (0..600).map(|n| store.create(address(&format!("ip-{n}"), n)));
    for created in join_all(creates).await {
        created.unwrap();
    }
    assert_eq!(list(&store, &ListOptions::default()).await.len(), 600);
    let mut connection = raw(&folder.file()).await;
    assert_eq!(
        number(&mut connection, "SELECT count(*) FROM events").await,
        600
    );
    let revisions = "SELECT count(*) FROM objects AS o JOIN events AS e USING (revision) \
                     WHERE e.name = o.name AND e.body = o.body";
    assert_eq!(number(&mut connection, revisions).await, 600);
}

#[tokio::test]
async fn on_a_full_disk_writes_fail_with_advice_reads_go_on_and_space_heals_it() {
    let folder = Folder::new();
    let options = Options {
        max_page_count: Some(60),
        ..Options::default()
    };
    let store = open_with(&folder.file(), options).await;
    let mut written = Vec::new();
    let e = loop {
        let name = format!("ip-{}", written.len());
        match store.create(address(&name, "x".repeat(500))).await {
            Ok(object) => written.push((name, value(&object).clone())),
            Err(e) => break e,
        }
        assert!(written.len() < 1_000, "it is never full");
    };
    assert!(matches!(e, StoreError::Unavailable { .. }), "{e}");
    assert!(e.to_string().contains("free space"), "{e}");
    // Several in one batch all fail, and again.
    for _ in 0..3 {
        let more = (0..8).map(|n| store.create(address(&format!("more-{n}"), "x".repeat(2_000))));
        for answer in join_all(more).await {
            assert!(
                matches!(answer, Err(StoreError::Unavailable { .. })),
                "{answer:?}"
            );
        }
    }
    written.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(list(&store, &ListOptions::default()).await, written);
    // The history makes room.
    store
        .compact_to(revision_of_last(&store).await)
        .await
        .unwrap();
    store.create(address("ip-z", 1)).await.unwrap();
    assert_eq!(
        list(&store, &ListOptions::default()).await.len(),
        written.len() + 1
    );
    store.close().await.unwrap();
    // So does a larger disk.
    let store = open(&folder.file()).await;
    for n in 0..200 {
        store
            .create(address(&format!("more-{n}"), "x".repeat(500)))
            .await
            .unwrap();
    }
}

async fn revision_of_last(
    store: &ipledger_store_sqlite::SqliteStore,
) -> ipledger_core::store::Revision {
    store
        .list(Kind::IPAddress, &ListOptions::default())
        .await
        .unwrap()
        .revision
}

#[tokio::test]
async fn a_process_that_holds_the_lock_makes_writes_unavailable_but_not_reads() {
    let folder = Folder::new();
    let options = Options {
        busy_timeout: Duration::from_millis(50),
        ..Options::default()
    };
    let store = open_with(&folder.file(), options).await;
    let created = store.create(address("ip-1", 1)).await.unwrap();
    let mut connection = raw(&folder.file()).await;
    sql(&mut connection, "BEGIN IMMEDIATE").await;
    let e = store.create(address("ip-2", 1)).await.unwrap_err();
    assert!(matches!(e, StoreError::Unavailable { .. }), "{e}");
    assert!(e.to_string().contains("another process holds"), "{e}");
    assert_eq!(
        store.get(&key("ip-1"), ReadAt::Latest).await.unwrap(),
        created
    );
    sql(&mut connection, "ROLLBACK").await;
    store.create(address("ip-2", 1)).await.unwrap();
}

#[tokio::test]
async fn a_statement_that_fails_in_a_batch_leaves_nothing_of_it_behind() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let first = store.create(address("ip-1", 1)).await.unwrap();
    let mut connection = raw(&folder.file()).await;
    // It strikes after the events of the batch were inserted, and rolls the transaction back
    // itself, as SQLite does on some I/O errors.
    sql(
        &mut connection,
        "CREATE TRIGGER fault BEFORE INSERT ON objects WHEN new.name = 'ip-5' \
         BEGIN SELECT raise(ROLLBACK, 'injected'); END",
    )
    .await;
    let answers = join_all((2..9).map(|n| store.create(address(&format!("ip-{n}"), n)))).await;
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert_eq!(
        number(&mut connection, "SELECT count(*) FROM objects").await,
        1
    );
    assert_eq!(
        number(&mut connection, "SELECT count(*) FROM events").await,
        1
    );
    sql(&mut connection, "DROP TRIGGER fault").await;
    let next = store.create(address("ip-5", 1)).await.unwrap();
    assert_eq!(revision(&next).0, revision(&first).0 + 1);
}

#[tokio::test]
async fn after_a_commit_that_failed_the_outcome_is_unknown_and_the_store_goes_on() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let first = store.create(address("ip-1", 1)).await.unwrap();
    let mut connection = raw(&folder.file()).await;
    // A reference that is looked at only by COMMIT, which then fails inside the transaction.
    sql(
        &mut connection,
        "CREATE TABLE fault (id INTEGER REFERENCES fault_target (id) DEFERRABLE INITIALLY DEFERRED); \
         CREATE TABLE fault_target (id INTEGER PRIMARY KEY); \
         CREATE TRIGGER fault BEFORE INSERT ON objects WHEN new.name = 'ip-5' \
         BEGIN INSERT INTO fault VALUES (7); END",
    )
    .await;
    let (written, refused) = tokio::join!(
        store.create(address("ip-5", 1)),
        store.create(address("ip-1", 2))
    );
    assert!(
        matches!(&written, Err(StoreError::OutcomeUnknown { key: k, .. }) if *k == key("ip-5"))
    );
    // It was refused for what the failed batch had read.
    assert!(
        matches!(refused, Err(StoreError::Unavailable { .. })),
        "{refused:?}"
    );
    assert_eq!(
        number(&mut connection, "SELECT count(*) FROM events").await,
        1
    );
    sql(&mut connection, "DROP TRIGGER fault").await;
    let next = store.create(address("ip-5", 1)).await.unwrap();
    assert_eq!(revision(&next).0, revision(&first).0 + 1);
}

#[tokio::test]
async fn a_caller_that_gives_up_disturbs_nobody() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let mut connection = raw(&folder.file()).await;
    for round in 0..5 {
        // The lock is held, so that the writes wait inside the writer and in its queue.
        sql(&mut connection, "BEGIN IMMEDIATE").await;
        let kept = (0..4).map(|n| store.create(address(&format!("kept-{round}-{n}"), n)));
        let lost = (0..4).map(|n| store.create(address(&format!("lost-{round}-{n}"), n)));
        let (mut kept, mut lost) = (Box::pin(join_all(kept)), Box::pin(join_all(lost)));
        tokio::select! {
            biased;
            _ = &mut lost => panic!("the lock is held"),
            _ = &mut kept => panic!("the lock is held"),
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
        drop(lost);
        sql(&mut connection, "ROLLBACK").await;
        for answer in kept.await {
            answer.unwrap();
        }
    }
    let found = list(&store, &ListOptions::default()).await;
    assert_eq!(
        found
            .iter()
            .filter(|(name, _)| name.starts_with("kept"))
            .count(),
        20
    );
    // Whole or not at all, and the history agrees.
    let events = number(&mut connection, "SELECT count(*) FROM events").await;
    assert_eq!(usize::try_from(events).unwrap(), found.len());
    store.create(address("ip-1", 1)).await.unwrap();
}

#[tokio::test]
async fn a_store_can_be_dropped_while_writes_wait_and_watches_are_open() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder.file()).await);
    let options = ipledger_core::store::WatchOptions::all(ipledger_core::store::WatchFrom::Start);
    let mut watch = store.watch(Kind::IPAddress, &options).await.unwrap();
    let writing = {
        let store = store.clone();
        tokio::spawn(async move { store.create(address("ip-1", 1)).await })
    };
    drop(store);
    writing.await.unwrap().unwrap();
    while next(&mut watch).await.is_some() {}
}

#[tokio::test]
async fn an_object_that_is_too_large_is_refused_alone() {
    let folder = Folder::new();
    let options = Options {
        max_object_bytes: 2_000,
        ..Options::default()
    };
    let store = open_with(&folder.file(), options).await;
    let (large, small) = tokio::join!(
        store.create(address("ip-1", "x".repeat(2_000))),
        store.create(address("ip-2", "x".repeat(1_000)))
    );
    assert!(
        matches!(large, Err(StoreError::TooLarge { limit: 2_000, .. })),
        "{large:?}"
    );
    small.unwrap();
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_reported_can_be_deleted_and_stalls_no_other() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let uid = store.create(address("ip-1", 1)).await.unwrap().metadata.uid;
    store.create(address("ip-2", 1)).await.unwrap();
    let mut connection = raw(&folder.file()).await;
    for body in ["{", "{}", "\"\"", "{\"kind\": 1}"] {
        let set = format!("UPDATE objects SET body = '{body}' WHERE name = 'ip-1'");
        sql(&mut connection, set).await;
        let e = store.get(&key("ip-1"), ReadAt::Latest).await.unwrap_err();
        assert!(matches!(e, StoreError::Corrupt { .. }), "{e}");
        let page = store
            .list(Kind::IPAddress, &ListOptions::default())
            .await
            .unwrap();
        assert_eq!(page.items.len(), 1);
        assert!(
            matches!(&page.corrupt[..], [StoreError::Corrupt { key: k, .. }] if *k == key("ip-1"))
        );
        let e = store.create(address("ip-1", 2)).await.unwrap_err();
        assert!(
            matches!(&e, StoreError::AlreadyExists { uid: u, .. } if *u == uid),
            "{e}"
        );
    }
    connection.close().await.unwrap();
    let other = Preconditions {
        uid: Some("other".to_owned()),
        revision: None,
    };
    let e = store.delete(&key("ip-1"), &other).await.unwrap_err();
    assert!(matches!(e, StoreError::PreconditionFailed { .. }), "{e}");
    let this = Preconditions {
        uid: Some(uid.clone()),
        revision: None,
    };
    let Deletion::Gone(last) = store.delete(&key("ip-1"), &this).await.unwrap() else {
        panic!("what cannot be read has no finalizers")
    };
    assert_eq!(last.metadata.uid, uid);
    store.create(address("ip-1", 2)).await.unwrap();
}
