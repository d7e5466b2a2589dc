//! Listing: stretches of the keyspace at one revision, filtered here.

use std::sync::Arc;

use ipledger_core::api::{Key, Kind};
use ipledger_core::store::{ContinueToken, Filter, ListOptions, ListPage, Revision, StoreError};

use crate::Inner;
use crate::event::matches;
use crate::failure::Failure;
use crate::keys::Range;
use crate::kv::{self, Raw};
use crate::value::{Value, corrupt};

/// So many values are read at once.
const CHUNK: usize = 500;
/// A grave that is older than this many revisions has been forgotten by who dug it.
const OLD: u64 = 1_000;

/// Reads a part of the keyspace in pieces, all of which show one revision.
pub(crate) struct Scan {
    left: Option<Range>,
    /// Known from the first piece on.
    at: Option<u64>,
}

impl Scan {
    pub(crate) fn new(range: Range, at: Option<u64>) -> Scan {
        Scan {
            left: Some(range),
            at,
        }
    }

    /// The revision that all pieces show; zero before the first one.
    pub(crate) fn revision(&self) -> u64 {
        self.at.unwrap_or(0)
    }

    /// The next piece, `None` behind the last one.
    pub(crate) async fn next(
        &mut self,
        inner: &Inner,
        limit: usize,
    ) -> Result<Option<Vec<Raw>>, Failure> {
        let Some(range) = self.left.take() else {
            return Ok(None);
        };
        let stretch = kv::range(&inner.members, &range, self.at, limit.min(CHUNK)).await?;
        self.at.get_or_insert(stretch.last);
        if let Some(last) = stretch.values.last().filter(|_| stretch.more) {
            self.left = Some(Range {
                first: behind(&last.key),
                end: range.end,
            });
        }
        Ok(Some(stretch.values))
    }
}

/// The least key after this one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl Inner {
    pub(crate) async fn list(
        self: &Arc<Self>,
        kind: Kind,
        options: &ListOptions,
    ) -> Result<ListPage, StoreError> {
        let token = ContinueToken::of(options, kind)?;
        let fail = |failure| match failure {
            Failure::Future => ContinueToken::refused("is from another store"),
            other => other.of_read(&Key::cluster(kind, "")),
        };
        let filter = Filter::of_list(kind, options);
        let mut range = self.keys.range(kind, options.namespace.as_deref());
        if let Some(token) = &token {
            range.first = range.first.max(behind(&self.keys.of(&token.after)));
        }
        let mut scan = Scan::new(range, token.as_ref().map(|t| t.revision.0));
        let limit = options.limit.filter(|l| *l > 0).unwrap_or(usize::MAX);
        let mut page = ListPage::default();
        let mut last: Option<Key> = None;
        // One more than the page, to know whether it is the last. Of what a selector leaves, nobody
        // knows where it ends.
        let piece = if filter.selects_all() {
            limit.saturating_add(1)
        } else {
            usize::MAX
        };
        'pages: while let Some(values) = scan.next(self, piece).await.map_err(fail)? {
            for raw in values {
                let Some(key) = self.keys.parse(kind, &raw.key) else {
                    tracing::warn!(key = %raw.key.escape_ascii(), "a key that is none of ours is left out");
                    continue;
                };
                let value = Value::read(&key, raw.revision, &raw.value);
                if let Value::Gone(_) = value {
                    if token.is_none() && raw.revision + OLD < scan.revision() {
                        self.clear_away(raw.key, raw.revision);
                    }
                    continue;
                }
                if !matches(&filter, &key, &value) {
                    continue;
                }
                if page.items.len() == limit {
                    let revision = Revision(scan.revision());
                    page.continue_token =
                        last.map(|after| ContinueToken { revision, after }.encode());
                    break 'pages;
                }
                match value {
                    Value::Object(object) => page.items.push(Arc::unwrap_or_clone(object)),
                    Value::Unreadable { reason, .. } => page.corrupt.push(corrupt(&key, &reason)),
                    Value::Gone(_) => {}
                }
                last = Some(key);
            }
        }
        page.revision = Revision(scan.revision());
        Ok(page)
    }
}
