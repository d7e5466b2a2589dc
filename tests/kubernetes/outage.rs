//! What the store does while the API server or its etcd fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use futures::StreamExt;
use ipledger_core::api::{GROUP, Key, Kind, Object};
use ipledger_core::store::{
    ErrorClass, ListOptions, Part, Preconditions, ReadAt, Revision, Store, StoreError, WatchEvent,
    WatchFrom, WatchOptions,
};
use ipledger_store_kube::KubeStore;
use ipledger_tests::etcd;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::cases;
use crate::cluster::{Cluster, TEAM, claim, stored};

cases![Alone:
    without_our_definitions_nothing_is_absent,
    a_server_that_does_not_run_is_unavailable_and_nothing_is_written,
    a_frozen_server_leaves_a_write_unknown,
    an_overloaded_server_is_left_alone_for_as_long_as_it_asks,
    what_the_server_has_forgotten_is_expired,
    an_object_that_the_server_cannot_read_is_not_absent,
    the_server_killed_and_started_under_load_loses_no_write_and_no_event,
    etcd_killed_and_started_under_load_loses_no_write_and_no_event,
];

const CLAIMS: Kind = Kind::IPAddressClaim;
/// How long the next thing may take, a restart included.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a call may take.
const CALL: Duration = Duration::from_secs(3);

fn web(name: &str) -> Object {
    stored(claim(name, json!({"className": "c-0"})))
}

fn key(name: &str) -> Key {
    Key::claim(TEAM, name)
}

fn assert_unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Unavailable { reason }) => reason,
        other => panic!("Unavailable is expected, not {other:?}"),
    }
}

