//! Discovery, probes and metrics.

use super::*;

#[tokio::test]
async fn a_client_finds_the_kinds_from_the_root_down() {
    let server = Server::new();
    assert_eq!(server.get("/api").await.body["kind"], "APIVersions");
    let groups = server.get("/apis").await.body;
    assert_eq!(groups["kind"], "APIGroupList");
    let group = &groups["groups"][0];
    assert_eq!(group["name"], "local.sdn.cozystack.io");
    let path = format!("/apis/{}", group["name"].as_str().unwrap());
    assert_eq!(server.get(&path).await.body["kind"], "APIGroup");
    let preferred = group["preferredVersion"]["groupVersion"].as_str().unwrap();
    let list = server.get(&format!("/apis/{preferred}")).await.body;
    assert_eq!(
        (&list["kind"], &list["groupVersion"]),
        (&json!("APIResourceList"), &json!(preferred))
    );
    let resources = list["resources"].as_array().unwrap();
    let find = |name: &str| resources.iter().find(|r| r["name"] == name).unwrap();
    let claims = find("ipaddressclaims");
    assert_eq!(claims["kind"], "IPAddressClaim");
    assert_eq!(claims["shortNames"], json!(["ipaddrclaim"]));
    assert_eq!(claims["namespaced"], true);
    assert_eq!(find("ipaddresses")["namespaced"], false);
    assert_eq!(
        find("ipaddressclasses/status")["verbs"],
        json!(["get", "patch", "update"])
    );
}

#[tokio::test]
async fn every_advertised_verb_is_answered() {
    let server = Server::new();
    let list = server
        .get("/apis/local.sdn.cozystack.io/v1alpha1")
        .await
        .body;
    for resource in list["resources"].as_array().unwrap() {
        let name = resource["name"].as_str().unwrap();
        let scope = if resource["namespaced"] == true {
            "namespaces/n/"
        } else {
            ""
        };
        let (plural, sub) = name.split_once('/').unwrap_or((name, ""));
        let collection = format!("/apis/local.sdn.cozystack.io/v1alpha1/{scope}{plural}");
        let object = format!("{collection}/x/{sub}");
        let object = object.trim_end_matches('/');
        for verb in resource["verbs"].as_array().unwrap() {
            let (method, path) = match verb.as_str().unwrap() {
                "list" | "watch" => ("GET", collection.as_str()),
                "create" => ("POST", collection.as_str()),
                "get" => ("GET", object),
                "update" => ("PUT", object),
                "patch" => ("PATCH", object),
                "delete" => ("DELETE", object),
                other => panic!("{other}"),
            };
            let answer = server.send(request(method, path, None)).await;
            assert_ne!(answer.code, 405, "{method} {path}");
            let unknown = "could not find the requested resource";
            assert!(
                !answer.body.to_string().contains(unknown),
                "{method} {path}"
            );
        }
    }
}

#[tokio::test]
async fn the_version_is_one_that_clients_can_parse() {
    let version = Server::new().get("/version").await.body;
    assert_eq!(version["major"], "1");
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1."));
}

#[tokio::test]
async fn the_server_is_ready_when_its_controllers_are() {
    let (synced, sync) = tokio::sync::watch::channel(false);
    let state = ApiState::new(Arc::new(MemoryStore::default()))
        .with_ready(move || {
            if *sync.borrow() {
                Ok(())
            } else {
                Err("not synced".to_owned())
            }
        })
        .with_metrics(|| "ipledger_up 1\n".to_owned());
    let server = Server {
        router: router(state),
        store: MemoryStore::default(),
    };
    let early = server.get("/readyz").await;
    assert_eq!(early.code, 503);
    assert!(early.body.as_str().unwrap().contains("not synced"));
    assert_eq!(server.get("/livez").await.code, 200);
    assert_eq!(server.get("/healthz").await.code, 200);
    synced.send(true).unwrap();
    assert_eq!(server.get("/readyz").await.code, 200);
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.body, json!("ipledger_up 1\n"));
    assert!(
        metrics.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
}
