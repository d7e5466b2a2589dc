use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::envelope::METADATA;
use super::super::types;
use super::*;
use crate::api::{
    AddressPhase, AddressSource, ClaimFamily, ClaimPhase, ClaimRef, ClaimedAddress, Condition,
    ConditionStatus, Extra, FamilyCapacity, IPAddress, IPAddressClaim, IPAddressClaimSpec,
    IPAddressClaimStatus, IPAddressClass, IPAddressClassSpec, IPAddressClassStatus, IPAddressSpec,
    IPAddressStatus, Object, ObjectMeta, ProviderRef, ReclaimPolicy, Timestamp, WorkloadRef,
};

/// Every field set; a field that is added to a type stops this from compiling.
fn full_objects() -> Vec<Object> {
    let text = || "x".to_owned();
    let extra = Extra::new;
    let metadata = ObjectMeta::default;
    let conditions = || {
        vec![Condition {
            type_: text(),
            status: ConditionStatus::True,
            reason: text(),
            message: text(),
            last_transition_time: Some(Timestamp::from_unix(1)),
            observed_generation: Some(1),
            extra: extra(),
        }]
    };
    let claimed = || {
        vec![ClaimedAddress {
            name: text(),
            address: text(),
        }]
    };
    let class = IPAddressClass {
        metadata: metadata(),
        spec: IPAddressClassSpec {
            provisioner: text(),
            reclaim_policy: ReclaimPolicy::Delete,
            parameters: Some(json!({})),
            extra: extra(),
        },
        status: Some(IPAddressClassStatus {
            capacity: vec![FamilyCapacity {
                family: text(),
                total: text(),
                used: text(),
                free: text(),
                cooling: text(),
                excluded: text(),
                out_of_range: text(),
            }],
            out_of_range: vec![text()],
            conditions: conditions(),
            extra: extra(),
        }),
        extra: extra(),
    };
    let address = IPAddress {
        metadata: metadata(),
        spec: IPAddressSpec {
            address: text(),
            class_name: text(),
            claim_ref: Some(ClaimRef {
                namespace: text(),
                name: text(),
                uid: text(),
                extra: extra(),
            }),
            reclaim_policy: ReclaimPolicy::Retain,
            source: Some(AddressSource {
                from_class: Some(extra()),
                provider_ref: Some(ProviderRef {
                    id: text(),
                    extra: extra(),
                }),
                extra: extra(),
            }),
            extra: extra(),
        },
        status: Some(IPAddressStatus {
            phase: Some(AddressPhase::Bound),
            associated_to: Some(WorkloadRef {
                kind: text(),
                namespace: text(),
                name: text(),
                uid: text(),
                extra: extra(),
            }),
            conditions: conditions(),
            extra: extra(),
        }),
        extra: extra(),
    };
    let claim = IPAddressClaim {
        metadata: metadata(),
        spec: IPAddressClaimSpec {
            class_name: text(),
            family: ClaimFamily::Dual,
            address_name: text(),
            extra: extra(),
        },
        status: Some(IPAddressClaimStatus {
            phase: Some(ClaimPhase::Bound),
            class_name: text(),
            addresses: claimed(),
            address_text: text(),
            lost_addresses: claimed(),
            conditions: conditions(),
            extra: extra(),
        }),
        extra: extra(),
    };
    vec![
        class.to_object().unwrap(),
        address.to_object().unwrap(),
        claim.to_object().unwrap(),
    ]
}

/// Each version of `value` in which one of the objects within is a list of its values.
fn with_a_list_for_an_object(value: &Value, path: &str, into: &mut Vec<(String, Value)>) {
    let inner: Vec<(String, Value)> = match value {
        Value::Object(map) => {
            let values = map.values().cloned().collect();
            into.push((path.to_owned(), Value::Array(values)));
            map.iter()
                .map(|(k, v)| (format!("/{k}"), v.clone()))
                .collect()
        }
        Value::Array(items) => (0..)
            .zip(items)
            .map(|(i, v): (usize, _)| (format!("/{i}"), v.clone()))
            .collect(),
        _ => return,
    };
    for (step, part) in inner {
        let mut parts = Vec::new();
        with_a_list_for_an_object(&part, &format!("{path}{step}"), &mut parts);
        for (at, part) in parts {
            let mut whole = value.clone();
            *whole.pointer_mut(&step).unwrap() = part;
            into.push((at, whole));
        }
    }
}

