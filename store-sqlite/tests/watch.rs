//! Watches: from memory, from the file, across processes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use ipledger_core::api::Kind;
use ipledger_core::store::{
    LabelSelector, ListOptions, Part, Preconditions, ReadAt, Revision, Store, StoreError,
    WatchEvent, WatchFrom, WatchOptions, WatchStream,
};
use ipledger_store_sqlite::{Options, SqliteStore};

async fn watch(store: &SqliteStore, from: WatchFrom) -> WatchStream {
    store
        .watch(Kind::IPAddress, &WatchOptions::all(from))
        .await
        .unwrap()
}

async fn take(stream: &mut WatchStream, n: usize) -> Vec<(&'static str, String, u64)> {
    let mut events = Vec::new();
    while events.len() < n {
        events.push(brief(&next_change(stream).await));
    }
    events
}

fn expected(events: &[(&'static str, &str, u64)]) -> Vec<(&'static str, String, u64)> {
    events
        .iter()
        .map(|(what, name, revision)| (*what, (*name).to_owned(), *revision))
        .collect()
}

async fn delete(store: &SqliteStore, name: &str) {
    store
        .delete(&key(name), &Preconditions::default())
        .await
        .unwrap();
}

/// Revisions 2 to 5: b created, a created, b updated, c created, c deleted at 6.
async fn history(store: &SqliteStore) {
    let b = store.create(address("b", 1)).await.unwrap();
    store.create(address("a", 1)).await.unwrap();
    store.update(with_value(&b, 2), Part::Main).await.unwrap();
    store.create(address("c", 1)).await.unwrap();
    delete(store, "c").await;
}

#[tokio::test]
async fn a_watch_from_the_start_tells_what_exists_then_that_it_is_synced_then_what_comes() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    history(&store).await;
    let mut stream = watch(&store, WatchFrom::Start).await;
    store.create(address("d", 1)).await.unwrap();
    let all = [
        ("applied", "a", 3),
        ("applied", "b", 4),
        ("synced", "", 6),
        ("applied", "d", 7),
    ];
    assert_eq!(take(&mut stream, 4).await, expected(&all));
}

#[tokio::test]
async fn a_watch_after_a_revision_tells_exactly_what_comes_after_it_also_from_the_file() {
    let folder = Folder::new();
    let all = [
        ("applied", "b", 2),
        ("applied", "a", 3),
        ("applied", "b", 4),
        ("applied", "c", 5),
        ("deleted", "c", 6),
    ];
    let store = open(&folder.file()).await;
    history(&store).await;
    for reopened in [false, true] {
        let store = if reopened {
            &open(&folder.file()).await
        } else {
            &store
        };
        for after in 1..=6 {
            let mut stream = watch(store, WatchFrom::After(Revision(after))).await;
            let mut rest = expected(&all[usize::try_from(after).unwrap() - 1..]);
            rest.push(("synced", String::new(), 6));
            assert_eq!(take(&mut stream, rest.len()).await, rest, "after {after}");
        }
    }
}

#[tokio::test]
async fn a_deleted_object_comes_with_its_last_state() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let mut object = address("a", 1);
    object
        .metadata
        .finalizers
        .push("example.com/hold".to_owned());
    store.create(object).await.unwrap();
    let mut stream = watch(&store, WatchFrom::Start).await;
    delete(&store, "a").await;
    let mut marked = store.get(&key("a"), ReadAt::Latest).await.unwrap();
    marked.metadata.finalizers.clear();
    let last = store.update(marked, Part::Main).await.unwrap();
    take(&mut stream, 3).await;
    assert_eq!(
        next_change(&mut stream).await,
        WatchEvent::Deleted(Arc::new(last))
    );
}

#[tokio::test]
async fn an_object_that_leaves_the_selector_is_deleted_for_the_watch() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let options = WatchOptions {
        labels: LabelSelector::parse("pool=x").unwrap(),
        ..WatchOptions::all(WatchFrom::Start)
    };
    let mut live = store.watch(Kind::IPAddress, &options).await.unwrap();
    let mut object = store.create(address("a", 1)).await.unwrap();
    for pool in ["y", "x", "x", "y", "y", "x"] {
        object
            .metadata
            .labels
            .insert("pool".to_owned(), pool.to_owned());
        object = store
            .update(with_value(&object, revision(&object).0), Part::Main)
            .await
            .unwrap();
    }
    delete(&store, "a").await;
    let seen = [
        ("applied", "a", 4),
        ("applied", "a", 5),
        ("deleted", "a", 6),
        ("applied", "a", 8),
        ("deleted", "a", 9),
    ];
    assert_eq!(
        brief(&next_event(&mut live).await),
        ("synced", String::new(), 1)
    );
    for want in expected(&seen) {
        let event = next_change(&mut live).await;
        assert_eq!(brief(&event), want);
        if let WatchEvent::Deleted(last) = event {
            assert_eq!(last.metadata.labels["pool"], "x", "not what the watch knew");
        }
    }
    // The same from the file.
    let store = open(&folder.file()).await;
    let from = WatchFrom::After(Revision(1));
    let mut late = store
        .watch(Kind::IPAddress, &WatchOptions { from, ..options })
        .await
        .unwrap();
    assert_eq!(take(&mut late, 5).await, expected(&seen));
}

