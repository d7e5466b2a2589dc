//! PATCH with a JSON merge patch.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, Part, Preconditions, ReadAt, Revision, Store,
    StoreError, WatchOptions, WatchStream,
};

use super::*;

#[tokio::test]
async fn a_patch_changes_what_it_names_and_removes_what_it_nulls() {
    let server = Server::new();
    let mut body = claim("web");
    body["metadata"]["labels"] = json!({"a": "1", "b": "2"});
    body["spec"]["className"] = json!("public");
    server.made(CLAIMS, &body).await;
    let patch = json!({"metadata": {"labels": {"a": null, "c": "3"}}, "spec": {"className": null}});
    let patched = server.patch(&format!("{CLAIMS}/web"), &patch).await;
    assert_eq!(patched.code, 200, "{}", patched.body);
    assert_eq!(
        patched.body["metadata"]["labels"],
        json!({"b": "2", "c": "3"})
    );
    assert_eq!(patched.body["spec"], json!({"family": "IPv4"}));
    assert_eq!(
        server.get(&format!("{CLAIMS}/web")).await.body,
        patched.body
    );
}

#[tokio::test]
async fn a_patch_of_one_part_leaves_the_other() {
    let server = Server::new();
    server.made(CLAIMS, &claim("web")).await;
    let both = json!({"spec": {"className": "a"}, "status": {"phase": "Pending"}});
    let main = server.patch(&format!("{CLAIMS}/web"), &both).await.body;
    assert_eq!(
        (&main["spec"]["className"], main.get("status")),
        (&json!("a"), None)
    );
    let both = json!({"spec": {"className": "b"}, "status": {"phase": "Pending"}});
    let status = server
        .patch(&format!("{CLAIMS}/web/status"), &both)
        .await
        .body;
    assert_eq!(status["spec"]["className"], "a");
    assert_eq!(status["status"]["phase"], "Pending");
}

#[tokio::test]
async fn a_patch_from_a_named_state_meets_a_conflict_and_another_does_not() {
    let server = Server::new();
    let made = server.made(CLAIMS, &claim("web")).await;
    let path = format!("{CLAIMS}/web");
    let seen = &made["metadata"]["resourceVersion"];
    let patch = json!({"metadata": {"resourceVersion": seen, "labels": {"a": "1"}}});
    assert_eq!(server.patch(&path, &patch).await.code, 200);
    let patch = json!({"metadata": {"resourceVersion": seen, "labels": {"a": "2"}}});
    server.patch(&path, &patch).await.refused(409, "Conflict");
    let patch = json!({"metadata": {"labels": {"a": "2"}}});
    assert_eq!(server.patch(&path, &patch).await.code, 200);
}

#[tokio::test]
async fn a_patch_is_put_on_the_state_that_another_writer_left() {
    let (server, busy) = contended();
    server.made(CLAIMS, &claim("web")).await;
    let path = format!("{CLAIMS}/web");
    busy.conflicts.store(5, Ordering::Relaxed);
    let patch = json!({"spec": {"className": "public"}});
    let patched = server.patch(&path, &patch).await;
    assert_eq!(patched.code, 200, "{}", patched.body);
    assert_eq!(patched.body["spec"]["className"], "public");
    // Each of the other writer's changes is still there.
    assert_eq!(
        patched.body["metadata"]["labels"]
            .as_object()
            .unwrap()
            .len(),
        5
    );
}

#[tokio::test]
async fn a_patch_that_loses_every_race_is_a_conflict_in_the_end() {
    let (server, busy) = contended();
    server.made(CLAIMS, &claim("web")).await;
    busy.conflicts.store(usize::MAX, Ordering::Relaxed);
    let patch = json!({"spec": {"className": "public"}});
    server
        .patch(&format!("{CLAIMS}/web"), &patch)
        .await
        .refused(409, "Conflict");
}

#[tokio::test]
async fn a_patch_from_a_named_state_is_never_put_on_another() {
    let (server, busy) = contended();
    let made = server.made(CLAIMS, &claim("web")).await;
    busy.conflicts.store(1, Ordering::Relaxed);
    let seen = &made["metadata"]["resourceVersion"];
    let patch = json!({"metadata": {"resourceVersion": seen}, "spec": {"className": "public"}});
    server
        .patch(&format!("{CLAIMS}/web"), &patch)
        .await
        .refused(409, "Conflict");
}

/// A store in which another writer gets in just before an update, so many times.
struct Contended {
    ledger: MemoryStore,
    conflicts: AtomicUsize,
}

fn contended() -> (Server, Arc<Contended>) {
    let store = MemoryStore::default();
    let busy = Arc::new(Contended {
        ledger: store.clone(),
        conflicts: AtomicUsize::new(0),
    });
    let router = router(ApiState::new(busy.clone()));
    (Server { store, router }, busy)
}

