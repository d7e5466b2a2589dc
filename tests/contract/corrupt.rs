//! One object whose stored form cannot be read stalls nobody.

use ipledger_core::api::{Key, Kind};
use ipledger_core::store::{
    Deletion, ErrorClass, ListOptions, Part, Preconditions, ReadAt, StoreError, WatchEvent,
    WatchFrom,
};

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;
use crate::reader::{Reader, told};

cases![
    reading_an_unreadable_object_is_corrupt_and_names_it,
    a_list_names_the_unreadable_object_and_has_all_others,
    pages_go_past_an_unreadable_object_and_name_it_once,
    a_watch_from_the_start_names_the_unreadable_object_and_brings_all_others,
    an_open_watch_goes_on_past_an_unreadable_object,
    an_unreadable_object_cannot_be_updated,
    an_unreadable_object_still_holds_its_name,
    an_unreadable_object_can_be_deleted_and_created_anew,
    a_watch_hears_that_an_unreadable_object_was_deleted,
    all_objects_unreadable_is_still_a_list,
];

/// `a`, `c` and an unreadable `bad`; `false` if the backend cannot name such a one.
async fn damaged(l: &Ledger) -> bool {
    create_claims(&*l.store, &["a", "bad", "c"]).await;
    l.damage(&key("bad")).await
}

fn corrupt_key(error: &StoreError) -> Key {
    match error {
        StoreError::Corrupt { key, .. } => key.clone(),
        other => panic!("Corrupt is expected, not {other:?}"),
    }
}

async fn reading_an_unreadable_object_is_corrupt_and_names_it(l: Ledger) {
    if !damaged(&l).await {
        return;
    }
    let e = l.store.get(&key("bad"), ReadAt::Latest).await.unwrap_err();
    assert_eq!(corrupt_key(&e), key("bad"));
    assert_eq!(e.class(), ErrorClass::Permanent);
    assert_eq!(latest(&*l.store, &key("a")).await.metadata.name, "a");
}

async fn a_list_names_the_unreadable_object_and_has_all_others(l: Ledger) {
    if !damaged(&l).await {
        return;
    }
    let page = list_claims(&*l.store).await;
    assert_eq!(names(&page.items), ["a", "c"]);
    assert_eq!(
        page.corrupt.iter().map(corrupt_key).collect::<Vec<_>>(),
        [key("bad")]
    );
}

async fn pages_go_past_an_unreadable_object_and_name_it_once(l: Ledger) {
    create_claims(&*l.store, &["a", "b", "c", "d", "e"]).await;
    for name in ["a", "c", "e"] {
        if !l.damage(&key(name)).await {
            return;
        }
    }
    for limit in 1..=3 {
        let mut options = ListOptions {
            limit: Some(limit),
            ..Default::default()
        };
        let (mut items, mut corrupt) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            let page = list(&*l.store, Kind::IPAddressClaim, &options).await;
            items.extend(page.items);
            corrupt.extend(page.corrupt.iter().map(corrupt_key));
            options.continue_token = page.continue_token;
            if options.continue_token.is_none() {
                break;
            }
        }
        assert_eq!(names(&items), ["b", "d"], "{limit}");
        assert_eq!(corrupt, [key("a"), key("c"), key("e")], "{limit}");
    }
}

async fn a_watch_from_the_start_names_the_unreadable_object_and_brings_all_others(l: Ledger) {
    if !damaged(&l).await {
        return;
    }
    let mut reader = Reader::claims(&*l.store, WatchFrom::Start).await;
    let mut told = told(&reader.synced().await.0);
    told.sort();
    assert_eq!(told, ["+a", "+c", "?bad"]);
}

async fn an_open_watch_goes_on_past_an_unreadable_object(l: Ledger) {
    create_claims(&*l.store, &["a", "bad"]).await;
    let mut reader = Reader::claims_from_now(&*l.store).await;
    if !l.damage(&key("bad")).await {
        return;
    }
    let last = create(&*l.store, claim("c")).await;
    let told = told(&reader.reach(revision(&last)).await);
    // A backend that is damaged from below cannot know it, so it may be silent about `bad`.
    assert_eq!(
        told.into_iter().filter(|e| e != "?bad").collect::<Vec<_>>(),
        ["+c"]
    );
}

async fn an_unreadable_object_cannot_be_updated(l: Ledger) {
    let created = create(&*l.store, claim("bad")).await;
    if !l.damage(&key("bad")).await {
        return;
    }
    for part in [Part::Main, Part::Status] {
        let e = l
            .store
            .update(created.clone().asking("x").phase("Bound"), part)
            .await;
        assert_eq!(corrupt_key(&e.unwrap_err()), key("bad"));
    }
}

async fn an_unreadable_object_still_holds_its_name(l: Ledger) {
    if !damaged(&l).await {
        return;
    }
    assert_fails!(l.store.create(claim("bad")).await, AlreadyExists);
}

async fn an_unreadable_object_can_be_deleted_and_created_anew(l: Ledger) {
    if !damaged(&l).await {
        return;
    }
    match l
        .store
        .delete(&key("bad"), &Preconditions::default())
        .await
        .unwrap()
    {
        Deletion::Gone(last) => assert_eq!(last.key(), key("bad")),
        other @ Deletion::Finalizing(_) => panic!("{other:?}"),
    }
    assert!(is_absent(&*l.store, &key("bad")).await);
    let new = create(&*l.store, claim("bad")).await;
    assert_eq!(latest(&*l.store, &key("bad")).await, new);
    let page = list_claims(&*l.store).await;
    assert_eq!((page.items.len(), page.corrupt.len()), (3, 0));
}

async fn a_watch_hears_that_an_unreadable_object_was_deleted(l: Ledger) {
    if !damaged(&l).await {
        return;
    }
    let mut reader = Reader::claims(&*l.store, WatchFrom::Start).await;
    reader.synced().await;
    let gone = delete(&*l.store, &key("bad")).await;
    let event = reader.change().await;
    assert_eq!(event.revision(), revision(&gone));
    match event {
        WatchEvent::Deleted(last) => assert_eq!(last.key(), key("bad")),
        other => panic!("{other:?}"),
    }
}

async fn all_objects_unreadable_is_still_a_list(l: Ledger) {
    create_claims(&*l.store, &["a", "b"]).await;
    if !l.damage(&key("a")).await {
        return;
    }
    if !l.damage(&key("b")).await {
        return;
    }
    let page = list_claims(&*l.store).await;
    assert_eq!((page.items.len(), page.corrupt.len()), (0, 2));
    assert_eq!(page.continue_token, None);
    let other = create(&*l.store, class("public")).await;
    assert_eq!(latest(&*l.store, &other.key()).await, other);
}
