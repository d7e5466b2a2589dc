//! The rules of `api::validate` as tables: an object, and the fields that are refused.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ipledger_core::api::Object;
use ipledger_core::api::validate::{
    ANNOTATIONS_MAX, validate_create, validate_status, validate_update,
};
use ipledger_core::store::FieldError;
use serde_json::{Value, json};

fn object(kind: &str, name: &str, spec: Value) -> Object {
    let mut value = json!({
        "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": kind,
        "metadata": {"name": name}, "spec": spec,
    });
    if kind == "IPAddressClaim" {
        value["metadata"]["namespace"] = json!("team-a");
    }
    Object::from_value(value).unwrap()
}

fn claim(spec: Value) -> Object {
    object("IPAddressClaim", "web", spec)
}

fn class(spec: Value) -> Object {
    object("IPAddressClass", "public", spec)
}

fn address(spec: Value) -> Object {
    object("IPAddress", "ip-192-0-2-1", spec)
}

/// A valid address with some fields replaced.
fn address_with(fields: Value) -> Object {
    let mut spec = json!({"address": "192.0.2.1", "className": "public"});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    address(spec)
}

fn with_status(mut object: Object, status: Value) -> Object {
    object.fields.insert("status".to_owned(), status);
    object
}

fn fields(errors: &[FieldError]) -> Vec<&str> {
    errors.iter().map(|e| e.field.as_str()).collect()
}

#[test]
fn objects_that_say_what_is_needed_can_be_created() {
    for good in [
        claim(json!({})),
        claim(json!({"className": "public", "family": "Dual"})),
        claim(json!({"family": "IPv6", "addressName": "ip-2001-db8--7"})),
        claim(json!({"family": null, "addressName": "", "className": ""})),
        class(json!({"provisioner": "range.drivers.local.sdn.cozystack.io"})),
        class(
            json!({"provisioner": "x", "parameters": {"any": [null]}, "reclaimPolicy": "Delete"}),
        ),
        address_with(json!({})),
        address_with(json!({"claimRef": {"namespace": "n", "name": "a"}})),
        address_with(json!({"claimRef": {"namespace": "n", "name": "a", "uid": ""}})),
        address_with(json!({"source": {"fromClass": {}}, "reclaimPolicy": "Delete"})),
        address_with(json!({"source": {"providerRef": {"id": "eip-1"}}})),
        object(
            "IPAddress",
            "ip-2001-db8--0",
            json!({"address": "2001:db8::", "className": "c"}),
        ),
    ] {
        assert_eq!(validate_create(&good), [], "{good:?}");
    }
}

#[test]
fn each_refused_field_of_a_new_object_is_named() {
    for (bad, refused) in [
        (claim(json!({"family": "IPv5"})), vec!["spec.family"]),
        (claim(json!({"className": "A_b"})), vec!["spec.className"]),
        (claim(json!({"addressName": "-"})), vec!["spec.addressName"]),
        (
            claim(json!({"family": "Dual", "addressName": "ip-192-0-2-1"})),
            vec!["spec.addressName"],
        ),
        (claim(json!("x")), vec!["spec"]),
        (
            object("IPAddressClaim", "Web", json!({})),
            vec!["metadata.name"],
        ),
        (class(json!({})), vec!["spec.provisioner"]),
        (class(json!({"provisioner": ""})), vec!["spec.provisioner"]),
        (
            class(json!({"provisioner": "x", "reclaimPolicy": "Recycle"})),
            vec!["spec.reclaimPolicy"],
        ),
        (
            class(json!({"provisioner": "x", "parameters": "a"})),
            vec!["spec.parameters"],
        ),
        (address(json!({})), vec!["spec.address", "spec.className"]),
        (
            address_with(json!({"address": "192.0.2.001"})),
            vec!["spec.address"],
        ),
        (
            address_with(json!({"address": "192.0.2.2"})),
            vec!["metadata.name"],
        ),
        (
            object(
                "IPAddress",
                "a",
                json!({"address": "2001:DB8::1", "className": "c"}),
            ),
            vec!["metadata.name", "spec.address"],
        ),
        (
            address_with(json!({"className": "Public"})),
            vec!["spec.className"],
        ),
        (
            address_with(json!({"claimRef": {}})),
            vec!["spec.claimRef.namespace", "spec.claimRef.name"],
        ),
        (
            address_with(json!({"claimRef": {"namespace": "a.b", "name": "c"}})),
            vec!["spec.claimRef.namespace"],
        ),
        (address_with(json!({"source": {}})), vec!["spec.source"]),
        (
            address_with(json!({"source": {"fromClass": {}, "providerRef": {"id": "x"}}})),
            vec!["spec.source"],
        ),
        (
            address_with(json!({"source": {"providerRef": {"id": ""}}})),
            vec!["spec.source.providerRef.id"],
        ),
        (
            address_with(json!({"source": {"fromClass": true}})),
            vec!["spec.source.fromClass"],
        ),
    ] {
        let errors = validate_create(&bad);
        assert_eq!(fields(&errors), refused, "{bad:?}: {errors:?}");
    }
}