/// Repeats a call until the server is there again.
async fn eventually<T, F: Future<Output = Result<T, StoreError>>>(call: impl Fn() -> F) -> T {
    let again = async {
        loop {
            match call().await {
                Ok(value) => return value,
                Err(e) => assert_eq!(e.class(), ErrorClass::Retry, "{e}"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, again)
        .await
        .expect("the server is there again")
}

async fn get(store: &KubeStore, name: &str) -> Object {
    let key = key(name);
    eventually(|| store.get(&key, ReadAt::Latest)).await
}

async fn list(store: &KubeStore) -> Vec<Object> {
    let options = ListOptions::default();
    eventually(|| store.list(CLAIMS, &options)).await.items
}

async fn without_our_definitions_nothing_is_absent(_: Cluster) {
    let cluster = Cluster::bare();
    let store = cluster.store(CALL).await;
    let options = WatchOptions::all(WatchFrom::Start);
    let said = [
        assert_unavailable(store.get(&key("web"), ReadAt::Latest).await),
        assert_unavailable(store.list(CLAIMS, &ListOptions::default()).await),
        assert_unavailable(store.create(web("web")).await),
        assert_unavailable(store.delete(&key("web"), &Preconditions::default()).await),
        assert_unavailable(store.watch(CLAIMS, &options).await.map(|_| ())),
        assert_unavailable(store.barrier(CLAIMS).await),
    ];
    assert!(said.iter().all(|s| s.contains("CRDs")), "{said:?}");
    cluster.define();
    let absent = store.get(&key("web"), ReadAt::Latest).await;
    assert_eq!(absent, Err(StoreError::NotFound { key: key("web") }));
    store.create(web("web")).await.unwrap();
}

async fn a_server_that_does_not_run_is_unavailable_and_nothing_is_written(mut cluster: Cluster) {
    let store = cluster.store(CALL).await;
    let old = store.create(web("old")).await.unwrap();
    cluster.stop();
    assert_unavailable(store.get(&key("old"), ReadAt::Latest).await);
    assert_unavailable(store.create(web("new")).await);
    assert_unavailable(store.update(old.clone(), Part::Main).await);
    assert_unavailable(store.delete(&key("old"), &Preconditions::default()).await);
    assert_unavailable(store.barrier(CLAIMS).await);
    cluster.start_again();
    assert_eq!(list(&store).await, [old]);
}

async fn a_frozen_server_leaves_a_write_unknown(cluster: Cluster) {
    let store = cluster.store(CALL).await;
    let old = store.create(web("old")).await.unwrap();
    cluster.freeze();
    // On the connection that is open.
    let result = store.create(web("new")).await;
    assert!(
        matches!(result, Err(StoreError::OutcomeUnknown { .. })),
        "{result:?}"
    );
    // A new connection is not answered, so that nothing is sent on it.
    assert_unavailable(store.get(&key("old"), ReadAt::Latest).await);
    assert_unavailable(store.update(old, Part::Main).await);
    cluster.thaw();
    let names = list(&store).await.len();
    assert!([1, 2].contains(&names), "{names}");
    get(&store, "old").await;
}

async fn an_overloaded_server_is_left_alone_for_as_long_as_it_asks(cluster: Cluster) {
    let limited = ipledger_tests::kubernetes::NOBODY;
    let list = |items| json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": limited},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": limited, "apiGroup": "rbac.authorization.k8s.io"}]});
    cluster.apply(&list(json!([binding])));
    let store = cluster.store_of(limited, Duration::from_secs(20)).await;
    store.create(web("before")).await.unwrap();
    // A level with as few seats as there can be, and no queue.
    let level = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration", "metadata": {"name": limited},
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 0,
            "borrowingLimitPercent": 0, "lendablePercent": 0, "limitResponse": {"type": "Reject"}}}});
    let flow = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": limited},
        "spec": {"priorityLevelConfiguration": {"name": limited}, "matchingPrecedence": 2,
            "rules": [{"subjects": [{"kind": "User", "user": {"name": limited}}], "resourceRules": [{
                "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                "clusterScope": true}]}]}});
    cluster.apply(&list(json!([level, flow])));
    let refused = async {
        for round in 0.. {
            // One is let in, as long as it is alone.
            let names: Vec<String> = (0..16).map(|n| format!("c-{round}-{n}")).collect();
            let creates = names.iter().map(|name| store.create(web(name)));
            let outcomes = futures::future::join_all(creates).await;
            let mut refused = Vec::new();
            for (name, outcome) in names.into_iter().zip(outcomes) {
                if outcome.is_err() {
                    let reason = assert_unavailable(outcome);
                    assert!(reason.contains("overloaded"), "{reason}");
                    refused.push(name);
                }
            }
            // None is as long as the level is not in force.
            if !refused.is_empty() {
                return refused;
            }
        }
        Vec::new()
    };
    let refused = timeout(PATIENCE, refused)
        .await
        .expect("the level gets in force");
    // The server asks for a second.
    let asked = Instant::now();
    get(&store, "before").await;
    let waited = asked.elapsed();
    assert!(waited >= Duration::from_millis(500), "{waited:?}");
    for name in refused {
        let absent = store.get(&key(&name), ReadAt::Latest).await;
        assert_eq!(absent, Err(StoreError::NotFound { key: key(&name) }));
    }
}

async fn what_the_server_has_forgotten_is_expired(mut cluster: Cluster) {
    let store = cluster.store(CALL).await;
    let old = store.create(web("a")).await.unwrap().revision().unwrap();
    store.create(web("b")).await.unwrap();
    let mut pages = ListOptions {
        limit: Some(1),
        ..ListOptions::default()
    };
    pages.continue_token = store.list(CLAIMS, &pages).await.unwrap().continue_token;
    let last = store.create(web("c")).await.unwrap().revision().unwrap();
    cluster.stop();
    etcd::compact(&cluster.etcd().endpoint(), last.0).await;
    cluster.start_again();
    let expired = |e: StoreError| assert!(matches!(e, StoreError::Expired { .. }), "{e}");
    expired(store.list(CLAIMS, &pages).await.unwrap_err());
    let options = WatchOptions::all(WatchFrom::After(old));
    let opened = store.watch(CLAIMS, &options).await;
    match opened {
        Err(e) => expired(e),
        Ok(mut stream) => {
            expired(stream.next().await.unwrap().unwrap_err());
            assert!(stream.next().await.is_none());
        }
    }
    assert_eq!(list(&store).await.len(), 3);
}

/// The server then serves none of the kind; that must not look like an empty ledger.
async fn an_object_that_the_server_cannot_read_is_not_absent(mut cluster: Cluster) {
    let store = cluster.store(CALL).await;
    store.create(web("good")).await.unwrap();
    store.create(web("bad")).await.unwrap();
    cluster.stop();
    let mut client = etcd::client(&cluster.etcd().endpoint()).await.unwrap();
    let path = format!("/registry/{GROUP}/ipaddressclaims/{TEAM}/bad");
    assert_eq!(client.get(path.clone(), None).await.unwrap().kvs().len(), 1);
    client.put(path.clone(), "{\"kind\": ", None).await.unwrap();
    cluster.start_again();
    assert_unavailable(store.get(&key("bad"), ReadAt::Latest).await);
    assert_unavailable(store.list(CLAIMS, &ListOptions::default()).await);
    assert_unavailable(store.barrier(CLAIMS).await);
    client.delete(path, None).await.unwrap();
    assert_eq!(list(&store).await.len(), 1);
}

async fn the_server_killed_and_started_under_load_loses_no_write_and_no_event(
    mut cluster: Cluster,
) {
    let store = cluster.store(CALL).await;
    let load = Load::start(&store).await;
    for _ in 0..3 {
        load.more(100).await;
        cluster.kill();
        cluster.start_again();
    }
    load.more(100).await;
    load.finish().await;
}

async fn etcd_killed_and_started_under_load_loses_no_write_and_no_event(mut cluster: Cluster) {
    let store = cluster.store(CALL).await;
    let load = Load::start(&store).await;
    for _ in 0..3 {
        load.more(100).await;
        cluster.etcd_mut().kill();
        cluster.etcd_mut().start_again();
    }
    load.more(100).await;
    load.finish().await;
}

/// Writers that count, each on a claim of its own, and a reader that checks the count: a lost write,
/// a hole or a repeat shows as a wrong number.
struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    writers: Vec<tokio::task::JoinHandle<(String, u64)>>,
    reader: tokio::task::JoinHandle<BTreeMap<String, u64>>,
    store: Arc<KubeStore>,
}

fn count(object: &Object) -> u64 {
    let class = object.fields["spec"]["className"].as_str().unwrap();
    class.strip_prefix("c-").unwrap().parse().unwrap()
}

/// Adds one, whatever happens meanwhile, and returns what it then is.
async fn add_one(store: &KubeStore, name: &str) -> u64 {
    loop {
        let mut next = get(store, name).await;
        let wanted = count(&next) + 1;
        next.fields.insert(
            "spec".to_owned(),
            json!({"className": format!("c-{wanted}")}),
        );
        match store.update(next, Part::Main).await {
            Ok(_) => return wanted,
            Err(e) => assert_ne!(e.class(), ErrorClass::Permanent, "{e}"),
        }
    }
}

impl Load {
    async fn start(store: &Arc<KubeStore>) -> Load {
        let names: Vec<String> = (0..4).map(|n| format!("counter-{n}")).collect();
        for name in &names {
            store.create(web(name)).await.unwrap();
        }
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
        Load {
            writers: names.into_iter().map(write).collect(),
            reader: tokio::spawn(read(store.clone())),
            stop,
            acknowledged,
            store: store.clone(),
        }
    }

    /// Waits until so many more writes are acknowledged.
    async fn more(&self, writes: u64) {
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
    async fn finish(self) {
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
        self.store.create(web("end")).await.unwrap();
        let seen = timeout(PATIENCE, self.reader)
            .await
            .expect("the watch reaches the end");
        let seen = seen.unwrap();
        for (name, last) in acknowledged {
            let object = self.store.get(&key(&name), ReadAt::Latest).await.unwrap();
            assert!(
                count(&object) > last,
                "{name}: {last} was acknowledged and is lost"
            );
            assert_eq!(seen[&name], count(&object), "{name} as the watch has it");
        }
    }
}

/// Lists and watches, and lists again only when the server has forgotten, until `end` comes.
async fn read(store: Arc<KubeStore>) -> BTreeMap<String, u64> {
    let (mut counts, mut seen) = (BTreeMap::<String, u64>::new(), Revision(0));
    loop {
        let options = ListOptions::default();
        let page = eventually(|| store.list(CLAIMS, &options)).await;
        assert!(
            page.revision >= seen,
            "listed {} after {seen}",
            page.revision
        );
        seen = page.revision;
        for object in page
            .items
            .iter()
            .filter(|o| o.metadata.name.starts_with("counter-"))
        {
            let last = counts.insert(object.metadata.name.clone(), count(object));
            assert!(last.unwrap_or(0) <= count(object), "{object:?}");
        }
        if page.items.iter().any(|o| o.metadata.name == "end") {
            return counts;
        }
        let options = WatchOptions::all(WatchFrom::After(seen));
        let opened = timeout(PATIENCE, async {
            loop {
                match store.watch(CLAIMS, &options).await {
                    Err(e) if e.class() == ErrorClass::Retry => {
                        sleep(Duration::from_millis(50)).await
                    }
                    opened => return opened,
                }
            }
        });
        let mut stream = match opened.await.expect("the server is there again") {
            Ok(stream) => stream,
            Err(StoreError::Expired { .. }) => continue,
            Err(e) => panic!("{e}"),
        };
        loop {
            let event = match stream.next().await.expect("the stream does not end") {
                Ok(event) => event,
                Err(StoreError::Expired { .. }) => break,
                Err(e) => panic!("{e}"),
            };
            let revision = event.revision();
            let WatchEvent::Applied(object) = event else {
                assert!(revision >= seen, "told {revision} after {seen}");
                seen = revision;
                continue;
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
}
