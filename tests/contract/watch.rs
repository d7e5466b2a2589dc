//! Following a kind: what comes, in which order, from where.

use std::collections::BTreeMap;

use ipledger_core::api::{Kind, Object};
use ipledger_core::store::{
    Part, Preconditions, Revision, Store, WatchEvent, WatchFrom, WatchOptions,
};

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;
use crate::reader::{Reader, is_change, told};

cases![
    a_watch_from_the_start_brings_what_exists_then_synced_then_what_comes,
    a_watch_of_an_empty_store_is_synced_at_once,
    a_watch_from_a_revision_brings_exactly_what_comes_after_it,
    a_watch_from_the_last_revision_brings_only_synced_and_what_comes,
    synced_covers_every_write_acknowledged_before_the_watch_was_opened,
    each_write_is_one_event_with_the_object_as_it_was_stored,
    a_deleted_event_carries_the_last_state_with_the_revision_of_the_deletion,
    a_write_that_changes_nothing_makes_no_event,
    a_refused_write_makes_no_event,
    an_object_deleted_and_recreated_is_deleted_before_it_is_applied,
    a_watch_sees_only_its_kind,
    every_watch_sees_the_same_events_in_the_same_order,
    a_watch_that_is_dropped_ends_no_other,
    two_thousand_writes_in_a_row_all_arrive_in_order,
    a_watch_of_many_existing_objects_brings_each_once,
    the_events_of_a_watch_rebuild_the_list,
    a_barrier_covers_what_was_acknowledged_before,
    an_idle_watch_reaches_the_barrier_without_another_write,
    a_watch_opened_after_the_barrier_reaches_it_too,
    a_barrier_writes_nothing,
    a_write_of_one_client_reaches_the_watch_of_another,
];

async fn a_watch_from_the_start_brings_what_exists_then_synced_then_what_comes(l: Ledger) {
    let mut existing = create_claims(&*l.store, &["b", "a", "gone", "c"]).await;
    delete(&*l.store, &key("gone")).await;
    let mut reader = Reader::claims(&*l.store, WatchFrom::Start).await;
    let (initial, synced) = reader.synced().await;
    let mut initial: Vec<Object> = initial.into_iter().map(object).collect();
    initial.sort_by_key(Object::key);
    existing.remove(2);
    existing.sort_by_key(Object::key);
    assert_eq!(initial, existing);
    let next = create(&*l.store, claim("d")).await;
    assert!(revision(&next) > synced);
    assert_eq!(told(&reader.reach(revision(&next)).await), ["+d"]);
}

fn object(event: WatchEvent) -> Object {
    match event {
        WatchEvent::Applied(object) => Object::clone(&object),
        other => panic!("Applied is expected, not {other:?}"),
    }
}

async fn a_watch_of_an_empty_store_is_synced_at_once(l: Ledger) {
    for kind in Kind::ALL {
        let options = WatchOptions::all(WatchFrom::Start);
        let mut reader = Reader::open(&*l.store, kind, &options).await.unwrap();
        assert_eq!(reader.synced().await.0, []);
    }
}

/// A history with every sort of write.
async fn history(store: &dyn Store) -> Vec<Object> {
    let a = create(store, claim("a").hold(HOLD)).await;
    let b = create(store, claim("b")).await;
    let a2 = update(store, a.clone().asking("other")).await;
    let a3 = update_status(store, a2.clone().phase("Bound")).await;
    let a4 = delete(store, &key("a")).await;
    let b2 = delete(store, &key("b")).await;
    let a5 = update(store, a4.clone().release(HOLD)).await;
    let b3 = create(store, claim("b")).await;
    vec![a, b, a2, a3, a4, b2, a5, b3]
}

