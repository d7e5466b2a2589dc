//! Unknown fields, and fields that are refused.

use super::*;

fn with_slip() -> Value {
    let mut body = claim("web");
    body["spec"] = json!({"familly": "IPv6", "family": "Dual"});
    body["extra"] = json!(1);
    body
}

#[tokio::test]
async fn unknown_fields_are_left_out_with_a_warning() {
    for query in ["", "?fieldValidation=Warn"] {
        let server = Server::new();
        let answer = server.post(&format!("{CLAIMS}{query}"), &with_slip()).await;
        assert_eq!(
            (answer.code, &answer.body["spec"]),
            (201, &json!({"family": "Dual"}))
        );
        assert_eq!(answer.body.get("extra"), None);
        assert_eq!(
            answer.warnings(),
            [
                r#"299 - "unknown field \"extra\"""#,
                r#"299 - "unknown field \"spec.familly\", did you mean \"spec.family\"?""#,
            ]
        );
    }
}

#[tokio::test]
async fn unknown_fields_are_left_out_in_silence_if_asked() {
    let server = Server::new();
    let answer = server
        .post(&format!("{CLAIMS}?fieldValidation=Ignore"), &with_slip())
        .await;
    assert_eq!(
        (answer.code, &answer.body["spec"]),
        (201, &json!({"family": "Dual"}))
    );
    assert_eq!(answer.warnings(), Vec::<&str>::new());
}

