//! What an object may say: the rules of the public contract, checked where objects come in.
//!
//! A store preserves what it is given; the edge (the HTTP API, and the command line before it
//! sends) works on an object in this order: [`metadata_types`], [`unknown_fields`] and [`prune_unknown`],
//! [`apply_defaults`], then [`validate_create`], [`validate_update`] or [`validate_status`].
//! All of it is pure. Metadata is checked by [`rules`], the same for every
//! write; what is added here is about `spec` and `status`.
//!
//! An update is never refused for a bad field that it does not touch ("ratcheting"), so that an
//! object from before a rule, or from a server without it, can still be changed and let go.

mod annotations;
mod defaults;
mod envelope;
pub(in crate::api) mod schema;
mod spec;
mod suggest;
mod types;
mod unknown;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Kind, Object, Timestamp};
use crate::store::rules::{self, Birth};
use crate::store::{FieldError, StoreError};

pub use annotations::ANNOTATIONS_MAX;
pub use defaults::apply_defaults;
pub use envelope::{delete_options, metadata_types};
pub use suggest::nearest;
pub use unknown::{UnknownField, prune_unknown, unknown_fields};

/// Why an object cannot be created; empty if it can, as far as the object alone tells.
///
/// A `status` is not looked at, because a create drops it. A `uid` is not either: it is replaced.
/// With `metadata.generateName` and no name, any suffix is assumed.
pub fn validate_create(object: &Object) -> Vec<FieldError> {
    let object = tidied(object);
    let mut errors = metadata_errors(&object);
    if let Some(wrong_name) = spec::identity(&object) {
        // It says which name to take; what is wrong with the form of this one helps nobody.
        errors.retain(|e| e.field != wrong_name.field);
        errors.push(wrong_name);
    }
    errors.extend(annotations::check(None, &object));
    errors.extend(main_errors(&object));
    errors
}

/// Why an update of everything but `status` is refused: bad fields that `old` did not have just
/// so, changes of what cannot be changed, and annotations that leave no room (see
/// [`ANNOTATIONS_MAX`]). The rest of the metadata is left to the store.
pub fn validate_update(old: &Object, new: &Object) -> Vec<FieldError> {
    let (old, new) = (tidied(old), tidied(new));
    let mut errors = introduced(main_errors(&old), main_errors(&new), &old, &new);
    errors.extend(annotations::check(Some(&old), &new));
    errors.extend(spec::unchangeable(&old, &new));
    errors
}

/// Why an update of `status` is refused: fields of the wrong type, and second conditions of one
/// type, that `old` did not have just so.
pub fn validate_status(old: &Object, new: &Object) -> Vec<FieldError> {
    let (old, new) = (tidied(old), tidied(new));
    introduced(status_errors(&old), status_errors(&new), &old, &new)
}

fn status_errors(object: &Object) -> Vec<FieldError> {
    let errors = types::check_status(object);
    if errors.is_empty() {
        repeated_conditions(object)
    } else {
        errors
    }
}

/// Conditions are a map by `type`, although they are written as a list.
fn repeated_conditions(object: &Object) -> Vec<FieldError> {
    let conditions = value_at(object, "status.conditions").and_then(Value::as_array);
    let types = conditions
        .into_iter()
        .flatten()
        .map(|c| c.get("type").and_then(Value::as_str).unwrap_or_default());
    let mut seen = BTreeSet::new();
    types
        .enumerate()
        .filter(|(_, type_)| !seen.insert(*type_))
        .map(|(i, type_)| {
            let message = format!(
                "Duplicate value: {{\"type\": {}}}; keep one condition of each type",
                types::shown(type_)
            );
            FieldError::new(format!("status.conditions[{i}]"), message)
        })
        .collect()
}

fn main_errors(object: &Object) -> Vec<FieldError> {
    let errors = types::check_main(object);
    // What has the wrong type cannot be judged further.
    if errors.is_empty() {
        spec::check(object)
    } else {
        errors
    }
}

/// The object as the edge would keep it, so that a caller need not have prepared it.
fn tidied(object: &Object) -> Object {
    let mut object = object.clone();
    prune_unknown(&mut object);
    apply_defaults(&mut object);
    object
}

/// What the object rules of the stores say about the metadata of a new object.
fn metadata_errors(object: &Object) -> Vec<FieldError> {
    let mut probe = Object {
        kind: object.kind,
        metadata: object.metadata.clone(),
        fields: Map::new(),
    };
    probe.metadata.uid.clear();
    if let (true, Some(base)) = (probe.metadata.name.is_empty(), generate_name(object)) {
        probe.metadata.name = format!("{base}x");
    }
    let birth = Birth {
        uid: String::new(),
        now: Timestamp::default(),
    };
    match rules::create(probe, birth) {
        Err(StoreError::Invalid { errors, .. }) => errors,
        Err(e) => vec![FieldError::new("metadata", e.to_string())],
        Ok(_) => Vec::new(),
    }
}

/// The prefix of a name that the server is asked to complete; `None` if there is none.
pub fn generate_name(object: &Object) -> Option<&str> {
    let base = object
        .metadata
        .extra
        .get("generateName")
        .and_then(Value::as_str);
    base.filter(|b| !b.is_empty())
}

/// The errors of `new` without those that `old` had already over the same value.
fn introduced(
    before: Vec<FieldError>,
    after: Vec<FieldError>,
    old: &Object,
    new: &Object,
) -> Vec<FieldError> {
    let stood =
        |e: &FieldError| before.contains(e) && value_at(old, &e.field) == value_at(new, &e.field);
    after.into_iter().filter(|e| !stood(e)).collect()
}

/// The value at a path such as `status.conditions[0].type`.
fn value_at<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    let mut steps = path.split(['.', '[']);
    let first = object.fields.get(steps.next()?)?;
    steps.try_fold(first, |value, step| match step.strip_suffix(']') {
        Some(index) => value.get(index.parse::<usize>().ok()?),
        None => value.get(step),
    })
}

/// The text of a field; an absent one reads as empty.
fn text_at<'a>(object: &'a Object, path: &str) -> &'a str {
    value_at(object, path)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Whether this update of the spec of a claim comes too late (R9): the phase that froze it.
fn frozen_phase(old: &Object) -> Option<&str> {
    let phase = text_at(old, "status.phase");
    (old.kind == Kind::IPAddressClaim && ["Bound", "Lost"].contains(&phase)).then_some(phase)
}