async fn a_watch_from_a_revision_brings_exactly_what_comes_after_it(l: Ledger) {
    let start = list_claims(&*l.store).await.revision;
    let writes = history(&*l.store).await;
    let all = ["+a", "+b", "+a", "+a", "+a", "-b", "-a", "+b"];
    let end = revision(&writes[7]);
    let from = [start].into_iter().chain(writes.iter().map(revision));
    for (skipped, from) in from.enumerate() {
        let mut reader = Reader::claims(&*l.store, WatchFrom::After(from)).await;
        let events = reader.reach(end).await;
        assert_eq!(told(&events), all[skipped..], "after {from}");
        let revisions: Vec<_> = events.iter().map(WatchEvent::revision).collect();
        let wanted: Vec<_> = writes[skipped..].iter().map(revision).collect();
        assert_eq!(revisions, wanted, "after {from}");
    }
}

async fn a_watch_from_the_last_revision_brings_only_synced_and_what_comes(l: Ledger) {
    let last = history(&*l.store).await.pop().unwrap();
    let mut reader = Reader::claims(&*l.store, WatchFrom::After(revision(&last))).await;
    let (events, synced) = reader.synced().await;
    assert_eq!(events, []);
    assert!(synced >= revision(&last));
    let next = create(&*l.store, claim("c")).await;
    assert_eq!(told(&reader.reach(revision(&next)).await), ["+c"]);
}

async fn synced_covers_every_write_acknowledged_before_the_watch_was_opened(l: Ledger) {
    let start = list_claims(&*l.store).await.revision;
    for n in 0..10 {
        let created = create(&*l.store, claim(&format!("c-{n}"))).await;
        for from in [WatchFrom::Start, WatchFrom::After(start)] {
            let mut reader = Reader::claims(&*l.store, from).await;
            let (events, synced) = reader.synced().await;
            assert_eq!(events.len(), n + 1);
            assert!(synced >= revision(&created));
        }
    }
}

async fn each_write_is_one_event_with_the_object_as_it_was_stored(l: Ledger) {
    let mut reader = Reader::claims_from_now(&*l.store).await;
    let writes = history(&*l.store).await;
    for written in &writes {
        let event = reader.change().await;
        assert_eq!(event.revision(), revision(written));
        if let WatchEvent::Applied(object) = event {
            assert_eq!(*object, *written);
        }
    }
}

async fn a_deleted_event_carries_the_last_state_with_the_revision_of_the_deletion(l: Ledger) {
    let created = create(&*l.store, claim("web").label("a", "b")).await;
    let current = update_status(&*l.store, created.phase("Bound")).await;
    let mut reader = Reader::claims_from_now(&*l.store).await;
    let gone = delete(&*l.store, &key("web")).await;
    match reader.change().await {
        WatchEvent::Deleted(last) => {
            assert_eq!(last.revision(), gone.revision());
            assert_eq!(Object::clone(&last).at(current.revision()), current);
        }
        other => panic!("{other:?}"),
    }
}

async fn a_write_that_changes_nothing_makes_no_event(l: Ledger) {
    create(&*l.store, claim("held").hold(HOLD)).await;
    let marked = delete(&*l.store, &key("held")).await;
    let created = create(&*l.store, claim("web")).await;
    let current = update_status(&*l.store, created.phase("Bound")).await;
    let mut reader = Reader::claims_from_now(&*l.store).await;
    update(&*l.store, current.clone()).await;
    update(&*l.store, current.clone().phase("Lost")).await;
    update_status(&*l.store, current.clone().asking("other")).await;
    l.store
        .delete(&marked.key(), &Preconditions::default())
        .await
        .unwrap();
    let end = create(&*l.store, claim("end")).await;
    assert_eq!(told(&reader.reach(revision(&end)).await), ["+end"]);
}

