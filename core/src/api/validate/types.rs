//! Whether each known field holds what its type can read.

use serde_json::{Map, Value};

use super::schema::{self, Field, Shape};
use super::unknown::join;
use crate::api::{
    IPAddressClaimSpec, IPAddressClassSpec, IPAddressSpec, Kind, Object, Resource, ResourceSpec,
    Timestamp,
};
use crate::store::{FieldError, Revision};

/// Mistakes that are looked for; who made more hears of the rest next time.
const MAX_ERRORS: usize = 32;
/// Characters of a name that is not ours, in a path.
const MAX_NAME_CHARS: usize = 64;

/// Errors in everything but `metadata` and `status`.
pub(super) fn check_main(object: &Object) -> Vec<FieldError> {
    check(object, |name| name != "status")
}

/// Errors in `status`.
pub(super) fn check_status(object: &Object) -> Vec<FieldError> {
    check(object, |name| name == "status")
}

fn check(object: &Object, part: impl Fn(&str) -> bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in schema::fields(object.kind).iter().filter(|f| part(f.name)) {
        check_field(&object.fields, field, "", &mut errors);
    }
    // The table and the types say the same; should they ever differ, the controllers must still
    // be able to read whatever is let in.
    if errors.is_empty() {
        let mut part_only = object.clone();
        part_only.fields.retain(|name, _| part(name));
        errors.extend(read_typed(&part_only).err());
    }
    errors
}

fn read_typed(object: &Object) -> Result<(), FieldError> {
    fn read<S: ResourceSpec>(object: &Object) -> Result<(), FieldError> {
        let read = Resource::<S>::from_object(object);
        read.map(|_| ()).map_err(|e| {
            let (field, reason) = e.reason.split_once(": ").unwrap_or(("spec", &e.reason));
            FieldError::new(field, reason)
        })
    }
    match object.kind {
        Kind::IPAddressClass => read::<IPAddressClassSpec>(object),
        Kind::IPAddress => read::<IPAddressSpec>(object),
        Kind::IPAddressClaim => read::<IPAddressClaimSpec>(object),
    }
}

/// Errors in the known fields of the object at `path`.
pub(super) fn check_fields(
    map: &Map<String, Value>,
    fields: &'static [Field],
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    fields
        .iter()
        .for_each(|f| check_field(map, f, path, errors));
}

fn check_field(
    map: &Map<String, Value>,
    field: &'static Field,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    match map.get(field.name) {
        Some(value) => check_value(value, &field.shape, &join(path, field.name), errors),
        None if field.required => {
            errors.push(FieldError::new(join(path, field.name), "is required"));
        }
        None => {}
    }
}

/// Errors in a value that should have this shape. Only an object is read as one: what reads the
/// typed kinds would also take a list of its fields' values.
pub(super) fn check_value(
    value: &Value,
    shape: &'static Shape,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if errors.len() >= MAX_ERRORS {
        return;
    }
    let mut refuse = |message: String| errors.push(FieldError::new(path, message));
    match (shape, value) {
        (Shape::Any, _)
        | (Shape::Text, Value::String(_))
        | (Shape::Flag, Value::Bool(_))
        | (Shape::Opaque, Value::Object(_)) => {}
        (Shape::Words(words), Value::String(word)) => {
            if !words.contains(&word.as_str()) {
                refuse(format!(
                    "{} is not one of {}",
                    shown(word),
                    words.join(", ")
                ));
            }
        }
        (Shape::Time, Value::String(_)) => {
            if let Err(e) = serde_json::from_value::<Timestamp>(value.clone()) {
                refuse(e.to_string());
            }
        }
        (Shape::Revision, Value::String(text)) => {
            if let Err(message) = text.parse::<Revision>() {
                refuse(message);
            }
        }
        (Shape::Count, Value::Number(n)) if n.is_u64() => {}
        (Shape::Fields(fields), Value::Object(map)) => check_fields(map, fields, path, errors),
        (Shape::Texts, Value::Object(map)) => {
            for (name, text) in map {
                let name: String = name.chars().take(MAX_NAME_CHARS).collect();
                check_value(text, &Shape::Text, &join(path, &name), errors);
            }
        }
        (Shape::List(shape), Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                check_value(item, shape, &format!("{path}[{i}]"), errors);
            }
        }
        (Shape::Words(words), _) => {
            refuse(format!(
                "must be one of {}, not {}",
                words.join(", "),
                type_of(value)
            ));
        }
        (shape, _) => refuse(format!("must be {}, not {}", wanted(shape), type_of(value))),
    }
}

