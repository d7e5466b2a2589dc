//! What a backend must offer to be put through the suite.

use std::sync::Arc;

use async_trait::async_trait;
use ipledger_core::api::Key;
use ipledger_core::runtime::Election;
use ipledger_core::store::{Capabilities, MemoryStore, Revision, Store};

/// A kind of ledger.
#[async_trait]
pub(crate) trait Backend: Send + Sync + 'static {
    /// Its name, as in [`Capabilities::backend`].
    fn name(&self) -> &'static str;

    /// An empty ledger.
    async fn fresh(&self) -> Box<dyn Hooks>;
}

/// One ledger, and what can be done to it from outside. `None` from a hook means that the backend
/// has no such thing; [`Ledger`] then asserts that its capabilities say so.
#[async_trait]
pub(crate) trait Hooks: Send + Sync {
    /// The client of the case.
    fn store(&self) -> Arc<dyn Store>;

    /// How many unread events a watch must hold at least; with many more, it may be cut off.
    fn watch_buffer(&self) -> usize;

    /// Forgets the history up to and with this revision.
    async fn compact(&self, revision: Revision) -> Option<()>;

    /// Moves the revision ahead without a write, as a restored backup does. The client may be another
    /// one afterwards.
    async fn jump(&mut self, to: Revision);

    /// Ends all open watches, as a lost connection does. The client may be another one afterwards.
    async fn break_watches(&mut self);

    /// Makes the stored form of an existing object unreadable, behind the back of the store.
    async fn damage(&self, key: &Key) -> Option<()>;

    /// Another client of the same ledger, as from another process.
    async fn second_client(&self) -> Option<Arc<dyn Store>>;

    /// Writes something that is not in the ledger, as somebody always does where a store is shared.
    async fn stir(&self) {}

    /// Stops the ledger and opens it again from what it kept.
    async fn restart(&mut self) -> Option<()>;

    /// How a server of this name takes part in the election. Where there is none, the refusal of the
    /// backend is asserted here.
    async fn election(&self, _name: &str) -> Option<Arc<dyn Election>> {
        None
    }
}

/// The ledger that a case is given.
pub(crate) struct Ledger {
    hooks: Box<dyn Hooks>,
    /// The client of the case.
    pub(crate) store: Arc<dyn Store>,
}

impl Ledger {
    pub(crate) fn new(hooks: Box<dyn Hooks>) -> Ledger {
        let store = hooks.store();
        Ledger { hooks, store }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    pub(crate) fn watch_buffer(&self) -> usize {
        self.hooks.watch_buffer()
    }

    /// Forgets the history; `false` if the backend promises none.
    pub(crate) async fn compact(&self, revision: Revision) -> bool {
        let done = self.hooks.compact(revision).await.is_some();
        assert!(
            done || self.capabilities().history_revisions == 0,
            "a backend with a history must be compactable"
        );
        done
    }

    pub(crate) async fn jump(&mut self, to: Revision) {
        self.drop_client();
        self.hooks.jump(to).await;
        self.store = self.hooks.store();
    }

    pub(crate) async fn break_watches(&mut self) {
        self.drop_client();
        self.hooks.break_watches().await;
        self.store = self.hooks.store();
    }

    /// Makes an object unreadable; `false` if the backend says that it cannot name such a one.
    pub(crate) async fn damage(&self, key: &Key) -> bool {
        let damaged = self.hooks.damage(key).await.is_some();
        assert_eq!(
            damaged,
            self.capabilities().names_unreadable,
            "what is damaged must be named, and only that"
        );
        damaged
    }

    pub(crate) async fn stir(&self) {
        self.hooks.stir().await;
    }

    /// Another client; `None` if the backend says that it is not shared.
    pub(crate) async fn second_client(&self) -> Option<Arc<dyn Store>> {
        let client = self.hooks.second_client().await;
        assert!(
            client.is_some() || !self.capabilities().shared,
            "a shared backend must take a second client"
        );
        client
    }

    /// How a server takes part in the election; `None` if the backend says that it has none.
    pub(crate) async fn election(&self, name: &str) -> Option<Arc<dyn Election>> {
        let election = self.hooks.election(name).await;
        assert_eq!(
            election.is_some(),
            self.capabilities().leases,
            "servers are elected exactly where the backend says so"
        );
        election
    }

    /// Restarts the ledger; `false` if the backend says that it is not durable.
    pub(crate) async fn restart(&mut self) -> bool {
        let durable = self.capabilities().durable;
        self.drop_client();
        let restarted = self.hooks.restart().await.is_some();
        self.store = self.hooks.store();
        assert_eq!(
            restarted, durable,
            "what is durable, and only that, outlives a restart"
        );
        restarted
    }

    /// So that nobody but the hooks keeps the ledger open.
    fn drop_client(&mut self) {
        self.store = Arc::new(MemoryStore::default());
    }
}