async fn a_refused_write_makes_no_event(l: Ledger) {
    let old = create(&*l.store, claim("web")).await;
    let current = update(&*l.store, old.clone().asking("other")).await;
    let mut reader = Reader::claims_from_now(&*l.store).await;
    assert_fails!(l.store.create(claim("web")).await, AlreadyExists);
    assert_fails!(l.store.create(claim("Bad")).await, Invalid);
    assert_fails!(l.store.update(old.asking("x"), Part::Main).await, Conflict);
    assert_fails!(
        l.store.update(current.label("a", "b c"), Part::Main).await,
        Invalid
    );
    let other = Preconditions {
        uid: Some("another".to_owned()),
        revision: None,
    };
    assert_fails!(
        l.store.delete(&key("web"), &other).await,
        PreconditionFailed
    );
    assert_fails!(
        l.store
            .delete(&key("absent"), &Preconditions::default())
            .await,
        NotFound
    );
    let end = create(&*l.store, claim("end")).await;
    assert_eq!(told(&reader.reach(revision(&end)).await), ["+end"]);
}

async fn an_object_deleted_and_recreated_is_deleted_before_it_is_applied(l: Ledger) {
    let mut reader = Reader::claims_from_now(&*l.store).await;
    let mut last = Revision(0);
    for _ in 0..5 {
        create(&*l.store, claim("web")).await;
        last = revision(&delete(&*l.store, &key("web")).await);
    }
    let events = reader.reach(last).await;
    let mut uids = Vec::new();
    for pair in events.chunks(2) {
        let [WatchEvent::Applied(new), WatchEvent::Deleted(gone)] = pair else {
            panic!("{events:?}");
        };
        assert_eq!(new.metadata.uid, gone.metadata.uid);
        uids.push(new.metadata.uid.clone());
    }
    assert_eq!(uids.len(), 5);
    assert!(uids.windows(2).all(|w| w[0] != w[1]));
}

async fn a_watch_sees_only_its_kind(l: Ledger) {
    let mut reader = Reader::claims_from_now(&*l.store).await;
    create(&*l.store, class("a")).await;
    create(&*l.store, address("b")).await;
    let end = create(&*l.store, claim("c")).await;
    delete(&*l.store, &class("a").key()).await;
    assert_eq!(told(&reader.reach(revision(&end)).await), ["+c"]);
}

async fn every_watch_sees_the_same_events_in_the_same_order(l: Ledger) {
    let start = list_claims(&*l.store).await.revision;
    let mut early = Reader::claims(&*l.store, WatchFrom::After(start)).await;
    let end = revision(history(&*l.store).await.last().unwrap());
    let mut late = Reader::claims(&*l.store, WatchFrom::After(start)).await;
    assert_eq!(early.reach(end).await, late.reach(end).await);
}

async fn a_watch_that_is_dropped_ends_no_other(l: Ledger) {
    let mut kept = Reader::claims_from_now(&*l.store).await;
    let dropped = Reader::claims_from_now(&*l.store).await;
    create(&*l.store, claim("a")).await;
    drop(dropped);
    let end = create(&*l.store, claim("b")).await;
    assert_eq!(told(&kept.reach(revision(&end)).await), ["+a", "+b"]);
}

async fn two_thousand_writes_in_a_row_all_arrive_in_order(l: Ledger) {
    let mut reader = Reader::claims_from_now(&*l.store).await;
    let mut current = create(&*l.store, claim("web")).await;
    let mut seen = 0;
    for n in 1..=2_000_u64 {
        if n % 200 == 0 {
            seen += reader.reach(revision(&current)).await.len();
            assert_eq!(seen as u64, n);
        }
        current = update(&*l.store, current.asking(&format!("class-{n}"))).await;
    }
}

async fn a_watch_of_many_existing_objects_brings_each_once(l: Ledger) {
    for n in 0..1_200 {
        create(&*l.store, claim(&format!("c-{n:04}"))).await;
    }
    let mut reader = Reader::claims(&*l.store, WatchFrom::Start).await;
    let (events, _) = reader.synced().await;
    let mut told = told(&events);
    told.sort();
    assert_eq!(
        told,
        (0..1_200).map(|n| format!("+c-{n:04}")).collect::<Vec<_>>()
    );
}

