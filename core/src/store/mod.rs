//! The Store contract (design page 3): list, watch, compare-and-swap update, finalizers.
//!
//! # Guarantees
//! * `update` and `delete` act only on the revision (and uid) that the caller has seen.
//! * An update that changes nothing writes nothing and makes no event.
//! * A watch is ordered, without holes and without repeats; when that cannot be kept, it ends with
//!   an error and nothing follows.
//!
//! # Assumptions
//! * Revisions are ordered within one kind of one store, and nowhere else.
//!
//! # Caveats
//! * There is no transaction over several objects, because the Kubernetes API has none.
//! * After [`StoreError::OutcomeUnknown`] the write may have happened, or may still happen.

mod error;
mod filter;
mod list;
mod memory;
pub mod rules;
mod selector;
mod token;
mod watch;

use async_trait::async_trait;

use crate::api::{Key, Kind, Object, Resource, ResourceSpec};

pub use error::{ErrorClass, FieldError, StoreError};
pub use filter::Filter;
pub use list::{ListOptions, ListPage};
pub use memory::MemoryStore;
pub use selector::{FieldSelector, LabelSelector, SelectorError};
pub use token::ContinueToken;
pub use watch::{Revision, WatchEvent, WatchFrom, WatchOptions, WatchStream};

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAt {
    /// Linearizable: reflects every write that was acknowledged before the call.
    Latest,
    /// At least as new as this revision of the kind.
    NotOlderThan(Revision),
}

/// Which part of an object an update writes. The other part keeps its stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Everything but `status`: metadata, `spec` and unknown fields.
    Main,
    /// Only `status`.
    Status,
}

/// What must hold for a delete to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The object must have this uid.
    pub uid: Option<String>,
    /// The object must be at this revision.
    pub revision: Option<Revision>,
}

/// What a delete did.
#[derive(Clone, Debug, PartialEq)]
pub enum Deletion {
    /// Finalizers are present: the object is marked and stays.
    Finalizing(Object),
    /// The object is gone; its last state, with the revision of the deletion.
    Gone(Object),
}

/// What a backend really does. A test of the contract suite asserts each claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The backend's name, for messages: `memory`, `sqlite`, `etcd`, `kubernetes`.
    pub backend: &'static str,
    /// Whether objects outlive the process.
    pub durable: bool,
    /// Whether `barrier` costs less than a list.
    pub cheap_barrier: bool,
    /// Largest object in bytes of JSON; larger ones are refused with `TooLarge`.
    pub max_object_bytes: usize,
    /// Watches can start at least this many revisions back (0: no promise).
    pub history_revisions: u64,
    /// Whether several processes may work on one ledger.
    pub shared: bool,
    /// Whether several servers elect one whose controllers work (see
    /// [`Election`](crate::runtime::Election)). Where they do not, the controllers of all of them work:
    /// that is safe, but costs passes, and addresses that are parked because two drivers served one claim.
    pub leases: bool,
    /// Whether an object that is stored in a form that cannot be read is named, and stalls no other;
    /// if not, its kind is not available as long as it is there.
    pub names_unreadable: bool,
    /// Whether a field selector may name any field; if not, one that is not meant for it is refused.
    pub selects_any_field: bool,
}