#[test]
fn metadata_has_the_forms_of_kubernetes() {
    for (field, value, refused) in [
        ("namespace", json!("a.b"), vec!["metadata.namespace"]),
        ("namespace", json!(""), vec!["metadata.namespace"]),
        ("labels", json!({"a b": "c"}), vec!["metadata.labels"]),
        (
            "annotations",
            json!({"a/b/c": ""}),
            vec!["metadata.annotations"],
        ),
        (
            "annotations",
            json!({"a": "x".repeat(256 * 1024)}),
            vec!["metadata.annotations"],
        ),
        (
            "resourceVersion",
            json!("7"),
            vec!["metadata.resourceVersion"],
        ),
        ("name", json!("a".repeat(254)), vec!["metadata.name"]),
        ("uid", json!("replaced"), vec![]),
        (
            "annotations",
            json!({"a": "x".repeat(ANNOTATIONS_MAX - 1)}),
            vec![],
        ),
    ] {
        let mut object = claim(json!({})).to_value();
        object["metadata"][field] = value;
        let errors = validate_create(&Object::from_value(object).unwrap());
        assert_eq!(fields(&errors), refused, "{field}: {errors:?}");
    }
}

#[test]
fn a_spelling_that_is_not_canonical_is_answered_with_the_canonical_one_and_the_name() {
    let errors = validate_create(&object(
        "IPAddress",
        "ip-2001-DB8-0-0-0-0-0-7",
        json!({"address": "2001:DB8:0:0:0:0:0:7", "className": "public"}),
    ));
    let text = |field: &str| {
        errors
            .iter()
            .find(|e| e.field == field)
            .unwrap()
            .message
            .clone()
    };
    assert!(text("spec.address").contains("2001:db8::7"), "{errors:?}");
    assert!(
        text("metadata.name").contains("must be `ip-2001-db8--7`"),
        "{errors:?}"
    );
}

#[test]
fn a_second_object_for_one_ip_is_refused_with_the_name_it_would_need() {
    let second = object(
        "IPAddress",
        "spare",
        json!({"address": "192.0.2.1", "className": "public"}),
    );
    let errors = validate_create(&second);
    assert_eq!(fields(&errors), ["metadata.name"]);
    assert!(
        errors[0].message.contains("must be `ip-192-0-2-1`"),
        "{errors:?}"
    );
}

#[test]
fn a_generated_name_is_good_for_a_claim_and_never_for_an_address() {
    let generated = |mut object: Object| {
        object.metadata.name.clear();
        object
            .metadata
            .extra
            .insert("generateName".to_owned(), json!("web-"));
        object
    };
    assert_eq!(validate_create(&generated(claim(json!({})))), []);
    assert_eq!(
        fields(&validate_create(&generated(address_with(json!({}))))),
        ["metadata.name"]
    );
    let mut unnamed = claim(json!({}));
    unnamed.metadata.name.clear();
    assert_eq!(fields(&validate_create(&unnamed)), ["metadata.name"]);
}

#[test]
fn what_was_said_once_about_identity_cannot_be_changed() {
    let from_class = json!({"source": {"fromClass": {}}});
    let provider = |id: &str| json!({"source": {"providerRef": {"id": id}}});
    let provisioner = |p: &str| class(json!({"provisioner": p}));
    for (old, new, refused) in [
        (provisioner("a"), provisioner("b"), vec!["spec.provisioner"]),
        (provisioner("a"), provisioner("a"), vec![]),
        (
            address_with(json!({})),
            address_with(json!({"address": "192.0.2.2"})),
            vec!["spec.address"],
        ),
        (
            address_with(from_class.clone()),
            address_with(provider("x")),
            vec!["spec.source"],
        ),
        (
            address_with(provider("x")),
            address_with(provider("y")),
            vec!["spec.source"],
        ),
        (
            address_with(provider("x")),
            address_with(json!({})),
            vec!["spec.source"],
        ),
        (
            address_with(json!({})),
            address_with(from_class.clone()),
            vec![],
        ),
        (
            address_with(json!({"reclaimPolicy": "Retain"})),
            address_with(json!({"reclaimPolicy": "Delete"})),
            vec![],
        ),
        (
            address_with(json!({"claimRef": {"namespace": "n", "name": "a", "uid": "u"}})),
            address_with(json!({})),
            vec![],
        ),
        (
            class(json!({"provisioner": "a", "parameters": {"x": 1}})),
            class(json!({"provisioner": "a", "parameters": {"y": 2}, "reclaimPolicy": "Delete"})),
            vec![],
        ),
    ] {
        let errors = validate_update(&old, &new);
        assert_eq!(fields(&errors), refused, "{old:?} -> {new:?}: {errors:?}");
    }
}

