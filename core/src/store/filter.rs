use super::{FieldSelector, LabelSelector, ListOptions, WatchOptions};
use crate::api::{Key, Kind, Object};

/// Which objects a list or a watch is about. What becomes of an object that cannot be read is for the
/// backend to say: it may be what is looked for.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Only this kind.
    pub kind: Kind,
    /// Only this namespace; `None` means all.
    pub namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Filter {
    /// What a list asks for.
    pub fn of_list(kind: Kind, options: &ListOptions) -> Filter {
        Filter {
            kind,
            namespace: options.namespace.clone(),
            labels: options.labels.clone(),
            fields: options.fields.clone(),
        }
    }

    /// What a watch asks for.
    pub fn of_watch(kind: Kind, options: &WatchOptions) -> Filter {
        Filter {
            kind,
            namespace: options.namespace.clone(),
            labels: options.labels.clone(),
            fields: options.fields.clone(),
        }
    }

    /// Whether an object of this key is of the kind and in the namespace.
    pub fn covers(&self, key: &Key) -> bool {
        key.kind == self.kind && self.namespace.as_ref().is_none_or(|n| *n == key.namespace)
    }

    /// Whether the selectors take the object.
    pub fn selects(&self, object: &Object) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }

    /// Whether the selectors take every object.
    pub fn selects_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}
