use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use futures::stream::BoxStream;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{FieldSelector, LabelSelector, StoreError};
use crate::api::{Key, Object};

/// The point in a store's history at which a write happened: a decimal string on the wire,
/// ordered only within one kind of one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Revision {
    type Err = String;

    fn from_str(text: &str) -> Result<Revision, String> {
        // `parse` alone would take a sign.
        if text.bytes().all(|b| b.is_ascii_digit())
            && let Ok(n) = text.parse()
        {
            return Ok(Revision(n));
        }
        Err(format!(
            "`{text}` is not a revision; pass on the resourceVersion as it was read"
        ))
    }
}

impl Serialize for Revision {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Revision, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// First every existing object as `Applied`, then what comes after.
    Start,
    /// Exactly what comes after this revision.
    After(Revision),
}

/// What to follow.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Where to start.
    pub from: WatchFrom,
    /// Only this namespace; `None` means all.
    pub namespace: Option<String>,
    /// Only objects with these labels.
    pub labels: LabelSelector,
    /// Only objects with these field values.
    pub fields: FieldSelector,
}

impl WatchOptions {
    /// Follows all objects of a kind.
    pub fn all(from: WatchFrom) -> WatchOptions {
        WatchOptions {
            from,
            namespace: None,
            labels: LabelSelector::default(),
            fields: FieldSelector::default(),
        }
    }
}

/// One item of a watch.
///
/// The twelve rules (design page 3): events come in the order of their revisions; none twice;
/// no hole within the retained history; a watch from R gives exactly what comes after R; after
/// `Bookmark(R)` comes nothing at or before R; an object that leaves the selector appears as
/// `Deleted`; `Deleted` carries the last state; a write that changes nothing makes no event; an R
/// that is too old ends in `Expired`, one from the future is retried; a slow reader gets an error
/// and the stream ends; the end of a stream means "resume"; after an error nothing follows.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// The object was created or changed (or entered the selector).
    Applied(Arc<Object>),
    /// The object is gone (or left the selector): its last state, with the revision of the
    /// deletion (or of the change that made it leave) as `resourceVersion`. Of an object that a
    /// write takes away with its last finalizer, it is the state before or after that write.
    Deleted(Arc<Object>),
    /// Everything up to this revision was delivered.
    Bookmark(Revision),
    /// Once a stream: everything committed before the watch was opened was delivered.
    Synced(Revision),
    /// The object was written in a form that cannot be read; the others go on.
    Unreadable {
        /// The object.
        key: Key,
        /// The revision of that write.
        revision: Revision,
        /// What is wrong with it.
        reason: String,
    },
}

impl WatchEvent {
    /// The revision of the event.
    pub fn revision(&self) -> Revision {
        match self {
            WatchEvent::Applied(o) | WatchEvent::Deleted(o) => o.revision().unwrap_or_default(),
            WatchEvent::Bookmark(r) | WatchEvent::Synced(r) => *r,
            WatchEvent::Unreadable { revision, .. } => *revision,
        }
    }
}

/// A running watch. Dropping it ends it.
pub type WatchStream = BoxStream<'static, Result<WatchEvent, StoreError>>;
