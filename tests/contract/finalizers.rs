//! The life of an object that something holds: marked, released, gone.

use ipledger_core::api::{Kind, Object};
use ipledger_core::store::{
    Deletion, ListOptions, Part, Preconditions, Revision, Store, WatchEvent,
};
use serde_json::json;

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;
use crate::reader::{Reader, told};

cases![
    a_delete_with_finalizers_only_marks,
    marking_adds_one_to_the_generation_and_changes_nothing_else,
    marking_twice_changes_nothing,
    a_marked_object_is_still_read_and_listed,
    a_marked_object_still_holds_its_name,
    preconditions_hold_for_a_marked_object_too,
    a_marked_object_takes_status_and_spec,
    a_marked_object_takes_no_new_finalizer,
    one_of_two_finalizers_keeps_the_object,
    the_last_finalizer_of_a_marked_object_takes_it_away,
    the_last_finalizer_may_go_together_with_other_changes,
    removing_the_last_finalizer_from_an_old_revision_is_a_conflict,
    removing_finalizers_of_an_unmarked_object_keeps_it,
    a_finalizer_can_be_added_before_the_mark,
    a_status_update_cannot_remove_a_finalizer,
    an_object_released_before_its_deletion_goes_at_once,
    a_name_is_free_once_the_last_finalizer_is_gone,
    a_watch_tells_the_whole_life_of_a_held_object,
];

async fn held(store: &dyn Store, name: &str) -> Object {
    create(store, claim(name).hold(HOLD)).await
}

async fn marked(store: &dyn Store, name: &str) -> Object {
    held(store, name).await;
    delete(store, &key(name)).await
}

async fn a_delete_with_finalizers_only_marks(l: Ledger) {
    let created = held(&*l.store, "web").await;
    match l
        .store
        .delete(&key("web"), &Preconditions::default())
        .await
        .unwrap()
    {
        Deletion::Finalizing(marked) => {
            assert!(marked.metadata.deletion_timestamp.is_some());
            assert_eq!(marked.metadata.finalizers, [HOLD]);
            assert!(revision(&marked) > revision(&created));
            assert_eq!(latest(&*l.store, &key("web")).await, marked);
        }
        other @ Deletion::Gone(_) => panic!("{other:?}"),
    }
}

async fn marking_adds_one_to_the_generation_and_changes_nothing_else(l: Ledger) {
    let created = held(&*l.store, "web").await;
    let current = update_status(&*l.store, created.phase("Bound")).await;
    let mut marked = delete(&*l.store, &key("web")).await;
    assert_eq!(marked.metadata.generation, 2);
    marked.metadata.generation = 1;
    marked.metadata.deletion_timestamp = None;
    marked.metadata.extra.remove("deletionGracePeriodSeconds");
    assert_eq!(marked.at(current.revision()), current);
}

async fn marking_twice_changes_nothing(l: Ledger) {
    let marked = marked(&*l.store, "web").await;
    let again = l.store.delete(&key("web"), &Preconditions::default()).await;
    assert_eq!(again, Ok(Deletion::Finalizing(marked.clone())));
    assert_eq!(latest(&*l.store, &key("web")).await, marked);
}

async fn a_marked_object_is_still_read_and_listed(l: Ledger) {
    let marked = marked(&*l.store, "web").await;
    assert_eq!(latest(&*l.store, &key("web")).await, marked);
    assert_eq!(list_claims(&*l.store).await.items, [marked]);
}

async fn a_marked_object_still_holds_its_name(l: Ledger) {
    let marked = marked(&*l.store, "web").await;
    match l.store.create(claim("web")).await {
        Err(ipledger_core::store::StoreError::AlreadyExists { uid, .. }) => {
            assert_eq!(uid, marked.metadata.uid);
        }
        other => panic!("{other:?}"),
    }
}

async fn preconditions_hold_for_a_marked_object_too(l: Ledger) {
    let marked = marked(&*l.store, "web").await;
    for preconditions in [
        Preconditions {
            uid: Some("another".to_owned()),
            revision: None,
        },
        Preconditions {
            uid: None,
            revision: Some(Revision(revision(&marked).0 - 1)),
        },
    ] {
        assert_fails!(
            l.store.delete(&key("web"), &preconditions).await,
            PreconditionFailed
        );
    }
}

async fn a_marked_object_takes_status_and_spec(l: Ledger) {
    let marked = marked(&*l.store, "web").await;
    let current = update_status(&*l.store, marked.phase("Lost")).await;
    let current = update(&*l.store, current.asking("other").label("a", "b")).await;
    assert_eq!(current.metadata.generation, 3);
    assert_eq!(current.fields["status"], json!({"phase": "Lost"}));
    assert!(current.metadata.is_deleting());
}

