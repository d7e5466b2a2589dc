//! What becomes of an object on create, update and delete: uid, generation, deletion mark,
//! finalizers, the split of status from the rest, no-op writes (design page 3).
//!
//! Pure, and the same for every backend that does not do it itself, as the Kubernetes API server
//! does. The backend reads the current object, asks here what to write, and commits that under one
//! new revision if the current object has not moved in between.

pub(in crate::store) mod shape;

use serde_json::Value;

use super::{FieldError, Part, Preconditions, StoreError};
use crate::api::{Key, Object, ObjectMeta, Timestamp};

pub use shape::{check_name, check_namespace};

/// Annotation with an id that the caller chooses for a create, so that it can recognise its own
/// object in `AlreadyExists` after an unknown outcome.
pub const OPERATION: &str = "local.sdn.cozystack.io/operation";

const STATUS: &str = "status";
const GRACE: &str = "deletionGracePeriodSeconds";

/// What a store adds to a new object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birth {
    /// An identity that no object had before.
    pub uid: String,
    /// The creation time.
    pub now: Timestamp,
}

/// What a backend is to do. The objects still carry the old revision (a new one carries none): the
/// backend sets the one that it commits under.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Nothing: answer with the object as it is stored.
    Unchanged,
    /// Store this as the new state.
    Write(Object),
    /// Remove the object; this is its last state.
    Remove(Object),
}

/// The object as it is to be stored, with uid, creation time and generation 1, without status,
/// deletion mark or revision. A status is dropped in silence, as for a kind with a status
/// subresource.
///
/// # Errors
/// `Invalid` for a bad name, namespace, label, annotation or finalizer, and for a uid or a
/// revision that the caller gives.
pub fn create(mut object: Object, birth: Birth) -> Result<Object, StoreError> {
    let key = object.key();
    let meta = &mut object.metadata;
    unique(&mut meta.finalizers);
    let mut errors = shape::check(&key, meta);
    if !meta.uid.is_empty() {
        errors.push(FieldError::new(
            "metadata.uid",
            "is given by the store; leave it out",
        ));
    }
    if meta.resource_version.is_some_and(|r| r.0 != 0) {
        errors.push(FieldError::new(
            "metadata.resourceVersion",
            "is given by the store; leave it out of an object to be created",
        ));
    }
    invalid_if_any(&key, errors)?;
    meta.uid = birth.uid;
    meta.creation_timestamp = Some(birth.now);
    meta.deletion_timestamp = None;
    meta.generation = 1;
    meta.resource_version = None;
    meta.extra.remove(GRACE);
    meta.extra.remove("selfLink");
    object.fields.remove(STATUS);
    Ok(object)
}

/// What an update of one part does to the object.
///
/// `Part::Main` takes metadata and every top-level field but `status` from `new`; uid, creation
/// time, deletion mark and generation never. `Part::Status` takes `status` alone. A marked object
/// that is left without finalizers is removed.
///
/// # Errors
/// `Invalid` without a revision, for bad metadata, and for a new finalizer on a marked object;
/// `PreconditionFailed` if `new` carries another uid; `Conflict` if the revision has moved.
pub fn update(current: &Object, new: Object, part: Part) -> Result<Outcome, StoreError> {
    let key = current.key();
    if new.key() != key {
        return Err(StoreError::Internal {
            reason: format!("an update of {} was compared with {key}", new.key()),
        });
    }
    check_seen(current, &new.metadata, &key)?;
    let next = match part {
        Part::Main => main_part(current, new, &key)?,
        Part::Status => status_part(current, new),
    };
    Ok(
        if next.metadata.is_deleting() && next.metadata.finalizers.is_empty() {
            Outcome::Remove(next)
        } else if next == *current {
            Outcome::Unchanged
        } else {
            Outcome::Write(next)
        },
    )
}

/// What a delete does to the object: with finalizers it is marked, without it is removed.
///
/// # Errors
/// `PreconditionFailed` if uid or revision are not as asked.
pub fn delete(
    current: &Object,
    preconditions: &Preconditions,
    now: Timestamp,
) -> Result<Outcome, StoreError> {
    let meta = &current.metadata;
    check_preconditions(&current.key(), &meta.uid, current.revision(), preconditions)?;
    if meta.finalizers.is_empty() {
        return Ok(Outcome::Remove(current.clone()));
    }
    if meta.is_deleting() {
        return Ok(Outcome::Unchanged);
    }
    let mut marked = current.clone();
    marked.metadata.deletion_timestamp = Some(now);
    marked.metadata.generation += 1;
    marked
        .metadata
        .extra
        .insert(GRACE.to_owned(), Value::from(0));
    Ok(Outcome::Write(marked))
}