async fn the_events_of_a_watch_rebuild_the_list(l: Ledger) {
    let mut reader = Reader::claims(&*l.store, WatchFrom::Start).await;
    history(&*l.store).await;
    create_claims(&*l.store, &["x", "y"]).await;
    let end = l.store.barrier(Kind::IPAddressClaim).await.unwrap();
    let mut objects = BTreeMap::new();
    for event in reader.reach(end).await {
        match event {
            WatchEvent::Applied(object) => objects.insert(object.key(), Object::clone(&object)),
            WatchEvent::Deleted(object) => objects.remove(&object.key()),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(
        objects.into_values().collect::<Vec<_>>(),
        list_claims(&*l.store).await.items
    );
}

async fn a_barrier_covers_what_was_acknowledged_before(l: Ledger) {
    let mut reader = Reader::claims_from_now(&*l.store).await;
    for n in 0..10 {
        let created = create(&*l.store, claim(&format!("c-{n}"))).await;
        let barrier = l.store.barrier(Kind::IPAddressClaim).await.unwrap();
        assert!(barrier >= revision(&created));
        assert_eq!(reader.reach(barrier).await.len(), 1);
    }
}

async fn an_idle_watch_reaches_the_barrier_without_another_write(l: Ledger) {
    create(&*l.store, claim("web")).await;
    let everything = WatchOptions::all(WatchFrom::Start);
    let nothing = WatchOptions {
        labels: labels("absent=x"),
        ..everything.clone()
    };
    let kind = Kind::IPAddressClaim;
    let mut all = Reader::open(&*l.store, kind, &everything).await.unwrap();
    let mut none = Reader::open(&*l.store, kind, &nothing).await.unwrap();
    none.synced().await;
    for n in 0..3 {
        create(&*l.store, class(&format!("c-{n}"))).await;
        create(&*l.store, claim(&format!("c-{n}"))).await;
        create(&*l.store, address(&format!("c-{n}"))).await;
        let barrier = l.store.barrier(kind).await.unwrap();
        all.reach(barrier).await;
        assert_eq!(
            none.reach(barrier).await,
            [],
            "nothing that is not selected"
        );
    }
}

async fn a_watch_opened_after_the_barrier_reaches_it_too(l: Ledger) {
    create(&*l.store, claim("web")).await;
    delete(&*l.store, &key("web")).await;
    create(&*l.store, class("public")).await;
    for kind in Kind::ALL {
        let barrier = l.store.barrier(kind).await.unwrap();
        let options = WatchOptions::all(WatchFrom::Start);
        let mut reader = Reader::open(&*l.store, kind, &options).await.unwrap();
        reader.reach(barrier).await;
    }
}

async fn a_barrier_writes_nothing(l: Ledger) {
    create(&*l.store, claim("web")).await;
    let mut reader = Reader::claims_from_now(&*l.store).await;
    let first = l.store.barrier(Kind::IPAddressClaim).await.unwrap();
    let second = l.store.barrier(Kind::IPAddressClaim).await.unwrap();
    assert!(second >= first);
    let end = create(&*l.store, claim("end")).await;
    loop {
        let event = reader.event().await;
        if is_change(&event) {
            assert_eq!(event.revision(), revision(&end));
            break;
        }
    }
}

async fn a_write_of_one_client_reaches_the_watch_of_another(l: Ledger) {
    let Some(other) = l.second_client().await else {
        return;
    };
    let mut mine = Reader::claims_from_now(&*l.store).await;
    let mut theirs = Reader::claims_from_now(&*other).await;
    for n in 0..5 {
        create(&*l.store, claim(&format!("mine-{n}"))).await;
        let last = create(&*other, claim(&format!("theirs-{n}"))).await;
        let wanted = [format!("+mine-{n}"), format!("+theirs-{n}")];
        assert_eq!(told(&mine.reach(revision(&last)).await), wanted);
        assert_eq!(told(&theirs.reach(revision(&last)).await), wanted);
    }
}
