use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Kind, Timestamp};
use crate::store::Revision;

/// Fields that this version does not know. They are kept through a read-modify-write.
pub type Extra = Map<String, Value>;

/// The standard metadata of an object, in the Kubernetes form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Name, unique within kind and namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Namespace, empty for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Identity in time: a re-created object of the same name has another one. Set by the store.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The revision of the last write to this object. Set by the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<Revision>,
    /// Counts changes of what is asked for (`spec`), starting at 1. Set by the store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// When the store created the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// When deletion was asked for; the object stays until its finalizers are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    /// Labels, for selection.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Who still has work to do before the object may go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl ObjectMeta {
    /// Whether deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether this finalizer is on the object.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|f| f == finalizer)
    }

    /// Adds a finalizer unless it is there.
    pub fn add_finalizer(&mut self, finalizer: &str) {
        if !self.has_finalizer(finalizer) {
            self.finalizers.push(finalizer.to_owned());
        }
    }

    /// Removes a finalizer if it is there.
    pub fn remove_finalizer(&mut self, finalizer: &str) {
        self.finalizers.retain(|f| f != finalizer);
    }

    /// The value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }

    /// The key of the object of this kind that carries this metadata.
    pub fn key(&self, kind: Kind) -> super::Key {
        super::Key {
            kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}
