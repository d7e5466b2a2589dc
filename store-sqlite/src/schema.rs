//! The tables, the way from each schema to the next, and every statement, so that one test can ask
//! SQLite how it would run each of them.

use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// Marks a file as ours in its header (`PRAGMA application_id`): the letters `IPLG`.
pub(crate) const APPLICATION_ID: i64 = 0x4950_4c47;

/// The schema of a file in which nothing was written yet.
pub(crate) const EMPTY: i64 = 0;

/// The step at place N brings a file of schema N (`PRAGMA user_version`) to schema N + 1, inside the
/// transaction that also sets that number. A step is never changed once a version that has it was
/// published; new files take all steps, too.
///
/// The statements of this file are those for the schema after the last step.
pub(crate) const STEPS: &[&str] = &[TABLES];

/// Schema 1.
///
/// * `counters`: `revision` (of the last write), `compacted` (the history starts after it),
///   `history_bytes` (of the bodies in `events`); for each kind the revision of its last write,
///   under its name, and that of its last event that compaction removed, under `compacted/NAME`;
///   `copied` (see `jump.rs`). Revisions start after 1, because Kubernetes clients read a revision of
///   0 as "any".
/// * `objects`: the present state. Integer row ids keep the bodies in the order of creation; names
///   are found through the index. `revision` decides, not the `resourceVersion` inside `body`.
/// * `events`: the history, one row a revision. `op` is 1 for created, 2 for updated, 3 for deleted.
///   `previous` and `before` are revision and body of the state before it.
const TABLES: &str = "
CREATE TABLE counters (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO counters (name, value) VALUES ('revision', 1), ('compacted', 1), ('history_bytes', 0);

CREATE TABLE objects (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX objects_by_name ON objects (kind, namespace, name);

CREATE TABLE events (
    revision INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    op INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    time INTEGER NOT NULL,
    previous INTEGER,
    body TEXT NOT NULL,
    before TEXT
) STRICT;
CREATE INDEX events_by_kind ON events (kind, revision);
CREATE INDEX deletes_by_name ON events (kind, namespace, name, revision) WHERE op = 3;
";

pub(crate) const REVISION: &str = "revision";
pub(crate) const COMPACTED: &str = "compacted";
pub(crate) const HISTORY_BYTES: &str = "history_bytes";
pub(crate) const COPIED: &str = "copied";

/// `?1`: a kind whose counters are wanted too (or nothing).
pub(crate) const COUNTERS: &str = "SELECT name, value FROM counters \
     WHERE name IN ('revision', 'compacted', 'history_bytes', ?1, 'compacted/' || ?1)";

/// The counter of the last event of a kind that compaction removed.
pub(crate) fn compacted_of(kind: &str) -> String {
    format!("compacted/{kind}")
}

/// `?1`: a JSON object from name to value.
pub(crate) const SET_COUNTERS: &str = "INSERT INTO counters (name, value) \
     SELECT key, value FROM json_each(?1) WHERE true \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";

/// One object by kind, namespace and name.
pub(crate) const GET: &str = "SELECT namespace, name, revision, body FROM objects \
     WHERE kind = ?1 AND namespace = ?2 AND name = ?3";

/// The objects of a kind from one name (inclusive) to another (exclusive).
pub(crate) const PAGE: &str = "SELECT namespace, name, revision, body FROM objects \
     WHERE kind = ?1 AND (namespace, name) >= (?2, ?3) AND (namespace, name) < (?4, ?5) \
     ORDER BY namespace, name LIMIT ?6";

/// Names and revisions of such a stretch; the row without a name has the revision of the whole.
pub(crate) const NAMES: &str = "SELECT '', '', value FROM counters WHERE name = 'revision' \
     UNION ALL SELECT namespace, name, revision FROM objects \
     WHERE kind = ?1 AND (namespace, name) >= (?2, ?3) AND (namespace, name) < (?4, ?5)";

/// `?2`: a JSON array of `[namespace, name]`.
pub(crate) const NAMED: &str = "SELECT o.namespace, o.name, o.revision, o.body \
     FROM json_each(?2) AS k CROSS JOIN objects AS o \
     ON o.kind = ?1 AND o.namespace = k.value ->> 0 AND o.name = k.value ->> 1";

/// The first deletion after revision `?6` of each object of a stretch.
pub(crate) const DELETED: &str = "SELECT namespace, name, min(revision) FROM events \
     WHERE op = 3 AND kind = ?1 AND (namespace, name) >= (?2, ?3) AND (namespace, name) < (?4, ?5) \
     AND revision > ?6 GROUP BY namespace, name";

/// Goes from each event of `?1` (a JSON array of revisions) back through the states of its object
/// to the last one that is not younger than `?2`.
pub(crate) const REWIND: &str = "WITH RECURSIVE back (revision) AS ( \
         SELECT value FROM json_each(?1) \
         UNION ALL \
         SELECT e.previous FROM back AS b CROSS JOIN events AS e \
         ON e.revision = b.revision WHERE e.previous > ?2 \
     ) \
     SELECT e.namespace, e.name, e.previous, e.before FROM back AS b CROSS JOIN events AS e \
     ON e.revision = b.revision WHERE e.previous <= ?2";

/// The events of one kind after a revision and up to another.
pub(crate) const EVENTS_OF_KIND: &str = "SELECT revision, kind, op, namespace, name, body, before FROM events \
     WHERE kind = ?1 AND revision > ?2 AND revision <= ?3 ORDER BY revision LIMIT ?4";

/// The events of all kinds after a revision and up to another.
pub(crate) const EVENTS: &str = "SELECT revision, kind, op, namespace, name, body, before FROM events \
     WHERE revision > ?1 AND revision <= ?2 ORDER BY revision";

/// `?1`: a JSON array of `[kind, namespace, name]`.
pub(crate) const CURRENT: &str = "SELECT o.kind, o.namespace, o.name, o.id, o.uid, o.revision, o.body \
     FROM json_each(?1) AS k CROSS JOIN objects AS o \
     ON o.kind = k.value ->> 0 AND o.namespace = k.value ->> 1 AND o.name = k.value ->> 2";

/// `?1`: a JSON array of row ids.
pub(crate) const DELETE_OBJECTS: &str =
    "DELETE FROM objects WHERE id IN (SELECT value FROM json_each(?1))";

/// The oldest `?1` events, with the size of their bodies.
pub(crate) const OLDEST_EVENTS: &str = "SELECT revision, kind, time, octet_length(body) + coalesce(octet_length(before), 0) \
     FROM events ORDER BY revision LIMIT ?1";

/// Forgets the events up to a revision.
pub(crate) const DELETE_EVENTS: &str = "DELETE FROM events WHERE revision <= ?1";

/// Forgets the whole history.
pub(crate) const DELETE_ALL_EVENTS: &str = "DELETE FROM events";

/// Takes the mark of a copy away.
pub(crate) const UNMARK: &str = "DELETE FROM counters WHERE name = 'copied'";

/// How many objects there are.
pub(crate) const COUNT: &str = "SELECT count(*) FROM objects";

/// How many rows one statement takes; a batch is cut into the largest that fit, the rest is padded
/// with rows of NULL that the statement leaves out. So there are few texts to prepare.
pub(crate) const ROWS: [usize; 4] = [1, 8, 64, 256];

/// One multi-row statement for each size of [`ROWS`].
pub(crate) struct ManyRows([(usize, SqlStr); ROWS.len()]);

impl ManyRows {
    /// Inserts events: revision, kind, op, namespace, name, time, previous, body, before.
    pub(crate) fn insert_events() -> ManyRows {
        ManyRows::new(
            "INSERT INTO events (revision, kind, op, namespace, name, time, previous, body, before)",
            9,
            "",
        )
    }

    /// Inserts objects or replaces them by name: kind, namespace, name, uid, revision, body.
    pub(crate) fn put_objects() -> ManyRows {
        ManyRows::new(
            "INSERT INTO objects (kind, namespace, name, uid, revision, body)",
            6,
            " ON CONFLICT (kind, namespace, name) DO UPDATE \
             SET uid = excluded.uid, revision = excluded.revision, body = excluded.body",
        )
    }

    fn new(insert: &str, columns: usize, tail: &str) -> ManyRows {
        let row = format!("({})", vec!["?"; columns].join(", "));
        ManyRows(ROWS.map(|rows| {
            let mut sql = insert.to_owned();
            let values = vec![row.as_str(); rows].join(", ");
            let _ = write!(
                sql,
                " SELECT * FROM (VALUES {values}) WHERE column1 IS NOT NULL{tail}"
            );
            (rows, AssertSqlSafe(sql).into_sql_str())
        }))
    }

    /// The statement for the next rows of `left`, and how many of them it takes.
    pub(crate) fn next(&self, left: usize) -> (usize, SqlStr) {
        let [.., largest] = &self.0;
        let (rows, sql) = self
            .0
            .iter()
            .find(|(rows, _)| *rows >= left)
            .unwrap_or(largest);
        (left.min(*rows), sql.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readers::connect_options;
    use sqlx::{ConnectOptions as _, Row as _};

    /// How SQLite would run a statement, step by step.
    async fn plan(sql: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.db");
        let options = connect_options(&path, std::time::Duration::ZERO).create_if_missing(true);
        let mut connection = options.connect().await.unwrap();
        for step in STEPS {
            sqlx::raw_sql(*step).execute(&mut connection).await.unwrap();
        }
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
        let rows = sqlx::query(explain)
            .fetch_all(&mut connection)
            .await
            .unwrap();
        rows.iter().map(|row| row.get("detail")).collect()
    }

    #[tokio::test]
    async fn no_statement_reads_a_whole_table_or_sorts() {
        let by_name = "objects_by_name (kind=? AND";
        let statements = [
            (COUNTERS, "counters USING PRIMARY KEY (name=?)"),
            (GET, "objects_by_name (kind=? AND namespace=? AND name=?)"),
            (
                PAGE,
                "(kind=? AND (namespace,name)>(?,?) AND (namespace,name)<(?,?))",
            ),
            (NAMES, by_name),
            (NAMED, "objects_by_name (kind=? AND namespace=? AND name=?)"),
            (
                CURRENT,
                "objects_by_name (kind=? AND namespace=? AND name=?)",
            ),
            (DELETED, "deletes_by_name (kind=? AND"),
            (REWIND, "e USING INTEGER PRIMARY KEY (rowid=?)"),
            (
                EVENTS_OF_KIND,
                "events_by_kind (kind=? AND revision>? AND revision<?)",
            ),
            (
                EVENTS,
                "events USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
            ),
            (
                DELETE_OBJECTS,
                "objects USING INTEGER PRIMARY KEY (rowid=?)",
            ),
            (DELETE_EVENTS, "events USING INTEGER PRIMARY KEY (rowid<?)"),
        ];
        for (sql, expected) in statements {
            let plan = plan(sql).await;
            assert!(
                plan.iter().any(|step| step.contains(expected)),
                "{sql}: {plan:#?}"
            );
            for step in &plan {
                assert!(!step.contains("TEMP B-TREE"), "{sql} sorts: {plan:#?}");
                for table in ["objects", "events", "counters", "SCAN o", "SCAN e"] {
                    let scan = step.starts_with("SCAN") && step.contains(table);
                    assert!(!scan, "{sql} reads a whole table: {plan:#?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn the_oldest_events_are_the_begin_of_a_scan_in_order() {
        assert_eq!(plan(OLDEST_EVENTS).await, ["SCAN events"]);
    }

    #[test]
    fn a_batch_is_cut_into_few_statements() {
        let statements = ManyRows::put_objects();
        let takes = |left| statements.next(left).0;
        assert_eq!(
            [1, 2, 8, 9, 64, 65, 256, 257, 512].map(takes),
            [1, 2, 8, 9, 64, 65, 256, 256, 256]
        );
    }
}
