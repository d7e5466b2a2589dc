//! What the tests of this crate share.
#![allow(dead_code, unreachable_pub)] // each test binary uses a part of it

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use ipledger_core::api::{Key, Kind, Object, ObjectMeta};
use ipledger_core::store::{ListOptions, Revision, Store, StoreError, WatchEvent, WatchStream};
use ipledger_store_sqlite::{Options, SqliteStore};
use serde_json::{Map, Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Row};

/// Long enough for a slow machine; nothing waits that long unless it fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn file(&self) -> PathBuf {
        self.0.path().join("ledger.db")
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

pub async fn open(path: &Path) -> SqliteStore {
    open_with(path, Options::default()).await
}

pub async fn open_with(path: &Path, options: Options) -> SqliteStore {
    SqliteStore::open(path, &options).await.unwrap()
}

/// A connection beside the store, as another process has it.
pub async fn raw(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    options.busy_timeout(PATIENCE).connect().await.unwrap()
}

pub async fn sql(connection: &mut SqliteConnection, text: impl Into<String>) {
    sqlx::raw_sql(AssertSqlSafe(text.into()))
        .execute(connection)
        .await
        .unwrap();
}

pub async fn number(connection: &mut SqliteConnection, text: impl Into<String>) -> i64 {
    let query = sqlx::query(AssertSqlSafe(text.into()));
    query.fetch_one(connection).await.unwrap().get(0)
}

/// An address object with a value in its spec.
pub fn address(name: &str, value: impl Into<Value>) -> Object {
    object(Kind::IPAddress, "", name, value)
}

pub fn object(kind: Kind, namespace: &str, name: &str, value: impl Into<Value>) -> Object {
    Object {
        kind,
        metadata: ObjectMeta {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            ..ObjectMeta::default()
        },
        fields: Map::from_iter([("spec".to_owned(), json!({"value": value.into()}))]),
    }
}

pub fn with_value(object: &Object, value: impl Into<Value>) -> Object {
    let mut object = object.clone();
    object
        .fields
        .insert("spec".to_owned(), json!({"value": value.into()}));
    object
}

pub fn value(object: &Object) -> &Value {
    &object.fields["spec"]["value"]
}

pub fn key(name: &str) -> Key {
    Key::address(name)
}

pub fn revision(object: &Object) -> Revision {
    object.revision().unwrap()
}

/// Name and value of everything in a listing, page by page.
pub async fn list(store: &SqliteStore, options: &ListOptions) -> Vec<(String, Value)> {
    let mut options = options.clone();
    let mut found = Vec::new();
    loop {
        let page = store.list(Kind::IPAddress, &options).await.unwrap();
        found.extend(
            page.items
                .iter()
                .map(|o| (o.metadata.name.clone(), value(o).clone())),
        );
        options.continue_token = page.continue_token;
        if options.continue_token.is_none() {
            return found;
        }
    }
}

pub async fn next(stream: &mut WatchStream) -> Option<Result<WatchEvent, StoreError>> {
    tokio::time::timeout(PATIENCE, stream.next())
        .await
        .expect("the watch is silent")
}

pub async fn next_event(stream: &mut WatchStream) -> WatchEvent {
    next(stream).await.expect("the watch has ended").unwrap()
}

/// The next event that is no bookmark.
pub async fn next_change(stream: &mut WatchStream) -> WatchEvent {
    loop {
        match next_event(stream).await {
            WatchEvent::Bookmark(_) => {}
            event => return event,
        }
    }
}

/// Event type, name and revision, for comparisons.
pub fn brief(event: &WatchEvent) -> (&'static str, String, u64) {
    let (what, name) = match event {
        WatchEvent::Applied(o) => ("applied", o.metadata.name.clone()),
        WatchEvent::Deleted(o) => ("deleted", o.metadata.name.clone()),
        WatchEvent::Bookmark(_) => ("bookmark", String::new()),
        WatchEvent::Synced(_) => ("synced", String::new()),
        WatchEvent::Unreadable { key, .. } => ("unreadable", key.name.clone()),
    };
    (what, name, event.revision().0)
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(std::time::Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
