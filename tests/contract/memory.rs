//! The in-memory store under test.

use std::sync::Arc;

use async_trait::async_trait;
use ipledger_core::api::Key;
use ipledger_core::store::{MemoryStore, Revision, Store};

use crate::backend::{Backend, Hooks};

const WATCH_BUFFER: usize = 1_000;

pub(crate) struct Memory;

#[async_trait]
impl Backend for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn fresh(&self) -> Box<dyn Hooks> {
        Box::new(MemoryHooks(
            MemoryStore::default().with_watch_buffer(WATCH_BUFFER),
        ))
    }
}

pub(crate) struct MemoryHooks(pub(crate) MemoryStore);

#[async_trait]
impl Hooks for MemoryHooks {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    fn watch_buffer(&self) -> usize {
        WATCH_BUFFER
    }

    async fn compact(&self, revision: Revision) -> Option<()> {
        self.0.compact(revision);
        Some(())
    }

    async fn jump(&mut self, to: Revision) {
        self.0.advance_to(to);
    }

    async fn break_watches(&mut self) {
        self.0.break_watches();
    }

    async fn damage(&self, key: &Key) -> Option<()> {
        self.0.inject_unreadable(key, "damaged by the suite");
        Some(())
    }

    async fn second_client(&self) -> Option<Arc<dyn Store>> {
        Some(self.store())
    }

    async fn restart(&mut self) -> Option<()> {
        None
    }
}