#[tokio::test]
async fn a_watch_of_a_namespace_hears_nothing_of_others() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let claim = |namespace, name| object(Kind::IPAddressClaim, namespace, name, 1);
    store.create(claim("b", "one")).await.unwrap();
    store.create(claim("b-c", "two")).await.unwrap();
    let options = WatchOptions {
        namespace: Some("b".to_owned()),
        ..WatchOptions::all(WatchFrom::Start)
    };
    let mut stream = store.watch(Kind::IPAddressClaim, &options).await.unwrap();
    store.create(claim("a", "three")).await.unwrap();
    store.create(claim("b", "four")).await.unwrap();
    let seen = [
        ("applied", "one", 2),
        ("synced", "", 3),
        ("applied", "four", 5),
    ];
    assert_eq!(take(&mut stream, 3).await, expected(&seen));
}

#[tokio::test]
async fn a_revision_that_is_too_old_is_expired_and_one_from_the_future_is_retried() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    history(&store).await;
    assert_eq!(store.compact_to(Revision(4)).await.unwrap(), Revision(4));
    let from = |revision| WatchOptions::all(WatchFrom::After(Revision(revision)));
    let e = store.watch(Kind::IPAddress, &from(3)).await.err().unwrap();
    assert!(matches!(e, StoreError::Expired { .. }), "{e}");
    let e = store.watch(Kind::IPAddress, &from(7)).await.err().unwrap();
    assert!(matches!(e, StoreError::Unavailable { .. }), "{e}");
    let mut stream = watch(&store, WatchFrom::After(Revision(4))).await;
    let rest = [("applied", "c", 5), ("deleted", "c", 6), ("synced", "", 6)];
    assert_eq!(take(&mut stream, 3).await, expected(&rest));
}

#[tokio::test]
async fn what_existed_is_told_as_it_was_when_the_watch_was_opened() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let creates = (0..400).map(|n| store.create(address(&format!("ip-{n:03}"), "old")));
    let created: Vec<_> = join_all(creates)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let opened_at = store.barrier(Kind::IPAddress).await.unwrap();
    let mut stream = watch(&store, WatchFrom::Start).await;
    let mut seen = take(&mut stream, 1).await;
    // The rest is still to be read from the file: change it under the watch.
    for (n, object) in created.iter().enumerate() {
        let name = &object.metadata.name;
        match n % 5 {
            0 => drop(
                store
                    .update(with_value(object, "new"), Part::Main)
                    .await
                    .unwrap(),
            ),
            1 => delete(&store, name).await,
            2 => {
                delete(&store, name).await;
                store.create(address(name, "again")).await.unwrap();
            }
            3 => {
                let next = store
                    .update(with_value(object, "new"), Part::Main)
                    .await
                    .unwrap();
                store
                    .update(with_value(&next, "newer"), Part::Main)
                    .await
                    .unwrap();
            }
            _ => drop(store.create(address(&format!("new-{n}"), 1)).await.unwrap()),
        }
    }
    loop {
        match next_event(&mut stream).await {
            WatchEvent::Applied(object) => {
                assert_eq!(value(&object), "old");
                seen.push(brief(&WatchEvent::Applied(object)));
            }
            WatchEvent::Synced(at) => {
                assert_eq!(at, opened_at);
                break;
            }
            event => panic!("{event:?}"),
        }
    }
    let mut want: Vec<_> = created
        .iter()
        .map(|o| (revision(o).0, o.metadata.name.clone()))
        .collect();
    want.sort();
    let seen: Vec<_> = seen
        .into_iter()
        .map(|(_, name, revision)| (revision, name))
        .collect();
    assert_eq!(seen, want);
}

