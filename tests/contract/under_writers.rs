//! Reading while many write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipledger_core::api::{Kind, Object};
use ipledger_core::store::{ListOptions, Revision, Store, WatchEvent, WatchFrom};
use tokio::task::JoinSet;

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;
use crate::reader::{Reader, key as event_key, told};

cases![
    revisions_that_are_read_never_go_back_under_writers,
    an_open_watch_sees_every_write_of_many_writers_in_order,
    watches_opened_under_writers_join_history_and_present_without_hole,
    lists_under_writers_are_one_moment_each,
    pages_under_writers_show_one_revision,
];

const CLAIMS: Kind = Kind::IPAddressClaim;

/// Eight writers: each creates, updates and deletes its own objects until it has made `rounds`.
fn writers(store: &Arc<dyn Store>, rounds: usize) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for writer in 0..8 {
        let store = store.clone();
        tasks.spawn(async move {
            for round in 0..rounds {
                let name = format!("w-{writer}-{}", round % 3);
                let created = create(&*store, claim(&name)).await;
                update(&*store, created.asking(&format!("class-{round}"))).await;
                if round + 3 < rounds {
                    delete(&*store, &key(&name)).await;
                }
            }
        });
    }
    tasks
}

/// What a list shows, in short.
pub(crate) fn state(objects: &[Object]) -> BTreeMap<String, Revision> {
    objects
        .iter()
        .map(|o| (o.metadata.name.clone(), revision(o)))
        .collect()
}

/// What the events make of a state.
pub(crate) fn apply(state: &mut BTreeMap<String, Revision>, events: &[WatchEvent]) {
    for event in events {
        let name = event_key(event).name;
        match event {
            WatchEvent::Applied(_) => state.insert(name, event.revision()),
            WatchEvent::Deleted(_) => {
                let known = state.remove(&name);
                assert!(
                    known.is_some(),
                    "{name} was deleted and had never been applied"
                );
                known
            }
            other => panic!("{other:?}"),
        };
    }
}

async fn revisions_that_are_read_never_go_back_under_writers(l: Ledger) {
    let mut tasks = writers(&l.store, 10);
    let mut last = Revision(0);
    while !tasks.is_empty() {
        let page = list_claims(&*l.store).await;
        let barrier = l.store.barrier(CLAIMS).await.unwrap();
        assert!(page.revision >= last, "{} after {last}", page.revision);
        last = page.revision;
        let newest = page.items.iter().map(revision).max().unwrap_or_default();
        assert!(
            newest <= page.revision,
            "{newest} in a list of {}",
            page.revision
        );
        assert!(
            barrier >= newest,
            "the barrier {barrier} does not cover {newest}"
        );
        while tasks.try_join_next().is_some() {}
        tokio::task::yield_now().await;
    }
}

async fn an_open_watch_sees_every_write_of_many_writers_in_order(l: Ledger) {
    let mut reader = Reader::claims_from_now(&*l.store).await;
    let tasks = writers(&l.store, 12);
    let reading = tokio::spawn(async move {
        let mut events = Vec::new();
        while told(&events).last().is_none_or(|t| t != "+end") {
            events.push(reader.change().await);
        }
        events
    });
    tasks.join_all().await;
    create(&*l.store, claim("end")).await;
    let events = reading.await.unwrap();
    // Per writer: 12 creates, 12 updates, 9 deletes.
    assert_eq!(events.len(), 8 * 33 + 1);
    let mut objects = BTreeMap::new();
    apply(&mut objects, &events);
    assert_eq!(objects, state(&list_claims(&*l.store).await.items));
}

async fn watches_opened_under_writers_join_history_and_present_without_hole(l: Ledger) {
    let start = list_claims(&*l.store).await.revision;
    let mut tasks = writers(&l.store, 12);
    let mut opened = Vec::new();
    while !tasks.is_empty() {
        let page = list_claims(&*l.store).await;
        let from = WatchFrom::After(page.revision);
        opened.push((state(&page.items), Reader::claims(&*l.store, from).await));
        let anew = Reader::claims(&*l.store, WatchFrom::Start).await;
        opened.push((BTreeMap::new(), anew));
        while tasks.try_join_next().is_some() {}
        // Enough of them; let the writers finish.
        if opened.len() >= 40 {
            while tasks.join_next().await.is_some() {}
        }
    }
    let end = create(&*l.store, claim("end")).await;
    let wanted = state(&list_claims(&*l.store).await.items);
    let mut whole = Reader::claims(&*l.store, WatchFrom::After(start)).await;
    opened.push((BTreeMap::new(), {
        let mut first = Reader::claims(&*l.store, WatchFrom::After(start)).await;
        assert_eq!(
            whole.reach(revision(&end)).await,
            first.reach(revision(&end)).await
        );
        Reader::claims(&*l.store, WatchFrom::After(start)).await
    }));
    for (mut objects, mut reader) in opened {
        apply(&mut objects, &reader.reach(revision(&end)).await);
        assert_eq!(objects, wanted);
    }
}

async fn lists_under_writers_are_one_moment_each(l: Ledger) {
    let start = list_claims(&*l.store).await.revision;
    let mut tasks = writers(&l.store, 10);
    let mut pages = Vec::new();
    while !tasks.is_empty() {
        if pages.len() < 200 {
            pages.push(list_claims(&*l.store).await);
        }
        while tasks.try_join_next().is_some() {}
        tokio::task::yield_now().await;
    }
    let end = create(&*l.store, claim("end")).await;
    let mut reader = Reader::claims(&*l.store, WatchFrom::After(start)).await;
    let events = reader.reach(revision(&end)).await;
    for page in pages {
        let (mut objects, until) = (BTreeMap::new(), page.revision);
        let then: Vec<_> = events
            .iter()
            .filter(|e| e.revision() <= until)
            .cloned()
            .collect();
        apply(&mut objects, &then);
        assert_eq!(state(&page.items), objects, "at {until}");
    }
}

async fn pages_under_writers_show_one_revision(l: Ledger) {
    let mut tasks = writers(&l.store, 10);
    while !tasks.is_empty() {
        let mut options = ListOptions {
            limit: Some(3),
            ..Default::default()
        };
        let (mut revisions, mut seen) = (BTreeSet::new(), BTreeSet::new());
        loop {
            let page = list(&*l.store, CLAIMS, &options).await;
            revisions.insert(page.revision);
            for object in page.items {
                assert!(revision(&object) <= page.revision);
                assert!(seen.insert(object.key()), "{} came twice", object.key());
            }
            options.continue_token = page.continue_token;
            if options.continue_token.is_none() {
                break;
            }
        }
        assert_eq!(revisions.len(), 1);
        while tasks.try_join_next().is_some() {}
        tokio::task::yield_now().await;
    }
}
