//! What the file says: one object, a page of objects at a revision, events.
//!
//! Every function runs plain statements, no transaction. That suffices, because the history tells
//! what an object was at a revision whenever it is asked; only the start of the history must be
//! looked at after the rest ([`Counters::check_kept`]).

use std::collections::BTreeMap;

use futures::TryStreamExt;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::StoreError;
use serde_json::json;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Error, Row};

use crate::error::expired;
use crate::event::{self, Event, Op, State};
use crate::schema;
use crate::span::{Name, Span};

/// The counters of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    /// The revision of the last write.
    pub(crate) revision: u64,
    /// The history starts after this revision.
    pub(crate) compacted: u64,
    /// Bytes of the bodies in the history.
    pub(crate) history_bytes: u64,
    /// The revision of the last write to the kind that was asked for; 1 if there was none.
    pub(crate) of_kind: u64,
    /// The revision of the last event of that kind that compaction removed; 0 if there was none.
    pub(crate) compacted_of_kind: u64,
}

impl Counters {
    /// Whether everything after a revision is in the history.
    ///
    /// # Errors
    /// `Expired`.
    pub(crate) fn check_kept(&self, revision: u64) -> Result<(), StoreError> {
        if revision < self.compacted {
            return Err(expired(revision, self.compacted));
        }
        Ok(())
    }

    /// Whether every event of the kind that was asked for after a revision is in the history.
    ///
    /// # Errors
    /// `Expired`.
    pub(crate) fn check_kept_of_kind(&self, revision: u64) -> Result<(), StoreError> {
        if revision < self.compacted_of_kind {
            return Err(expired(revision, self.compacted));
        }
        Ok(())
    }

    /// Whether a revision has been written.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn check_reached(&self, revision: u64) -> Result<(), StoreError> {
        if revision <= self.revision {
            return Ok(());
        }
        Err(StoreError::Unavailable {
            reason: format!(
                "revision {revision} is not reached yet; the last is {}",
                self.revision
            ),
        })
    }
}

/// A revision as SQLite keeps it.
pub(crate) fn stored(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

pub(crate) fn number(row: &SqliteRow, column: usize) -> Result<u64, Error> {
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0))
}

pub(crate) async fn counters(
    connection: &mut SqliteConnection,
    kind: Option<Kind>,
) -> Result<Counters, Error> {
    let rows = sqlx::query(schema::COUNTERS)
        .bind(kind.map(Kind::name))
        .fetch_all(connection)
        .await?;
    let mut counters = Counters {
        revision: 1,
        compacted: 1,
        history_bytes: 0,
        of_kind: 1,
        compacted_of_kind: 0,
    };
    for row in rows {
        let value = number(&row, 1)?;
        match row.try_get::<&str, _>(0)? {
            schema::REVISION => counters.revision = value,
            schema::COMPACTED => counters.compacted = value,
            schema::HISTORY_BYTES => counters.history_bytes = value,
            name if kind.is_some_and(|k| k.name() == name) => counters.of_kind = value,
            _ => counters.compacted_of_kind = value,
        }
    }
    Ok(counters)
}

/// An object as it is or was stored.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) name: Name,
    pub(crate) revision: u64,
    body: Vec<u8>,
}

impl Stored {
    fn from_row(row: &SqliteRow) -> Result<Stored, Error> {
        Ok(Stored {
            name: name(row)?,
            revision: number(row, 2)?,
            body: row.try_get(3)?,
        })
    }

    pub(crate) fn key(&self, kind: Kind) -> Key {
        Key {
            kind,
            namespace: self.name.0.clone(),
            name: self.name.1.clone(),
        }
    }

    /// # Errors
    /// Why it cannot be read.
    pub(crate) fn object(&self, kind: Kind) -> Result<std::sync::Arc<Object>, String> {
        event::decode(&self.key(kind), self.revision, &self.body)
    }
}

fn name(row: &SqliteRow) -> Result<Name, Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}