/// The ledger's backend. See the module's documentation for what all of them promise.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Reads one object.
    ///
    /// # Errors
    /// `NotFound` if it does not exist; `Corrupt` if it cannot be read; `Unavailable`.
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError>;

    /// Lists objects of a kind in key order (namespace, then name). All pages of one listing show
    /// the state at one revision.
    ///
    /// # Errors
    /// `Expired` if the continue token is too old; `BadRequest` if it was not made by this store;
    /// `Unavailable`. Objects that cannot be read are named in the page and stall nothing.
    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError>;

    /// Creates an object; sets uid, creation time, generation 1 and the revision, and returns it
    /// as stored.
    ///
    /// # Errors
    /// `AlreadyExists` with the uid and operation id of the holder; `Invalid`, `TooLarge`,
    /// `Forbidden`, `Unavailable`, `OutcomeUnknown`.
    async fn create(&self, object: Object) -> Result<Object, StoreError>;

    /// Replaces one part of an object if it is still at `object.metadata.resourceVersion`, and
    /// returns it as stored. An identical result writes nothing and returns the stored object.
    /// Removing the last finalizer of a marked object deletes it: the object is then returned
    /// with the revision of its deletion.
    ///
    /// # Errors
    /// `Conflict` if the revision has moved; `NotFound`; `PreconditionFailed` if the object carries
    /// another uid; `Invalid` (also without a revision), `TooLarge`, `Forbidden`, `Unavailable`,
    /// `OutcomeUnknown`.
    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError>;

    /// Deletes an object, or marks it if finalizers are present. Marking twice changes nothing.
    ///
    /// # Errors
    /// `NotFound`; `PreconditionFailed` if uid or revision are not as asked; `Unavailable`,
    /// `OutcomeUnknown`.
    async fn delete(
        &self,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError>;

    /// Follows a kind. See [`WatchEvent`] for the twelve rules of the stream.
    ///
    /// # Errors
    /// `Expired` if the revision is older than the history; `Unavailable`. A revision from the
    /// future is `Unavailable` (retry), never an empty stream.
    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError>;

    /// A revision that every watch of this kind reaches without another write, and that covers
    /// everything committed before the call: a cache that has reached it is provably not stale.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError>;

    /// What this backend really does.
    fn capabilities(&self) -> Capabilities;
}

/// Typed conveniences over any [`Store`].
#[async_trait]
pub trait StoreExt: Store {
    /// Reads one typed object; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`Store::get`], except `NotFound`.
    async fn find<S: ResourceSpec>(
        &self,
        key: &Key,
        at: ReadAt,
    ) -> Result<Option<Resource<S>>, StoreError> {
        match self.get(key, at).await {
            Ok(object) => Ok(Some(Resource::from_object(&object)?)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Lists all objects of a kind, page by page; unreadable ones are left out and logged.
    ///
    /// # Errors
    /// As [`Store::list`].
    async fn list_all<S: ResourceSpec>(&self) -> Result<Vec<Resource<S>>, StoreError> {
        let mut options = ListOptions::default();
        let mut all = Vec::new();
        loop {
            let page = self.list(S::KIND, &options).await?;
            for object in &page.items {
                match Resource::from_object(object) {
                    Ok(resource) => all.push(resource),
                    Err(e) => {
                        tracing::error!(error = %e, "an object cannot be read; it is left out")
                    }
                }
            }
            match page.continue_token {
                Some(token) => options.continue_token = Some(token),
                None => return Ok(all),
            }
        }
    }

    /// Creates a typed object.
    ///
    /// # Errors
    /// As [`Store::create`].
    async fn create_resource<S: ResourceSpec>(
        &self,
        resource: &Resource<S>,
    ) -> Result<Resource<S>, StoreError> {
        let stored = self.create(resource.to_object()?).await?;
        Ok(Resource::from_object(&stored)?)
    }

    /// Reads, changes and writes back one typed object until no other writer comes between, or
    /// the change declines (`None`). The first read is at `Latest`.
    ///
    /// # Errors
    /// As [`Store::get`] and [`Store::update`]; `Conflict` after 16 lost races.
    async fn update_with<S, F>(
        &self,
        key: &Key,
        part: Part,
        mut change: F,
    ) -> Result<Option<Resource<S>>, StoreError>
    where
        S: ResourceSpec,
        F: FnMut(&mut Resource<S>) -> bool + Send,
    {
        let mut tries = 0;
        loop {
            let mut resource = Resource::<S>::from_object(&self.get(key, ReadAt::Latest).await?)?;
            if !change(&mut resource) {
                return Ok(None);
            }
            match self.update(resource.to_object()?, part).await {
                Ok(stored) => return Ok(Some(Resource::from_object(&stored)?)),
                Err(StoreError::Conflict { .. }) if tries < 16 => tries += 1,
                Err(e) => return Err(e),
            }
        }
    }
}

impl<T: Store + ?Sized> StoreExt for T {}