#[test]
fn a_field_that_only_the_stored_object_has_does_not_count_as_a_change() {
    let old = address_with(json!({"source": {"fromClass": {}, "future": 1}}));
    let new = address_with(json!({"source": {"fromClass": {}}}));
    assert_eq!(validate_update(&old, &new), []);
}

#[test]
fn the_spec_of_a_claim_is_frozen_once_it_is_bound_or_lost() {
    for (phase, changes_refused) in [
        ("Pending", false),
        ("Bound", true),
        ("Lost", true),
        ("", false),
    ] {
        let status = if phase.is_empty() {
            json!(null)
        } else {
            json!({"phase": phase})
        };
        let old = with_status(claim(json!({"className": "a"})), status.clone());
        for (spec, field) in [
            (json!({"className": "b"}), "spec.className"),
            (json!({"className": "a", "family": "IPv6"}), "spec.family"),
            (
                json!({"className": "a", "addressName": "ip-192-0-2-1"}),
                "spec.addressName",
            ),
        ] {
            let errors = validate_update(&old, &claim(spec));
            let expected = if changes_refused { vec![field] } else { vec![] };
            assert_eq!(fields(&errors), expected, "{phase}");
        }
        let same = claim(json!({"className": "a", "family": "IPv4", "addressName": ""}));
        assert_eq!(validate_update(&old, &same), [], "{phase}");
    }
}

#[test]
fn the_frozen_field_is_named_with_the_phase_and_its_value() {
    let old = with_status(claim(json!({"className": "a"})), json!({"phase": "Bound"}));
    let errors = validate_update(&old, &claim(json!({"className": "b"})));
    assert!(errors[0].message.contains("Bound"), "{errors:?}");
    assert!(errors[0].message.contains("\"a\""), "{errors:?}");
}

#[test]
fn a_bad_field_that_an_update_does_not_touch_blocks_nothing() {
    for (old, new, refused) in [
        // Made by something that did not check: another field can still be changed.
        (
            address(json!({"address": "2001:DB8::1", "className": "C"})),
            address(json!({"address": "2001:DB8::1", "className": "C", "reclaimPolicy": "Delete"})),
            vec![],
        ),
        (
            address(json!({"address": "2001:DB8::1", "className": "C"})),
            address(json!({"address": "2001:DB8::1", "className": "D"})),
            vec!["spec.className"],
        ),
        (
            claim(json!({"family": "IPv5"})),
            claim(json!({"family": "IPv5", "className": "a"})),
            vec![],
        ),
        (
            claim(json!({"family": "IPv5"})),
            claim(json!({"family": "IPv6"})),
            vec![],
        ),
        (
            claim(json!({"family": 5})),
            claim(json!({"family": 6})),
            vec!["spec.family"],
        ),
        // The field is the same, what it is combined with is not.
        (
            claim(json!({"family": "IPv4", "addressName": "ip-192-0-2-1"})),
            claim(json!({"family": "Dual", "addressName": "ip-192-0-2-1"})),
            vec!["spec.addressName"],
        ),
        (
            claim(json!({"family": "Dual", "addressName": "ip-192-0-2-1"})),
            claim(json!({"family": "Dual", "addressName": "ip-192-0-2-1", "className": "a"})),
            vec![],
        ),
        (
            claim(json!({"family": "Dual", "addressName": "ip-192-0-2-1"})),
            claim(json!({"family": "Dual", "addressName": "ip-192-0-2-2"})),
            vec!["spec.addressName"],
        ),
        (class(json!({})), class(json!({"provisioner": "x"})), vec![]),
    ] {
        let errors = validate_update(&old, &new);
        assert_eq!(fields(&errors), refused, "{old:?} -> {new:?}: {errors:?}");
    }
}

#[test]
fn status_is_checked_on_its_own_and_only_where_it_changes() {
    let condition = |status: &str| json!({"conditions": [{"type": "Bound", "status": status}]});
    let with = |status: Value| with_status(claim(json!({"family": "IPv5"})), status);
    for (old, new, refused) in [
        (json!(null), json!({"phase": "Bound"}), vec![]),
        (json!(null), json!({"phase": "Happy"}), vec!["status.phase"]),
        (
            json!({"phase": "Happy"}),
            json!({"phase": "Happy", "className": "a"}),
            vec![],
        ),
        (
            condition("True"),
            condition("Maybe"),
            vec!["status.conditions[0].status"],
        ),
        (condition("Maybe"), condition("Maybe"), vec![]),
        (json!(null), json!([]), vec!["status"]),
        (json!({"phase": "Bound"}), json!(null), vec![]),
    ] {
        let errors = validate_status(&with(old.clone()), &with(new.clone()));
        assert_eq!(fields(&errors), refused, "{old} -> {new}: {errors:?}");
    }
}

