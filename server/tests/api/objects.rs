//! Create, read, replace and delete one object; the split of status; finalizers.

use super::*;

#[tokio::test]
async fn a_created_object_is_completed_and_can_be_read() {
    let server = Server::new();
    let made = server.made(CLAIMS, &claim("web")).await;
    assert_eq!(made["metadata"]["namespace"], "team-a");
    assert_eq!(made["metadata"]["generation"], 1);
    assert!(made["metadata"]["uid"].is_string() && made["metadata"]["resourceVersion"].is_string());
    assert_eq!(made["spec"], json!({"family": "IPv4"}));
    let read = server.get(&format!("{CLAIMS}/web")).await;
    assert_eq!((read.code, read.body), (200, made));
    assert_eq!(
        server.made(CLASSES, &class("public")).await["spec"]["reclaimPolicy"],
        "Retain"
    );
    assert_eq!(
        server.made(ADDRESSES, &address(1)).await["spec"]["reclaimPolicy"],
        "Retain"
    );
}

#[tokio::test]
async fn an_object_can_be_sent_as_yaml() {
    let server = Server::new();
    let text = "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddressClaim\nmetadata:\n  name: web\n  labels:\nspec:\n  family: Dual\n";
    let mut request = request("POST", CLAIMS, None);
    *request.body_mut() = Body::from(text);
    let yaml = "application/yaml".parse().unwrap();
    request.headers_mut().insert(header::CONTENT_TYPE, yaml);
    let answer = server.send(request).await;
    assert_eq!(
        (answer.code, &answer.body["spec"]["family"]),
        (201, &json!("Dual"))
    );
}

#[tokio::test]
async fn a_create_takes_neither_uid_nor_status_from_its_caller() {
    let server = Server::new();
    let mut body = claim("web");
    body["metadata"]["uid"] = json!("mine");
    body["metadata"]["creationTimestamp"] = json!(null);
    body["status"] = json!({"phase": "Bound"});
    let made = server.made(CLAIMS, &body).await;
    assert_ne!(made["metadata"]["uid"], "mine");
    assert_eq!(made.get("status"), None);
}

#[tokio::test]
async fn a_second_create_meets_the_first() {
    let server = Server::new();
    server.made(CLAIMS, &claim("web")).await;
    let answer = server.post(CLAIMS, &claim("web")).await;
    let message = answer.refused(409, "AlreadyExists");
    assert_eq!(
        message,
        r#"ipaddressclaims.local.sdn.cozystack.io "web" already exists"#
    );
}

