//! Listing: all pages show one revision, whatever is written in between.

use std::sync::Arc;

use ipledger_core::api::{Key, Kind};
use ipledger_core::store::{ContinueToken, Filter, ListOptions, ListPage, Revision, StoreError};

use crate::event::corrupt;
use crate::read::{self, Stored};
use crate::shared::Shared;
use crate::span::{Name, Span};

/// How many objects are read at once at most.
const CHUNK: usize = 1_000;

pub(crate) async fn list(
    shared: Arc<Shared>,
    kind: Kind,
    options: ListOptions,
) -> Result<ListPage, StoreError> {
    let fail = |e: sqlx::Error| shared.fail(&e);
    let token = ContinueToken::of(&options, kind)?;
    let filter = Filter::of_list(kind, &options);
    let limit = options.limit.filter(|l| *l > 0).unwrap_or(usize::MAX);
    // One more than fits tells whether there is another page.
    let mut chunk = CHUNK.min(limit.saturating_add(1));

    let mut reader = shared.readers.get().await?;
    let counters = read::counters(&mut reader, None).await.map_err(fail)?;
    let mut span = Span::of_namespace(options.namespace.as_deref());
    let revision = match &token {
        Some(token) => {
            span = span.after(&(token.after.namespace.clone(), token.after.name.clone()));
            token.revision.0
        }
        None => counters.revision,
    };
    if revision > counters.revision {
        return Err(ContinueToken::refused("is from another store"));
    }
    counters.check_kept(revision)?;
    let mut page = Page {
        kind,
        revision,
        filter,
        limit,
        last: None,
        result: ListPage {
            revision: Revision(revision),
            ..ListPage::default()
        },
    };
    loop {
        let now = read::page(&mut reader, kind, &span, chunk)
            .await
            .map_err(fail)?;
        // A full chunk covers the names up to its last one.
        let last = now
            .last()
            .filter(|_| now.len() == chunk)
            .map(|o| o.name.clone());
        let covered = last
            .as_ref()
            .map_or_else(|| span.clone(), |name| span.up_to(name));
        let counters = read::counters(&mut reader, None).await.map_err(fail)?;
        let then = if counters.revision == revision {
            now
        } else {
            let then = read::rewind(&mut reader, kind, &covered, revision, now).await;
            let then = then.map_err(fail)?;
            let counters = read::counters(&mut reader, None).await.map_err(fail)?;
            counters.check_kept(revision)?;
            then
        };
        for object in &then {
            if page.add(object) == Added::Full {
                return Ok(page.result);
            }
        }
        match last {
            Some(name) => {
                span = span.after(&name);
                // The selector leaves many out.
                chunk = CHUNK.min(chunk * 2);
            }
            None => return Ok(page.result),
        }
    }
}

struct Page {
    kind: Kind,
    revision: u64,
    filter: Filter,
    limit: usize,
    /// The last object on the page.
    last: Option<Name>,
    result: ListPage,
}

#[derive(PartialEq)]
enum Added {
    Yes,
    /// The page is full, and this object is the first of the next one.
    Full,
}

impl Page {
    /// Adds an object if it is asked for. What cannot be read may be, so it is named.
    fn add(&mut self, object: &Stored) -> Added {
        let read = object.object(self.kind);
        if read.as_ref().is_ok_and(|o| !self.filter.selects(o)) {
            return Added::Yes;
        }
        if self.result.items.len() == self.limit {
            self.result.continue_token = self.last.take().map(|last| {
                let (namespace, name) = last;
                ContinueToken {
                    revision: Revision(self.revision),
                    after: Key {
                        kind: self.kind,
                        namespace,
                        name,
                    },
                }
                .encode()
            });
            return Added::Full;
        }
        match read {
            Ok(o) => self.result.items.push(Arc::unwrap_or_clone(o)),
            Err(reason) => {
                let key = object.key(self.kind);
                self.result.corrupt.push(corrupt(&key, &reason));
            }
        }
        self.last = Some(object.name.clone());
        Added::Yes
    }
}