/// Whether a delete may act on the object with this uid and revision. [`delete`] asks it; a
/// backend asks it itself for an object that cannot be read.
///
/// # Errors
/// `PreconditionFailed`.
pub fn check_preconditions(
    key: &Key,
    uid: &str,
    revision: Option<super::Revision>,
    preconditions: &Preconditions,
) -> Result<(), StoreError> {
    let fail = |reason: String| {
        Err(StoreError::PreconditionFailed {
            key: key.clone(),
            reason,
        })
    };
    if let Some(wanted) = &preconditions.uid
        && wanted != uid
    {
        return fail(format!("its uid is `{uid}`, not `{wanted}`"));
    }
    if let Some(wanted) = preconditions.revision
        && Some(wanted) != revision
    {
        let is = revision.map_or_else(|| "unknown".to_owned(), |r| r.to_string());
        return fail(format!("its revision is {is}, not {wanted}"));
    }
    Ok(())
}

/// What is left of an object that cannot be read when it is deleted: its key and uid. Backends
/// deliver it as the last state, so that whoever knew the object hears that it is gone.
pub fn remains(key: &Key, uid: &str) -> Object {
    Object {
        kind: key.kind,
        metadata: ObjectMeta {
            name: key.name.clone(),
            namespace: key.namespace.clone(),
            uid: uid.to_owned(),
            ..ObjectMeta::default()
        },
        fields: crate::api::Extra::new(),
    }
}

/// The error of a create that met `current`.
pub fn already_exists(key: Key, current: &Object) -> StoreError {
    StoreError::AlreadyExists {
        key,
        uid: current.metadata.uid.clone(),
        operation: current.metadata.annotation(OPERATION).map(str::to_owned),
    }
}

/// The object as JSON text, if it is not larger than `limit` bytes.
///
/// # Errors
/// `TooLarge`.
pub fn check_size(object: &Object, limit: usize) -> Result<Vec<u8>, StoreError> {
    let bytes = serde_json::to_vec(object).map_err(|e| StoreError::Internal {
        reason: format!("{} cannot be written as JSON: {e}", object.key()),
    })?;
    if bytes.len() > limit {
        return Err(StoreError::TooLarge {
            key: object.key(),
            size: bytes.len(),
            limit,
        });
    }
    Ok(bytes)
}

/// The uid is looked at before the revision: "another object" says more than "it has changed".
fn check_seen(current: &Object, new: &ObjectMeta, key: &Key) -> Result<(), StoreError> {
    let Some(seen) = new.resource_version.filter(|r| r.0 != 0) else {
        let error = FieldError::new(
            "metadata.resourceVersion",
            "must be the one of the object that was read; an update without it could overwrite \
             what it has not seen",
        );
        return invalid_if_any(key, vec![error]);
    };
    let preconditions = Preconditions {
        uid: Some(new.uid.clone()).filter(|u| !u.is_empty()),
        revision: None,
    };
    check_preconditions(
        key,
        &current.metadata.uid,
        current.revision(),
        &preconditions,
    )?;
    if current.revision() != Some(seen) {
        return Err(StoreError::Conflict { key: key.clone() });
    }
    Ok(())
}

fn main_part(current: &Object, mut new: Object, key: &Key) -> Result<Object, StoreError> {
    let (old, meta) = (&current.metadata, &mut new.metadata);
    unique(&mut meta.finalizers);
    let mut errors = shape::check(key, meta);
    if old.is_deleting() {
        let added = meta.finalizers.iter().filter(|f| !old.has_finalizer(f));
        errors.extend(added.map(|f| {
            FieldError::new(
                "metadata.finalizers",
                format!("`{f}`: no new finalizers can be added if the object is being deleted"),
            )
        }));
    }
    invalid_if_any(key, errors)?;
    meta.uid.clone_from(&old.uid);
    meta.resource_version = old.resource_version;
    meta.creation_timestamp = old.creation_timestamp;
    meta.deletion_timestamp = old.deletion_timestamp;
    meta.extra.remove("selfLink");
    take(&mut meta.extra, &old.extra, GRACE);
    take(&mut new.fields, &current.fields, STATUS);
    let changed = new.fields != current.fields;
    new.metadata.generation = old.generation + u64::from(changed);
    Ok(new)
}

fn status_part(current: &Object, new: Object) -> Object {
    let mut next = current.clone();
    take(&mut next.fields, &new.fields, STATUS);
    if next.fields.get(STATUS).is_some_and(Value::is_null) {
        next.fields.remove(STATUS);
    }
    next
}

/// Makes one field of `to` what it is in `from`.
fn take(to: &mut crate::api::Extra, from: &crate::api::Extra, field: &str) {
    match from.get(field) {
        Some(value) => to.insert(field.to_owned(), value.clone()),
        None => to.remove(field),
    };
}

fn unique(finalizers: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    finalizers.retain(|f| seen.insert(f.clone()));
}

fn invalid_if_any(key: &Key, errors: Vec<FieldError>) -> Result<(), StoreError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(StoreError::Invalid {
        key: key.clone(),
        errors,
    })
}
