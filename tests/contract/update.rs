//! Compare-and-swap updates of one object.

use ipledger_core::api::{IPAddressClaimSpec, Timestamp};
use ipledger_core::store::{Part, Revision, StoreError, StoreExt};
use serde_json::json;
use tokio::runtime::Handle;

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;

cases![
    an_update_is_returned_as_it_is_stored,
    an_update_of_the_main_part_keeps_the_stored_status,
    an_update_of_the_status_keeps_everything_else,
    an_update_of_the_status_looks_at_nothing_else,
    a_status_that_is_left_out_is_removed,
    the_generation_counts_changes_of_what_is_asked_for,
    the_generation_does_not_count_metadata_and_status,
    an_update_from_an_old_revision_is_a_conflict_and_writes_nothing,
    an_update_of_the_status_from_an_old_revision_is_a_conflict,
    an_update_from_a_future_revision_is_a_conflict,
    an_update_without_a_revision_is_invalid_and_writes_nothing,
    an_update_with_another_uid_fails_its_precondition,
    an_update_of_what_does_not_exist_is_not_found,
    an_update_that_changes_nothing_writes_nothing,
    an_update_of_the_status_that_changes_nothing_writes_nothing,
    an_update_that_changes_nothing_from_an_old_revision_is_a_conflict,
    what_the_store_gives_is_never_taken_from_an_update,
    labels_and_annotations_that_are_left_out_are_removed,
    unknown_fields_that_are_left_out_are_removed,
    a_bad_label_in_an_update_is_invalid_and_writes_nothing,
    an_old_copy_never_overwrites_an_object_recreated_under_its_name,
    update_with_repeats_until_it_wins,
    update_with_that_declines_writes_nothing,
    a_hundred_updates_in_a_row_all_count,
];

async fn an_update_is_returned_as_it_is_stored(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let updated = update(&*l.store, created.clone().asking("other").label("a", "b")).await;
    assert_eq!(updated.fields["spec"]["className"], json!("other"));
    assert!(revision(&updated) > revision(&created));
    assert_eq!(latest(&*l.store, &key("web")).await, updated);
    let with_status = update_status(&*l.store, updated.phase("Pending")).await;
    assert_eq!(latest(&*l.store, &key("web")).await, with_status);
}

async fn an_update_of_the_main_part_keeps_the_stored_status(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let current = update_status(&*l.store, created.phase("Bound")).await;
    let other_status = current.clone().asking("x").phase("Lost");
    let current = update(&*l.store, other_status).await;
    assert_eq!(current.fields["status"], json!({"phase": "Bound"}));
    let mut no_status = current.asking("y");
    no_status.fields.remove("status");
    let current = update(&*l.store, no_status).await;
    assert_eq!(current.fields["status"], json!({"phase": "Bound"}));
}

async fn an_update_of_the_status_keeps_everything_else(l: Ledger) {
    let created = create(&*l.store, claim("web").label("a", "b").hold(HOLD)).await;
    let mut new = created
        .clone()
        .asking("other")
        .label("a", "x")
        .release(HOLD)
        .phase("Bound");
    new.fields.insert("extension".to_owned(), json!(1));
    new.metadata
        .annotations
        .insert("a".to_owned(), "b".to_owned());
    let updated = update_status(&*l.store, new).await;
    let expected = created.phase("Bound").at(updated.revision());
    assert_eq!(updated, expected);
    assert_eq!(latest(&*l.store, &key("web")).await, expected);
}

async fn an_update_of_the_status_looks_at_nothing_else(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let odd = created
        .clone()
        .label("not a label", "")
        .hold("not a finalizer")
        .phase("Bound");
    let updated = update_status(&*l.store, odd).await;
    assert_eq!(updated.metadata.labels, created.metadata.labels);
}

async fn a_status_that_is_left_out_is_removed(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let mut current = update_status(&*l.store, created.phase("Bound")).await;
    current.fields.remove("status");
    update_status(&*l.store, current).await;
    assert_eq!(
        latest(&*l.store, &key("web")).await.fields.get("status"),
        None
    );
}

async fn the_generation_counts_changes_of_what_is_asked_for(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let second = update(&*l.store, created.asking("other")).await;
    assert_eq!(second.metadata.generation, 2);
    let third = update(&*l.store, second.field("extension", json!(true))).await;
    assert_eq!(third.metadata.generation, 3);
}

