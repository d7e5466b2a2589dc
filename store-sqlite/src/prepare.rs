//! A batch inside its transaction, up to the COMMIT: read what it touches, decide each write, write
//! what has changed. A few statements, however many writes.

use std::collections::{BTreeMap, BTreeSet};

use ipledger_core::api::Key;
use ipledger_core::store::StoreError;
use serde_json::json;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Error, Row as _};

use crate::batch::{Batch, Change, Done, Request, Row, Surroundings};
use crate::options::Options;
use crate::read::{self, Counters, kind_named, number, stored};
use crate::schema::{self, ManyRows};

/// One write of a batch.
pub(crate) struct Decided {
    key: Key,
    /// Whether it changes something.
    writes: bool,
    /// The answer, once the batch is committed.
    pub(crate) answer: Result<Done, StoreError>,
}

impl Decided {
    /// The answer after a commit of which is not known whether it took place.
    /// With what to do about the disk.
    pub(crate) fn unknown(self, error: &Error, advice: &str) -> StoreError {
        let reason = format!("the commit failed: {advice} ({error})");
        if self.writes {
            return StoreError::OutcomeUnknown {
                key: self.key,
                reason,
            };
        }
        // It writes nothing, but was decided on what is perhaps not there.
        StoreError::Unavailable { reason }
    }
}

/// A batch that only waits for its COMMIT.
pub(crate) struct Prepared {
    pub(crate) decided: Vec<Decided>,
    pub(crate) changes: Vec<Change>,
    /// The revision before the batch.
    pub(crate) from: u64,
    /// The revision after it.
    pub(crate) to: u64,
}

/// The statements that carry many rows.
pub(crate) struct Statements {
    insert_events: ManyRows,
    put_objects: ManyRows,
}

impl Statements {
    pub(crate) fn new() -> Statements {
        Statements {
            insert_events: ManyRows::insert_events(),
            put_objects: ManyRows::put_objects(),
        }
    }
}

/// Runs inside a transaction that holds the write lock. After an error it must be rolled back.
pub(crate) async fn prepare(
    connection: &mut SqliteConnection,
    statements: &Statements,
    options: &Options,
    requests: Vec<Request>,
) -> Result<Prepared, Error> {
    let counters = read::counters(connection, None).await?;
    let mut batch = Batch::new(counters.revision, current(connection, &requests).await?);
    let around = Surroundings {
        now: (options.now)(),
        max_object_bytes: options.max_object_bytes,
        new_uid: &|| uuid::Uuid::new_v4().to_string(),
    };
    let mut decided = Vec::with_capacity(requests.len());
    for request in requests {
        let key = request.key();
        let before = batch.revision;
        let answer = batch.apply(request, &around);
        decided.push(Decided {
            key,
            writes: batch.revision > before,
            answer,
        });
    }
    if !batch.changes.is_empty() {
        put_events(connection, statements, &batch.changes, around.now.unix()).await?;
        put_objects(connection, statements, &batch).await?;
        set_counters(connection, &after(&counters, &batch)).await?;
    }
    Ok(Prepared {
        decided,
        from: counters.revision,
        to: batch.revision,
        changes: batch.changes,
    })
}

/// The objects that exist of those that the requests are about, each read once.
async fn current(
    connection: &mut SqliteConnection,
    requests: &[Request],
) -> Result<Vec<Row>, Error> {
    let keys: BTreeSet<Key> = requests.iter().map(Request::key).collect();
    let keys: Vec<_> = keys
        .iter()
        .map(|k| [k.kind.name(), &k.namespace, &k.name])
        .collect();
    let rows = sqlx::query(schema::CURRENT)
        .bind(json!(keys).to_string())
        .fetch_all(connection)
        .await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let Some(kind) = kind_named(row.try_get(0)?) else {
            continue;
        };
        found.push(Row {
            key: Key {
                kind,
                namespace: row.try_get(1)?,
                name: row.try_get(2)?,
            },
            id: row.try_get(3)?,
            uid: row.try_get(4)?,
            revision: number(row, 5)?,
            body: row.try_get(6)?,
        });
    }
    Ok(found)
}

async fn put_events(
    connection: &mut SqliteConnection,
    statements: &Statements,
    mut left: &[Change],
    time: u64,
) -> Result<(), Error> {
    while !left.is_empty() {
        let (rows, sql) = statements.insert_events.next(left.len());
        let (now, later) = left.split_at(rows);
        let mut query = sqlx::query(sql);
        for change in now {
            query = query
                .bind(stored(change.revision))
                .bind(change.key.kind.name())
                .bind(change.op.code())
                .bind(change.key.namespace.as_str())
                .bind(change.key.name.as_str())
                .bind(stored(time))
                .bind(change.before.as_ref().map(|b| stored(b.revision)))
                .bind(change.body.clone())
                .bind(change.before.as_ref().map(|b| b.body.clone()));
        }
        query.execute(&mut *connection).await?;
        left = later;
    }
    Ok(())
}

async fn put_objects(
    connection: &mut SqliteConnection,
    statements: &Statements,
    batch: &Batch,
) -> Result<(), Error> {
    let gone = batch.to_delete();
    if !gone.is_empty() {
        sqlx::query(schema::DELETE_OBJECTS)
            .bind(json!(gone).to_string())
            .execute(&mut *connection)
            .await?;
    }
    let objects: Vec<_> = batch.to_put().collect();
    let mut left = objects.as_slice();
    while !left.is_empty() {
        let (rows, sql) = statements.put_objects.next(left.len());
        let (now, later) = left.split_at(rows);
        let mut query = sqlx::query(sql);
        for (key, object) in now {
            query = query
                .bind(key.kind.name())
                .bind(key.namespace.as_str())
                .bind(key.name.as_str())
                .bind(object.uid.as_str())
                .bind(stored(object.revision))
                .bind(object.body.clone());
        }
        query.execute(&mut *connection).await?;
        left = later;
    }
    Ok(())
}

/// The counters that the batch moves.
fn after(counters: &Counters, batch: &Batch) -> BTreeMap<String, u64> {
    let bytes: usize = batch.changes.iter().map(Change::size).sum();
    let mut after = BTreeMap::from([
        (schema::REVISION.to_owned(), batch.revision),
        (
            schema::HISTORY_BYTES.to_owned(),
            counters.history_bytes + bytes as u64,
        ),
    ]);
    after.extend(
        batch
            .changes
            .iter()
            .map(|change| (change.key.kind.name().to_owned(), change.revision)),
    );
    after
}

pub(crate) async fn set_counters(
    connection: &mut SqliteConnection,
    counters: &BTreeMap<String, u64>,
) -> Result<(), Error> {
    sqlx::query(schema::SET_COUNTERS)
        .bind(json!(counters).to_string())
        .execute(connection)
        .await?;
    Ok(())
}
