//! Deleting objects that nothing holds, and what must hold for it.

use ipledger_core::store::{Deletion, Part, Preconditions, Revision, StoreError};

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;

cases![
    a_delete_returns_the_last_state_with_the_revision_of_the_deletion,
    a_deleted_object_is_in_no_read_and_no_list,
    deleting_what_does_not_exist_is_not_found,
    deleting_twice_is_not_found_the_second_time,
    a_delete_with_the_uid_and_revision_of_the_object_happens,
    a_delete_with_another_uid_fails_its_precondition_and_writes_nothing,
    a_delete_with_an_old_revision_fails_its_precondition_and_writes_nothing,
    a_delete_needs_both_uid_and_revision_if_both_are_given,
    a_recreated_object_starts_anew,
    a_delete_by_the_old_uid_spares_the_object_recreated_under_its_name,
    a_delete_touches_no_other_object,
    an_object_can_be_deleted_and_recreated_many_times,
];

async fn a_delete_returns_the_last_state_with_the_revision_of_the_deletion(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let current = update_status(&*l.store, created.phase("Bound")).await;
    match l
        .store
        .delete(&key("web"), &Preconditions::default())
        .await
        .unwrap()
    {
        Deletion::Gone(last) => {
            assert!(revision(&last) > revision(&current));
            assert_eq!(last.clone().at(current.revision()), current);
        }
        other @ Deletion::Finalizing(_) => panic!("{other:?}"),
    }
}

async fn a_deleted_object_is_in_no_read_and_no_list(l: Ledger) {
    create_claims(&*l.store, &["a", "b"]).await;
    let gone = delete(&*l.store, &key("a")).await;
    assert!(is_absent(&*l.store, &key("a")).await);
    let page = list_claims(&*l.store).await;
    assert_eq!(names(&page.items), ["b"]);
    assert!(
        page.revision >= revision(&gone),
        "the list is as new as the deletion"
    );
}

async fn deleting_what_does_not_exist_is_not_found(l: Ledger) {
    let e = l.store.delete(&key("web"), &Preconditions::default()).await;
    assert_eq!(e, Err(StoreError::NotFound { key: key("web") }));
}

async fn deleting_twice_is_not_found_the_second_time(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    delete(&*l.store, &key("web")).await;
    let by_uid = Preconditions {
        uid: Some(created.metadata.uid),
        revision: None,
    };
    assert_fails!(l.store.delete(&key("web"), &by_uid).await, NotFound);
}

async fn a_delete_with_the_uid_and_revision_of_the_object_happens(l: Ledger) {
    for (with_uid, with_revision) in [(true, false), (false, true), (true, true)] {
        let created = create(&*l.store, claim("web")).await;
        let preconditions = Preconditions {
            uid: with_uid.then(|| created.metadata.uid.clone()),
            revision: created.revision().filter(|_| with_revision),
        };
        l.store.delete(&key("web"), &preconditions).await.unwrap();
        assert!(is_absent(&*l.store, &key("web")).await);
    }
}

async fn a_delete_with_another_uid_fails_its_precondition_and_writes_nothing(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let other = Preconditions {
        uid: Some("another".to_owned()),
        revision: None,
    };
    match l.store.delete(&key("web"), &other).await {
        Err(StoreError::PreconditionFailed { key: named, reason }) => {
            assert_eq!(named, key("web"));
            assert!(reason.contains("another"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(latest(&*l.store, &key("web")).await, created);
}

async fn a_delete_with_an_old_revision_fails_its_precondition_and_writes_nothing(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let current = update(&*l.store, created.clone().asking("other")).await;
    for seen in [revision(&created), Revision(revision(&current).0 + 1)] {
        let preconditions = Preconditions {
            uid: None,
            revision: Some(seen),
        };
        assert_fails!(
            l.store.delete(&key("web"), &preconditions).await,
            PreconditionFailed
        );
    }
    assert_eq!(latest(&*l.store, &key("web")).await, current);
}

async fn a_delete_needs_both_uid_and_revision_if_both_are_given(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let current = update(&*l.store, created.clone().asking("other")).await;
    for (uid, seen) in [
        ("another", current.revision()),
        (current.metadata.uid.as_str(), created.revision()),
    ] {
        let preconditions = Preconditions {
            uid: Some(uid.to_owned()),
            revision: seen,
        };
        assert_fails!(
            l.store.delete(&key("web"), &preconditions).await,
            PreconditionFailed
        );
    }
    assert_eq!(latest(&*l.store, &key("web")).await, current);
}

async fn a_recreated_object_starts_anew(l: Ledger) {
    let old = create(&*l.store, claim("web").label("a", "b")).await;
    let old = update(&*l.store, old.asking("other")).await;
    let old = update_status(&*l.store, old.phase("Bound")).await;
    let gone = delete(&*l.store, &key("web")).await;
    let new = create(&*l.store, claim("web")).await;
    assert_ne!(new.metadata.uid, old.metadata.uid);
    assert_eq!(new.metadata.generation, 1);
    assert!(new.metadata.labels.is_empty());
    assert_eq!(new.fields, claim("web").fields);
    assert!(revision(&new) > revision(&gone));
}

async fn a_delete_by_the_old_uid_spares_the_object_recreated_under_its_name(l: Ledger) {
    let old = create(&*l.store, claim("web")).await;
    delete(&*l.store, &key("web")).await;
    let new = create(&*l.store, claim("web")).await;
    let by_uid = Preconditions {
        uid: Some(old.metadata.uid),
        revision: None,
    };
    assert_fails!(
        l.store.delete(&key("web"), &by_uid).await,
        PreconditionFailed
    );
    assert_eq!(latest(&*l.store, &key("web")).await, new);
}

async fn a_delete_touches_no_other_object(l: Ledger) {
    let others = create_claims(&*l.store, &["we", "web-1", "web.1"]).await;
    let elsewhere = create(&*l.store, claim_in("team-b", "web")).await;
    create(&*l.store, claim("web")).await;
    delete(&*l.store, &key("web")).await;
    for other in others.iter().chain([&elsewhere]) {
        assert_eq!(latest(&*l.store, &other.key()).await, *other);
    }
}

async fn an_object_can_be_deleted_and_recreated_many_times(l: Ledger) {
    let mut last = Revision(0);
    for _ in 0..20 {
        let created = create(&*l.store, claim("web")).await;
        assert!(revision(&created) > last);
        let current = update(&*l.store, created.asking("other")).await;
        assert_fails!(l.store.create(claim("web")).await, AlreadyExists);
        last = revision(&delete(&*l.store, &key("web")).await);
        assert!(last > revision(&current));
        assert_fails!(l.store.update(current, Part::Main).await, NotFound);
    }
}
