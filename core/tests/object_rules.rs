//! Every rule of `store::rules`, by what goes in and what comes out.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml covers only test functions"
)]

use ipledger_core::api::{Key, Object, Timestamp};
use ipledger_core::store::rules::{self, Birth, OPERATION, Outcome};
use ipledger_core::store::{Part, Preconditions, Revision, StoreError};
use serde_json::{Value, json};

const FINALIZER: &str = "example.com/hold";

fn object(metadata: Value, rest: Value) -> Object {
    let mut value = json!({
        "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
        "metadata": {"name": "web", "namespace": "team-a"},
    });
    for (part, into) in [(metadata, "metadata"), (rest, "")] {
        let target = if into.is_empty() {
            &mut value
        } else {
            &mut value[into]
        };
        let fields = target.as_object_mut().unwrap();
        fields.extend(part.as_object().unwrap().clone());
    }
    Object::from_value(value).unwrap()
}

fn birth() -> Birth {
    Birth {
        uid: "u-1".to_owned(),
        now: Timestamp::from_unix(100),
    }
}

/// A stored object at revision 7.
fn stored(metadata: Value, rest: Value) -> Object {
    let mut stored = object(metadata, rest);
    stored.metadata.uid = "u-1".to_owned();
    stored.metadata.resource_version = Some(Revision(7));
    stored.metadata.creation_timestamp = Some(Timestamp::from_unix(100));
    stored.metadata.generation = stored.metadata.generation.max(1);
    stored
}

fn marked() -> Object {
    stored(
        json!({"finalizers": [FINALIZER], "deletionTimestamp": "1970-01-01T00:03:20Z",
            "generation": 2, "deletionGracePeriodSeconds": 0}),
        json!({"spec": {"a": 1}, "status": {"phase": "Bound"}}),
    )
}

fn written(outcome: Result<Outcome, StoreError>) -> Object {
    match outcome {
        Ok(Outcome::Write(object)) => object,
        other => panic!("a write is expected, not {other:?}"),
    }
}

fn invalid_fields<T: std::fmt::Debug>(result: Result<T, StoreError>) -> Vec<String> {
    match result {
        Err(StoreError::Invalid { errors, .. }) => errors.into_iter().map(|e| e.field).collect(),
        other => panic!("Invalid is expected, not {other:?}"),
    }
}

#[test]
fn a_new_object_gets_uid_creation_time_and_generation_1() {
    let created = rules::create(object(json!({}), json!({"spec": {"a": 1}})), birth()).unwrap();
    assert_eq!(
        created.to_value(),
        json!({
            "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
            "metadata": {"name": "web", "namespace": "team-a", "uid": "u-1", "generation": 1,
                "creationTimestamp": "1970-01-01T00:01:40Z"},
            "spec": {"a": 1},
        })
    );
}

#[test]
fn a_new_object_has_no_status_and_no_mark_whatever_the_caller_says() {
    let created = rules::create(
        object(
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "generation": 9,
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5,
                "resourceVersion": "0", "selfLink": "/x", "finalizers": [FINALIZER]}),
            json!({"status": {"phase": "Bound"}, "future": 1}),
        ),
        birth(),
    )
    .unwrap();
    assert_eq!(
        created.to_value()["metadata"],
        json!({"name": "web", "namespace": "team-a", "uid": "u-1", "generation": 1,
            "creationTimestamp": "1970-01-01T00:01:40Z", "finalizers": [FINALIZER]})
    );
    assert!(!created.fields.contains_key("status"));
    assert_eq!(created.fields["future"], json!(1));
}

