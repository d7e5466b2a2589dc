use std::time::Duration;

use async_trait::async_trait;

use super::Change;
use crate::api::Kind;
use crate::store::Revision;

/// What a controller does with changes and keys; the binding core and each driver is one.
///
/// # Guarantees of the controller to a reconciler
/// * `observe` is called for each change of a kind in order, and never twice for one change.
/// * `reconcile` is not called before the initial state of every kind was observed.
/// * A key is never reconciled by two workers at once, and not again before the observed state
///   has reached every revision that its last pass wrote.
#[async_trait]
pub trait Reconciler: Send + Sync + 'static {
    /// What a pass is about.
    type Key: Ord + Clone + std::fmt::Debug + std::fmt::Display + Send + Sync + 'static;

    /// The kinds to observe.
    fn kinds(&self) -> &'static [Kind];

    /// Takes a change into the reconciler's own view and names the keys that it concerns.
    fn observe(&self, change: &Change) -> Vec<Self::Key>;

    /// One pass over a key: view, decide, write.
    async fn reconcile(&self, key: &Self::Key) -> Pass<Self::Key>;

    /// All keys, for the periodic safety net.
    fn all_keys(&self) -> Vec<Self::Key>;
}

/// What one pass did.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass<K> {
    /// What is to happen with this key next.
    pub next: Next,
    /// The revision of each write that was acknowledged; the key rests until they are observed.
    pub wrote: Vec<(Kind, Revision)>,
    /// Other keys that this pass found to be worth a pass.
    pub wake: Vec<K>,
}

/// What is to happen with a key after a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until a change concerns it.
    Wait,
    /// Another pass after this time at the latest.
    After(Duration),
    /// The view was old (a lost race): again at once, from a fresh view, with back-off if it repeats.
    Again,
    /// It failed for this reason; again with back-off.
    Failed(String),
}

impl<K> Pass<K> {
    /// A pass after which nothing is to be done.
    pub fn settled() -> Pass<K> {
        Pass {
            next: Next::Wait,
            wrote: Vec::new(),
            wake: Vec::new(),
        }
    }
}
