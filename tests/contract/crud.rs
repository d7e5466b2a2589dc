//! Creating and reading one object.

use ipledger_core::api::{Key, Timestamp};
use ipledger_core::store::rules::OPERATION;
use ipledger_core::store::{ReadAt, Revision, Store, StoreError, StoreExt};
use serde_json::{Value, json};

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;

cases![
    a_created_object_is_returned_as_it_is_stored,
    a_created_object_gets_uid_creation_time_generation_and_revision,
    no_two_objects_share_a_uid,
    each_write_has_a_higher_revision_than_the_one_before,
    reading_what_does_not_exist_is_not_found_and_names_it,
    creating_what_exists_answers_with_the_uid_of_the_holder,
    creating_what_exists_answers_with_the_operation_id_of_the_holder,
    a_refused_create_leaves_the_existing_object_alone,
    one_name_in_two_namespaces_is_two_objects,
    one_name_in_two_kinds_is_two_objects,
    a_create_drops_the_status,
    a_create_takes_no_mark_generation_or_time_from_the_caller,
    a_create_keeps_labels_annotations_and_finalizers,
    a_create_with_a_uid_or_a_revision_is_invalid,
    a_create_with_a_bad_name_or_namespace_is_invalid,
    a_namespaced_kind_needs_a_namespace_and_a_cluster_kind_has_none,
    bad_labels_annotations_and_finalizers_are_named,
    names_of_the_greatest_length_are_possible,
    a_refused_create_leaves_nothing_behind,
    fields_that_nobody_knows_survive_at_every_level,
    text_survives_exactly,
    numbers_survive_exactly,
    numbers_of_64_bits_without_sign_survive_exactly,
    an_object_without_spec_is_possible,
    a_read_at_a_revision_that_is_reached_answers,
    a_read_at_a_future_revision_is_unavailable_and_never_not_found,
    a_typed_object_is_read_as_it_was_created,
];

async fn a_created_object_is_returned_as_it_is_stored(l: Ledger) {
    let created = create(&*l.store, claim("web").label("a", "b")).await;
    assert_eq!(latest(&*l.store, &key("web")).await, created);
    assert_eq!(list_claims(&*l.store).await.items, [created]);
}

async fn a_created_object_gets_uid_creation_time_generation_and_revision(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    assert!(!created.metadata.uid.is_empty());
    assert_eq!(created.metadata.generation, 1);
    assert!(created.metadata.creation_timestamp.is_some());
    assert_eq!(created.metadata.deletion_timestamp, None);
    assert!(revision(&created) > Revision(0));
}

async fn no_two_objects_share_a_uid(l: Ledger) {
    let mut uids = std::collections::BTreeSet::new();
    for name in ["a", "b", "a", "b", "a"] {
        if !is_absent(&*l.store, &key(name)).await {
            delete(&*l.store, &key(name)).await;
        }
        let uid = create(&*l.store, claim(name)).await.metadata.uid;
        assert!(uids.insert(uid.clone()), "{uid} was given twice");
    }
}

async fn each_write_has_a_higher_revision_than_the_one_before(l: Ledger) {
    let a = create(&*l.store, claim("a").hold(HOLD)).await;
    let b = create(&*l.store, claim("b")).await;
    let a2 = update(&*l.store, a.clone().asking("other")).await;
    let a3 = update_status(&*l.store, a2.clone().phase("Pending")).await;
    let a4 = delete(&*l.store, &a.key()).await;
    let a5 = update(&*l.store, a4.clone().release(HOLD)).await;
    let b2 = delete(&*l.store, &b.key()).await;
    let revisions: Vec<_> = [&a, &b, &a2, &a3, &a4, &a5, &b2].map(revision).into();
    assert!(revisions.windows(2).all(|w| w[0] < w[1]), "{revisions:?}");
}

async fn reading_what_does_not_exist_is_not_found_and_names_it(l: Ledger) {
    assert!(is_absent(&*l.store, &key("web")).await);
    assert!(is_absent(&*l.store, &Key::address("ip-192-0-2-1")).await);
    let created = create(&*l.store, claim("web")).await;
    delete(&*l.store, &created.key()).await;
    assert!(is_absent(&*l.store, &key("web")).await);
}

async fn creating_what_exists_answers_with_the_uid_of_the_holder(l: Ledger) {
    let first = create(&*l.store, claim("web")).await;
    let expected = StoreError::AlreadyExists {
        key: key("web"),
        uid: first.metadata.uid,
        operation: None,
    };
    assert_eq!(l.store.create(claim("web")).await, Err(expected));
}

async fn creating_what_exists_answers_with_the_operation_id_of_the_holder(l: Ledger) {
    let mut mine = claim("web");
    mine.metadata
        .annotations
        .insert(OPERATION.to_owned(), "op-1".to_owned());
    create(&*l.store, mine.clone()).await;
    match l.store.create(mine).await {
        Err(StoreError::AlreadyExists { operation, .. }) => {
            assert_eq!(operation.as_deref(), Some("op-1"));
        }
        other => panic!("{other:?}"),
    }
}

