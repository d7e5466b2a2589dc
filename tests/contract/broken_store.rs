//! The in-memory store with one fault.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future;
use futures::stream::{self, StreamExt};
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, MemoryStore, Part, Preconditions, ReadAt,
    Revision, Store, StoreError, WatchEvent, WatchFrom, WatchOptions, WatchStream, rules,
};
use serde_json::json;

use crate::reader::is_change;

pub(crate) const WATCH_BUFFER: usize = 500;

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    IgnoresRevision,
    IgnoresRevisionOfStatus,
    TakesMissingRevision,
    IgnoresUidOfUpdate,
    UpdateCreates,
    WritesNoOps,
    StatusWritesMain,
    MainWritesStatus,
    CreateOverwrites,
    HidesHolder,
    DropsUnknownFields,
    ReusesUids,
    IgnoresPreconditions,
    IgnoresFinalizers,
    KeepsReleased,
    NoSizeLimit,
    ShortHistory,
    ReadsAnyRevision,
    PagesByOffset,
    HidesCorrupt,
    CorruptStallsList,
    WatchesFromNow,
    WatchesInclusively,
    DropsDeletes,
    DeletedWithOldRevision,
    DeletedWithoutState,
    Reorders,
    Repeats,
    DropsNowAndThen,
    ExpiredIsEmpty,
    ExpiredAfterEvents,
    FutureIsEmpty,
    BookmarksTooEarly,
    GoesOnAfterError,
    LeavesSilently,
    LeavesWithNewState,
    SyncsTwice,
    NeverSyncs,
    EndsWhenSlow,
    WatchesAllNamespaces,
    LowBarrier,
    UnreachableBarrier,
}

pub(crate) struct BrokenStore {
    pub(crate) inner: MemoryStore,
    fault: Fault,
    declared: Capabilities,
}