#[tokio::test]
async fn unknown_fields_are_refused_by_name_if_strict() {
    let server = Server::new();
    let strict = "fieldValidation=Strict";
    let answer = server
        .post(&format!("{CLAIMS}?{strict}"), &with_slip())
        .await;
    let message = answer.refused(400, "BadRequest");
    assert!(
        message.contains(r#"strict decoding error: unknown field "extra""#),
        "{message}"
    );
    assert!(
        message.contains(r#"did you mean "spec.family"?"#),
        "{message}"
    );
    assert_eq!(answer.blamed(), ["extra", "spec.familly"]);

    let mut made = server
        .made(&format!("{CLAIMS}?{strict}"), &claim("web"))
        .await;
    made["status"] = json!({"fase": "Bound"});
    let path = format!("{CLAIMS}/web");
    server
        .put(&format!("{path}?{strict}"), &made)
        .await
        .refused(400, "BadRequest");
    let patch = json!({"spec": {"familly": "IPv6"}});
    server
        .patch(&format!("{path}?{strict}"), &patch)
        .await
        .refused(400, "BadRequest");
    let warned = server.patch(&path, &patch).await;
    assert_eq!((warned.code, warned.warnings().len()), (200, 1));
    let other = server
        .post(&format!("{CLAIMS}?fieldValidation=Maybe"), &claim("x"))
        .await;
    other.refused(400, "BadRequest");
}

#[tokio::test]
async fn class_parameters_are_opaque_to_the_api() {
    let server = Server::new();
    let mut body = class("public");
    body["spec"]["parameters"] = json!({"adresses": ["192.0.2.9-192.0.2.1"], "x": {"y": [null]}});
    let made = server
        .post(&format!("{CLASSES}?fieldValidation=Strict"), &body)
        .await;
    assert_eq!(
        (made.code, &made.body["spec"]["parameters"]),
        (201, &body["spec"]["parameters"])
    );
}

#[tokio::test]
async fn each_refused_field_is_named() {
    let server = Server::new();
    let mut bad = address(1);
    bad["metadata"]["name"] = json!("mine");
    bad["spec"] = json!({"address": "2001:DB8::1", "reclaimPolicy": "Delete"});
    let answer = server.post(ADDRESSES, &bad).await;
    let message = answer.refused(422, "Invalid");
    assert!(
        message.contains("2001:db8::1") && message.contains("`ip-2001-db8--1`"),
        "{message}"
    );
    assert_eq!(
        answer.blamed(),
        ["metadata.name", "spec.address", "spec.className"]
    );
    assert_eq!(answer.body["details"]["kind"], "IPAddress");
}

#[tokio::test]
async fn one_ip_has_one_object() {
    let server = Server::new();
    server.made(ADDRESSES, &address(1)).await;
    let mut second = address(1);
    second["metadata"]["name"] = json!("spare");
    let answer = server.post(ADDRESSES, &second).await;
    answer.refused(422, "Invalid");
    assert_eq!(answer.blamed(), ["metadata.name"]);
    server
        .post(ADDRESSES, &address(1))
        .await
        .refused(409, "AlreadyExists");
}

#[tokio::test]
async fn metadata_has_the_forms_of_kubernetes() {
    let server = Server::new();
    for (metadata, field) in [
        (json!({"name": "Web"}), "metadata.name"),
        (
            json!({"name": "web", "labels": {"a b": "c"}}),
            "metadata.labels",
        ),
        (
            json!({"name": "web", "finalizers": ["no good"]}),
            "metadata.finalizers",
        ),
        (
            json!({"name": "web", "resourceVersion": "7"}),
            "metadata.resourceVersion",
        ),
        (
            json!({"name": "web", "annotations": {"a": "x".repeat(256 * 1024)}}),
            "metadata.annotations",
        ),
    ] {
        let mut body = claim("web");
        body["metadata"] = metadata;
        let answer = server.post(CLAIMS, &body).await;
        answer.refused(422, "Invalid");
        assert_eq!(answer.blamed(), [field]);
    }
}

#[tokio::test]
async fn what_tools_write_for_nothing_is_taken_as_nothing() {
    let server = Server::new();
    let mut body = claim("web");
    body["metadata"] = json!({"name": "web", "labels": null, "annotations": null,
        "finalizers": null, "resourceVersion": "", "creationTimestamp": null});
    body["spec"] = json!({"className": null});
    body["status"] = json!(null);
    let made = server.made(CLAIMS, &body).await;
    assert_eq!(made["spec"], json!({"family": "IPv4"}));
    server
        .post(
            CLAIMS,
            &json!({"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": null}),
        )
        .await
        .refused(422, "Invalid");
}

#[tokio::test]
async fn metadata_of_the_wrong_type_is_named_by_field_and_object() {
    let server = Server::new();
    let made = server.made(CLAIMS, &claim("web")).await;
    let path = format!("{CLAIMS}/web");
    let metadata = json!({"labels": {"a": "b", "x": 5}, "finalizers": "f"});
    let fields = ["metadata.finalizers", "metadata.labels.x"];
    let mut body = made.clone();
    body["metadata"]["labels"] = metadata["labels"].clone();
    body["metadata"]["finalizers"] = metadata["finalizers"].clone();
    for answer in [
        server.post(CLAIMS, &body).await,
        server.put(&path, &body).await,
        server.patch(&path, &json!({ "metadata": metadata })).await,
    ] {
        let message = answer.refused(400, "BadRequest");
        assert_eq!(
            message,
            "IPAddressClaim.local.sdn.cozystack.io \"web\" cannot be read: [metadata.finalizers: must \
             be a list, not a string, metadata.labels.x: must be a string, not a number]"
        );
        assert_eq!(answer.blamed(), fields);
        assert_eq!(answer.body["details"]["name"], "web");
    }
    let mut list = claim("web");
    list["metadata"] = json!([]);
    let answer = server.post(CLAIMS, &list).await;
    answer.refused(400, "BadRequest");
    assert_eq!(answer.blamed(), ["metadata"]);
}

#[tokio::test]
async fn a_status_with_two_conditions_of_one_type_is_refused() {
    let server = Server::new();
    let mut body = server.made(CLAIMS, &claim("web")).await;
    let condition = json!({"type": "Bound", "status": "True"});
    body["status"] = json!({"conditions": [condition, condition]});
    let answer = server.put(&format!("{CLAIMS}/web/status"), &body).await;
    let message = answer.refused(422, "Invalid");
    assert!(
        message.contains("status.conditions[1]: Duplicate value"),
        "{message}"
    );
    assert_eq!(answer.blamed(), ["status.conditions[1]"]);
}

#[tokio::test]
async fn annotations_that_leave_no_room_are_refused_on_every_way_in() {
    let server = Server::new();
    let made = server.made(CLAIMS, &claim("web")).await;
    let path = format!("{CLAIMS}/web");
    let annotations = json!({"example.com/a": "x".repeat(192 * 1024)});
    let mut full = claim("full");
    full["metadata"]["annotations"] = annotations.clone();
    let mut updated = made.clone();
    updated["metadata"]["annotations"] = annotations.clone();
    let patch = json!({"metadata": {"annotations": annotations}});
    for answer in [
        server.post(CLAIMS, &full).await,
        server.put(&path, &updated).await,
        server.patch(&path, &patch).await,
    ] {
        let message = answer.refused(422, "Invalid");
        assert!(message.contains("196608"), "{message}");
        assert_eq!(answer.blamed(), ["metadata.annotations"]);
    }
    let mut class = class("public");
    class["metadata"]["annotations"] = annotations;
    server.made(CLASSES, &class).await;
}