#[test]
fn a_bad_status_does_not_block_an_update_of_the_rest() {
    let old = with_status(claim(json!({})), json!({"phase": "Happy"}));
    assert_eq!(
        validate_update(
            &old,
            &with_status(claim(json!({"className": "a"})), json!(7))
        ),
        []
    );
    assert_eq!(
        validate_create(&with_status(claim(json!({})), json!(7))),
        []
    );
}

#[test]
fn a_status_has_one_condition_of_a_type() {
    let status = |types: &[&str]| {
        let conditions: Vec<Value> = types
            .iter()
            .map(|t| json!({"type": t, "status": "True"}))
            .collect();
        with_status(claim(json!({})), json!({"conditions": conditions}))
    };
    let old = status(&["Bound"]);
    assert_eq!(validate_status(&old, &status(&["Bound", "Valid"])), []);
    let twice = status(&["Bound", "Bound", "Valid", "Bound"]);
    let errors = validate_status(&old, &twice);
    assert_eq!(
        fields(&errors),
        ["status.conditions[1]", "status.conditions[3]"]
    );
    assert!(
        errors[0]
            .message
            .starts_with(r#"Duplicate value: {"type": "Bound"}"#),
        "{errors:?}"
    );
    // What an older server let in does not block the next write of something else.
    let mut later = twice.clone();
    later.fields["status"]["phase"] = json!("Bound");
    assert_eq!(validate_status(&twice, &later), []);
}

fn annotated(mut object: Object, annotations: &[(&str, usize)]) -> Object {
    for (name, size) in annotations {
        let value = "x".repeat(size - name.len());
        object
            .metadata
            .annotations
            .insert((*name).to_owned(), value);
    }
    object
}

#[test]
fn annotations_of_claims_and_addresses_leave_room_for_what_the_ledger_adds() {
    for (object, limited) in [
        (claim(json!({})), true),
        (address_with(json!({})), true),
        (class(json!({"provisioner": "x"})), false),
    ] {
        let full = annotated(object.clone(), &[("example.com/a", ANNOTATIONS_MAX)]);
        assert_eq!(validate_create(&full), []);
        assert_eq!(validate_update(&object, &full), []);
        let fuller = annotated(object.clone(), &[("example.com/a", ANNOTATIONS_MAX + 1)]);
        for errors in [
            validate_create(&fuller),
            validate_update(&object, &fuller),
            validate_update(&full, &fuller),
        ] {
            let wanted: &[&str] = if limited {
                &["metadata.annotations"]
            } else {
                &[]
            };
            assert_eq!(fields(&errors), wanted, "{}", object.kind);
            for error in errors {
                assert!(error.message.contains("196608"), "{error}");
                assert!(error.message.contains("drivers"), "{error}");
            }
        }
        let most = annotated(object.clone(), &[("example.com/a", 256 * 1024)]);
        let errors = validate_create(&most);
        assert_eq!(errors.len(), usize::from(limited), "{errors:?}");
        // The rule of Kubernetes speaks for itself.
        let beyond = annotated(object, &[("example.com/a", 256 * 1024 + 1)]);
        assert_eq!(fields(&validate_create(&beyond)), ["metadata.annotations"]);
    }
}

#[test]
fn a_full_object_takes_what_the_ledger_adds_and_any_other_change() {
    let full = annotated(claim(json!({})), &[("example.com/a", ANNOTATIONS_MAX)]);
    let stamp = ("local.sdn.cozystack.io/provisioner", 100);
    let of_driver = ("range.drivers.local.sdn.cozystack.io/x", 100);
    let stamped = annotated(full.clone(), &[stamp, of_driver]);
    assert_eq!(validate_update(&full, &stamped), []);
    let mut labelled = stamped.clone();
    labelled
        .metadata
        .labels
        .insert("a".to_owned(), "b".to_owned());
    assert_eq!(validate_update(&stamped, &labelled), []);
    let less = annotated(stamped.clone(), &[("example.com/a", ANNOTATIONS_MAX - 1)]);
    assert_eq!(validate_update(&stamped, &less), []);
    for more in [
        ("example.com/b", 50),
        ("xlocal.sdn.cozystack.io/provisioner", 50),
        ("local.sdn.cozystack.io/mine", 32 * 1024),
    ] {
        let more = annotated(stamped.clone(), &[more]);
        let errors = validate_update(&stamped, &more);
        assert_eq!(fields(&errors), ["metadata.annotations"]);
    }
}
