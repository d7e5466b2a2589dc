//! What the store does while the API server or its etcd fails.

use std::time::{Duration, Instant};

use futures::StreamExt;
use ipledger_core::api::{GROUP, Kind, Object};
use ipledger_core::store::{
    ListOptions, Part, Preconditions, ReadAt, Store, StoreError, WatchFrom, WatchOptions,
};
use ipledger_store_kube::KubeStore;
use ipledger_tests::etcd;
use ipledger_tests::load::{History, Load, PATIENCE, claim, eventually, key};
use serde_json::json;
use tokio::time::timeout;

use crate::cases;
use crate::cluster::{Cluster, TEAM};

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
/// How long a call may take.
const CALL: Duration = Duration::from_secs(3);

fn assert_unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Unavailable { reason }) => reason,
        other => panic!("Unavailable is expected, not {other:?}"),
    }
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
        assert_unavailable(store.create(claim("web")).await),
        assert_unavailable(store.delete(&key("web"), &Preconditions::default()).await),
        assert_unavailable(store.watch(CLAIMS, &options).await.map(|_| ())),
        assert_unavailable(store.barrier(CLAIMS).await),
    ];
    assert!(said.iter().all(|s| s.contains("CRDs")), "{said:?}");
    cluster.define();
    let absent = store.get(&key("web"), ReadAt::Latest).await;
    assert_eq!(absent, Err(StoreError::NotFound { key: key("web") }));
    store.create(claim("web")).await.unwrap();
}

async fn a_server_that_does_not_run_is_unavailable_and_nothing_is_written(mut cluster: Cluster) {
    let store = cluster.store(CALL).await;
    let old = store.create(claim("old")).await.unwrap();
    cluster.stop();
    assert_unavailable(store.get(&key("old"), ReadAt::Latest).await);
    assert_unavailable(store.create(claim("new")).await);
    assert_unavailable(store.update(old.clone(), Part::Main).await);
    assert_unavailable(store.delete(&key("old"), &Preconditions::default()).await);
    assert_unavailable(store.barrier(CLAIMS).await);
    cluster.start_again();
    assert_eq!(list(&store).await, [old]);
}

async fn a_frozen_server_leaves_a_write_unknown(cluster: Cluster) {
    let store = cluster.store(CALL).await;
    let old = store.create(claim("old")).await.unwrap();
    cluster.freeze();
    // On the connection that is open.
    let result = store.create(claim("new")).await;
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
    store.create(claim("before")).await.unwrap();
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
            let creates = names.iter().map(|name| async {
                let outcome = store.create(claim(name)).await;
                (outcome, Instant::now())
            });
            let outcomes = futures::future::join_all(creates).await;
            let mut refused = Vec::new();
            for (name, (outcome, at)) in names.into_iter().zip(outcomes) {
                if outcome.is_err() {
                    let reason = assert_unavailable(outcome);
                    assert!(reason.contains("overloaded"), "{reason}");
                    refused.push((name, at));
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
    // The server asks for a second. (How exact that is kept is seen in the store's own tests; here the
    // refusal is noticed a moment after it came.)
    let asked = refused.iter().map(|(_, at)| *at).max().unwrap();
    get(&store, "before").await;
    let waited = asked.elapsed();
    assert!(waited >= Duration::from_millis(950), "{waited:?}");
    for (name, _) in refused {
        let absent = store.get(&key(&name), ReadAt::Latest).await;
        assert_eq!(absent, Err(StoreError::NotFound { key: key(&name) }));
    }
}

async fn what_the_server_has_forgotten_is_expired(mut cluster: Cluster) {
    let store = cluster.store(CALL).await;
    let old = store.create(claim("a")).await.unwrap().revision().unwrap();
    store.create(claim("b")).await.unwrap();
    let mut pages = ListOptions {
        limit: Some(1),
        ..ListOptions::default()
    };
    pages.continue_token = store.list(CLAIMS, &pages).await.unwrap().continue_token;
    let last = store.create(claim("c")).await.unwrap().revision().unwrap();
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
    store.create(claim("good")).await.unwrap();
    store.create(claim("bad")).await.unwrap();
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
    let load = Load::start(store, History::Forgotten).await;
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
    let load = Load::start(store, History::Forgotten).await;
    for _ in 0..3 {
        load.more(100).await;
        cluster.etcd_mut().kill();
        cluster.etcd_mut().start_again();
    }
    load.more(100).await;
    load.finish().await;
}