async fn a_refused_create_leaves_the_existing_object_alone(l: Ledger) {
    let first = create(&*l.store, claim("web")).await;
    assert_fails!(
        l.store.create(claim("web").asking("other")).await,
        AlreadyExists
    );
    assert_eq!(latest(&*l.store, &key("web")).await, first);
}

async fn one_name_in_two_namespaces_is_two_objects(l: Ledger) {
    let a = create(&*l.store, claim_in("team-a", "web").asking("a")).await;
    let b = create(&*l.store, claim_in("team-b", "web").asking("b")).await;
    delete(&*l.store, &a.key()).await;
    assert!(is_absent(&*l.store, &a.key()).await);
    assert_eq!(latest(&*l.store, &b.key()).await, b);
}

async fn one_name_in_two_kinds_is_two_objects(l: Ledger) {
    let class = create(&*l.store, class("public")).await;
    let address = create(&*l.store, address("public")).await;
    delete(&*l.store, &class.key()).await;
    assert_eq!(latest(&*l.store, &address.key()).await, address);
}

async fn a_create_drops_the_status(l: Ledger) {
    create(&*l.store, claim("web").phase("Bound")).await;
    assert_eq!(
        latest(&*l.store, &key("web")).await.fields.get("status"),
        None
    );
}

async fn a_create_takes_no_mark_generation_or_time_from_the_caller(l: Ledger) {
    let mut new = claim("web").hold(HOLD);
    new.metadata.generation = 9;
    new.metadata.deletion_timestamp = Some(Timestamp::from_unix(1));
    new.metadata.creation_timestamp = Some(Timestamp::from_unix(1));
    let created = create(&*l.store, new).await.metadata;
    assert_eq!((created.generation, created.deletion_timestamp), (1, None));
    assert_ne!(created.creation_timestamp, Some(Timestamp::from_unix(1)));
}

async fn a_create_keeps_labels_annotations_and_finalizers(l: Ledger) {
    let mut new = claim("web")
        .label("example.com/a", "b")
        .hold(HOLD)
        .hold(ALSO)
        .hold(HOLD);
    new.metadata.annotations.insert(
        "example.com/Note".to_owned(),
        "any text, ünd mehr".to_owned(),
    );
    create(&*l.store, new.clone()).await;
    let stored = latest(&*l.store, &key("web")).await.metadata;
    assert_eq!(stored.labels, new.metadata.labels);
    assert_eq!(stored.annotations, new.metadata.annotations);
    assert_eq!(stored.finalizers, [HOLD, ALSO], "in their order, each once");
}

async fn a_create_with_a_uid_or_a_revision_is_invalid(l: Ledger) {
    let mut with_uid = claim("web");
    with_uid.metadata.uid = "mine".to_owned();
    assert_eq!(
        invalid_fields(l.store.create(with_uid).await),
        ["metadata.uid"]
    );
    let with_revision = claim("web").at(Some(Revision(1)));
    let refused = l.store.create(with_revision).await;
    assert_eq!(invalid_fields(refused), ["metadata.resourceVersion"]);
}

async fn a_create_with_a_bad_name_or_namespace_is_invalid(l: Ledger) {
    let long = "a".repeat(254);
    for name in [
        "", "Web", "a_b", "a/b", "-a", "a-", "a..b", "ä", " a", "a\0", &long,
    ] {
        let refused = l.store.create(claim(name)).await;
        assert_eq!(invalid_fields(refused), ["metadata.name"], "{name:?}");
    }
    let long = "a".repeat(64);
    for namespace in ["Team", "a.b", "a/b", "-a", &long] {
        let refused = l.store.create(claim_in(namespace, "web")).await;
        assert_eq!(
            invalid_fields(refused),
            ["metadata.namespace"],
            "{namespace:?}"
        );
    }
}

async fn a_namespaced_kind_needs_a_namespace_and_a_cluster_kind_has_none(l: Ledger) {
    let refused = l.store.create(claim_in("", "web")).await;
    assert_eq!(invalid_fields(refused), ["metadata.namespace"]);
    let mut class = class("public");
    class.metadata.namespace = TEAM.to_owned();
    assert_eq!(
        invalid_fields(l.store.create(class).await),
        ["metadata.namespace"]
    );
}

async fn bad_labels_annotations_and_finalizers_are_named(l: Ledger) {
    let mut annotated = claim("c");
    annotated
        .metadata
        .annotations
        .insert("no name/".to_owned(), String::new());
    for (object, field) in [
        (claim("a").label("a b", "c"), "metadata.labels"),
        (claim("b").label("a", "b c"), "metadata.labels"),
        (annotated, "metadata.annotations"),
        (claim("d").hold("a b"), "metadata.finalizers"),
    ] {
        assert_eq!(invalid_fields(l.store.create(object).await), [field]);
    }
}