#[test]
fn a_list_is_no_object_at_any_level() {
    for object in full_objects() {
        let fields = Value::Object(object.fields.clone());
        let mut wrong = Vec::new();
        with_a_list_for_an_object(&fields, "", &mut wrong);
        assert!(wrong.len() > 4, "{}", object.kind);
        for (path, fields) in wrong.into_iter().filter(|(path, _)| !path.is_empty()) {
            let mut bad = object.clone();
            bad.fields = serde_json::from_value(fields).unwrap();
            let errors = [types::check_main(&bad), types::check_status(&bad)].concat();
            let [error] = errors.as_slice() else {
                panic!("{} {path}: {errors:?}", object.kind);
            };
            let blamed = error.field.replace(['.', '['], "/").replace(']', "");
            assert_eq!(format!("/{blamed}"), path);
            assert_eq!(error.message, "must be an object, not a list");
        }
    }
}

fn paths_of_value(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                into.insert(format!("{path}.{name}"));
                paths_of_value(value, &format!("{path}.{name}"), into);
            }
        }
        Value::Array(items) => {
            items
                .iter()
                .for_each(|v| paths_of_value(v, &format!("{path}[]"), into));
        }
        _ => {}
    }
}

fn paths_of_shape(fields: &[Field], path: &str, into: &mut BTreeSet<String>) {
    for field in fields {
        let path = format!("{path}.{}", field.name);
        into.insert(path.clone());
        match &field.shape {
            Shape::Fields(fields) => paths_of_shape(fields, &path, into),
            Shape::List(Shape::Fields(fields)) => {
                paths_of_shape(fields, &format!("{path}[]"), into);
            }
            _ => {}
        }
    }
}

#[test]
fn the_table_has_exactly_the_fields_of_the_types() {
    for object in full_objects() {
        let (mut typed, mut table) = (BTreeSet::new(), BTreeSet::new());
        paths_of_value(&Value::Object(object.fields.clone()), "", &mut typed);
        paths_of_shape(fields(object.kind), "", &mut table);
        assert_eq!(typed, table, "{}", object.kind);
    }
}

#[test]
fn the_fields_of_metadata_are_those_of_the_type_and_of_kubernetes() {
    let meta = ObjectMeta {
        name: "x".to_owned(),
        namespace: "x".to_owned(),
        uid: "x".to_owned(),
        resource_version: Some(crate::store::Revision(1)),
        generation: 1,
        creation_timestamp: Some(Timestamp::from_unix(1)),
        deletion_timestamp: Some(Timestamp::from_unix(1)),
        labels: [("x".to_owned(), "x".to_owned())].into(),
        annotations: [("x".to_owned(), "x".to_owned())].into(),
        finalizers: vec!["x".to_owned()],
        extra: Extra::new(),
    };
    let Value::Object(map) = serde_json::to_value(meta).unwrap() else {
        panic!("metadata is an object");
    };
    for name in map.keys() {
        assert!(METADATA.iter().any(|f| f.name == name), "{name}");
    }
}

/// The words at this path of a kind.
fn words(kind: Kind, path: &str) -> &'static [&'static str] {
    let mut fields = fields(kind);
    for step in path.split('.') {
        let field = fields.iter().find(|f| f.name == step).unwrap();
        match &field.shape {
            Shape::Fields(inner) | Shape::List(Shape::Fields(inner)) => fields = inner,
            Shape::Words(words) => return words,
            other => panic!("{path} is {other:?}"),
        }
    }
    panic!("{path} has no words")
}

fn read<T: serde::de::DeserializeOwned>(word: &str) -> bool {
    serde_json::from_value::<T>(json!(word)).is_ok()
}

#[test]
fn the_words_of_the_table_are_those_that_the_types_read() {
    let (class, address, claim) = (Kind::IPAddressClass, Kind::IPAddress, Kind::IPAddressClaim);
    assert!(
        words(class, "spec.reclaimPolicy")
            .iter()
            .all(|w| read::<ReclaimPolicy>(w))
    );
    assert!(
        words(address, "spec.reclaimPolicy")
            .iter()
            .all(|w| read::<ReclaimPolicy>(w))
    );
    assert!(
        words(address, "status.phase")
            .iter()
            .all(|w| read::<AddressPhase>(w))
    );
    assert!(
        words(claim, "spec.family")
            .iter()
            .all(|w| read::<ClaimFamily>(w))
    );
    assert!(
        words(claim, "status.phase")
            .iter()
            .all(|w| read::<ClaimPhase>(w))
    );
    for kind in Kind::ALL {
        let words = words(kind, "status.conditions.status");
        assert!(words.iter().all(|w| read::<ConditionStatus>(w)), "{kind}");
    }
}
