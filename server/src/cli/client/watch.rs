//! A watch: one JSON event a line.

use std::collections::VecDeque;

use futures::future::ready;
use futures::stream::{self, BoxStream, StreamExt};
use ipledger_core::api::{Kind, Object};
use serde::Deserialize;
use serde_json::Value;

use super::error::WireStatus;
use super::{Client, ClientError, Scope};

/// Longest line of a watch that is read: far above the largest object of any backend.
const MAX_LINE: usize = 64 * 1024 * 1024;

/// One line of a watch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WatchItem {
    /// The object came or changed.
    Applied(Object),
    /// The object went; its last state.
    Deleted(Object),
    /// Everything up to this revision was delivered.
    Bookmark(String),
}

impl Client {
    /// Follows a kind from just after this revision. The stream ends when the server ends it;
    /// after an error nothing follows.
    pub(crate) async fn watch(
        &self,
        kind: Kind,
        scope: &Scope,
        version: &str,
    ) -> Result<BoxStream<'static, Result<WatchItem, ClientError>>, ClientError> {
        let request = self
            .http
            .get(self.kind_url(kind, scope.namespace.as_deref()))
            .query(&[("watch", "true"), ("allowWatchBookmarks", "true")])
            .query(&[("resourceVersion", version)])
            .query(&scope.query());
        let (response, write) = self.send(request).await?;
        let bytes = response.bytes_stream();
        let (client, name) = (self.clone(), scope.name.clone());
        let mut failed = false;
        let items = lines(bytes.map({
            let client = client.clone();
            move |chunk| {
                chunk
                    .map(|c| c.to_vec())
                    .map_err(|e| client.failed(&e, write))
            }
        }))
        .map(move |line| client.watch_item(&line?))
        .filter(move |item| {
            let other = |o: &Object| name.as_ref().is_some_and(|n| o.metadata.name != *n);
            ready(!matches!(item, Ok(WatchItem::Applied(o) | WatchItem::Deleted(o)) if other(o)))
        })
        .take_while(move |item| ready(!std::mem::replace(&mut failed, item.is_err())));
        Ok(items.boxed())
    }

    fn watch_item(&self, line: &[u8]) -> Result<WatchItem, ClientError> {
        #[derive(Deserialize)]
        struct Event {
            r#type: String,
            object: Value,
        }
        let event: Event = serde_json::from_slice(line)
            .map_err(|e| self.protocol(format!("an event of a watch that cannot be read: {e}")))?;
        match event.r#type.as_str() {
            "ADDED" | "MODIFIED" => Ok(WatchItem::Applied(self.read(event.object)?)),
            "DELETED" => Ok(WatchItem::Deleted(self.read(event.object)?)),
            "BOOKMARK" => {
                let version = event.object.pointer("/metadata/resourceVersion");
                let version = version.and_then(Value::as_str).unwrap_or_default();
                Ok(WatchItem::Bookmark(version.to_owned()))
            }
            "ERROR" => {
                let status: WireStatus = serde_json::from_value(event.object)
                    .map_err(|e| self.protocol(format!("an error that cannot be read: {e}")))?;
                Err(ClientError::Status(status.into()))
            }
            other => Err(self.protocol(format!("an event of a watch of type `{other}`"))),
        }
    }
}

/// Cuts chunks into lines. What is left without a line end when the stream ends is dropped: it is
/// half an event, which the next watch repeats.
fn lines<S>(chunks: S) -> impl futures::Stream<Item = Result<Vec<u8>, ClientError>> + Send
where
    S: futures::Stream<Item = Result<Vec<u8>, ClientError>> + Send + 'static,
{
    let start = (chunks.boxed(), Vec::<u8>::new(), VecDeque::new());
    stream::try_unfold(start, |(mut chunks, mut part, mut whole)| async move {
        loop {
            if let Some(line) = whole.pop_front() {
                return Ok(Some((line, (chunks, part, whole))));
            }
            if part.len() > MAX_LINE {
                return Err(ClientError::Protocol {
                    server: "the server".to_owned(),
                    reason: format!("a line of a watch has more than {MAX_LINE} bytes"),
                });
            }
            let Some(chunk) = chunks.next().await else {
                return Ok(None);
            };
            part.extend(chunk?);
            let mut pieces = part
                .split(|b| *b == b'\n')
                .map(<[u8]>::to_vec)
                .collect::<VecDeque<_>>();
            part = pieces.pop_back().unwrap_or_default();
            whole = pieces;
        }
    })
    .filter(|line| ready(!matches!(line, Ok(line) if line.is_empty())))
}
