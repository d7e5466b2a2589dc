//! What stands under a key.
//!
//! An object is its JSON, without the revision, which etcd keeps beside it. A deleted object is
//! first overwritten by its *grave*, `{"gone":OBJECT}`, and the grave is then cleared away. The write
//! of the grave is the deletion: whoever reads a grave sees nothing there. So a watch always gets
//! the last state, also that of an update which takes the last finalizer away, and however soon the
//! history is compacted.

use std::sync::Arc;

use ipledger_core::api::{Key, Object};
use ipledger_core::store::{Revision, StoreError, rules};

const GRAVE_BEGIN: &[u8] = b"{\"gone\":";
const GRAVE_END: &[u8] = b"}";

/// A value, read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Object(Arc<Object>),
    /// There is nothing any more; the last state, with the revision of the deletion.
    Gone(Arc<Object>),
    Unreadable {
        /// As far as it can be made out; else empty.
        uid: String,
        reason: String,
    },
}

impl Value {
    /// Reads the value that was written under this key at this revision.
    pub(crate) fn read(key: &Key, revision: u64, bytes: &[u8]) -> Value {
        let inner = bytes
            .strip_prefix(GRAVE_BEGIN)
            .and_then(|rest| rest.strip_suffix(GRAVE_END));
        match object(key, revision, inner.unwrap_or(bytes)) {
            Ok(last) if inner.is_some() => Value::Gone(last),
            Ok(object) => Value::Object(object),
            Err(reason) => Value::Unreadable {
                uid: uid(bytes),
                reason,
            },
        }
    }
}

fn object(key: &Key, revision: u64, bytes: &[u8]) -> Result<Arc<Object>, String> {
    let mut object: Object = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if object.key() != *key {
        return Err(format!("it calls itself {}", object.key()));
    }
    object.metadata.resource_version = Some(Revision(revision));
    Ok(Arc::new(object))
}

/// The uid of something that is JSON, but no object.
fn uid(bytes: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    let uid = value.pointer("/metadata/uid").and_then(|u| u.as_str());
    uid.unwrap_or_default().to_owned()
}

/// The error of reading what cannot be read.
pub(crate) fn corrupt(key: &Key, reason: &str) -> StoreError {
    StoreError::Corrupt {
        key: key.clone(),
        reason: format!("{reason}; delete it and create it again"),
    }
}

/// The value of an object, which loses its old revision.
///
/// # Errors
/// `TooLarge`.
pub(crate) fn of_object(object: &mut Object, limit: usize) -> Result<Vec<u8>, StoreError> {
    object.metadata.resource_version = None;
    rules::check_size(object, limit)
}

/// The value of a deleted object. It is not measured: an object at the limit must be deletable.
pub(crate) fn of_grave(last: &mut Object) -> Result<Vec<u8>, StoreError> {
    let inner = of_object(last, usize::MAX)?;
    Ok([GRAVE_BEGIN, &inner, GRAVE_END].concat())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim() -> Object {
        Object::from_value(json!({
            "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
            "metadata": {"name": "web", "namespace": "n", "uid": "u", "resourceVersion": "3"},
            "gone": {"nobody": "knows"},
        }))
        .unwrap()
    }

    #[test]
    fn an_object_and_its_grave_read_back_with_the_revision_of_the_write() {
        let mut object = claim();
        let key = object.key();
        let bytes = of_object(&mut object, 1_000).unwrap();
        let grave = of_grave(&mut object).unwrap();
        object.metadata.resource_version = Some(Revision(7));
        let object = Arc::new(object);
        assert_eq!(Value::read(&key, 7, &bytes), Value::Object(object.clone()));
        assert_eq!(Value::read(&key, 7, &grave), Value::Gone(object));
    }

    #[test]
    fn what_is_no_object_of_that_name_is_unreadable() {
        let bytes = of_object(&mut claim(), 1_000).unwrap();
        for (key, bytes, wanted) in [
            (Key::claim("n", "other"), bytes.as_slice(), "u"),
            (
                Key::claim("n", "web"),
                b"{\"metadata\":{\"uid\":\"x\"}}",
                "x",
            ),
            (Key::claim("n", "web"), b"{\"gone\":{}}", ""),
            (Key::claim("n", "web"), b"\xff", ""),
            (Key::claim("n", "web"), b"", ""),
        ] {
            match Value::read(&key, 7, bytes) {
                Value::Unreadable { uid, .. } => assert_eq!(uid, wanted),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_object_over_the_limit_is_too_large_and_its_grave_never() {
        let mut object = claim();
        let e = of_object(&mut object, 10).unwrap_err();
        assert!(matches!(e, StoreError::TooLarge { limit: 10, .. }), "{e}");
        assert!(of_grave(&mut object).is_ok());
    }
}
