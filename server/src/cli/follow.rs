//! List, then watch, and go on wherever a watch ends: what `get --watch` and the live table of
//! `serve` look through.

use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use ipledger_core::api::{Kind, Object};
use tokio::time::sleep;

use super::client::{Client, ClientError, Scope, WatchItem};

/// A server that ends watches at once is asked again only after this.
const PAUSE: Duration = Duration::from_millis(200);

/// So many watches may break while they are opened before that is an error.
const MAX_BROKEN: u32 = 3;

/// What is seen of a kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seen {
    /// All objects that there are; what was seen before and is not among them is gone.
    Listed(Vec<Object>),
    /// The object came or changed.
    Applied(Object),
    /// The object went; its last state.
    Deleted(Object),
}

/// Follows objects of a kind.
pub(super) struct Follower {
    client: Client,
    kind: Kind,
    scope: Scope,
    /// Where the next watch starts; `None` before the first list.
    version: Option<String>,
    stream: Option<BoxStream<'static, Result<WatchItem, ClientError>>>,
    /// Whether the watch that is open, or was last, has delivered anything.
    fruitful: bool,
    /// Watches in a row that broke while they were opened, as when a server stops.
    broken: u32,
}

impl Follower {
    /// Nothing is asked before the first [`next`](Self::next).
    pub(super) fn new(client: Client, kind: Kind, scope: Scope) -> Follower {
        Follower {
            client,
            kind,
            scope,
            version: None,
            stream: None,
            fruitful: true,
            broken: 0,
        }
    }

    /// The next thing to see; the first is a list. To be awaited to its end: a call that is given
    /// up starts its request again.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub(super) async fn next(&mut self) -> Result<Seen, ClientError> {
        loop {
            let Some(version) = self.version.clone() else {
                let listing = self.client.list(self.kind, &self.scope).await?;
                self.version = Some(listing.version);
                return Ok(Seen::Listed(listing.items));
            };
            let Some(stream) = &mut self.stream else {
                if !std::mem::take(&mut self.fruitful) {
                    sleep(PAUSE).await;
                }
                match self.client.watch(self.kind, &self.scope, &version).await {
                    Ok(stream) => {
                        self.stream = Some(stream);
                        self.broken = 0;
                    }
                    Err(ClientError::Broken { .. }) if self.broken < MAX_BROKEN => {
                        self.broken += 1;
                    }
                    Err(e) if e.code() == 410 => self.version = None,
                    Err(e) => return Err(e),
                }
                continue;
            };
            let item = stream.next().await;
            if item.is_some() {
                self.fruitful = true;
            }
            match item {
                Some(Ok(WatchItem::Applied(object))) => {
                    self.reached(&object);
                    return Ok(Seen::Applied(object));
                }
                Some(Ok(WatchItem::Deleted(object))) => {
                    self.reached(&object);
                    return Ok(Seen::Deleted(object));
                }
                Some(Ok(WatchItem::Bookmark(version))) if !version.is_empty() => {
                    self.version = Some(version);
                }
                Some(Ok(WatchItem::Bookmark(_))) => {}
                Some(Err(e)) if e.code() == 410 => {
                    self.stream = None;
                    self.version = None;
                }
                // A broken stream is like one that ended: whether the server is there shows next.
                Some(Err(ClientError::Broken { .. })) | None => self.stream = None,
                Some(Err(e)) => return Err(e),
            }
        }
    }

    fn reached(&mut self, object: &Object) {
        if let Some(revision) = object.metadata.resource_version {
            self.version = Some(revision.to_string());
        }
    }
}