#[async_trait]
impl Store for Contended {
    async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        let left = self.conflicts.load(Ordering::Relaxed);
        if left > 0 {
            self.conflicts.store(left - 1, Ordering::Relaxed);
            let mut other = self.ledger.get(&object.key(), ReadAt::Latest).await?;
            other
                .metadata
                .labels
                .insert(format!("l{left}"), String::new());
            self.ledger.update(other, Part::Main).await?;
        }
        self.ledger.update(object, part).await
    }
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        self.ledger.get(key, at).await
    }
    async fn list(&self, kind: Kind, options: &ListOptions) -> Result<ListPage, StoreError> {
        self.ledger.list(kind, options).await
    }
    async fn create(&self, object: Object) -> Result<Object, StoreError> {
        self.ledger.create(object).await
    }
    async fn delete(&self, key: &Key, only: &Preconditions) -> Result<Deletion, StoreError> {
        self.ledger.delete(key, only).await
    }
    async fn watch(&self, kind: Kind, options: &WatchOptions) -> Result<WatchStream, StoreError> {
        self.ledger.watch(kind, options).await
    }
    async fn barrier(&self, kind: Kind) -> Result<Revision, StoreError> {
        self.ledger.barrier(kind).await
    }
    fn capabilities(&self) -> Capabilities {
        self.ledger.capabilities()
    }
}

#[tokio::test]
async fn only_merge_patches_are_read() {
    let server = Server::new();
    server.made(CLAIMS, &claim("web")).await;
    for content_type in [
        "application/json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "text/plain",
    ] {
        let mut request = request("PATCH", &format!("{CLAIMS}/web"), Some(&json!({})));
        let value = content_type.parse().unwrap();
        request.headers_mut().insert(header::CONTENT_TYPE, value);
        let answer = server.send(request).await;
        let message = answer.refused(415, "UnsupportedMediaType");
        assert!(
            message.contains("application/merge-patch+json"),
            "{message}"
        );
    }
    let list = server.patch(&format!("{CLAIMS}/web"), &json!([])).await;
    list.refused(400, "BadRequest");
}

#[tokio::test]
async fn a_patch_cannot_make_another_object_of_it() {
    let server = Server::new();
    server.made(CLAIMS, &claim("web")).await;
    let path = format!("{CLAIMS}/web");
    for patch in [
        json!({"metadata": {"name": "other"}}),
        json!({"metadata": {"namespace": "other"}}),
        json!({"kind": "IPAddress"}),
        json!({"apiVersion": "v1"}),
        json!({"metadata": 7}),
    ] {
        server.patch(&path, &patch).await.refused(400, "BadRequest");
    }
    let other = json!({"metadata": {"uid": "other"}});
    server.patch(&path, &other).await.refused(409, "Conflict");
    server
        .patch(&format!("{CLAIMS}/gone"), &json!({}))
        .await
        .refused(404, "NotFound");
}

#[tokio::test]
async fn the_rules_of_an_update_hold_for_a_patch() {
    let server = Server::new();
    server.made(CLAIMS, &claim("web")).await;
    let path = format!("{CLAIMS}/web");
    let bound = json!({"status": {"phase": "Bound"}});
    assert_eq!(
        server.patch(&format!("{path}/status"), &bound).await.code,
        200
    );
    let frozen = server
        .patch(&path, &json!({"spec": {"className": "late"}}))
        .await;
    let message = frozen.refused(422, "Invalid");
    assert!(message.contains("Bound"), "{message}");
    assert_eq!(frozen.blamed(), ["spec.className"]);
    let bad = json!({"status": {"phase": "Happy"}});
    let refused = server.patch(&format!("{path}/status"), &bad).await;
    refused.refused(422, "Invalid");
    assert_eq!(refused.blamed(), ["status.phase"]);
    // Metadata of a bound claim can still be changed.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(server.patch(&path, &label).await.code, 200);
}

#[tokio::test]
async fn an_object_from_before_a_rule_can_still_be_changed_elsewhere() {
    let server = Server::new();
    let mut odd = address(1);
    odd["metadata"]["name"] = json!("odd");
    odd["spec"] = json!({"address": "2001:DB8::1", "className": "public"});
    server
        .store
        .create(Object::from_value(odd).unwrap())
        .await
        .unwrap();
    let path = format!("{ADDRESSES}/odd");
    let policy = json!({"spec": {"reclaimPolicy": "Delete"}});
    assert_eq!(server.patch(&path, &policy).await.code, 200);
    let refused = server
        .patch(&path, &json!({"spec": {"address": "192.0.2.1"}}))
        .await;
    refused.refused(422, "Invalid");
    assert_eq!(refused.blamed(), ["spec.address"]);
}

#[tokio::test]
async fn a_patch_of_status_does_not_touch_what_the_edge_would_prune() {
    let server = Server::new();
    let mut future = claim("web");
    future["metadata"]["namespace"] = json!("team-a");
    future["spec"]["future"] = json!(1);
    server
        .store
        .create(Object::from_value(future).unwrap())
        .await
        .unwrap();
    let path = format!("{CLAIMS}/web/status?fieldValidation=Strict");
    let patched = server
        .patch(&path, &json!({"status": {"phase": "Pending"}}))
        .await;
    assert_eq!(patched.code, 200, "{}", patched.body);
    let key = Key::claim("team-a", "web");
    let stored = server.store.get(&key, ReadAt::Latest).await.unwrap();
    assert_eq!(stored.fields["spec"]["future"], 1);
    // A write that changes nothing is none, also through the store directly.
    assert_eq!(
        server
            .store
            .update(stored.clone(), Part::Main)
            .await
            .unwrap(),
        stored
    );
}