async fn a_marked_object_takes_no_new_finalizer(l: Ledger) {
    let marked = marked(&*l.store, "web").await;
    let refused = l.store.update(marked.clone().hold(ALSO), Part::Main).await;
    assert_eq!(invalid_fields(refused), ["metadata.finalizers"]);
    let swapped = marked.clone().release(HOLD).hold(ALSO);
    assert_eq!(
        invalid_fields(l.store.update(swapped, Part::Main).await),
        ["metadata.finalizers"]
    );
    assert_eq!(latest(&*l.store, &key("web")).await, marked);
}

async fn one_of_two_finalizers_keeps_the_object(l: Ledger) {
    create(&*l.store, claim("web").hold(HOLD).hold(ALSO)).await;
    let marked = delete(&*l.store, &key("web")).await;
    let left = update(&*l.store, marked.release(HOLD)).await;
    assert_eq!(latest(&*l.store, &key("web")).await, left);
    assert_eq!(left.metadata.finalizers, [ALSO]);
    update(&*l.store, left.release(ALSO)).await;
    assert!(is_absent(&*l.store, &key("web")).await);
}

async fn the_last_finalizer_of_a_marked_object_takes_it_away(l: Ledger) {
    let marked = marked(&*l.store, "web").await;
    let gone = update(&*l.store, marked.clone().release(HOLD)).await;
    assert!(
        revision(&gone) > revision(&marked),
        "the revision is that of the deletion"
    );
    assert_eq!(gone.metadata.uid, marked.metadata.uid);
    assert!(is_absent(&*l.store, &key("web")).await);
    assert!(list_claims(&*l.store).await.items.is_empty());
}

async fn the_last_finalizer_may_go_together_with_other_changes(l: Ledger) {
    let marked = marked(&*l.store, "web").await;
    update(
        &*l.store,
        marked.release(HOLD).label("a", "b").asking("other"),
    )
    .await;
    assert!(is_absent(&*l.store, &key("web")).await);
}

async fn removing_the_last_finalizer_from_an_old_revision_is_a_conflict(l: Ledger) {
    let marked = marked(&*l.store, "web").await;
    let current = update_status(&*l.store, marked.clone().phase("Lost")).await;
    assert_fails!(
        l.store.update(marked.release(HOLD), Part::Main).await,
        Conflict
    );
    assert_eq!(latest(&*l.store, &key("web")).await, current);
}

async fn removing_finalizers_of_an_unmarked_object_keeps_it(l: Ledger) {
    let created = held(&*l.store, "web").await;
    let updated = update(&*l.store, created.release(HOLD)).await;
    assert_eq!(latest(&*l.store, &key("web")).await, updated);
    assert!(updated.metadata.finalizers.is_empty());
}

async fn a_finalizer_can_be_added_before_the_mark(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    update(&*l.store, created.hold(HOLD)).await;
    assert!(delete(&*l.store, &key("web")).await.metadata.is_deleting());
    assert!(!is_absent(&*l.store, &key("web")).await);
}

async fn a_status_update_cannot_remove_a_finalizer(l: Ledger) {
    let marked = marked(&*l.store, "web").await;
    let updated = update_status(&*l.store, marked.release(HOLD).phase("Lost")).await;
    assert_eq!(updated.metadata.finalizers, [HOLD]);
    assert_eq!(latest(&*l.store, &key("web")).await, updated);
}

async fn an_object_released_before_its_deletion_goes_at_once(l: Ledger) {
    let created = held(&*l.store, "web").await;
    update(&*l.store, created.release(HOLD)).await;
    let deletion = l
        .store
        .delete(&key("web"), &Preconditions::default())
        .await
        .unwrap();
    assert!(matches!(deletion, Deletion::Gone(_)), "{deletion:?}");
}

async fn a_name_is_free_once_the_last_finalizer_is_gone(l: Ledger) {
    let old = marked(&*l.store, "web").await;
    update(&*l.store, old.clone().release(HOLD)).await;
    let new = held(&*l.store, "web").await;
    assert_ne!(new.metadata.uid, old.metadata.uid);
    assert_eq!(
        (new.metadata.generation, new.metadata.is_deleting()),
        (1, false)
    );
    assert_fails!(
        l.store.update(old.release(HOLD), Part::Main).await,
        PreconditionFailed
    );
    let page = list(&*l.store, Kind::IPAddressClaim, &ListOptions::default()).await;
    assert_eq!(page.items, [new]);
}

async fn a_watch_tells_the_whole_life_of_a_held_object(l: Ledger) {
    let mut reader = Reader::claims_from_now(&*l.store).await;
    let marked = marked(&*l.store, "web").await;
    let gone = update(&*l.store, marked.clone().release(HOLD)).await;
    let new = create(&*l.store, claim("web")).await;
    let events = reader.reach(revision(&new)).await;
    assert_eq!(told(&events), ["+web", "+web", "-web", "+web"]);
    let WatchEvent::Deleted(last) = &events[2] else {
        panic!("{events:?}")
    };
    assert_eq!(last.revision(), gone.revision());
    assert_eq!(last.metadata.uid, marked.metadata.uid);
    assert_eq!(
        last.metadata.deletion_timestamp,
        marked.metadata.deletion_timestamp
    );
}