async fn the_generation_does_not_count_metadata_and_status(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let current = update(&*l.store, created.label("a", "b").hold(HOLD)).await;
    let current = update_status(&*l.store, current.phase("Pending")).await;
    let current = update(&*l.store, current.release(HOLD)).await;
    assert_eq!(current.metadata.generation, 1);
}

async fn an_update_from_an_old_revision_is_a_conflict_and_writes_nothing(l: Ledger) {
    let old = create(&*l.store, claim("web")).await;
    let current = update(&*l.store, old.clone().asking("other")).await;
    let lost = l.store.update(old.asking("mine"), Part::Main).await;
    assert_eq!(lost, Err(StoreError::Conflict { key: key("web") }));
    assert_eq!(latest(&*l.store, &key("web")).await, current);
}

async fn an_update_of_the_status_from_an_old_revision_is_a_conflict(l: Ledger) {
    let old = create(&*l.store, claim("web")).await;
    let current = update(&*l.store, old.clone().label("a", "b")).await;
    assert_fails!(
        l.store.update(old.phase("Bound"), Part::Status).await,
        Conflict
    );
    assert_eq!(latest(&*l.store, &key("web")).await, current);
}

async fn an_update_from_a_future_revision_is_a_conflict(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let future = Some(Revision(revision(&created).0 + 1_000));
    let lost = l
        .store
        .update(created.clone().asking("x").at(future), Part::Main)
        .await;
    assert_fails!(lost, Conflict);
    assert_eq!(latest(&*l.store, &key("web")).await, created);
}

async fn an_update_without_a_revision_is_invalid_and_writes_nothing(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    for part in [Part::Main, Part::Status] {
        for missing in [None, Some(Revision(0))] {
            let blind = created.clone().asking("x").phase("Bound").at(missing);
            let refused = l.store.update(blind, part).await;
            assert_eq!(invalid_fields(refused), ["metadata.resourceVersion"]);
        }
    }
    assert_eq!(latest(&*l.store, &key("web")).await, created);
}

async fn an_update_with_another_uid_fails_its_precondition(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    for part in [Part::Main, Part::Status] {
        let mut other = created.clone().asking("x").phase("Bound");
        other.metadata.uid = "another".to_owned();
        assert_fails!(l.store.update(other, part).await, PreconditionFailed);
    }
    assert_eq!(latest(&*l.store, &key("web")).await, created);
}

async fn an_update_of_what_does_not_exist_is_not_found(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    delete(&*l.store, &key("web")).await;
    for part in [Part::Main, Part::Status] {
        let e = l.store.update(created.clone().phase("Bound"), part).await;
        assert_eq!(e, Err(StoreError::NotFound { key: key("web") }));
    }
    assert!(
        is_absent(&*l.store, &key("web")).await,
        "an update must not create"
    );
}

async fn an_update_that_changes_nothing_writes_nothing(l: Ledger) {
    let created = create(&*l.store, claim("web").label("a", "b").hold(HOLD)).await;
    let current = update_status(&*l.store, created.phase("Bound")).await;
    assert_eq!(update(&*l.store, current.clone()).await, current);
    assert_eq!(
        update(&*l.store, current.clone().phase("Lost")).await,
        current
    );
    assert_eq!(update(&*l.store, current.clone().hold(HOLD)).await, current);
    assert_eq!(latest(&*l.store, &key("web")).await, current);
}

async fn an_update_of_the_status_that_changes_nothing_writes_nothing(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let same = update_status(&*l.store, created.clone().asking("other")).await;
    assert_eq!(same, created);
    let current = update_status(&*l.store, created.phase("Bound")).await;
    assert_eq!(
        update_status(&*l.store, current.clone().label("x", "y")).await,
        current
    );
}

async fn an_update_that_changes_nothing_from_an_old_revision_is_a_conflict(l: Ledger) {
    let old = create(&*l.store, claim("web")).await;
    let other = update(&*l.store, old.clone().asking("other")).await;
    let back = update(&*l.store, other.asking("public")).await;
    let same_content = back.at(old.revision());
    assert_fails!(l.store.update(same_content, Part::Main).await, Conflict);
}