#[tokio::test]
async fn a_name_is_generated_if_asked() {
    let server = Server::new();
    let mut body = claim("");
    body["metadata"] = json!({"generateName": "web-"});
    let (a, b) = (
        server.made(CLAIMS, &body).await,
        server.made(CLAIMS, &body).await,
    );
    for made in [&a, &b] {
        let name = made["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    }
    assert_ne!(a["metadata"]["name"], b["metadata"]["name"]);
    body["metadata"] = json!({"generateName": "x".repeat(200)});
    let long = server.made(CLAIMS, &body).await;
    assert_eq!(long["metadata"]["name"].as_str().unwrap().len(), 63);
    server
        .post(CLAIMS, &claim(""))
        .await
        .refused(422, "Invalid");
}

#[tokio::test]
async fn a_replaced_object_keeps_its_status_and_moves_its_generation() {
    let server = Server::new();
    let mut object = server.made(CLAIMS, &claim("web")).await;
    object["status"] = json!({"phase": "Pending"});
    let path = format!("{CLAIMS}/web");
    let mut object = server.put(&format!("{path}/status"), &object).await.body;
    assert_eq!(object["status"]["phase"], "Pending");
    assert_eq!(object["metadata"]["generation"], 1);

    object["spec"]["className"] = json!("public");
    object["status"] = json!({"phase": "Bound"});
    let replaced = server.put(&path, &object).await;
    assert_eq!(replaced.code, 200, "{}", replaced.body);
    assert_eq!(replaced.body["spec"]["className"], "public");
    assert_eq!(replaced.body["status"]["phase"], "Pending");
    assert_eq!(replaced.body["metadata"]["generation"], 2);
}

#[tokio::test]
async fn an_update_of_status_changes_nothing_else() {
    let server = Server::new();
    let mut object = server.made(CLAIMS, &claim("web")).await;
    object["spec"]["className"] = json!("other");
    object["metadata"]["labels"] = json!({"a": "b"});
    object["status"] = json!({"phase": "Bound"});
    let answer = server.put(&format!("{CLAIMS}/web/status"), &object).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(answer.body["status"], json!({"phase": "Bound"}));
    assert_eq!(answer.body["spec"], json!({"family": "IPv4"}));
    assert_eq!(answer.body["metadata"].get("labels"), None);
    let read = server.get(&format!("{CLAIMS}/web/status")).await;
    assert_eq!((read.code, read.body), (200, answer.body));
}

#[tokio::test]
async fn an_update_that_changes_nothing_keeps_the_revision() {
    let server = Server::new();
    let object = server.made(CLAIMS, &claim("web")).await;
    let answer = server.put(&format!("{CLAIMS}/web"), &object).await;
    assert_eq!((answer.code, answer.body), (200, object));
}

#[tokio::test]
async fn an_update_must_name_the_state_that_it_saw() {
    let server = Server::new();
    let path = format!("{CLAIMS}/web");
    let old = server.made(CLAIMS, &claim("web")).await;
    let mut new = old.clone();
    new["spec"]["className"] = json!("a");
    assert_eq!(server.put(&path, &new).await.code, 200);
    // The same bad field twice: who is late hears that first.
    let mut late = old.clone();
    late["spec"]["family"] = json!("IPv5");
    server.put(&path, &late).await.refused(409, "Conflict");

    let mut blind = claim("web");
    blind["spec"]["className"] = json!("b");
    let answer = server.put(&path, &blind).await;
    answer.refused(422, "Invalid");
    assert_eq!(answer.blamed(), ["metadata.resourceVersion"]);

    let mut other = server.get(&path).await.body;
    other["metadata"]["uid"] = json!("another");
    server.put(&path, &other).await.refused(409, "Conflict");
    server
        .put(&format!("{CLAIMS}/gone"), &claim("gone"))
        .await
        .refused(404, "NotFound");
}

#[tokio::test]
async fn a_deleted_object_is_gone() {
    let server = Server::new();
    let made = server.made(CLAIMS, &claim("web")).await;
    let path = format!("{CLAIMS}/web");
    let answer = server.delete(&path).await;
    assert_eq!(
        (answer.code, &answer.body["kind"], &answer.body["status"]),
        (200, &json!("Status"), &json!("Success"))
    );
    assert_eq!(answer.body["details"]["uid"], made["metadata"]["uid"]);
    assert_eq!(
        server.get(&path).await.refused(404, "NotFound"),
        r#"ipaddressclaims.local.sdn.cozystack.io "web" not found"#
    );
    server.delete(&path).await.refused(404, "NotFound");
}

#[tokio::test]
async fn an_object_with_finalizers_is_marked_and_goes_with_the_last_of_them() {
    let server = Server::new();
    let mut body = claim("web");
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.made(CLAIMS, &body).await;
    let path = format!("{CLAIMS}/web");
    let marked = server.delete(&path).await;
    assert_eq!(
        (marked.code, &marked.body["kind"]),
        (200, &json!("IPAddressClaim"))
    );
    assert!(marked.body["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(server.delete(&path).await.body, marked.body);

    let mut freed = server.get(&path).await.body;
    freed["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("finalizers");
    assert_eq!(server.put(&path, &freed).await.code, 200);
    server.get(&path).await.refused(404, "NotFound");
}

#[tokio::test]
async fn a_delete_acts_only_on_the_object_that_is_meant() {
    let server = Server::new();
    let made = server.made(CLAIMS, &claim("web")).await;
    let path = format!("{CLAIMS}/web");
    for preconditions in [json!({"uid": "another"}), json!({"resourceVersion": "999"})] {
        let options = json!({"kind": "DeleteOptions", "preconditions": preconditions});
        server
            .send(request("DELETE", &path, Some(&options)))
            .await
            .refused(409, "Conflict");
    }
    let seen = &made["metadata"];
    let options = json!({"propagationPolicy": "Background", "preconditions":
        {"uid": seen["uid"], "resourceVersion": seen["resourceVersion"]}});
    assert_eq!(
        server
            .send(request("DELETE", &path, Some(&options)))
            .await
            .code,
        200
    );
}

#[tokio::test]
async fn a_delete_whose_options_could_be_misread_deletes_nothing() {
    let server = Server::new();
    server.made(CLAIMS, &claim("web")).await;
    let path = format!("{CLAIMS}/web");
    for (options, field) in [
        (json!({"preconditions": []}), "preconditions"),
        (json!({"preconditions": ["x"]}), "preconditions"),
        (json!({"preconditions": "x"}), "preconditions"),
        (
            json!({"preconditions": {"uuid": "x"}}),
            "preconditions.uuid",
        ),
        (json!({"preconditions": {"uid": 5}}), "preconditions.uid"),
        (
            json!({"preconditions": {"resourceVersion": "x"}}),
            "preconditions.resourceVersion",
        ),
        (json!({"precondition": {"uid": "x"}}), "precondition"),
        (json!({"gracePeriodSeconds": "x"}), "gracePeriodSeconds"),
        (json!({"gracePeriodSeconds": -1}), "gracePeriodSeconds"),
        (json!({"dryRun": "All"}), "dryRun"),
    ] {
        let answer = server.send(request("DELETE", &path, Some(&options))).await;
        let message = answer.refused(400, "BadRequest");
        assert!(message.contains(field), "{message}");
        assert_eq!(answer.blamed(), [field]);
    }
    server
        .delete(&format!("{path}?gracePeriodSeconds=x"))
        .await
        .refused(400, "BadRequest");
    assert_eq!(server.get(&path).await.code, 200);
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
        "preconditions": null});
    let answer = server.send(request("DELETE", &path, Some(&options))).await;
    assert_eq!(answer.code, 200);
}

#[tokio::test]
async fn a_delete_that_should_touch_other_objects_is_refused() {
    let server = Server::new();
    server.made(CLAIMS, &claim("web")).await;
    let path = format!("{CLAIMS}/web");
    for policy in ["Foreground", "Orphan"] {
        server
            .delete(&format!("{path}?propagationPolicy={policy}"))
            .await
            .refused(400, "BadRequest");
        let options = json!({"propagationPolicy": policy});
        let answer = server.send(request("DELETE", &path, Some(&options))).await;
        answer.refused(400, "BadRequest");
    }
    for options in [
        json!({"orphanDependents": true}),
        json!({"kind": "Pod"}),
        json!([]),
    ] {
        let answer = server.send(request("DELETE", &path, Some(&options))).await;
        answer.refused(400, "BadRequest");
    }
    assert_eq!(server.get(&path).await.code, 200);
}

#[tokio::test]
async fn a_dry_run_answers_like_the_write_and_writes_nothing() {
    let server = Server::new();
    let path = format!("{CLAIMS}/web");
    let tried = server
        .post(&format!("{CLAIMS}?dryRun=All"), &claim("web"))
        .await;
    assert_eq!(
        (tried.code, &tried.body["spec"]["family"]),
        (201, &json!("IPv4"))
    );
    assert!(tried.body["metadata"]["uid"].is_string());
    server.get(&path).await.refused(404, "NotFound");

    let made = server.made(CLAIMS, &claim("web")).await;
    let dry = format!("{path}?dryRun=All");
    let again = server
        .post(&format!("{CLAIMS}?dryRun=All"), &claim("web"))
        .await;
    again.refused(409, "AlreadyExists");
    let mut changed = made.clone();
    changed["spec"]["className"] = json!("public");
    let tried = server.put(&dry, &changed).await;
    assert_eq!(tried.body["metadata"]["generation"], 2, "{}", tried.body);
    changed["spec"]["family"] = json!("IPv5");
    server.put(&dry, &changed).await.refused(422, "Invalid");
    let tried = server
        .patch(&dry, &json!({"spec": {"className": "b"}}))
        .await;
    assert_eq!(tried.body["spec"]["className"], "b");
    assert_eq!(server.delete(&dry).await.body["status"], "Success");
    let options = json!({"dryRun": ["All"]});
    assert_eq!(
        server
            .send(request("DELETE", &path, Some(&options)))
            .await
            .code,
        200
    );
    assert_eq!(server.get(&path).await.body, made);

    for query in ["Some", "", "&dryRun=All", "All&dryRun=Some", "All&dryRun="] {
        let answer = server.delete(&format!("{path}?dryRun={query}")).await;
        let message = answer.refused(400, "BadRequest");
        assert!(message.contains("dryRun must be All"), "{message}");
    }
    server
        .delete(&format!("{path}?dryRun"))
        .await
        .refused(400, "BadRequest");
    let options = json!({"dryRun": ["Some"]});
    let answer = server.send(request("DELETE", &path, Some(&options))).await;
    answer.refused(400, "BadRequest");
    assert_eq!(server.get(&path).await.body, made);
}
