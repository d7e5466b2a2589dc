//! Bodies that do not come, nest too deep, or are not the YAML that they should be.

use axum::http::StatusCode;

use super::*;

/// A create whose body starts and never ends.
fn unfinished() -> Request<Body> {
    let mut request = request("POST", CLAIMS, Some(&json!({})));
    let start = futures::stream::iter([Ok::<_, std::io::Error>("{\"kind\":")]);
    *request.body_mut() = Body::from_stream(start.chain(futures::stream::pending()));
    request
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_given_up() {
    let server = Server::new();
    let before = tokio::time::Instant::now();
    let answer = server.send(unfinished()).await;
    let message = answer.refused(408, "RequestTimeout");
    assert!(message.contains("30 s"), "{message}");
    assert!(before.elapsed() < Duration::from_secs(31));
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_body_that_does_not_come() {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let store = MemoryStore::default();
    let state = ApiState::new(Arc::new(store.clone())).with_stop(stopped);
    let router = router(state);
    let server = Server { store, router };
    let before = tokio::time::Instant::now();
    let (answer, _) = tokio::join!(server.send(unfinished()), async { stop.send(true) });
    answer.refused(503, "ServiceUnavailable");
    assert!(answer.headers.contains_key(header::RETRY_AFTER));
    assert!(before.elapsed() < Duration::from_secs(2));
    // What has arrived is still done.
    assert_eq!(server.post(CLAIMS, &claim("web")).await.code, 201);
}

async fn post_as(server: &Server, media: &str, body: String) -> Answer {
    let mut request = request("POST", CLASSES, None);
    *request.body_mut() = Body::from(body);
    let media = media.parse().unwrap();
    request.headers_mut().insert(header::CONTENT_TYPE, media);
    server.send(request).await
}

#[tokio::test]
async fn json_and_yaml_may_nest_equally_deep_and_what_is_stored_can_be_listed() {
    for media in ["application/json", "application/yaml"] {
        let server = Server::new();
        // The object, its spec and the parameters are three levels.
        for (levels, fits) in [(61, true), (62, false), (100, false), (5_000, false)] {
            let mut body = class(&format!("c{levels}"));
            body["spec"]["parameters"] = json!({"x": "DEEP"});
            let deep = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            let answer = post_as(&server, media, body.to_string().replace("\"DEEP\"", &deep)).await;
            if fits {
                assert_eq!(answer.code, 201, "{media} {levels}: {}", answer.body);
            } else {
                let message = answer.refused(400, "BadRequest");
                assert!(
                    message.contains("more than 64"),
                    "{media} {levels}: {message}"
                );
            }
        }
        assert_eq!(server.get(CLASSES).await.names(), ["c61"]);
    }
}

#[tokio::test]
async fn a_patch_may_not_nest_deeper_than_an_object() {
    let server = Server::new();
    server.made(CLASSES, &class("public")).await;
    let mut deep = json!(1);
    for _ in 0..64 {
        deep = json!({ "a": deep });
    }
    let patch = json!({"spec": {"parameters": deep}});
    let answer = server.patch(&format!("{CLASSES}/public"), &patch).await;
    answer.refused(400, "BadRequest");
}

#[tokio::test]
async fn a_mistake_in_yaml_is_told_to_who_wrote_it() {
    let server = Server::new();
    let aliases = format!("a: &a 1\nb: [{}]\n", ["*a"; 200].join(", "));
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..9 {
        let last = format!("*a{}", i - 1);
        laughs.push_str(&format!("a{i}: &a{i} [{}]\n", vec![last; 10].join(", ")));
    }
    let many = format!("a: [{}]\n", vec!["1"; 300_000].join(","));
    for (text, said) in [
        ("a: 1\n---\nb: 2\n", "several documents; send one object"),
        (
            aliases.as_str(),
            "anchors and aliases; write the values out",
        ),
        (laughs.as_str(), "anchors and aliases; write the values out"),
        (many.as_str(), "too many fields and items"),
        ("a: 1\na: 2\n", r#"the field "a" twice"#),
        ("a: &a [*a]\n", "alias"),
        ("a: *b\n", "b"),
        ("a: [1\n", "line"),
    ] {
        let answer = post_as(&server, "application/yaml", text.to_owned()).await;
        let message = answer.refused(400, "BadRequest");
        assert!(message.contains(said), "{said}: {message}");
        for of_the_parser in ["from_str", "Options", "Budget", "breach", "::", "Rc"] {
            assert!(!message.contains(of_the_parser), "{message}");
        }
    }
    assert_eq!(
        post_as(&server, "application/yaml", "a: !x 1\n".to_owned())
            .await
            .code,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn a_field_that_is_there_twice_is_refused_because_nobody_knows_which_is_meant() {
    let server = Server::new();
    server.made(CLAIMS, &claim("web")).await;
    let twice = r#"{"spec": {"family": "IPv6"}, "metadata": {}, "spec": {"family": "IPv4"}}"#;
    let web = format!("{CLAIMS}/web?fieldValidation=Ignore");
    for (method, path, media) in [
        ("POST", CLAIMS, "application/json"),
        ("POST", CLAIMS, "application/yaml"),
        ("PUT", &web, "application/json"),
        ("PATCH", &web, "application/merge-patch+json"),
        ("DELETE", &web, "application/json"),
    ] {
        let mut request = request(method, path, None);
        *request.body_mut() = Body::from(twice);
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, media.parse().unwrap());
        let answer = server.send(request).await;
        let message = answer.refused(400, "BadRequest");
        assert!(
            message.contains(r#"has the field "spec" twice"#),
            "{message}"
        );
        assert!(message.contains("line 1"), "{message}");
    }
}