async fn what_the_store_gives_is_never_taken_from_an_update(l: Ledger) {
    let created = create(&*l.store, claim("web").hold(HOLD)).await;
    let mut new = created.clone().label("a", "b");
    new.metadata.uid.clear();
    new.metadata.generation = 40;
    new.metadata.creation_timestamp = None;
    new.metadata.deletion_timestamp = Some(Timestamp::from_unix(1));
    let updated = update(&*l.store, new).await;
    assert_eq!(
        updated,
        created.clone().label("a", "b").at(updated.revision())
    );
    let marked = delete(&*l.store, &key("web")).await;
    let mut unmarked = marked.clone().label("a", "c");
    unmarked.metadata.deletion_timestamp = None;
    let updated = update(&*l.store, unmarked).await;
    assert_eq!(
        updated.metadata.deletion_timestamp,
        marked.metadata.deletion_timestamp
    );
}

async fn labels_and_annotations_that_are_left_out_are_removed(l: Ledger) {
    let mut new = claim("web").label("a", "b").label("c", "d");
    new.metadata
        .annotations
        .insert("a".to_owned(), "b".to_owned());
    let mut current = create(&*l.store, new).await;
    current.metadata.labels.remove("a");
    current.metadata.annotations.clear();
    let updated = update(&*l.store, current).await.metadata;
    assert_eq!(updated.labels.into_keys().collect::<Vec<_>>(), ["c"]);
    assert!(updated.annotations.is_empty());
}

async fn unknown_fields_that_are_left_out_are_removed(l: Ledger) {
    let mut current = create(&*l.store, claim("web").field("extension", json!(1))).await;
    current.fields.remove("extension");
    update(&*l.store, current).await;
    assert_eq!(
        latest(&*l.store, &key("web")).await.fields.get("extension"),
        None
    );
}

async fn a_bad_label_in_an_update_is_invalid_and_writes_nothing(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let refused = l
        .store
        .update(created.clone().label("a", "b c"), Part::Main)
        .await;
    assert_eq!(invalid_fields(refused), ["metadata.labels"]);
    assert_eq!(latest(&*l.store, &key("web")).await, created);
}

async fn an_old_copy_never_overwrites_an_object_recreated_under_its_name(l: Ledger) {
    let old = create(&*l.store, claim("web")).await;
    delete(&*l.store, &key("web")).await;
    let new = create(&*l.store, claim("web")).await;
    for part in [Part::Main, Part::Status] {
        let stale = old.clone().asking("old").phase("Bound");
        assert_fails!(
            l.store.update(stale.clone(), part).await,
            PreconditionFailed
        );
        let mut without_uid = stale.clone();
        without_uid.metadata.uid.clear();
        assert_fails!(l.store.update(without_uid, part).await, Conflict);
        let with_new_revision = stale.at(new.revision());
        assert_fails!(
            l.store.update(with_new_revision, part).await,
            PreconditionFailed
        );
    }
    assert_eq!(latest(&*l.store, &key("web")).await, new);
}

async fn update_with_repeats_until_it_wins(l: Ledger) {
    create(&*l.store, claim("web")).await;
    let other = l.store.clone();
    let mut interferences = 0;
    let updated = l
        .store
        .update_with::<IPAddressClaimSpec, _>(&key("web"), Part::Main, |claim| {
            if interferences < 3 {
                interferences += 1;
                let label = interferences.to_string();
                let interfere = async {
                    let current = latest(&*other, &key("web")).await;
                    update(&*other, current.label("n", &label)).await;
                };
                tokio::task::block_in_place(|| Handle::current().block_on(interfere));
            }
            claim.spec.class_name = "mine".to_owned();
            true
        })
        .await
        .unwrap()
        .unwrap();
    assert_eq!(updated.spec.class_name, "mine");
    assert_eq!(
        updated.metadata.labels["n"], "3",
        "what the others wrote is kept"
    );
}

async fn update_with_that_declines_writes_nothing(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let declined = l
        .store
        .update_with::<IPAddressClaimSpec, _>(&key("web"), Part::Main, |claim| {
            claim.spec.class_name = "mine".to_owned();
            false
        })
        .await;
    assert_eq!(declined, Ok(None));
    assert_eq!(latest(&*l.store, &key("web")).await, created);
}

async fn a_hundred_updates_in_a_row_all_count(l: Ledger) {
    let mut current = create(&*l.store, claim("web")).await;
    for n in 0..100 {
        current = update(&*l.store, current.asking(&format!("class-{n}"))).await;
    }
    assert_eq!(current.metadata.generation, 101);
    assert_eq!(latest(&*l.store, &key("web")).await, current);
}
