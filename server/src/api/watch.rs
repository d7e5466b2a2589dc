//! Watches: one JSON object a line.
//!
//! The store says that an object was applied; Kubernetes says `ADDED` or `MODIFIED`. Clients treat
//! the two alike (their caches know what they hold), people and tests that read the stream do not,
//! so it is decided as follows. An object that this stream has shown and not taken back is
//! `MODIFIED`. One that it shows for the first time is `ADDED`, except in a watch from a revision
//! without selectors when the object has been worked on since its creation (status, a second
//! generation, a deletion mark): then it is older than the watch, and `MODIFIED`. What this cannot
//! tell is an object older than the watch whose only change ever is one of its metadata.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::future::{self, Either, FutureExt};
use futures::stream::{self, StreamExt};
use ipledger_core::api::{Kind, Object};
use ipledger_core::store::{
    Revision, StoreError, WatchEvent, WatchFrom, WatchOptions, WatchStream,
};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::ApiState;
use super::error::ApiError;
use super::query::Query;
use super::read::{current_revision, explain};
use super::target::Target;

/// A watch without `timeoutSeconds` ends after 30 to 60 minutes, not all at one time.
const MIN_TIMEOUT: u64 = 30 * 60;
/// Events that are written at once when they are there at once.
const BATCH: usize = 64;

/// Answers with a stream of events.
pub(super) async fn start(
    api: ApiState,
    target: Target,
    query: &Query,
) -> Result<Response, ApiError> {
    let kind = target.kind;
    let wanted = query.revision()?;
    let initial = query.flag("sendInitialEvents")?;
    let timeout = query.number("timeoutSeconds")?.filter(|n| *n > 0);
    query.revision_match()?;
    let mut options = WatchOptions {
        from: WatchFrom::Start,
        namespace: target.namespace,
        labels: query.labels()?,
        fields: query.fields(kind)?,
    };
    match (initial, wanted) {
        (None | Some(false), Some(revision)) => options.from = WatchFrom::After(revision),
        (Some(false), None) => {
            options.from = WatchFrom::After(current_revision(&*api.store, kind).await?);
        }
        (Some(true), Some(revision)) => {
            let current = current_revision(&*api.store, kind).await?;
            if revision > current {
                return Err(ApiError::from_the_future(current));
            }
        }
        (None | Some(true), None) => {}
    }
    let bookmarks = query.flag("allowWatchBookmarks")? == Some(true);
    let encoder = Encoder::new(kind, &options, bookmarks, initial == Some(true));
    let events = match api.store.watch(kind, &options).await {
        Ok(events) => events,
        // Clients look for this one inside the stream.
        Err(e @ StoreError::Expired { .. }) => stream::once(future::ready(Err(e))).boxed(),
        Err(e) => {
            return Err(match options.from {
                WatchFrom::After(revision) => explain(&*api.store, kind, e, revision).await,
                WatchFrom::Start => e.into(),
            });
        }
    };
    let timeout = timeout.map_or_else(default_timeout, u64::from);
    let body = Body::from_stream(lines(events, encoder, api, Duration::from_secs(timeout)));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

fn default_timeout() -> u64 {
    let (random, _) = Uuid::new_v4().as_u64_pair();
    MIN_TIMEOUT + random % MIN_TIMEOUT
}

/// The stream as it is sent. It ends with the store's, after `timeout`, and when the server stops.
fn lines(
    events: WatchStream,
    mut encoder: Encoder,
    api: ApiState,
    timeout: Duration,
) -> impl stream::Stream<Item = Result<Vec<u8>, std::convert::Infallible>> {
    let end = future::select(
        Box::pin(tokio::time::sleep(timeout)),
        Box::pin(api.stopped()),
    )
    .map(|end| match end {
        Either::Left(_) => tracing::debug!("a watch has reached its time limit"),
        Either::Right(_) => tracing::debug!("a watch ends because the server stops"),
    });
    events
        .take_until(end)
        .ready_chunks(BATCH)
        .map(move |batch| {
            Ok(batch
                .into_iter()
                .flat_map(|e| encoder.line(e))
                .collect::<Vec<u8>>())
        })
        // A batch of events that this watch does not show.
        .filter(|chunk| future::ready(chunk.as_ref().is_ok_and(|bytes| !bytes.is_empty())))
}

/// Turns events of the store into lines.
struct Encoder {
    kind: Kind,
    /// What the stream has shown and not taken back, as hashes of uids: a collision costs a wrong
    /// word, a set of uids costs five times the memory.
    shown: HashSet<u64>,
    hasher: RandomState,
    /// Whether an object can be older than the watch and unchanged until it appears.
    partial_view: bool,
    bookmarks: bool,
    /// Whether the end of the initial objects is to be marked.
    mark_initial_end: bool,
}

#[derive(Serialize)]
struct Line<'a, T> {
    r#type: &'a str,
    object: &'a T,
}

