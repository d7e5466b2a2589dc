//! The SQLite store under test: one file for each case.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use ipledger_core::api::Key;
use ipledger_core::store::{Revision, Store};
use ipledger_store_sqlite::{Options, SqliteStore};
use sqlx::sqlite::{Sqlite as Sqlx, SqliteArguments, SqliteConnectOptions};
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;

use crate::backend::{Backend, Hooks};

pub(crate) struct Sqlite;

#[async_trait]
impl Backend for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn fresh(&self) -> Box<dyn Hooks> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger.db");
        let store = open(&file).await;
        Box::new(SqliteHooks {
            _folder: folder,
            file,
            store,
        })
    }
}

struct SqliteHooks {
    _folder: TempDir,
    file: PathBuf,
    store: Arc<SqliteStore>,
}

impl SqliteHooks {
    /// Works on the file from outside, behind the back of the store.
    async fn change_one_row(&self, query: sqlx::query::Query<'_, Sqlx, SqliteArguments>) {
        let options = SqliteConnectOptions::new().filename(&self.file);
        let mut connection = options.connect().await.unwrap();
        let changed = query.execute(&mut connection).await.unwrap();
        assert_eq!(changed.rows_affected(), 1);
        connection.close().await.unwrap();
    }
}

async fn open(file: &std::path::Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(file, &Options::default()).await.unwrap())
}

#[async_trait]
impl Hooks for SqliteHooks {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// A watch keeps no queue: it reads the history, however far behind it is.
    fn watch_buffer(&self) -> usize {
        1_000
    }

    async fn compact(&self, revision: Revision) -> Option<()> {
        self.store.compact_to(revision).await.unwrap();
        Some(())
    }

    async fn break_watches(&mut self) {
        self.restart().await;
    }

    async fn jump(&mut self, to: Revision) {
        self.store.close().await.unwrap();
        let sql = "UPDATE counters SET value = ? WHERE name = 'revision'";
        let to = i64::try_from(to.0).unwrap();
        self.change_one_row(sqlx::query(sql).bind(to)).await;
        self.store = open(&self.file).await;
    }

    async fn damage(&self, key: &Key) -> Option<()> {
        let sql = "UPDATE objects SET body = '{\"kind\": ' \
                   WHERE kind = ? AND namespace = ? AND name = ?";
        let query = sqlx::query(sql).bind(key.kind.name());
        self.change_one_row(query.bind(key.namespace.clone()).bind(key.name.clone()))
            .await;
        Some(())
    }

    async fn second_client(&self) -> Option<Arc<dyn Store>> {
        Some(open(&self.file).await)
    }

    async fn restart(&mut self) -> Option<()> {
        self.store.close().await.unwrap();
        self.store = open(&self.file).await;
        Some(())
    }
}
