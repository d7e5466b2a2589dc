//! Watches.

use ipledger_core::store::Revision;
use tokio::sync::watch as flag;

use super::*;

async fn revision(server: &Server) -> String {
    let list = server.get(CLAIMS).await.body;
    list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn event(r#type: &str, name: &str) -> (String, String) {
    (r#type.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_watch_without_a_revision_begins_with_what_is_there() {
    for query in ["watch=1", "watch=true&resourceVersion=0"] {
        let server = Server::new();
        server.made(CLAIMS, &claim("a")).await;
        server.made(CLAIMS, &claim("b")).await;
        let mut watch = server.watch(&format!("{CLAIMS}?{query}")).await;
        assert_eq!(watch.next_name().await, event("ADDED", "a"));
        assert_eq!(watch.next_name().await, event("ADDED", "b"));
        let patch = json!({"spec": {"className": "x"}});
        server.patch(&format!("{CLAIMS}/a"), &patch).await;
        server.made(CLAIMS, &claim("c")).await;
        assert_eq!(watch.next_name().await, event("MODIFIED", "a"));
        assert_eq!(watch.next_name().await, event("ADDED", "c"));
    }
}

#[tokio::test]
async fn a_watch_from_a_revision_gives_what_comes_after_it() {
    let server = Server::new();
    server.made(CLAIMS, &claim("old")).await;
    let from = revision(&server).await;
    let path = format!("{CLAIMS}?watch=1&resourceVersion={from}");
    server.made(CLAIMS, &claim("new")).await;
    server
        .patch(
            &format!("{CLAIMS}/new"),
            &json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await;
    server
        .patch(
            &format!("{CLAIMS}/old"),
            &json!({"spec": {"className": "x"}}),
        )
        .await;
    server.delete(&format!("{CLAIMS}/new")).await;
    server.made(CLAIMS, &claim("new")).await;
    let mut watch = server.watch(&path).await;
    for (r#type, name) in [
        ("ADDED", "new"),
        ("MODIFIED", "new"),
        ("MODIFIED", "old"),
        ("DELETED", "new"),
        ("ADDED", "new"),
    ] {
        assert_eq!(watch.next_name().await, event(r#type, name));
    }
}

#[tokio::test]
async fn a_deleted_event_carries_the_last_state_and_the_revision_of_the_deletion() {
    let server = Server::new();
    let made = server.made(CLAIMS, &claim("a")).await;
    let from = revision(&server).await;
    server.delete(&format!("{CLAIMS}/a")).await;
    let after = revision(&server).await;
    let mut watch = server
        .watch(&format!("{CLAIMS}?watch=1&resourceVersion={from}"))
        .await;
    let last = watch.next().await.unwrap()["object"].clone();
    assert_eq!(last["metadata"]["resourceVersion"], json!(after));
    assert_eq!(last["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(last["spec"], made["spec"]);
}

#[tokio::test]
async fn an_object_comes_and_goes_with_the_selector() {
    let server = Server::new();
    server.made(CLAIMS, &claim("a")).await;
    let from = revision(&server).await;
    let query = format!("watch=1&labelSelector=tier&resourceVersion={from}");
    let mut watch = server.watch(&format!("{CLAIMS}?{query}")).await;
    let path = format!("{CLAIMS}/a");
    let tier = |tier: Value| json!({"metadata": {"labels": {"tier": tier}}});
    server
        .patch(
            &format!("{path}/status"),
            &json!({"status": {"phase": "Pending"}}),
        )
        .await;
    server.patch(&path, &tier(json!("gold"))).await;
    server.patch(&path, &tier(json!("silver"))).await;
    server.patch(&path, &tier(json!(null))).await;
    server.patch(&path, &tier(json!("gold"))).await;
    for r#type in ["ADDED", "MODIFIED", "DELETED", "ADDED"] {
        assert_eq!(watch.next_name().await, event(r#type, "a"));
    }
}

#[tokio::test]
async fn a_watch_sees_only_its_kind_and_namespace() {
    let server = Server::new();
    let mut here = server.watch(&format!("{CLAIMS}?watch=1")).await;
    let mut everywhere = server.watch(&format!("{ALL_CLAIMS}?watch=1")).await;
    server.made(ADDRESSES, &address(1)).await;
    server
        .made(&CLAIMS.replace("team-a", "team-b"), &claim("b"))
        .await;
    server.made(CLAIMS, &claim("a")).await;
    assert_eq!(here.next_name().await, event("ADDED", "a"));
    assert_eq!(everywhere.next_name().await, event("ADDED", "b"));
    assert_eq!(everywhere.next_name().await, event("ADDED", "a"));
}

#[tokio::test]
async fn bookmarks_come_only_if_asked() {
    let server = Server::new();
    server.made(CLAIMS, &claim("a")).await;
    let mut plain = server.watch(&format!("{CLAIMS}?watch=1")).await;
    let mut marked = server
        .watch(&format!("{CLAIMS}?watch=1&allowWatchBookmarks=true"))
        .await;
    for watch in [&mut plain, &mut marked] {
        assert_eq!(watch.next_name().await, event("ADDED", "a"));
    }
    let bookmark = marked.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "IPAddressClaim");
    assert_eq!(
        bookmark["object"]["metadata"]["resourceVersion"],
        json!(revision(&server).await)
    );
    server.made(CLASSES, &class("c")).await;
    server.store.bookmark_all();
    server.made(CLAIMS, &claim("b")).await;
    let later = marked.next().await.unwrap();
    assert_eq!(later["type"], "BOOKMARK");
    for watch in [&mut plain, &mut marked] {
        assert_eq!(watch.next_name().await, event("ADDED", "b"));
    }
}

#[tokio::test]
async fn the_end_of_the_initial_objects_is_marked_if_they_are_asked_for() {
    let server = Server::new();
    server.made(CLAIMS, &claim("a")).await;
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for from in ["", "&resourceVersion=0", "&resourceVersion=1"] {
        let mut watch = server.watch(&format!("{CLAIMS}?{query}{from}")).await;
        assert_eq!(watch.next_name().await, event("ADDED", "a"));
        let end = watch.next().await.unwrap();
        assert_eq!(end["type"], "BOOKMARK");
        assert_eq!(
            end["object"]["metadata"]["annotations"],
            json!({"k8s.io/initial-events-end": "true"})
        );
    }
    let mut without = server
        .watch(&format!("{CLAIMS}?watch=1&sendInitialEvents=false"))
        .await;
    server.made(CLAIMS, &claim("b")).await;
    assert_eq!(without.next_name().await, event("ADDED", "b"));
}

#[tokio::test]
async fn a_revision_that_is_too_old_is_answered_inside_the_stream_which_then_ends() {
    let server = Server::new();
    server.made(CLAIMS, &claim("a")).await;
    server.made(CLAIMS, &claim("b")).await;
    server.store.compact(Revision(u64::MAX));
    let mut watch = server
        .watch(&format!("{CLAIMS}?watch=1&resourceVersion=1"))
        .await;
    let error = watch.next().await.unwrap();
    assert_eq!(error["type"], "ERROR");
    let status = &error["object"];
    assert_eq!(
        (&status["kind"], &status["code"], &status["reason"]),
        (&json!("Status"), &json!(410), &json!("Expired"))
    );
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_client_that_reads_too_slowly_is_cut_off_and_gets_nothing_out_of_order() {
    let server = Server::over(MemoryStore::default().with_watch_buffer(3));
    let mut watch = server.watch(&format!("{CLAIMS}?watch=1")).await;
    for name in ["a", "b", "c", "d", "e"] {
        server.made(CLAIMS, &claim(name)).await;
    }
    let mut seen = Vec::new();
    while let Some(event) = watch.next().await {
        assert_eq!(event["type"], "ADDED");
        seen.push(
            event["object"]["metadata"]["name"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    assert_eq!(seen, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_its_time() {
    let server = Server::new();
    let started = tokio::time::Instant::now();
    let mut watch = server
        .watch(&format!("{CLAIMS}?watch=1&timeoutSeconds=7"))
        .await;
    assert_eq!(watch.next().await, None);
    assert_eq!(started.elapsed().as_secs(), 7);
}

#[tokio::test]
async fn a_watch_ends_when_the_store_ends_it_or_the_server_stops() {
    let store = MemoryStore::default();
    let (stop, stopping) = flag::channel(false);
    let state = ApiState::new(Arc::new(store.clone())).with_stop(stopping);
    let server = Server {
        router: router(state),
        store,
    };
    let mut first = server.watch(&format!("{CLAIMS}?watch=1")).await;
    server.store.break_watches();
    assert_eq!(first.next().await, None);

    let mut second = server.watch(&format!("{CLAIMS}?watch=1")).await;
    server.made(CLAIMS, &claim("a")).await;
    assert_eq!(second.next_name().await, event("ADDED", "a"));
    stop.send(true).unwrap();
    assert_eq!(second.next().await, None);
}

#[tokio::test]
async fn each_event_reaches_a_client_at_once_over_a_connection() {
    let server = Server::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let router = server.router.clone();
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut watch = client
        .get(format!("{base}{CLAIMS}?watch=1"))
        .send()
        .await
        .unwrap();
    for name in ["a", "b"] {
        let answer = client
            .post(format!("{base}{CLAIMS}"))
            .json(&claim(name))
            .send();
        assert_eq!(answer.await.unwrap().status(), 201);
        let chunk = tokio::time::timeout(Duration::from_secs(10), watch.chunk()).await;
        let event: Value = serde_json::from_slice(&chunk.unwrap().unwrap().unwrap()).unwrap();
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
    serving.abort();
}