#[test]
fn each_bad_field_of_a_new_object_is_named() {
    for (metadata, field) in [
        (json!({"uid": "mine"}), "metadata.uid"),
        (json!({"resourceVersion": "3"}), "metadata.resourceVersion"),
        (json!({"name": ""}), "metadata.name"),
        (json!({"name": "Web"}), "metadata.name"),
        (json!({"namespace": ""}), "metadata.namespace"),
        (json!({"namespace": "a.b"}), "metadata.namespace"),
        (json!({"labels": {"a": "b c"}}), "metadata.labels"),
        (json!({"annotations": {"a b": ""}}), "metadata.annotations"),
        (json!({"finalizers": [""]}), "metadata.finalizers"),
    ] {
        let result = rules::create(object(metadata.clone(), json!({})), birth());
        assert_eq!(invalid_fields(result), [field], "{metadata}");
    }
}

#[test]
fn all_bad_fields_are_reported_together() {
    let result = rules::create(object(json!({"name": "X", "uid": "u"}), json!({})), birth());
    assert_eq!(invalid_fields(result), ["metadata.name", "metadata.uid"]);
}

#[test]
fn a_finalizer_that_is_given_twice_is_kept_once_in_its_place() {
    let metadata = json!({"finalizers": ["b/b", "a/a", "b/b"]});
    let created = rules::create(object(metadata.clone(), json!({})), birth()).unwrap();
    assert_eq!(created.metadata.finalizers, ["b/b", "a/a"]);
    let current = stored(json!({}), json!({}));
    let next = written(rules::update(
        &current,
        stored(metadata, json!({})),
        Part::Main,
    ));
    assert_eq!(next.metadata.finalizers, ["b/b", "a/a"]);
}

#[test]
fn the_generation_counts_changes_of_anything_but_metadata_and_status() {
    let current = stored(
        json!({}),
        json!({"spec": {"a": 1}, "status": {"phase": "Bound"}}),
    );
    for (metadata, rest, generation) in [
        (json!({"labels": {"a": "b"}}), json!({"spec": {"a": 1}}), 1),
        (
            json!({"finalizers": [FINALIZER]}),
            json!({"spec": {"a": 1}}),
            1,
        ),
        (json!({}), json!({"spec": {"a": 2}}), 2),
        (json!({}), json!({}), 2),
        (json!({}), json!({"spec": {"a": 1}, "future": true}), 2),
    ] {
        let next = written(rules::update(
            &current,
            stored(metadata, rest.clone()),
            Part::Main,
        ));
        assert_eq!(next.metadata.generation, generation, "{rest}");
        assert_eq!(next.fields["status"], json!({"phase": "Bound"}), "{rest}");
    }
}

#[test]
fn an_update_of_the_main_part_that_changes_only_the_status_changes_nothing() {
    let current = stored(
        json!({}),
        json!({"spec": {"a": 1}, "status": {"phase": "Bound"}}),
    );
    for status in [json!({"phase": "Lost"}), Value::Null] {
        let new = stored(json!({}), json!({"spec": {"a": 1}, "status": status}));
        assert_eq!(
            rules::update(&current, new, Part::Main),
            Ok(Outcome::Unchanged)
        );
    }
}

#[test]
fn an_update_of_the_status_takes_the_status_alone() {
    let current = stored(json!({"labels": {"a": "b"}}), json!({"spec": {"a": 1}}));
    let new = stored(
        json!({"labels": {"a": "other"}, "finalizers": ["not a finalizer"], "generation": 9}),
        json!({"spec": {"a": 2}, "status": {"phase": "Bound"}, "future": 1}),
    );
    let next = written(rules::update(&current, new, Part::Status));
    let mut expected = current.clone();
    expected
        .fields
        .insert("status".to_owned(), json!({"phase": "Bound"}));
    assert_eq!(next, expected);
}

#[test]
fn a_status_that_is_left_out_or_null_is_removed() {
    let current = stored(json!({}), json!({"status": {"phase": "Bound"}}));
    for rest in [json!({}), json!({"status": null})] {
        let next = written(rules::update(
            &current,
            stored(json!({}), rest),
            Part::Status,
        ));
        assert!(!next.fields.contains_key("status"));
        let again = stored(json!({}), json!({"status": null}));
        assert_eq!(
            rules::update(&next, again, Part::Status),
            Ok(Outcome::Unchanged)
        );
    }
}

