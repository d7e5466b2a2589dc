//! Many callers at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ipledger_core::api::{Kind, Object};
use ipledger_core::store::{
    Deletion, ListOptions, Part, Preconditions, ReadAt, Store, StoreError, WatchEvent,
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;
use crate::reader::{Reader, told};
use crate::under_writers::{apply, state};

cases![
    many_writers_on_one_counter_lose_nothing,
    two_clients_on_one_counter_lose_nothing,
    of_many_creates_of_one_name_exactly_one_wins,
    callers_that_choose_free_names_from_old_lists_never_share_one,
    of_many_deletes_of_one_object_exactly_one_happens,
    of_many_updates_from_one_revision_exactly_one_wins,
    the_last_of_many_finalizers_takes_the_object_away_once,
    spec_and_status_written_at_once_both_survive,
    sixty_four_callers_that_read_then_write_are_never_told_busy,
    a_create_that_another_changes_at_once_is_answered_as_it_was,
    a_caller_that_gives_up_leaves_the_store_whole,
];

const CLAIMS: Kind = Kind::IPAddressClaim;

/// Adds one to `spec.count`, again and again until no other writer comes between.
async fn count_up(store: &dyn Store, name: &str) -> Object {
    loop {
        let current = latest(store, &key(name)).await;
        // Also where one thread does all: here others may come between.
        tokio::task::yield_now().await;
        let count = current.fields["spec"]["count"].as_u64().unwrap_or(0);
        let next = current.field("spec", json!({"count": count + 1}));
        match store.update(next, Part::Main).await {
            Ok(stored) => return stored,
            Err(StoreError::Conflict { .. }) => {}
            Err(e) => panic!("{e}"),
        }
    }
}

async fn count_with(stores: &[Arc<dyn Store>], each: u64) {
    create(&*stores[0], claim("counter")).await;
    let mut writers = JoinSet::new();
    for store in stores {
        let store = store.clone();
        writers.spawn(async move {
            for _ in 0..each {
                count_up(&*store, "counter").await;
            }
        });
    }
    writers.join_all().await;
    let end = latest(&*stores[0], &key("counter")).await;
    let wanted = each * stores.len() as u64;
    assert_eq!(end.fields["spec"]["count"], json!(wanted));
    assert_eq!(end.metadata.generation, wanted + 1);
}

async fn many_writers_on_one_counter_lose_nothing(l: Ledger) {
    count_with(&vec![l.store.clone(); 8], 25).await;
}

async fn two_clients_on_one_counter_lose_nothing(l: Ledger) {
    if let Some(other) = l.second_client().await {
        count_with(
            &[l.store.clone(), other.clone(), l.store.clone(), other],
            25,
        )
        .await;
    }
}

/// Runs this many tasks at once and collects what they return.
async fn at_once<T, F>(n: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for i in 0..n {
        tasks.spawn(task(i));
    }
    tasks.join_all().await
}

async fn of_many_creates_of_one_name_exactly_one_wins(l: Ledger) {
    let other = l.second_client().await.unwrap_or(l.store.clone());
    for round in 0..5 {
        let name = format!("web-{round}");
        let results = at_once(16, |i| {
            let store = if i % 2 == 0 {
                l.store.clone()
            } else {
                other.clone()
            };
            let new = claim(&name).asking(&format!("class-{i}"));
            async move { store.create(new).await }
        })
        .await;
        let winner = latest(&*l.store, &key(&name)).await;
        let mut won = 0;
        for result in results {
            match result {
                Ok(created) => {
                    assert_eq!(created, winner);
                    won += 1;
                }
                Err(StoreError::AlreadyExists { uid, .. }) => assert_eq!(uid, winner.metadata.uid),
                Err(e) => panic!("{e}"),
            }
        }
        assert_eq!(won, 1);
    }
}

/// How a driver hands addresses out: it lists once, takes what is free as far as it knows, and where
/// somebody was quicker the next one.
async fn callers_that_choose_free_names_from_old_lists_never_share_one(l: Ledger) {
    let other = l.second_client().await.unwrap_or(l.store.clone());
    let old = list_claims(&*l.store).await.items.len();
    let taken = at_once(8, |i| {
        let store = if i % 2 == 0 {
            l.store.clone()
        } else {
            other.clone()
        };
        async move {
            let (mut free, mut taken) = (old.., Vec::new());
            while taken.len() < 8 {
                let name = format!("ip-{:03}", free.next().unwrap());
                match store.create(claim(&name)).await {
                    Ok(_) => taken.push(name),
                    Err(StoreError::AlreadyExists { .. }) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            taken
        }
    })
    .await;
    let mut taken = taken.concat();
    taken.sort();
    let wanted: Vec<String> = (0..64).map(|n| format!("ip-{n:03}")).collect();
    assert_eq!(taken, wanted, "each once, and no hole");
    assert_eq!(names(&list_claims(&*l.store).await.items), wanted);
}

async fn of_many_deletes_of_one_object_exactly_one_happens(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let mut reader = Reader::claims_from_now(&*l.store).await;
    let results = at_once(16, |_| {
        let store = l.store.clone();
        let by_uid = Preconditions {
            uid: Some(created.metadata.uid.clone()),
            revision: None,
        };
        async move { store.delete(&key("web"), &by_uid).await }
    })
    .await;
    let mut gone = 0;
    for result in results {
        match result {
            Ok(Deletion::Gone(_)) => gone += 1,
            Err(StoreError::NotFound { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(gone, 1);
    let end = create(&*l.store, claim("end")).await;
    assert_eq!(told(&reader.reach(revision(&end)).await), ["-web", "+end"]);
}

async fn of_many_updates_from_one_revision_exactly_one_wins(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let results = at_once(16, |i| {
        let store = l.store.clone();
        let mine = created.clone().asking(&format!("class-{i}")).phase("Bound");
        let part = if i % 2 == 0 { Part::Main } else { Part::Status };
        async move { store.update(mine, part).await }
    })
    .await;
    let winner = latest(&*l.store, &key("web")).await;
    let won: Vec<_> = results.iter().filter_map(|r| r.as_ref().ok()).collect();
    assert_eq!(won, [&winner]);
    for lost in results.iter().filter_map(|r| r.as_ref().err()) {
        assert_eq!(*lost, StoreError::Conflict { key: key("web") });
    }
}

async fn the_last_of_many_finalizers_takes_the_object_away_once(l: Ledger) {
    let finalizers: Vec<_> = (0..8).map(|i| format!("example.com/f-{i}")).collect();
    let held = finalizers.iter().fold(claim("web"), |o, f| o.hold(f));
    create(&*l.store, held).await;
    delete(&*l.store, &key("web")).await;
    let mut reader = Reader::claims_from_now(&*l.store).await;
    at_once(8, |i| {
        let (store, mine) = (l.store.clone(), finalizers[i].clone());
        async move {
            loop {
                let current = latest(&*store, &key("web")).await;
                match store.update(current.release(&mine), Part::Main).await {
                    Ok(_) => return,
                    Err(StoreError::Conflict { .. }) => {}
                    Err(e) => panic!("{e}"),
                }
            }
        }
    })
    .await;
    assert!(is_absent(&*l.store, &key("web")).await);
    let end = create(&*l.store, claim("end")).await;
    let told = told(&reader.reach(revision(&end)).await);
    assert_eq!(told[7..], ["-web", "+end"], "{told:?}");
}

async fn spec_and_status_written_at_once_both_survive(l: Ledger) {
    create(&*l.store, claim("web")).await;
    at_once(2, |i| {
        let store = l.store.clone();
        async move {
            for n in 1..=25 {
                loop {
                    let current = latest(&*store, &key("web")).await;
                    let (part, mine) = if i == 0 {
                        (Part::Main, current.field("spec", json!({"count": n})))
                    } else {
                        (Part::Status, current.field("status", json!({"count": n})))
                    };
                    match store.update(mine, part).await {
                        Ok(_) => break,
                        Err(StoreError::Conflict { .. }) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
            }
        }
    })
    .await;
    let end = latest(&*l.store, &key("web")).await;
    assert_eq!(
        (&end.fields["spec"]["count"], &end.fields["status"]["count"]),
        (&json!(25), &json!(25))
    );
    assert_eq!(end.metadata.generation, 26);
}

async fn sixty_four_callers_that_read_then_write_are_never_told_busy(l: Ledger) {
    let other = l.second_client().await.unwrap_or(l.store.clone());
    at_once(64, |i| {
        let store = if i % 2 == 0 {
            l.store.clone()
        } else {
            other.clone()
        };
        async move {
            let name = format!("c-{i}");
            create(&*store, claim(&name)).await;
            for n in 0..4 {
                let current = latest(&*store, &key(&name)).await;
                list(
                    &*store,
                    CLAIMS,
                    &ListOptions {
                        limit: Some(5),
                        ..Default::default()
                    },
                )
                .await;
                update(&*store, current.asking(&format!("class-{n}"))).await;
            }
        }
    })
    .await;
    let page = list_claims(&*l.store).await;
    assert_eq!(page.items.len(), 64);
    assert!(page.items.iter().all(|o| o.metadata.generation == 5));
}

/// A future that is dropped at any of its awaits has written everything or nothing, and the next
/// caller is not hurt.
async fn a_caller_that_gives_up_leaves_the_store_whole(l: Ledger) {
    let mut reader = Reader::claims_from_now(&*l.store).await;
    create(&*l.store, claim("counter")).await;
    for n in 0..60_u64 {
        let after = Duration::from_micros(n * 50);
        let name = format!("c-{n}");
        let current = latest(&*l.store, &key("counter")).await;
        let next = current.field("spec", json!({"count": n}));
        let _ = tokio::time::timeout(after, l.store.create(claim(&name))).await;
        let _ = tokio::time::timeout(after, l.store.update(next, Part::Main)).await;
        let _ = tokio::time::timeout(after, list_claims(&*l.store)).await;
        count_up(&*l.store, "counter").await;
    }
    let end = create(&*l.store, claim("end")).await;
    let mut objects = BTreeMap::new();
    apply(&mut objects, &reader.reach(revision(&end)).await);
    let listed = state(&list_claims(&*l.store).await.items);
    let settled: BTreeSet<_> = listed
        .keys()
        .filter(|n| !n.starts_with("c-"))
        .cloned()
        .collect();
    assert_eq!(
        settled,
        BTreeSet::from(["counter".to_owned(), "end".to_owned()])
    );
    // An abandoned create may still land after the list; what the watch saw must be in it.
    for (name, revision) in objects {
        assert_eq!(listed.get(&name), Some(&revision), "{name}");
    }
}

async fn a_create_that_another_changes_at_once_is_answered_as_it_was(l: Ledger) {
    let names: Vec<String> = (0..100).map(|n| format!("c-{n:03}")).collect();
    let mut reader = Reader::claims_from_now(&*l.store).await;
    let (store, waited_for) = (l.store.clone(), names.clone());
    let changer = tokio::spawn(async move {
        for name in &waited_for {
            let created = loop {
                match store.get(&key(name), ReadAt::Latest).await {
                    Ok(object) => break object,
                    Err(StoreError::NotFound { .. }) => tokio::task::yield_now().await,
                    Err(e) => panic!("{e}"),
                }
            };
            update(&*store, created.asking("other")).await;
        }
    });
    for name in &names {
        let created = create(&*l.store, claim(name)).await;
        assert_eq!(created.metadata.generation, 1);
        let born = loop {
            match reader.change().await {
                WatchEvent::Applied(object) if object.metadata.name == *name => break object,
                _ => {}
            }
        };
        assert_eq!(created, *born);
    }
    changer.await.unwrap();
}
