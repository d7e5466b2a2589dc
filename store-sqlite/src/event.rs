//! One event of the history, and what it is to a watch.

use std::sync::{Arc, OnceLock};

use ipledger_core::api::{Key, Object};
use ipledger_core::store::{Filter, Revision, StoreError, WatchEvent, rules};

/// What happened to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Created,
    Updated,
    Deleted,
}

impl Op {
    /// As it is stored.
    pub(crate) fn code(self) -> i64 {
        match self {
            Op::Created => 1,
            Op::Updated => 2,
            Op::Deleted => 3,
        }
    }

    pub(crate) fn from_code(code: i64) -> Option<Op> {
        [Op::Created, Op::Updated, Op::Deleted]
            .into_iter()
            .find(|op| op.code() == code)
    }
}

/// Reads a stored body. The columns decide about name and revision, not what the body says.
///
/// # Errors
/// Why it cannot be read.
pub(crate) fn decode(key: &Key, revision: u64, body: &[u8]) -> Result<Arc<Object>, String> {
    let mut object: Object = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    if object.key() != *key {
        return Err(format!("it calls itself {}", object.key()));
    }
    object.metadata.resource_version = Some(Revision(revision));
    Ok(Arc::new(object))
}

/// A body that is parsed when the first watch looks at it, and then for all watches.
#[derive(Debug)]
pub(crate) struct State {
    raw: Vec<u8>,
    parsed: OnceLock<Result<Arc<Object>, String>>,
}

impl State {
    pub(crate) fn raw(body: Vec<u8>) -> State {
        State {
            raw: body,
            parsed: OnceLock::new(),
        }
    }

    pub(crate) fn parsed(object: Result<Arc<Object>, String>) -> State {
        State {
            raw: Vec::new(),
            parsed: OnceLock::from(object),
        }
    }

    fn get(&self, event: &Event) -> Result<&Arc<Object>, &String> {
        self.parsed
            .get_or_init(|| decode(&event.key, event.revision, &self.raw))
            .as_ref()
    }
}

/// One committed write.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) key: Key,
    pub(crate) op: Op,
    /// The state after it; of a deletion the last state.
    pub(crate) after: State,
    /// The state before it, if there was one.
    pub(crate) before: Option<State>,
    /// Bytes of both bodies.
    pub(crate) size: usize,
}

/// What the event is to a watch with this filter; nothing if it does not concern it. A state
/// that cannot be read matches every selector: it may be what is looked for.
pub(crate) fn told(filter: &Filter, event: &Event) -> Option<WatchEvent> {
    let key = &event.key;
    if !filter.covers(key) {
        return None;
    }
    let after = match event.after.get(event) {
        Ok(after) => after,
        Err(reason) => return Some(unreadable(key, event.revision, reason)),
    };
    if event.op != Op::Deleted && filter.selects(after) {
        return Some(WatchEvent::Applied(after.clone()));
    }
    let before = event.before.as_ref()?.get(event);
    if !before.is_ok_and(|b| !filter.selects(b)) {
        return Some(WatchEvent::Deleted(match event.op {
            Op::Deleted => after.clone(),
            Op::Created | Op::Updated => left(before.ok(), event),
        }));
    }
    None
}

pub(crate) fn unreadable(key: &Key, revision: u64, reason: &str) -> WatchEvent {
    WatchEvent::Unreadable {
        key: key.clone(),
        revision: Revision(revision),
        reason: reason.to_owned(),
    }
}

pub(crate) fn corrupt(key: &Key, reason: &str) -> StoreError {
    StoreError::Corrupt {
        key: key.clone(),
        reason: format!("{reason}; delete it and create it again"),
    }
}

/// An object that has left the selector: what the watch knew of it, at the revision of the event.
fn left(before: Option<&Arc<Object>>, event: &Event) -> Arc<Object> {
    let mut object = match before {
        Some(before) => Object::clone(before),
        None => rules::remains(&event.key, ""),
    };
    object.metadata.resource_version = Some(Revision(event.revision));
    Arc::new(object)
}
