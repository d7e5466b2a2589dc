use async_trait::async_trait;
use futures::StreamExt;
use tokio::sync::watch;

use crate::api::{Key, Kind, Object};
use crate::store::{
    Capabilities, Deletion, ListOptions, ListPage, MemoryStore, Part, Preconditions, ReadAt,
    Revision, Store, StoreError, WatchOptions, WatchStream,
};

/// The in-memory store behind two gates, which let listings of addresses and items of watches
/// through only while they are open.
pub(super) struct Gated {
    pub(super) inner: MemoryStore,
    pub(super) lists: watch::Sender<bool>,
    pub(super) watches: watch::Sender<bool>,
}

impl Gated {
    pub(super) fn open(inner: MemoryStore) -> Gated {
        Gated {
            inner,
            lists: watch::channel(true).0,
            watches: watch::channel(true).0,
        }
    }
}

async fn pass(mut gate: watch::Receiver<bool>) {
    gate.wait_for(|open| *open).await.unwrap();
}

#[async_trait]
impl Store for Gated {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        self.inner.get(key, at).await
    }

    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        if kind == Kind::IPAddress {
            pass(self.lists.subscribe()).await;
        }
        self.inner.list(kind, options).await
    }

    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        self.inner.create(object).await
    }

    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        self.inner.update(object, part).await
    }

    async fn delete(&self, key: &Key, asked: &Preconditions) -> Result<Deletion, StoreError> {
        self.inner.delete(key, asked).await
    }

    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        let gate = self.watches.subscribe();
        let stream = self.inner.watch(kind, options).await?;
        let gated = stream.then(move |item| {
            let gate = gate.clone();
            async move {
                pass(gate).await;
                item
            }
        });
        Ok(gated.boxed())
    }

    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        self.inner.barrier(kind).await
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}
