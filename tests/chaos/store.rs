//! The store under test.

use std::sync::Arc;
use std::time::Duration;

use ipledger_store_etcd::{EtcdStore, Options};

/// One on these members, quick to notice that one of them fails.
pub(crate) async fn open(endpoints: Vec<String>) -> Arc<EtcdStore> {
    let mut options = Options::new(endpoints, "chaos");
    options.member_timeout = Duration::from_secs(1);
    options.probe_interval = Duration::from_millis(500);
    Arc::new(EtcdStore::open(options).await.unwrap())
}