async fn names_of_the_greatest_length_are_possible(l: Ledger) {
    let (namespace, name) = ("n".repeat(63), "a".repeat(253));
    let created = create(&*l.store, claim_in(&namespace, &name)).await;
    assert_eq!(latest(&*l.store, &created.key()).await, created);
}

async fn a_refused_create_leaves_nothing_behind(l: Ledger) {
    assert_fails!(
        l.store.create(claim("web").label("a", "b c")).await,
        Invalid
    );
    assert!(is_absent(&*l.store, &key("web")).await);
    assert!(list_claims(&*l.store).await.items.is_empty());
}

async fn fields_that_nobody_knows_survive_at_every_level(l: Ledger) {
    let mut value = claim("web").to_value();
    value["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "x"}]);
    value["spec"]["future"] = json!({"deep": [{"a": null}, [], {}]});
    value["extension"] = json!({"mode": "x"});
    let created = create(&*l.store, from(value.clone())).await;
    let mut next = created.to_value();
    next["status"] = json!({"phase": "Pending", "future": {"a": [1]}});
    update_status(&*l.store, from(next.clone())).await;
    let stored = latest(&*l.store, &key("web")).await;
    let relabelled = update(&*l.store, stored.label("a", "b")).await.to_value();
    for field in ["spec", "extension"] {
        assert_eq!(relabelled[field], value[field]);
    }
    assert_eq!(relabelled["status"], next["status"]);
    let owners = "ownerReferences";
    assert_eq!(relabelled["metadata"][owners], value["metadata"][owners]);
}

/// Stores a field and reads it back.
async fn echo(store: &dyn Store, name: &str, value: Value) -> Value {
    create(store, claim(name).field("extension", value)).await;
    latest(store, &key(name)).await.fields["extension"].clone()
}

async fn text_survives_exactly(l: Ledger) {
    let value = json!({"text": "q\" b\\ nul\u{0} tab\t nl\r\n del\u{7f} ä 漢字 🦀 \u{feff}'; DROP TABLE x; --",
        "": "empty key", "k\u{0}\"\\": "odd key", "spaces": "  "});
    assert_eq!(echo(&*l.store, "web", value.clone()).await, value);
}

async fn numbers_survive_exactly(l: Ledger) {
    let value = json!([
        0,
        -1,
        1,
        i64::MAX,
        i64::MIN,
        9_007_199_254_740_993_u64,
        0.1,
        -0.5,
        1.5e300,
        1e-7,
        123_456_789.123_456_79,
        true,
        false,
        null
    ]);
    assert_eq!(echo(&*l.store, "web", value.clone()).await, value);
}

async fn numbers_of_64_bits_without_sign_survive_exactly(l: Ledger) {
    let value = json!([u64::MAX, u64::MAX - 1]);
    assert_eq!(echo(&*l.store, "web", value.clone()).await, value);
}

async fn an_object_without_spec_is_possible(l: Ledger) {
    let mut bare = claim("web");
    bare.fields.clear();
    let created = create(&*l.store, bare).await;
    assert_eq!(created.fields.get("status"), None);
    assert_eq!(latest(&*l.store, &key("web")).await, created);
}

async fn a_read_at_a_revision_that_is_reached_answers(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let next = update(&*l.store, created.clone().asking("other")).await;
    for at in [revision(&created), revision(&next)] {
        let read = l
            .store
            .get(&key("web"), ReadAt::NotOlderThan(at))
            .await
            .unwrap();
        assert!(revision(&read) >= at, "{at}");
    }
    let absent = l
        .store
        .get(&key("x"), ReadAt::NotOlderThan(revision(&next)))
        .await;
    assert_fails!(absent, NotFound);
}

async fn a_read_at_a_future_revision_is_unavailable_and_never_not_found(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let future = Revision(revision(&created).0 + 1_000_000);
    for name in ["web", "absent"] {
        assert_fails!(
            l.store.get(&key(name), ReadAt::NotOlderThan(future)).await,
            Unavailable
        );
    }
}

async fn a_typed_object_is_read_as_it_was_created(l: Ledger) {
    use ipledger_core::api::{IPAddress, IPAddressSpec};
    let wanted = IPAddress::from_object(&address("ip-192-0-2-1")).unwrap();
    let created = l.store.create_resource(&wanted).await.unwrap();
    let key = Key::address("ip-192-0-2-1");
    assert_eq!(created.spec, wanted.spec);
    let found = l
        .store
        .find::<IPAddressSpec>(&key, ReadAt::Latest)
        .await
        .unwrap();
    assert_eq!(found, Some(created));
    let absent = Key::address("ip-192-0-2-2");
    assert_eq!(
        l.store
            .find::<IPAddressSpec>(&absent, ReadAt::Latest)
            .await
            .unwrap(),
        None
    );
    assert_eq!(l.store.list_all::<IPAddressSpec>().await.unwrap().len(), 1);
}