impl Encoder {
    fn new(kind: Kind, options: &WatchOptions, bookmarks: bool, mark_initial_end: bool) -> Encoder {
        let selects = !options.labels.is_empty() || !options.fields.is_empty();
        Encoder {
            kind,
            shown: HashSet::new(),
            hasher: RandomState::new(),
            partial_view: matches!(options.from, WatchFrom::After(_)) && !selects,
            bookmarks,
            mark_initial_end,
        }
    }

    /// The line of an event; empty for what this watch does not show.
    fn line(&mut self, event: Result<WatchEvent, StoreError>) -> Vec<u8> {
        match event {
            Ok(WatchEvent::Applied(object)) => line(self.applied(&object), &*object),
            Ok(WatchEvent::Deleted(object)) => {
                self.shown
                    .remove(&self.hasher.hash_one(&object.metadata.uid));
                line("DELETED", &*object)
            }
            Ok(WatchEvent::Bookmark(revision)) => self.bookmark(revision, json!({})),
            Ok(WatchEvent::Synced(revision)) if self.mark_initial_end => {
                self.bookmark(revision, json!({"k8s.io/initial-events-end": "true"}))
            }
            Ok(WatchEvent::Synced(revision)) => self.bookmark(revision, json!({})),
            Ok(WatchEvent::Unreadable { key, reason, .. }) => {
                tracing::error!(%key, reason, "an object cannot be read; a watch leaves it out");
                Vec::new()
            }
            // The end of the stream says it: go on from the last revision.
            Err(e @ StoreError::TooSlow { .. }) => {
                tracing::warn!(kind = %self.kind, error = %e, "a watch is cut off");
                Vec::new()
            }
            Err(e) => line("ERROR", &ApiError::from(e).to_status()),
        }
    }

    fn applied(&mut self, object: &Object) -> &'static str {
        let first_time = self
            .shown
            .insert(self.hasher.hash_one(&object.metadata.uid));
        let meta = &object.metadata;
        let worked_on =
            meta.generation > 1 || meta.is_deleting() || object.fields.contains_key("status");
        if first_time && !(self.partial_view && worked_on) {
            "ADDED"
        } else {
            "MODIFIED"
        }
    }

    fn bookmark(&self, revision: Revision, annotations: Value) -> Vec<u8> {
        if !self.bookmarks {
            return Vec::new();
        }
        let object = json!({
            "kind": self.kind.name(), "apiVersion": self.kind.api_version(),
            "metadata": {"resourceVersion": revision, "creationTimestamp": null,
                "annotations": annotations},
        });
        line("BOOKMARK", &object)
    }
}

fn line<T: Serialize>(r#type: &str, object: &T) -> Vec<u8> {
    match serde_json::to_vec(&Line { r#type, object }) {
        Ok(mut line) => {
            line.push(b'\n');
            line
        }
        // Objects came from JSON and are JSON again.
        Err(e) => {
            tracing::error!(error = %e, "an event of a watch cannot be written");
            Vec::new()
        }
    }
}