#[test]
fn what_the_store_gives_is_never_taken_from_the_caller() {
    let current = marked();
    let mut new = stored(
        json!({"finalizers": [FINALIZER], "labels": {"a": "b"}, "selfLink": "/x"}),
        json!({"spec": {"a": 1}}),
    );
    new.metadata.uid.clear();
    new.metadata.creation_timestamp = None;
    new.metadata.generation = 77;
    let next = written(rules::update(&current, new, Part::Main));
    let mut expected = current.clone();
    expected
        .metadata
        .labels
        .insert("a".to_owned(), "b".to_owned());
    assert_eq!(next, expected);

    let current = stored(json!({"finalizers": [FINALIZER]}), json!({}));
    let new = stored(
        json!({"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 0, "creationTimestamp": "2026-01-01T00:00:00Z"}),
        json!({}),
    );
    assert_eq!(
        rules::update(&current, new, Part::Main),
        Ok(Outcome::Unchanged)
    );
}

#[test]
fn fields_that_nobody_knows_are_written_as_they_come() {
    let current = stored(
        json!({"ownerReferences": [{"name": "x"}]}),
        json!({"future": {"a": [1]}}),
    );
    let new = stored(
        json!({"ownerReferences": [{"name": "y"}]}),
        json!({"future": {"a": [2]}}),
    );
    let next = written(rules::update(&current, new, Part::Main));
    assert_eq!(
        next.metadata.extra["ownerReferences"],
        json!([{"name": "y"}])
    );
    assert_eq!(next.fields["future"], json!({"a": [2]}));
}

#[test]
fn an_update_acts_only_on_what_the_caller_has_seen() {
    for part in [Part::Main, Part::Status] {
        let current = stored(json!({}), json!({}));
        let mut new = stored(json!({}), json!({"spec": {"a": 1}, "status": {"a": 1}}));
        for missing in [None, Some(Revision(0))] {
            new.metadata.resource_version = missing;
            let result = rules::update(&current, new.clone(), part);
            assert_eq!(invalid_fields(result), ["metadata.resourceVersion"]);
        }
        new.metadata.resource_version = Some(Revision(6));
        let e = rules::update(&current, new.clone(), part).unwrap_err();
        assert_eq!(e, StoreError::Conflict { key: current.key() });
        new.metadata.uid = "u-0".to_owned();
        let e = rules::update(&current, new, part).unwrap_err();
        assert!(matches!(e, StoreError::PreconditionFailed { .. }), "{e}");
    }
}

#[test]
fn bad_metadata_of_an_update_is_named() {
    let current = stored(json!({}), json!({}));
    let new = stored(json!({"labels": {"a": "b c"}}), json!({}));
    assert_eq!(
        invalid_fields(rules::update(&current, new, Part::Main)),
        ["metadata.labels"]
    );
}

#[test]
fn a_marked_object_takes_no_new_finalizer() {
    let current = marked();
    let mut new = current.clone();
    new.metadata.finalizers.push("example.com/late".to_owned());
    let e = rules::update(&current, new, Part::Main).unwrap_err();
    assert!(e.to_string().contains("example.com/late"), "{e}");
    assert_eq!(invalid_fields::<()>(Err(e)), ["metadata.finalizers"]);
}

#[test]
fn a_marked_object_still_takes_status_and_spec() {
    let current = marked();
    let mut new = current.clone();
    new.fields
        .insert("status".to_owned(), json!({"phase": "Released"}));
    new.fields.insert("spec".to_owned(), json!({"a": 2}));
    let next = written(rules::update(&current, new.clone(), Part::Status));
    assert_eq!(next.fields["status"], json!({"phase": "Released"}));
    let next = written(rules::update(&current, new, Part::Main));
    assert_eq!(
        (next.metadata.generation, &next.fields["spec"]),
        (3, &json!({"a": 2}))
    );
}

#[test]
fn a_marked_object_without_finalizers_goes_with_what_the_update_said_last() {
    let current = marked();
    let mut new = current.clone();
    new.metadata.finalizers.clear();
    new.metadata.labels.insert("a".to_owned(), "b".to_owned());
    assert_eq!(
        rules::update(&current, new.clone(), Part::Main),
        Ok(Outcome::Remove(new))
    );
}

#[test]
fn removing_the_finalizers_of_an_object_that_is_not_marked_only_removes_them() {
    let current = stored(json!({"finalizers": [FINALIZER]}), json!({}));
    let next = written(rules::update(
        &current,
        stored(json!({}), json!({})),
        Part::Main,
    ));
    assert_eq!(next.metadata.finalizers, Vec::<String>::new());
}

#[test]
fn a_delete_without_finalizers_removes_the_object() {
    let current = stored(json!({}), json!({"spec": {"a": 1}}));
    let now = Timestamp::from_unix(200);
    let outcome = rules::delete(&current, &Preconditions::default(), now);
    assert_eq!(outcome, Ok(Outcome::Remove(current)));
}

#[test]
fn a_delete_with_finalizers_marks_the_object_once() {
    let current = stored(
        json!({"finalizers": [FINALIZER]}),
        json!({"spec": {"a": 1}, "status": {"phase": "Bound"}}),
    );
    let none = Preconditions::default();
    let next = written(rules::delete(&current, &none, Timestamp::from_unix(200)));
    assert_eq!(next, marked());
    let again = rules::delete(&next, &none, Timestamp::from_unix(300));
    assert_eq!(again, Ok(Outcome::Unchanged));
}

#[test]
fn a_delete_acts_only_on_the_object_that_is_meant() {
    let (u1, r7) = (Some("u-1".to_owned()), Some(Revision(7)));
    let (u2, r6) = (Some("u-2".to_owned()), Some(Revision(6)));
    for (uid, revision, goes) in [
        (&None, None, true),
        (&u1, None, true),
        (&None, r7, true),
        (&u1, r7, true),
        (&u2, None, false),
        (&None, r6, false),
        (&u2, r7, false),
        (&u1, r6, false),
    ] {
        for current in [stored(json!({}), json!({})), marked()] {
            let preconditions = Preconditions {
                uid: uid.clone(),
                revision,
            };
            match rules::delete(&current, &preconditions, Timestamp::from_unix(200)) {
                Ok(_) => assert!(goes, "{preconditions:?}"),
                Err(StoreError::PreconditionFailed { .. }) => assert!(!goes, "{preconditions:?}"),
                Err(e) => panic!("{e}"),
            }
        }
    }
}

#[test]
fn already_exists_tells_whose_object_it_is() {
    let current = stored(json!({"annotations": {OPERATION: "op-9"}}), json!({}));
    let key = Key::claim("team-a", "web");
    let expected = StoreError::AlreadyExists {
        key: key.clone(),
        uid: "u-1".to_owned(),
        operation: Some("op-9".to_owned()),
    };
    assert_eq!(rules::already_exists(key, &current), expected);
}

#[test]
fn the_size_limit_is_the_last_size_that_is_possible() {
    let object = stored(json!({}), json!({"spec": {"a": "x".repeat(100)}}));
    let size = serde_json::to_vec(&object).unwrap().len();
    assert_eq!(rules::check_size(&object, size).map(|b| b.len()), Ok(size));
    let e = rules::check_size(&object, size - 1).unwrap_err();
    assert_eq!(
        e,
        StoreError::TooLarge {
            key: object.key(),
            size,
            limit: size - 1
        }
    );
}

#[test]
fn an_update_of_another_object_is_a_fault() {
    let current = stored(json!({}), json!({}));
    let other = stored(json!({"name": "other"}), json!({}));
    let e = rules::update(&current, other, Part::Main).unwrap_err();
    assert!(matches!(e, StoreError::Internal { .. }), "{e}");
}
