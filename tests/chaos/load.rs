//! Writers that count, and a reader that checks the count: each write adds one to a counter, so that
//! a lost write, a hole or a repeat of the watch shows as a wrong number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use futures::StreamExt;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{
    ErrorClass, ListOptions, Part, ReadAt, Revision, Store, StoreError, WatchEvent, WatchFrom,
    WatchOptions, WatchStream,
};
use ipledger_store_etcd::{EtcdStore, Options};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long the next thing may take, an election or a restart included.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const CLAIMS: Kind = Kind::IPAddressClaim;

/// A store on these members, quick to notice that one of them fails.
pub(crate) async fn open(endpoints: Vec<String>) -> Arc<EtcdStore> {
    let mut options = Options::new(endpoints, "chaos");
    options.member_timeout = Duration::from_secs(1);
    options.probe_interval = Duration::from_millis(500);
    Arc::new(EtcdStore::open(options).await.unwrap())
}

pub(crate) fn claim(name: &str) -> Object {
    Object::from_value(json!({
        "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
        "metadata": {"name": name, "namespace": "team-a"}, "spec": {"count": 0},
    }))
    .unwrap()
}

pub(crate) fn key(name: &str) -> Key {
    Key::claim("team-a", name)
}

fn count(object: &Object) -> u64 {
    object.fields["spec"]["count"].as_u64().unwrap()
}

/// Repeats a read until the store is there again.
pub(crate) async fn eventually<T, F: Future<Output = Result<T, StoreError>>>(
    call: impl Fn() -> F,
) -> T {
    let read = async {
        loop {
            match call().await {
                Ok(value) => return value,
                Err(e) => assert_eq!(e.class(), ErrorClass::Retry, "{e}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, read)
        .await
        .expect("the store is there again")
}

/// Adds one to the counter, whatever happens meanwhile, and returns what it then is.
pub(crate) async fn add_one(store: &EtcdStore, name: &str) -> u64 {
    let key = key(name);
    loop {
        let current = eventually(|| store.get(&key, ReadAt::Latest)).await;
        let wanted = count(&current) + 1;
        let mut next = current;
        next.fields
            .insert("spec".to_owned(), json!({"count": wanted}));
        match store.update(next, Part::Main).await {
            Ok(stored) => return count(&stored),
            Err(e) => assert!(
                matches!(
                    e.class(),
                    ErrorClass::Retry | ErrorClass::Refresh | ErrorClass::Unknown
                ),
                "{e}"
            ),
        }
    }
}

/// Writers at work, each on a counter of its own.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    writers: Vec<JoinHandle<(String, u64)>>,
    reader: JoinHandle<BTreeMap<String, u64>>,
    store: Arc<EtcdStore>,
}

impl Load {
    pub(crate) async fn start(store: &Arc<EtcdStore>) -> Load {
        let names: Vec<String> = (0..4).map(|n| format!("counter-{n}")).collect();
        for name in &names {
            store.create(claim(name)).await.unwrap();
        }
        let from = store
            .list(CLAIMS, &ListOptions::default())
            .await
            .unwrap()
            .revision;
        let reader = tokio::spawn(read(watch(store, from).await, from));
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let write = |name: String| {
            let (store, stop, acknowledged) = (store.clone(), stop.clone(), acknowledged.clone());
            tokio::spawn(async move {
                let mut last = 0;
                while !stop.load(SeqCst) {
                    let now = add_one(&store, &name).await;
                    assert!(now > last, "{name}: {now} was acknowledged after {last}");
                    last = now;
                    acknowledged.fetch_add(1, SeqCst);
                }
                (name, last)
            })
        };
        let writers = names.into_iter().map(write).collect();
        Load {
            stop,
            acknowledged,
            writers,
            reader,
            store: store.clone(),
        }
    }

    /// Waits until so many more writes are acknowledged.
    pub(crate) async fn more(&self, writes: u64) {
        let goal = self.acknowledged.load(SeqCst) + writes;
        let reached = async {
            while self.acknowledged.load(SeqCst) < goal {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, reached).await.expect("writes go on");
    }

    /// Stops the writers. Every write that was acknowledged must be there, and the watch must have
    /// brought each write once and in order, without ever ending.
    pub(crate) async fn finish(self) {
        self.stop.store(true, SeqCst);
        let mut acknowledged = BTreeMap::new();
        for writer in self.writers {
            let (name, last) = timeout(PATIENCE, writer)
                .await
                .expect("the writers end")
                .unwrap();
            acknowledged.insert(name, last);
        }
        // An abandoned write may still land before this one; none can after.
        for name in acknowledged.keys() {
            add_one(&self.store, name).await;
        }
        let end = create_end(&self.store).await;
        let seen = timeout(PATIENCE, self.reader)
            .await
            .expect("the watch reaches the end")
            .unwrap();
        for (name, last) in acknowledged {
            let object = self.store.get(&key(&name), ReadAt::Latest).await.unwrap();
            assert!(
                count(&object) > last,
                "{name}: {last} was acknowledged and is lost"
            );
            assert_eq!(seen[&name], count(&object), "{name} as the watch has it");
            assert!(object.revision() < Some(end));
        }
    }
}

async fn create_end(store: &EtcdStore) -> Revision {
    let key = key("end");
    loop {
        match store.create(claim("end")).await {
            Ok(end) => return end.revision().unwrap(),
            Err(StoreError::AlreadyExists { .. }) => {
                let end = eventually(|| store.get(&key, ReadAt::Latest)).await;
                return end.revision().unwrap();
            }
            Err(e) => assert!(
                matches!(e.class(), ErrorClass::Retry | ErrorClass::Unknown),
                "{e}"
            ),
        }
    }
}

pub(crate) async fn watch(store: &EtcdStore, from: Revision) -> WatchStream {
    let options = WatchOptions::all(WatchFrom::After(from));
    eventually(|| store.watch(CLAIMS, &options)).await
}

/// Reads until the claim `end` comes; each counter must go up by one with each event.
pub(crate) async fn read(mut stream: WatchStream, from: Revision) -> BTreeMap<String, u64> {
    let (mut counts, mut seen) = (BTreeMap::new(), from);
    loop {
        let event = stream
            .next()
            .await
            .expect("the stream does not end")
            .unwrap();
        let revision = event.revision();
        let object = match event {
            WatchEvent::Applied(object) => object,
            WatchEvent::Synced(_) | WatchEvent::Bookmark(_) => {
                assert!(revision >= seen, "told {revision} after {seen}");
                seen = revision;
                continue;
            }
            other => panic!("{other:?}"),
        };
        assert!(revision > seen, "{revision} came after {seen}");
        seen = revision;
        let name = object.metadata.name.clone();
        if name == "end" {
            return counts;
        }
        let last = counts.insert(name.clone(), count(&object)).unwrap_or(0);
        assert_eq!(
            count(&object),
            last + 1,
            "{name}: a hole or a repeat in the watch"
        );
    }
}