#[tokio::test]
async fn a_slow_watch_misses_nothing_and_is_cut_off_only_by_compaction() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let mut slow = watch(&store, WatchFrom::Start).await;
    let mut slower = watch(&store, WatchFrom::Start).await;
    let mut idle = store
        .watch(Kind::IPAddressClass, &WatchOptions::all(WatchFrom::Start))
        .await
        .unwrap();
    next_event(&mut slower).await;
    next_event(&mut idle).await;
    // More than is kept in memory.
    const MANY: u64 = 5_000;
    for chunk in 0..10 {
        let creates = (0..MANY / 10).map(|n| store.create(address(&format!("ip-{chunk}-{n}"), 1)));
        join_all(creates).await;
    }
    let events = take(&mut slow, usize::try_from(MANY + 1).unwrap()).await;
    let revisions: Vec<u64> = events.iter().map(|(_, _, revision)| *revision).collect();
    assert_eq!(revisions, (1..=MANY + 1).collect::<Vec<_>>());
    store.compact_to(Revision(MANY)).await.unwrap();
    let error = next(&mut slower).await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Expired { .. }), "{error}");
    assert!(
        next(&mut slower).await.is_none(),
        "something follows an error"
    );
    // A kind without events loses nothing.
    let class = object(Kind::IPAddressClass, "", "x", 1);
    let created = store.create(class).await.unwrap();
    assert_eq!(
        next_change(&mut idle).await,
        WatchEvent::Applied(Arc::new(created))
    );
}

#[tokio::test]
async fn an_idle_watch_learns_by_bookmarks_how_far_it_has_got() {
    let folder = Folder::new();
    let options = Options {
        bookmark_interval: Duration::from_millis(5),
        ..Options::default()
    };
    let store = open_with(&folder.file(), options).await;
    let all = WatchOptions::all(WatchFrom::Start);
    let mut stream = store.watch(Kind::IPAddressClass, &all).await.unwrap();
    assert_eq!(
        next_event(&mut stream).await,
        WatchEvent::Synced(Revision(1))
    );
    history(&store).await;
    let mut last = Revision(1);
    while last < Revision(6) {
        let WatchEvent::Bookmark(at) = next_event(&mut stream).await else {
            panic!()
        };
        assert!(at > last);
        last = at;
    }
    // No news, no bookmark.
    let more = tokio::time::timeout(Duration::from_millis(50), stream.next()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn a_barrier_is_reached_by_every_watch_without_another_write() {
    let folder = Folder::new();
    let options = Options {
        bookmark_interval: Duration::from_secs(3_600),
        ..Options::default()
    };
    let store = open_with(&folder.file(), options).await;
    let selecting = WatchOptions {
        labels: LabelSelector::parse("pool=x").unwrap(),
        ..WatchOptions::all(WatchFrom::Start)
    };
    let mut plain = watch(&store, WatchFrom::Start).await;
    let mut selected = store.watch(Kind::IPAddress, &selecting).await.unwrap();
    next_event(&mut plain).await;
    next_event(&mut selected).await;
    assert_eq!(store.barrier(Kind::IPAddress).await.unwrap(), Revision(1));
    let one = store.create(address("a", 1)).await.unwrap();
    store
        .create(object(Kind::IPAddressClass, "", "x", 1))
        .await
        .unwrap();
    let barrier = store.barrier(Kind::IPAddress).await.unwrap();
    assert_eq!(barrier, revision(&one));
    for stream in [&mut plain, &mut selected] {
        while next_event(stream).await.revision() < barrier {}
    }
    let late = watch(&store, WatchFrom::After(Revision(3)))
        .await
        .next()
        .await;
    assert_eq!(late, Some(Ok(WatchEvent::Synced(Revision(3)))));
}

#[tokio::test]
async fn writes_of_another_process_reach_a_watch_soon_and_in_order() {
    let folder = Folder::new();
    let one = open(&folder.file()).await;
    let two = open(&folder.file()).await;
    let mut stream = watch(&one, WatchFrom::Start).await;
    next_event(&mut stream).await;
    let mut took = Vec::new();
    for n in 0..30 {
        let writer = if n % 3 == 0 { &one } else { &two };
        let created = writer.create(address(&format!("ip-{n}"), n)).await.unwrap();
        let began = Instant::now();
        let event = next_change(&mut stream).await;
        assert_eq!(event, WatchEvent::Applied(Arc::new(created)));
        if n % 3 != 0 {
            took.push(began.elapsed());
        }
    }
    // 100 ms are promised; now and then the machine has something else to do.
    took.sort_unstable();
    assert!(
        took[took.len() / 2] < Duration::from_millis(100),
        "{took:?}"
    );
    assert!(took[took.len() - 1] < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn a_jump_of_the_revision_does_not_stop_a_watch() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    store.create(address("a", 1)).await.unwrap();
    let mut stream = watch(&store, WatchFrom::Start).await;
    take(&mut stream, 2).await;
    let mut connection = raw(&folder.file()).await;
    let jump = "UPDATE counters SET value = 1000000 WHERE name = 'revision'";
    sql(&mut connection, jump).await;
    store.create(address("b", 1)).await.unwrap();
    assert_eq!(
        take(&mut stream, 1).await,
        expected(&[("applied", "b", 1_000_001)])
    );
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_named_and_the_others_go_on() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    history(&store).await;
    store.close().await.unwrap();
    let mut connection = raw(&folder.file()).await;
    sql(
        &mut connection,
        "UPDATE events SET body = '{' WHERE revision = 3; \
         UPDATE objects SET body = '{' WHERE name = 'a'",
    )
    .await;
    let store = open(&folder.file()).await;
    let mut stream = watch(&store, WatchFrom::After(Revision(1))).await;
    let seen = [
        ("applied", "b", 2),
        ("unreadable", "a", 3),
        ("applied", "b", 4),
    ];
    assert_eq!(take(&mut stream, 3).await, expected(&seen));
    let mut stream = watch(&store, WatchFrom::Start).await;
    let seen = [
        ("unreadable", "a", 3),
        ("applied", "b", 4),
        ("synced", "", 6),
    ];
    assert_eq!(take(&mut stream, 3).await, expected(&seen));
    delete(&store, "a").await;
    let WatchEvent::Deleted(last) = next_change(&mut stream).await else {
        panic!()
    };
    assert_eq!(
        (last.metadata.name.as_str(), revision(&last)),
        ("a", Revision(7))
    );
    assert!(!last.metadata.uid.is_empty());
}

#[tokio::test]
async fn the_end_of_the_store_ends_its_watches() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let mut closed = watch(&store, WatchFrom::Start).await;
    next_event(&mut closed).await;
    store.close().await.unwrap();
    assert_eq!(next(&mut closed).await, None);
    let store = open(&folder.file()).await;
    let mut dropped = watch(&store, WatchFrom::Start).await;
    next_event(&mut dropped).await;
    drop(store);
    assert_eq!(next(&mut dropped).await, None);
}

#[tokio::test]
async fn watches_that_nobody_reads_on_hold_no_connection_back() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let created = store.create(address("a", 1)).await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = watch(&store, WatchFrom::Start).await;
        // It has begun to read the file, and is left there.
        assert!(stream.next().now_or_never().is_none());
        streams.push(stream);
    }
    assert_eq!(store.get(&key("a"), ReadAt::Latest).await.unwrap(), created);
    tokio::time::timeout(PATIENCE, store.close())
        .await
        .unwrap()
        .unwrap();
}