pub(crate) async fn object(
    connection: &mut SqliteConnection,
    key: &Key,
) -> Result<Option<Stored>, Error> {
    let row = sqlx::query(schema::GET)
        .bind(key.kind.name())
        .bind(key.namespace.as_str())
        .bind(key.name.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(Stored::from_row).transpose()
}

/// The first `limit` objects of a stretch, as they are now.
pub(crate) async fn page(
    connection: &mut SqliteConnection,
    kind: Kind,
    span: &Span,
    limit: usize,
) -> Result<Vec<Stored>, Error> {
    let rows = spanned(schema::PAGE, kind, span)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(connection)
        .await?;
    rows.iter().map(Stored::from_row).collect()
}

/// The names in a stretch with the revision of each, and the revision at which that is so.
pub(crate) async fn names(
    connection: &mut SqliteConnection,
    kind: Kind,
    span: &Span,
) -> Result<(u64, Vec<(u64, Name)>), Error> {
    // Row by row: they may be many, and a row is larger than what is kept of it.
    let mut rows = spanned(schema::NAMES, kind, span).fetch(connection);
    let mut at = 1;
    let mut names = Vec::new();
    while let Some(row) = rows.try_next().await? {
        let (revision, name) = (number(&row, 2)?, name(&row)?);
        if name.1.is_empty() {
            at = revision;
        } else {
            names.push((revision, name));
        }
    }
    Ok((at, names))
}

/// The objects of these names, as they are now.
pub(crate) async fn named(
    connection: &mut SqliteConnection,
    kind: Kind,
    names: &[(u64, Name)],
) -> Result<BTreeMap<Name, Stored>, Error> {
    let names: Vec<&Name> = names.iter().map(|(_, name)| name).collect();
    let rows = sqlx::query(schema::NAMED)
        .bind(kind.name())
        .bind(json!(names).to_string())
        .fetch_all(connection)
        .await?;
    let objects = rows.iter().map(Stored::from_row);
    objects.map(|o| o.map(|o| (o.name.clone(), o))).collect()
}

/// What a stretch held at a revision, in key order. `now` is what it held some time later.
///
/// An object that was written after that revision is followed back through its events: from its
/// first deletion after it, or from its present state.
pub(crate) async fn rewind(
    connection: &mut SqliteConnection,
    kind: Kind,
    span: &Span,
    revision: u64,
    now: Vec<Stored>,
) -> Result<Vec<Stored>, Error> {
    let deleted = spanned(schema::DELETED, kind, span)
        .bind(stored(revision))
        .fetch_all(&mut *connection)
        .await?;
    let mut later: BTreeMap<Name, u64> = BTreeMap::new();
    for row in &deleted {
        later.insert(name(row)?, number(row, 2)?);
    }
    let mut then: BTreeMap<Name, Stored> = BTreeMap::new();
    for object in now {
        if object.revision > revision {
            later.entry(object.name).or_insert(object.revision);
        } else {
            later.remove(&object.name);
            then.insert(object.name.clone(), object);
        }
    }
    if !later.is_empty() {
        let starts: Vec<u64> = later.into_values().collect();
        let rows = sqlx::query(schema::REWIND)
            .bind(json!(starts).to_string())
            .bind(stored(revision))
            .fetch_all(connection)
            .await?;
        for row in &rows {
            let object = Stored::from_row(row)?;
            then.insert(object.name.clone(), object);
        }
    }
    Ok(then.into_values().collect())
}

/// At most `limit` events of a kind after one revision and up to another.
pub(crate) async fn events_of_kind(
    connection: &mut SqliteConnection,
    kind: Kind,
    (after, up_to): (u64, u64),
    limit: usize,
) -> Result<Vec<Event>, Error> {
    let rows = sqlx::query(schema::EVENTS_OF_KIND)
        .bind(kind.name())
        .bind(stored(after))
        .bind(stored(up_to))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(connection)
        .await?;
    rows.iter()
        .filter_map(|row| event_from_row(row).transpose())
        .collect()
}

/// All events after one revision and up to another.
pub(crate) async fn events(
    connection: &mut SqliteConnection,
    (after, up_to): (u64, u64),
) -> Result<Vec<Event>, Error> {
    let rows = sqlx::query(schema::EVENTS)
        .bind(stored(after))
        .bind(stored(up_to))
        .fetch_all(connection)
        .await?;
    rows.iter()
        .filter_map(|row| event_from_row(row).transpose())
        .collect()
}

/// Nothing for an event of a kind or form that only a newer version knows.
fn event_from_row(row: &SqliteRow) -> Result<Option<Event>, Error> {
    let (Some(kind), Some(op)) = (kind_named(row.try_get(1)?), Op::from_code(row.try_get(2)?))
    else {
        return Ok(None);
    };
    let after: Vec<u8> = row.try_get(5)?;
    let before: Option<Vec<u8>> = row.try_get(6)?;
    Ok(Some(Event {
        revision: number(row, 0)?,
        key: Key {
            kind,
            namespace: row.try_get(3)?,
            name: row.try_get(4)?,
        },
        op,
        size: after.len() + before.as_ref().map_or(0, Vec::len),
        after: State::raw(after),
        before: before.map(State::raw),
    }))
}

/// The kind of this name.
pub(crate) fn kind_named(name: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.name() == name)
}

/// A statement about a stretch, its first five parameters bound.
fn spanned<'q>(
    sql: &'static str,
    kind: Kind,
    span: &'q Span,
) -> sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments> {
    sqlx::query(sql)
        .bind(kind.name())
        .bind(span.from.0.as_str())
        .bind(span.from.1.as_str())
        .bind(span.to.0.as_str())
        .bind(span.to.1.as_str())
}