impl BrokenStore {
    pub(crate) fn new(fault: Fault) -> BrokenStore {
        let sound = MemoryStore::default();
        let declared = sound.capabilities();
        let inner = match fault {
            Fault::ReusesUids => MemoryStore::new(Default::default, || "same".to_owned()),
            Fault::NoSizeLimit => sound.with_max_object_bytes(usize::MAX),
            Fault::ShortHistory => sound.with_history(10),
            _ => sound,
        };
        BrokenStore {
            inner: inner.with_watch_buffer(WATCH_BUFFER),
            fault,
            declared,
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    async fn now(&self, kind: Kind) -> Result<Revision, StoreError> {
        Ok(self
            .inner
            .list(kind, &ListOptions::default())
            .await?
            .revision)
    }

    async fn page_by_offset(
        &self,
        kind: Kind,
        options: &ListOptions,
    ) -> Result<ListPage, StoreError> {
        let offset = options
            .continue_token
            .as_ref()
            .map_or(0, |t| t.parse().unwrap());
        let limit = options.limit.unwrap_or(usize::MAX);
        let all = ListOptions {
            limit: None,
            continue_token: None,
            ..options.clone()
        };
        let mut page = self.inner.list(kind, &all).await?;
        let more = page.items.len() > offset + limit;
        page.continue_token = more.then(|| (offset + limit).to_string());
        page.items = page.items.into_iter().skip(offset).take(limit).collect();
        Ok(page)
    }

    /// Opens the watch from somewhere else, if that is the fault.
    async fn open(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        let mut options = options.clone();
        if self.has(Fault::LeavesSilently) || self.has(Fault::LeavesWithNewState) {
            options.labels = Default::default();
        }
        if self.has(Fault::WatchesAllNamespaces) {
            options.namespace = None;
        }
        match (options.from, self.fault) {
            (WatchFrom::After(_), Fault::WatchesFromNow) => {
                options.from = WatchFrom::After(self.now(kind).await?);
            }
            (WatchFrom::After(r), Fault::WatchesInclusively) => {
                options.from = WatchFrom::After(Revision(r.0 - 1));
                if let Ok(stream) = self.inner.watch(kind, &options).await {
                    return Ok(stream);
                }
                options.from = WatchFrom::After(r);
            }
            _ => {}
        }
        match (self.inner.watch(kind, &options).await, self.fault) {
            (Err(StoreError::Expired { .. }), Fault::ExpiredIsEmpty)
            | (Err(StoreError::Unavailable { .. }), Fault::FutureIsEmpty) => {
                options.from = WatchFrom::After(self.now(kind).await?);
                self.inner.watch(kind, &options).await
            }
            (Err(e @ StoreError::Expired { .. }), Fault::ExpiredAfterEvents) => {
                let page = self.inner.list(kind, &ListOptions::default()).await?;
                let items = page.items.into_iter();
                let events: Vec<_> = items
                    .map(|o| Ok(WatchEvent::Applied(Arc::new(o))))
                    .chain([Err(e)])
                    .collect();
                Ok(stream::iter(events).boxed())
            }
            (Ok(stream), Fault::GoesOnAfterError) => {
                options.from = WatchFrom::Start;
                let more = self.inner.watch(kind, &options).await?;
                Ok(stream.chain(more).boxed())
            }
            (Ok(stream), Fault::EndsWhenSlow) => Ok(stream
                .take_while(|item| future::ready(item.is_ok()))
                .boxed()),
            (opened, _) => opened,
        }
    }

    /// What the watch makes of the events that are really there.
    fn distort(&self, options: &WatchOptions, stream: WatchStream) -> WatchStream {
        let selector = options.labels.clone();
        let fault = self.fault;
        let mut held = None;
        let mut count = 0;
        let distorted = stream.map(move |item| {
            let Ok(event) = item else { return vec![item] };
            let changes = is_change(&event);
            count += usize::from(changes);
            let events = match (fault, event) {
                (Fault::DropsDeletes, WatchEvent::Deleted(_)) => vec![],
                (Fault::DropsNowAndThen, _) if changes && count % 700 == 0 => vec![],
                (Fault::Repeats, event) if changes => vec![event.clone(), event],
                (Fault::Reorders, event) if changes => match held.take() {
                    Some(earlier) => vec![event, earlier],
                    None => {
                        held = Some(event);
                        vec![]
                    }
                },
                (Fault::DeletedWithOldRevision, WatchEvent::Deleted(o)) => {
                    vec![deleted(&o, |o| {
                        o.metadata.resource_version = Some(Revision(1))
                    })]
                }
                (Fault::DeletedWithoutState, WatchEvent::Deleted(o)) => {
                    vec![deleted(&o, |o| o.fields.clear())]
                }
                (Fault::BookmarksTooEarly, event) if changes => {
                    vec![WatchEvent::Bookmark(event.revision()), event]
                }
                (Fault::SyncsTwice, event @ WatchEvent::Synced(_)) => vec![event.clone(), event],
                (Fault::NeverSyncs, WatchEvent::Synced(_)) => vec![],
                (Fault::LeavesWithNewState, WatchEvent::Applied(o)) if !selector.matches(&o) => {
                    vec![WatchEvent::Deleted(o)]
                }
                (Fault::LeavesSilently, WatchEvent::Applied(o) | WatchEvent::Deleted(o))
                    if !selector.matches(&o) =>
                {
                    vec![]
                }
                (_, event) => vec![event],
            };
            events.into_iter().map(Ok).collect()
        });
        distorted.flat_map(stream::iter).boxed()
    }
}

fn deleted(last: &Object, change: impl FnOnce(&mut Object)) -> WatchEvent {
    let mut last = last.clone();
    change(&mut last);
    WatchEvent::Deleted(Arc::new(last))
}

#[async_trait]
impl Store for BrokenStore {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        let at = if self.has(Fault::ReadsAnyRevision) {
            ReadAt::Latest
        } else {
            at
        };
        self.inner.get(key, at).await
    }

    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        if self.has(Fault::PagesByOffset) {
            return self.page_by_offset(kind, options).await;
        }
        let mut page = self.inner.list(kind, options).await?;
        match self.fault {
            Fault::HidesCorrupt => page.corrupt.clear(),
            Fault::CorruptStallsList => {
                if let Some(e) = page.corrupt.pop() {
                    return Err(e);
                }
            }
            _ => {}
        }
        Ok(page)
    }

