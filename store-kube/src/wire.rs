//! An object as it goes over the wire.

use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{Revision, StoreError};
use serde_json::{Value, json};

/// Reads an object that the server sent, without the server's bookkeeping of who wrote which field:
/// it is larger than the rest, and an update that leaves it out keeps it.
pub(crate) fn read(kind: Kind, mut value: Value) -> Result<Object, StoreError> {
    if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    let (key, revision) = (key_of(kind, &value), revision_of(&value));
    let corrupt = |reason: String| StoreError::Corrupt {
        key: key.clone(),
        reason,
    };
    let object = Object::from_value(value).map_err(|e| corrupt(e.to_string()))?;
    if object.kind != kind {
        return Err(corrupt(format!("the server sent a {}", object.kind)));
    }
    match revision {
        Some(_) => Ok(object),
        None => Err(corrupt("it has no resourceVersion".to_owned())),
    }
}

/// The key of what may not be readable.
pub(crate) fn key_of(kind: Kind, value: &Value) -> Key {
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or("").to_owned();
    Key {
        kind,
        namespace: text("namespace"),
        name: text("name"),
    }
}

/// The revision of an object or a list.
pub(crate) fn revision_of(value: &Value) -> Option<Revision> {
    value["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// The body that writes everything but the status. What the server gives is left out: it refuses a
/// changed one, and keeps its own otherwise.
pub(crate) fn main_part(object: &Object) -> Object {
    let mut object = object.clone();
    let meta = &mut object.metadata;
    meta.generation = 0;
    meta.creation_timestamp = None;
    meta.deletion_timestamp = None;
    for field in ["deletionGracePeriodSeconds", "selfLink", "managedFields"] {
        meta.extra.remove(field);
    }
    let mut seen = std::collections::BTreeSet::new();
    meta.finalizers.retain(|f| seen.insert(f.clone()));
    object
}

/// The JSON Patch that writes the status alone, if the object is still the one that was seen. (In a
/// whole object that is sent to the status, the server would take every other difference for a change
/// of who owns the field, and write that.)
pub(crate) fn status_patch(object: &Object) -> Value {
    let meta = &object.metadata;
    let mut steps = Vec::new();
    let mut step = |op: &str, path: &str, value: Value| {
        steps.push(json!({"op": op, "path": path, "value": value}));
    };
    if !meta.uid.is_empty() {
        step("test", "/metadata/uid", json!(meta.uid));
    }
    step(
        "replace",
        "/metadata/resourceVersion",
        json!(meta.resource_version),
    );
    match object.fields.get("status") {
        Some(status) if !status.is_null() => step("add", "/status", status.clone()),
        // What is not there cannot be removed.
        _ => {
            step("add", "/status", Value::Null);
            steps.push(json!({"op": "remove", "path": "/status"}));
        }
    }
    Value::Array(steps)
}
