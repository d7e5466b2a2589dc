//! The etcd store under test, on a real kine.

use async_trait::async_trait;
use ipledger_core::store::Revision;
use ipledger_tests::kine::Kine;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use crate::remote::Server;

#[async_trait]
impl Server for Kine {
    const NAME: &'static str = "kine";
    const IMPOSSIBLE: &'static [&'static str] = &[];

    fn start() -> Option<Kine> {
        Kine::start()
    }

    fn endpoint(&self) -> String {
        Kine::endpoint(self)
    }

    fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// Adds a key of somebody else far ahead. (The row with which kine itself fills a gap is one of
    /// a deletion, and would go with the next compaction, and the revision with it.)
    async fn jump(&mut self, to: Revision) {
        self.stop();
        let options = SqliteConnectOptions::new().filename(self.database());
        let mut connection = options.connect().await.unwrap();
        let sql = "INSERT INTO kine(id, name, created, deleted, create_revision, prev_revision, lease) \
                   VALUES (?, 'far-' || ?, 1, 0, 0, 0, 0)";
        let to = i64::try_from(to.0).unwrap();
        sqlx::query(sql)
            .bind(to)
            .bind(to)
            .execute(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        self.start_again();
    }
}
