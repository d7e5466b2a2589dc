//! PATCH with a JSON merge patch.

use ipledger_core::api::{Key, Object};
use ipledger_core::store::{Part, ReadAt, Store};

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
async fn patches_that_race_are_all_applied() {
    let server = Server::new();
    server.made(CLAIMS, &claim("web")).await;
    let path = format!("{CLAIMS}/web");
    let patches: Vec<Value> = (0..8)
        .map(|i| json!({"metadata": {"labels": {format!("l{i}"): "x"}}}))
        .collect();
    let all = futures::future::join_all(patches.iter().map(|p| server.patch(&path, p))).await;
    assert!(all.iter().all(|a| a.code == 200));
    let labels = server.get(&path).await.body["metadata"]["labels"].clone();
    assert_eq!(labels.as_object().unwrap().len(), 8);
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
    let status = json!({"status": {"phase": "Pending"}});
    assert_eq!(
        server
            .patch(&format!("{CLAIMS}/web/status"), &status)
            .await
            .code,
        200
    );
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