/// Applies a stream to an empty cache until it has reached a revision, checking its order.
async fn mirror(mut stream: WatchStream, until: Revision) -> BTreeMap<String, u64> {
    let mut cache = BTreeMap::new();
    let mut last = 0;
    let mut synced = 0;
    while last < until.0 {
        let event = next_event(&mut stream).await;
        let (what, name, revision) = brief(&event);
        match what {
            "applied" => drop(cache.insert(name, revision)),
            "deleted" => assert!(cache.remove(&name).is_some(), "{name} was not there"),
            "synced" => synced += 1,
            _ => {}
        }
        let ordered = if what == "synced" {
            revision >= last
        } else {
            revision > last
        };
        assert!(ordered, "{revision} after {last}");
        last = revision;
    }
    assert_eq!(synced, 1);
    cache
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_are_opened_at_any_moment_of_a_busy_ledger_all_end_in_the_same_state() {
    let folder = Folder::new();
    let stores = [
        Arc::new(open(&folder.file()).await),
        Arc::new(open(&folder.file()).await),
    ];
    let writers = (0..6).map(|w: usize| {
        let store = stores[w % 2].clone();
        tokio::spawn(async move {
            for n in 0..60_usize {
                let name = format!("ip-{}", (n * 7 + w) % 10);
                match store.get(&key(&name), ReadAt::Latest).await {
                    Ok(_) if n % 3 == 0 => {
                        let _ = store.delete(&key(&name), &Preconditions::default()).await;
                    }
                    Ok(object) => {
                        let _ = store.update(with_value(&object, n), Part::Main).await;
                    }
                    Err(_) => {
                        let _ = store.create(address(&name, n)).await;
                    }
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut streams = Vec::new();
    for n in 0..12 {
        let from = if n % 2 == 0 {
            WatchFrom::Start
        } else {
            WatchFrom::After(Revision(1))
        };
        streams.push(watch(&stores[n % 2], from).await);
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let end = stores[0].create(address("end", 1)).await.unwrap();
    let mirrors = streams
        .into_iter()
        .map(|stream| mirror(stream, revision(&end)));
    let page = stores[1]
        .list(Kind::IPAddress, &ListOptions::default())
        .await
        .unwrap();
    let listed: BTreeMap<_, _> = page
        .items
        .iter()
        .map(|o| (o.metadata.name.clone(), revision(o).0))
        .collect();
    for cache in join_all(mirrors).await {
        assert_eq!(cache, listed);
    }
}
