//! Writers that count, and a reader that checks the count: each write adds one to a counter, so that
//! a lost write, a hole or a repeat of the watch shows as a wrong number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use futures::StreamExt;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{
    ErrorClass, ListOptions, ListPage, Part, ReadAt, Revision, Store, StoreError, WatchEvent,
    WatchFrom, WatchOptions, WatchStream,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long the next thing may take, an election or a restart included.
pub const PATIENCE: Duration = Duration::from_secs(60);
const CLAIMS: Kind = Kind::IPAddressClaim;

/// A counter that is at zero, in the namespace `team-a`.
///
/// # Panics
/// The name is none.
pub fn claim(name: &str) -> Object {
    Object::from_value(json!({
        "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
        "metadata": {"name": name, "namespace": "team-a"}, "spec": at(0),
    }))
    .expect("a claim")
}

/// Counts where every backend keeps what is written.
fn at(count: u64) -> Value {
    json!({"className": format!("c-{count}")})
}

/// What a counter is at.
///
/// # Panics
/// The object is none.
pub fn count(object: &Object) -> u64 {
    let class = object.fields["spec"]["className"].as_str();
    let count = class.and_then(|class| class.strip_prefix("c-")?.parse().ok());
    count.unwrap_or_else(|| panic!("{} does not count", object.key()))
}

/// The key of such a counter.
pub fn key(name: &str) -> Key {
    Key::claim("team-a", name)
}

/// Repeats a read until the store is there again.
///
/// # Panics
/// It is not within [`PATIENCE`], or the read fails for good.
pub async fn eventually<T, F: Future<Output = Result<T, StoreError>>>(call: impl Fn() -> F) -> T {
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
///
/// # Panics
/// The store says that it cannot be done.
pub async fn add_one(store: &dyn Store, name: &str) -> u64 {
    let key = key(name);
    loop {
        let mut next = eventually(|| store.get(&key, ReadAt::Latest)).await;
        let wanted = count(&next) + 1;
        next.fields.insert("spec".to_owned(), at(wanted));
        match store.update(next, Part::Main).await {
            Ok(stored) => return count(&stored),
            Err(e) => assert_ne!(e.class(), ErrorClass::Permanent, "{e}"),
        }
    }
}

/// Whether the watch may end because the server has forgotten what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// It never does.
    Kept,
    /// It may; the reader then lists again.
    Forgotten,
}

/// Writers at work, each on a counter of its own.
pub struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    writers: Vec<JoinHandle<(String, u64)>>,
    reader: JoinHandle<BTreeMap<String, u64>>,
    store: Arc<dyn Store>,
}

impl Load {
    /// Creates the counters and starts.
    ///
    /// # Panics
    /// They cannot be created.
    pub async fn start(store: Arc<dyn Store>, history: History) -> Load {
        let names: Vec<String> = (0..4).map(|n| format!("counter-{n}")).collect();
        for name in &names {
            store
                .create(claim(name))
                .await
                .expect("a counter is created");
        }
        let followed = follow(&*store).await;
        let reader = tokio::spawn(read(store.clone(), followed, history));
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let write = |name: String| {
            let (store, stop, acknowledged) = (store.clone(), stop.clone(), acknowledged.clone());
            tokio::spawn(async move {
                let mut last = 0;
                while !stop.load(SeqCst) {
                    let now = add_one(&*store, &name).await;
                    assert!(now > last, "{name}: {now} was acknowledged after {last}");
                    last = now;
                    acknowledged.fetch_add(1, SeqCst);
                }
                (name, last)
            })
        };
        Load {
            writers: names.into_iter().map(write).collect(),
            reader,
            stop,
            acknowledged,
            store,
        }
    }

    /// Waits until so many more writes are acknowledged.
    ///
    /// # Panics
    /// They are not.
    pub async fn more(&self, writes: u64) {
        let goal = self.acknowledged.load(SeqCst) + writes;
        let reached = async {
            while self.acknowledged.load(SeqCst) < goal {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, reached).await.expect("writes go on");
    }

    /// Stops the writers. Every write that was acknowledged must be there, and the reader must have
    /// heard of each once and in order.
    ///
    /// # Panics
    /// That is not so.
    pub async fn finish(self) {
        self.stop.store(true, SeqCst);
        let mut acknowledged = BTreeMap::new();
        for writer in self.writers {
            let (name, last) = timeout(PATIENCE, writer)
                .await
                .expect("the writers end")
                .expect("the writers do not fail");
            acknowledged.insert(name, last);
        }
        // An abandoned write may still land before this one; none can after.
        for name in acknowledged.keys() {
            add_one(&*self.store, name).await;
        }
        let end = create_end(&*self.store).await;
        let seen = timeout(PATIENCE, self.reader)
            .await
            .expect("the watch reaches the end")
            .expect("the reader does not fail");
        for (name, last) in acknowledged {
            let key = key(&name);
            let object = eventually(|| self.store.get(&key, ReadAt::Latest)).await;
            assert!(
                count(&object) > last,
                "{name}: {last} was acknowledged and is lost"
            );
            assert_eq!(seen[&name], count(&object), "{name} as the watch has it");
            assert!(object.revision() < Some(end));
        }
    }
}

async fn create_end(store: &dyn Store) -> Revision {
    let key = key("end");
    loop {
        match store.create(claim("end")).await {
            Ok(end) => return end.revision().expect("it is stored"),
            Err(StoreError::AlreadyExists { .. }) => {
                let end = eventually(|| store.get(&key, ReadAt::Latest)).await;
                return end.revision().expect("it is stored");
            }
            Err(e) => assert!(
                matches!(e.class(), ErrorClass::Retry | ErrorClass::Unknown),
                "{e}"
            ),
        }
    }
}

/// What happens to claims after this revision.
pub async fn watch(store: &dyn Store, from: Revision) -> WatchStream {
    let options = WatchOptions::all(WatchFrom::After(from));
    eventually(|| store.watch(CLAIMS, &options)).await
}

/// All claims, and what happens to them from then on.
async fn follow(store: &dyn Store) -> (ListPage, WatchStream) {
    loop {
        let page = eventually(|| async { store.list(CLAIMS, &ListOptions::default()).await }).await;
        let options = WatchOptions::all(WatchFrom::After(page.revision));
        let opened = eventually(|| async {
            match store.watch(CLAIMS, &options).await {
                // It was too long ago.
                Err(StoreError::Expired { .. }) => Ok(None),
                opened => opened.map(Some),
            }
        });
        if let Some(stream) = opened.await {
            return (page, stream);
        }
    }
}

/// Reads until the claim `end` comes; each counter must go up by one with each event.
async fn read(
    store: Arc<dyn Store>,
    mut followed: (ListPage, WatchStream),
    history: History,
) -> BTreeMap<String, u64> {
    let (mut counts, mut seen) = (BTreeMap::<String, u64>::new(), Revision(0));
    loop {
        let (page, mut stream) = followed;
        let listed = page.revision;
        assert!(listed >= seen, "listed {listed} after {seen}");
        seen = listed;
        for object in &page.items {
            let last = counts.insert(object.metadata.name.clone(), count(object));
            assert!(last.unwrap_or(0) <= count(object), "{object:?}");
        }
        if counts.contains_key("end") {
            return counts;
        }
        loop {
            let event = match stream.next().await.expect("the stream does not end") {
                Ok(event) => event,
                Err(StoreError::Expired { .. }) if history == History::Forgotten => break,
                Err(e) => panic!("{e}"),
            };
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
        followed = follow(&*store).await;
    }
}
