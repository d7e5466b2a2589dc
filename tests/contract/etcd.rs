//! The etcd store under test, on a real etcd.

use async_trait::async_trait;
use ipledger_core::store::Revision;
use ipledger_tests::etcd::{Etcd, EtcdOptions, client};

use crate::remote::Server;

#[async_trait]
impl Server for Etcd {
    const NAME: &'static str = "etcd";
    /// etcd numbers its revisions without gaps. The only jump that it knows is a restore, which
    /// compacts; `a_restore_that_jumps_and_compacts_expires_what_is_older` is about that.
    const IMPOSSIBLE: &'static [&'static str] = &["a_jump_of_the_revision_is_followed_at_once"];

    fn start() -> Option<Etcd> {
        Etcd::start(&EtcdOptions::default())
    }

    fn endpoint(&self) -> String {
        Etcd::endpoint(self)
    }

    fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    async fn jump(&mut self, to: Revision) {
        let mut client = client(&Etcd::endpoint(self)).await.unwrap();
        let answer = client.get("/", None).await.unwrap();
        let now = u64::try_from(answer.header().unwrap().revision()).unwrap();
        self.restore_ahead(to.0 - now);
    }
}
