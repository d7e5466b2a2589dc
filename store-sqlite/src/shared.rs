//! What the store, its tasks and its watches have in common, and the small reads on it.

use std::sync::Arc;

use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{ReadAt, Revision, StoreError};

use crate::error::{closed, unavailable};
use crate::event::corrupt;
use crate::feed::Feed;
use crate::identity::Identity;
use crate::options::{Counters, Options};
use crate::read;
use crate::readers::Readers;

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) readers: Readers,
    pub(crate) feed: Feed,
    pub(crate) stats: Counters,
    pub(crate) identity: Arc<Identity>,
}

/// Runs a read as a task of its own. A caller that stops polling in the middle, or a watch that
/// nobody reads on, then holds no reading connection back from the others.
pub(crate) async fn apart<T: Send + 'static>(
    read: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    // It fails only when the runtime ends.
    tokio::spawn(read).await.unwrap_or_else(|_| Err(closed()))
}

impl Shared {
    pub(crate) fn fail(&self, error: &sqlx::Error) -> StoreError {
        match self.identity.known() {
            Ok(()) => unavailable(self.readers.path(), error),
            // Whatever went wrong then has this cause.
            Err(lost) => lost.into(),
        }
    }

    pub(crate) async fn get(self: Arc<Self>, key: Key, at: ReadAt) -> Result<Object, StoreError> {
        let mut reader = self.readers.get().await?;
        if let ReadAt::NotOlderThan(revision) = at
            && revision.0 > self.feed.tail()
        {
            let counters = read::counters(&mut reader, None).await;
            counters
                .map_err(|e| self.fail(&e))?
                .check_reached(revision.0)?;
        }
        let stored = read::object(&mut reader, &key)
            .await
            .map_err(|e| self.fail(&e))?;
        let Some(stored) = stored else {
            return Err(StoreError::NotFound { key });
        };
        let object = stored
            .object(key.kind)
            .map_err(|reason| corrupt(&key, &reason))?;
        Ok(Arc::unwrap_or_clone(object))
    }

    pub(crate) async fn barrier(self: Arc<Self>, kind: Kind) -> Result<Revision, StoreError> {
        let mut reader = self.readers.get().await?;
        let counters = read::counters(&mut reader, Some(kind)).await;
        let last = counters.map_err(|e| self.fail(&e))?.of_kind;
        // A watch with a selector has perhaps not heard of the last event.
        self.feed.ask(kind, last);
        Ok(Revision(last))
    }
}