fn wanted(shape: &Shape) -> &'static str {
    match shape {
        Shape::Text | Shape::Words(_) => "a string",
        Shape::Count => "a whole number of 0 or more",
        Shape::Time => "a time such as \"2026-11-30T17:06:41Z\"",
        Shape::Flag => "true or false",
        Shape::Revision => "a resourceVersion as it was read",
        Shape::Texts => "an object with strings",
        Shape::Any => "anything",
        Shape::Fields(_) | Shape::Opaque => "an object",
        Shape::List(_) => "a list",
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The caller's text in quotes, cut if it is long.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(64) {
        Some((cut, _)) => format!("{:?}...", text.get(..cut).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(kind: &str, fields: Value) -> Vec<String> {
        let mut object = json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": kind});
        for (name, value) in fields.as_object().unwrap() {
            object[name] = value.clone();
        }
        let object = Object::from_value(object).unwrap();
        let all = [check_main(&object), check_status(&object)].concat();
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named_with_what_it_should_be() {
        for (kind, fields, error) in [
            (
                "IPAddressClaim",
                json!({"spec": {"family": "IPv5"}}),
                r#"spec.family: "IPv5" is not one of IPv4, IPv6, Dual"#,
            ),
            (
                "IPAddressClaim",
                json!({"spec": {"family": 4}}),
                "spec.family: must be one of IPv4, IPv6, Dual, not a number",
            ),
            (
                "IPAddressClaim",
                json!({"spec": []}),
                "spec: must be an object, not a list",
            ),
            (
                "IPAddressClaim",
                json!({"spec": {"className": true}}),
                "spec.className: must be a string, not a boolean",
            ),
            (
                "IPAddress",
                json!({"spec": {"claimRef": {"uid": null}}}),
                "spec.claimRef.uid: must be a string, not null",
            ),
            (
                "IPAddress",
                json!({"spec": {"source": {"fromClass": "yes"}}}),
                "spec.source.fromClass: must be an object, not a string",
            ),
            (
                "IPAddressClass",
                json!({"spec": {"reclaimPolicy": ""}}),
                r#"spec.reclaimPolicy: "" is not one of Retain, Delete"#,
            ),
            (
                "IPAddressClass",
                json!({"spec": {"parameters": [1]}}),
                "spec.parameters: must be an object, not a list",
            ),
            (
                "IPAddress",
                json!({"status": {"phase": "Busy"}}),
                r#"status.phase: "Busy" is not one of Pending, Available, Bound, Released, Conflict, Lost"#,
            ),
            (
                "IPAddress",
                json!({"status": {"associatedTo": {"kind": "Service", "name": "s"}}}),
                "status.associatedTo.namespace: is required",
            ),
            (
                "IPAddressClaim",
                json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]}}),
                "status.conditions[1].status: is required",
            ),
            (
                "IPAddressClaim",
                json!({"status": {"conditions": [{"type": "A", "status": "True", "observedGeneration": -1}]}}),
                "status.conditions[0].observedGeneration: must be a whole number of 0 or more, not a number",
            ),
            (
                "IPAddressClaim",
                json!({"status": {"addresses": "192.0.2.1"}}),
                "status.addresses: must be a list, not a string",
            ),
        ] {
            assert_eq!(errors(kind, fields), [error]);
        }
    }

    #[test]
    fn a_time_that_is_none_is_refused_with_an_example() {
        let condition = json!({"type": "A", "status": "True", "lastTransitionTime": "now"});
        let found = errors(
            "IPAddressClaim",
            json!({"status": {"conditions": [condition]}}),
        );
        assert!(
            found[0].starts_with("status.conditions[0].lastTransitionTime: "),
            "{found:?}"
        );
        assert!(found[0].contains("2026-11-30T17:06:41Z"), "{found:?}");
    }

    #[test]
    fn a_long_word_is_cut_in_the_message() {
        let found = errors(
            "IPAddressClaim",
            json!({"spec": {"family": "é".repeat(10_000)}}),
        );
        assert!(found[0].len() < 300, "{}", found[0].len());
    }
}