    async fn create(&self, mut object: Object) -> Result<Object, StoreError> {
        if self.has(Fault::DropsUnknownFields) {
            object.fields.retain(|name, _| name == "spec");
        }
        match (self.inner.create(object.clone()).await, self.fault) {
            (Err(StoreError::AlreadyExists { key, .. }), Fault::CreateOverwrites) => {
                let current = self.inner.get(&key, ReadAt::Latest).await?;
                object.metadata.resource_version = current.revision();
                self.inner.update(object, Part::Main).await
            }
            (Err(StoreError::AlreadyExists { key, operation, .. }), Fault::HidesHolder) => {
                Err(StoreError::AlreadyExists {
                    key,
                    uid: String::new(),
                    operation,
                })
            }
            (created, _) => created,
        }
    }

    async fn update(&self, mut object: Object, part: Part) -> Result<Object, StoreError> {
        let current = self.inner.get(&object.key(), ReadAt::Latest).await;
        let Ok(current) = current else {
            if self.has(Fault::UpdateCreates) {
                object.metadata.resource_version = None;
                object.metadata.uid.clear();
                return self.inner.create(object).await;
            }
            return self.inner.update(object, part).await;
        };
        let seen = object.revision();
        match self.fault {
            Fault::IgnoresRevision => object.metadata.resource_version = current.revision(),
            Fault::IgnoresRevisionOfStatus if part == Part::Status => {
                object.metadata.resource_version = current.revision();
            }
            Fault::TakesMissingRevision if seen.is_none() => {
                object.metadata.resource_version = current.revision();
            }
            Fault::IgnoresUidOfUpdate => object.metadata.uid.clear(),
            Fault::KeepsReleased if current.metadata.is_deleting() => {
                object.metadata.finalizers = current.metadata.finalizers;
            }
            Fault::StatusWritesMain if part == Part::Status => {
                object = self.inner.update(object, Part::Main).await?;
            }
            Fault::MainWritesStatus if part == Part::Main => {
                let status = self.inner.update(object.clone(), Part::Status).await?;
                object.metadata.resource_version = status.revision();
            }
            _ => {}
        }
        let stored = self.inner.update(object, part).await?;
        if self.has(Fault::WritesNoOps) && stored.revision() == seen {
            let mut again = stored;
            let count = json!(seen.unwrap_or_default().0).to_string();
            again
                .metadata
                .annotations
                .insert(rules::OPERATION.to_owned(), count);
            return self.inner.update(again, Part::Main).await;
        }
        Ok(stored)
    }

    async fn delete(
        &self,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        if self.has(Fault::IgnoresPreconditions) {
            return self.inner.delete(key, &Preconditions::default()).await;
        }
        match self.inner.delete(key, preconditions).await? {
            Deletion::Finalizing(mut marked) if self.has(Fault::IgnoresFinalizers) => {
                marked.metadata.finalizers.clear();
                Ok(Deletion::Gone(self.inner.update(marked, Part::Main).await?))
            }
            deletion => Ok(deletion),
        }
    }

    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        let stream = self.open(kind, options).await?;
        Ok(self.distort(options, stream))
    }

    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        match self.fault {
            Fault::LowBarrier => Ok(Revision(1)),
            // The revision of the last write of any kind, and nobody tells the watches.
            Fault::UnreachableBarrier => self.now(kind).await,
            _ => self.inner.barrier(kind).await,
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.declared.clone()
    }
}
