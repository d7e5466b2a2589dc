//! Compaction under watches.

use std::time::Duration;

use futures::StreamExt;
use ipledger_core::api::Kind;
use ipledger_core::store::{ListOptions, ReadAt, Revision, Store, StoreError, WatchEvent};
use ipledger_tests::etcd::{Etcd, EtcdOptions, compact};
use ipledger_tests::load::{History, Load, PATIENCE, add_one, claim, count, key, watch};
use tokio::time::{sleep, timeout};

use crate::cases;
use crate::store::open;

cases![
    compaction_all_the_time_under_load_hurts_no_watch,
    a_reader_that_stopped_is_expired_when_etcd_compacts_what_it_has_not_read,
    a_watch_that_was_away_during_a_compaction_is_expired,
    a_watch_that_was_away_without_a_compaction_goes_on,
];

async fn now(store: &dyn Store) -> Revision {
    store
        .list(Kind::IPAddressClaim, &ListOptions::default())
        .await
        .unwrap()
        .revision
}

async fn compaction_all_the_time_under_load_hurts_no_watch() {
    let etcd = Etcd::start(&EtcdOptions::default()).unwrap();
    let store = open(vec![etcd.endpoint()]).await;
    let load = Load::start(store.clone(), History::Kept).await;
    for _ in 0..50 {
        load.more(10).await;
        // Not what the watch has perhaps not been sent yet.
        let behind = now(&*store).await.0.saturating_sub(50).max(1);
        compact(&etcd.endpoint(), behind).await;
    }
    load.finish().await;
}

/// The watch has a queue that etcd fills; what comes later is in the history, until that is gone.
async fn a_reader_that_stopped_is_expired_when_etcd_compacts_what_it_has_not_read() {
    let etcd = Etcd::start(&EtcdOptions::default()).unwrap();
    let store = open(vec![etcd.endpoint()]).await;
    store.create(claim("counter")).await.unwrap();
    let from = now(&*store).await;
    let mut stream = watch(&*store, from).await;
    for _ in 0..3_000 {
        add_one(&*store, "counter").await;
    }
    let end = now(&*store).await;
    compact(&etcd.endpoint(), end.0).await;
    let (mut read, mut seen) = (0, from);
    let error = loop {
        match timeout(PATIENCE, stream.next())
            .await
            .unwrap()
            .expect("an error comes first")
        {
            Ok(event) => {
                if let WatchEvent::Applied(object) = &event {
                    read += 1;
                    assert_eq!(count(object), read, "a hole before the error");
                }
                seen = event.revision();
            }
            Err(e) => break e,
        }
    };
    assert!(matches!(error, StoreError::Expired { .. }), "{error}");
    assert!(
        read >= 1_000 && seen < end,
        "{read} events are read, up to {seen}"
    );
    assert!(
        timeout(PATIENCE, stream.next()).await.unwrap().is_none(),
        "something follows the error"
    );
}

async fn a_watch_that_was_away_during_a_compaction_is_expired() {
    assert!(matches!(
        after_an_absence(true).await,
        Err(StoreError::Expired { .. })
    ));
}

async fn a_watch_that_was_away_without_a_compaction_goes_on() {
    let event = after_an_absence(false).await.unwrap();
    assert!(matches!(event, WatchEvent::Applied(object) if count(&object) == 1));
}

/// The first change or error of a watch that lost its connection before ten writes were made.
async fn after_an_absence(compacted: bool) -> Result<WatchEvent, StoreError> {
    let etcd = Etcd::start(&EtcdOptions::default()).unwrap();
    let relay = relay::Relay::start(etcd.endpoint()).await;
    let direct = open(vec![etcd.endpoint()]).await;
    let store = open(vec![relay.endpoint()]).await;
    direct.create(claim("counter")).await.unwrap();
    let mut stream = watch(&*store, now(&*direct).await).await;
    relay.cut();
    for _ in 0..10 {
        add_one(&*direct, "counter").await;
    }
    if compacted {
        compact(&etcd.endpoint(), now(&*direct).await.0).await;
    }
    sleep(Duration::from_millis(100)).await;
    relay.mend();
    loop {
        match timeout(PATIENCE, stream.next()).await.unwrap().unwrap() {
            Ok(WatchEvent::Synced(_) | WatchEvent::Bookmark(_)) => {}
            Ok(event) => {
                let counter = direct.get(&key("counter"), ReadAt::Latest).await;
                assert_eq!(count(&counter.unwrap()), 10);
                return Ok(event);
            }
            Err(e) => return Err(e),
        }
    }
}

/// A connection that can be cut.
mod relay {
    use std::sync::Arc;

    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::watch;

    pub(super) struct Relay {
        port: u16,
        open: Arc<watch::Sender<bool>>,
    }

    impl Relay {
        pub(super) async fn start(to: String) -> Relay {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let open = Arc::new(watch::Sender::new(true));
            let state = open.clone();
            tokio::spawn(async move {
                while let Ok((mut from, _)) = listener.accept().await {
                    if !*state.borrow() {
                        continue;
                    }
                    let (to, mut state) = (to.clone(), state.subscribe());
                    tokio::spawn(async move {
                        let Ok(mut to) = TcpStream::connect(to).await else {
                            return;
                        };
                        tokio::select! {
                            _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                            _ = state.wait_for(|open| !open) => {}
                        }
                    });
                }
            });
            Relay { port, open }
        }

        pub(super) fn endpoint(&self) -> String {
            format!("127.0.0.1:{}", self.port)
        }

        /// Ends all connections and takes no more.
        pub(super) fn cut(&self) {
            self.open.send_replace(false);
        }

        pub(super) fn mend(&self) {
            self.open.send_replace(true);
        }
    }
}
