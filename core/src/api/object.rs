use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use super::{Extra, Key, Kind, ObjectMeta};
use crate::store::Revision;

/// An object as a store keeps it: typed metadata, everything else as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The kind; written as `apiVersion` and `kind`.
    pub kind: Kind,
    /// The standard metadata.
    pub metadata: ObjectMeta,
    /// All other top-level fields (`spec`, `status`, and what this version does not know).
    pub fields: Map<String, Value>,
}

/// A stored or sent object that cannot be read as what it should be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct DecodeError {
    /// The object, as far as it is known.
    pub what: String,
    /// What is wrong, with the field.
    pub reason: String,
}

impl Object {
    /// The key of the object.
    pub fn key(&self) -> Key {
        self.metadata.key(self.kind)
    }

    /// The revision of the last write, if a store has set one.
    pub fn revision(&self) -> Option<Revision> {
        self.metadata.resource_version
    }

    /// Reads an object from a JSON value.
    ///
    /// # Errors
    /// The kind is unknown, or the metadata has the wrong shape.
    pub fn from_value(value: Value) -> Result<Object, DecodeError> {
        let fail = |what: &str, reason: String| DecodeError {
            what: what.to_owned(),
            reason,
        };
        let Value::Object(mut fields) = value else {
            return Err(fail("object", "a JSON object is expected".to_owned()));
        };
        let mut text = |field: &str| match fields.remove(field) {
            Some(Value::String(s)) => Ok(s),
            Some(_) => Err(fail("object", format!("`{field}` must be a string"))),
            None => Err(fail("object", format!("`{field}` is missing"))),
        };
        let (api_version, kind) = (text("apiVersion")?, text("kind")?);
        let Some(kind) = Kind::find(&api_version, &kind) else {
            return Err(fail(
                "object",
                format!(
                    "kind `{kind}` of `{api_version}` is not kept here; known kinds are {}",
                    Kind::ALL
                        .map(|k| format!("{} ({})", k.name(), k.api_version()))
                        .join(", ")
                ),
            ));
        };
        let metadata = fields
            .remove("metadata")
            .unwrap_or(Value::Object(Map::new()));
        let name = metadata
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned();
        let metadata = ObjectMeta::deserialize(metadata)
            .map_err(|e| fail(&format!("{kind} {name}"), format!("metadata: {e}")))?;
        Ok(Object {
            kind,
            metadata,
            fields,
        })
    }

    /// The object as a JSON value.
    pub fn to_value(&self) -> Value {
        // Fails only for maps with keys that are not strings, which an object does not have.
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3 + self.fields.len()))?;
        map.serialize_entry("apiVersion", &self.kind.api_version())?;
        map.serialize_entry("kind", self.kind.name())?;
        map.serialize_entry("metadata", &self.metadata)?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        Object::from_value(Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// The spec of a kind, which fixes the kind and its status.
pub trait ResourceSpec:
    Serialize + DeserializeOwned + Clone + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static
{
    /// The kind.
    const KIND: Kind;
    /// Its status.
    type Status: Serialize
        + DeserializeOwned
        + Clone
        + Default
        + PartialEq
        + std::fmt::Debug
        + Send
        + Sync
        + 'static;
}

/// A typed object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resource<S: ResourceSpec> {
    /// The standard metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: S,
    /// What is observed; may be absent at any moment.
    pub status: Option<S::Status>,
    /// Top-level fields that this version does not know.
    pub extra: Extra,
}

impl<S: ResourceSpec> Resource<S> {
    /// The key of the object.
    pub fn key(&self) -> Key {
        self.metadata.key(S::KIND)
    }

    /// The uid that the store gave it.
    pub fn uid(&self) -> &str {
        &self.metadata.uid
    }

    /// Reads the typed form of a stored object.
    ///
    /// # Errors
    /// The object is of another kind, or a field has the wrong shape; the error names both.
    pub fn from_object(object: &Object) -> Result<Self, DecodeError> {
        let fail = |reason: String| DecodeError {
            what: object.key().to_string(),
            reason,
        };
        if object.kind != S::KIND {
            return Err(fail(format!("a {} is expected", S::KIND)));
        }
        let mut extra = object.fields.clone();
        let spec = match extra.remove("spec") {
            Some(v) => S::deserialize(v).map_err(|e| fail(format!("spec: {e}")))?,
            None => S::default(),
        };
        let status = match extra.remove("status") {
            Some(Value::Null) | None => None,
            Some(v) => Some(S::Status::deserialize(v).map_err(|e| fail(format!("status: {e}")))?),
        };
        Ok(Resource {
            metadata: object.metadata.clone(),
            spec,
            status,
            extra,
        })
    }

    /// The untyped form, for a store.
    ///
    /// # Errors
    /// A field cannot be written as JSON. No value of our kinds is like that.
    pub fn to_object(&self) -> Result<Object, DecodeError> {
        let fail = |e: serde_json::Error| DecodeError {
            what: self.key().to_string(),
            reason: e.to_string(),
        };
        let mut fields = self.extra.clone();
        fields.insert(
            "spec".to_owned(),
            serde_json::to_value(&self.spec).map_err(fail)?,
        );
        if let Some(status) = &self.status {
            fields.insert(
                "status".to_owned(),
                serde_json::to_value(status).map_err(fail)?,
            );
        }
        Ok(Object {
            kind: S::KIND,
            metadata: self.metadata.clone(),
            fields,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{IPAddress, IPAddressClaim};

    #[test]
    fn unknown_fields_at_every_level_survive_a_round_trip() {
        let value = json!({
            "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddress", "future": 1,
            "metadata": {"name": "ip-192-0-2-1", "managedFields": [{"manager": "x"}]},
            "spec": {"address": "192.0.2.1", "className": "c", "reclaimPolicy": "Delete", "zone": "a",
                "claimRef": {"namespace": "n", "name": "k", "uid": "u", "kind": "IPAddressClaim"},
                "source": {"providerRef": {"id": "eip-1", "region": "r"}, "note": 2}},
            "status": {"phase": "Bound", "since": "then",
                "associatedTo": {"kind": "Service", "namespace": "n", "name": "s", "port": 80},
                "conditions": [{"type": "Bound", "status": "True", "reason": "Bound", "message": "", "x": 1}]}
        });
        let object = Object::from_value(value.clone()).unwrap();
        let typed = IPAddress::from_object(&object).unwrap();
        assert_eq!(typed.to_object().unwrap().to_value(), value);
    }

    #[test]
    fn a_claim_that_says_nothing_asks_for_ipv4() {
        let value = json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1",
            "kind": "IPAddressClaim", "metadata": {"name": "a", "namespace": "n"}});
        let claim = IPAddressClaim::from_object(&Object::from_value(value).unwrap()).unwrap();
        assert_eq!(claim.spec.family.as_str(), "IPv4");
    }

    #[test]
    fn a_field_of_the_wrong_shape_is_named_with_its_object() {
        let value = json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1",
            "kind": "IPAddressClaim", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"family": "IPv5"}});
        let e = IPAddressClaim::from_object(&Object::from_value(value).unwrap()).unwrap_err();
        assert!(e.to_string().contains("IPAddressClaim n/a"), "{e}");
        assert!(e.to_string().contains("IPv5"), "{e}");
    }

    #[test]
    fn a_kind_that_is_not_kept_here_is_refused_with_the_known_ones() {
        let e = Object::from_value(json!({"apiVersion": "v1", "kind": "Pod"})).unwrap_err();
        assert!(e.to_string().contains("IPAddressClaim"), "{e}");
    }
}
