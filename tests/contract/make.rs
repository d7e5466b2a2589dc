//! Objects for the cases.

use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{
    FieldSelector, LabelSelector, ListOptions, ListPage, Part, Preconditions, ReadAt, Revision,
    Store, StoreError,
};
use serde_json::{Value, json};

pub(crate) const TEAM: &str = "team-a";
pub(crate) const HOLD: &str = "example.com/hold";
pub(crate) const ALSO: &str = "example.com/also";

/// A claim of class `public` in namespace `team-a`.
pub(crate) fn claim(name: &str) -> Object {
    claim_in(TEAM, name)
}

pub(crate) fn claim_in(namespace: &str, name: &str) -> Object {
    from(json!({
        "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"className": "public", "family": "IPv4"},
    }))
}

pub(crate) fn class(name: &str) -> Object {
    from(json!({
        "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClass",
        "metadata": {"name": name}, "spec": {"provisioner": "example.com/range"},
    }))
}

pub(crate) fn address(name: &str) -> Object {
    from(json!({
        "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddress",
        "metadata": {"name": name}, "spec": {"address": "192.0.2.1", "className": "public"},
    }))
}

pub(crate) fn from(value: Value) -> Object {
    Object::from_value(value).unwrap()
}

pub(crate) fn key(name: &str) -> Key {
    Key::claim(TEAM, name)
}

/// Small changes, to be chained.
pub(crate) trait Edit: Sized {
    fn label(self, name: &str, value: &str) -> Self;
    fn hold(self, finalizer: &str) -> Self;
    fn release(self, finalizer: &str) -> Self;
    fn field(self, name: &str, value: Value) -> Self;
    /// Another `spec.className`.
    fn asking(self, class: &str) -> Self;
    /// Another `status.phase`.
    fn phase(self, phase: &str) -> Self;
    fn at(self, revision: Option<Revision>) -> Self;
}

impl Edit for Object {
    fn label(mut self, name: &str, value: &str) -> Object {
        self.metadata
            .labels
            .insert(name.to_owned(), value.to_owned());
        self
    }

    fn hold(mut self, finalizer: &str) -> Object {
        self.metadata.finalizers.push(finalizer.to_owned());
        self
    }

    fn release(mut self, finalizer: &str) -> Object {
        self.metadata.remove_finalizer(finalizer);
        self
    }

    fn field(mut self, name: &str, value: Value) -> Object {
        self.fields.insert(name.to_owned(), value);
        self
    }

    fn asking(self, class: &str) -> Object {
        self.field("spec", json!({"className": class, "family": "IPv4"}))
    }

    fn phase(self, phase: &str) -> Object {
        self.field("status", json!({"phase": phase}))
    }

    fn at(mut self, revision: Option<Revision>) -> Object {
        self.metadata.resource_version = revision;
        self
    }
}

pub(crate) fn revision(object: &Object) -> Revision {
    object.revision().expect("a stored object has a revision")
}

pub(crate) async fn create(store: &dyn Store, object: Object) -> Object {
    store.create(object).await.unwrap()
}

/// Creates claims with these names, in this order.
pub(crate) async fn create_claims(store: &dyn Store, names: &[&str]) -> Vec<Object> {
    let mut created = Vec::new();
    for name in names {
        created.push(create(store, claim(name)).await);
    }
    created
}

pub(crate) async fn update(store: &dyn Store, object: Object) -> Object {
    store.update(object, Part::Main).await.unwrap()
}

pub(crate) async fn update_status(store: &dyn Store, object: Object) -> Object {
    store.update(object, Part::Status).await.unwrap()
}

pub(crate) async fn latest(store: &dyn Store, key: &Key) -> Object {
    store.get(key, ReadAt::Latest).await.unwrap()
}

pub(crate) async fn is_absent(store: &dyn Store, key: &Key) -> bool {
    match store.get(key, ReadAt::Latest).await {
        Ok(_) => false,
        Err(StoreError::NotFound { key: named }) => named == *key,
        Err(e) => panic!("{e}"),
    }
}

/// Deletes without preconditions and returns the object as the deletion left it.
pub(crate) async fn delete(store: &dyn Store, key: &Key) -> Object {
    use ipledger_core::store::Deletion::{Finalizing, Gone};
    let (Finalizing(object) | Gone(object)) =
        store.delete(key, &Preconditions::default()).await.unwrap();
    object
}

pub(crate) async fn list(store: &dyn Store, kind: Kind, options: &ListOptions) -> ListPage {
    store.list(kind, options).await.unwrap()
}

pub(crate) async fn list_claims(store: &dyn Store) -> ListPage {
    list(store, Kind::IPAddressClaim, &ListOptions::default()).await
}

pub(crate) fn labels(text: &str) -> LabelSelector {
    LabelSelector::parse(text).unwrap()
}

pub(crate) fn fields(text: &str) -> FieldSelector {
    FieldSelector::parse(text).unwrap()
}

pub(crate) fn names(objects: &[Object]) -> Vec<&str> {
    objects.iter().map(|o| o.metadata.name.as_str()).collect()
}

/// The paths of the fields that an `Invalid` names.
pub(crate) fn invalid_fields<T: std::fmt::Debug>(result: Result<T, StoreError>) -> Vec<String> {
    match result {
        Err(StoreError::Invalid { errors, .. }) => errors.into_iter().map(|e| e.field).collect(),
        other => panic!("Invalid is expected, not {other:?}"),
    }
}

/// Whether an error is of this variant.
macro_rules! assert_fails {
    ($result:expr, $variant:ident) => {
        match $result {
            Err(ipledger_core::store::StoreError::$variant { .. }) => {}
            other => panic!(
                concat!(stringify!($variant), " is expected, not {:?}"),
                other
            ),
        }
    };
}
pub(crate) use assert_fails;
