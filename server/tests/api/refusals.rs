//! What the server does not answer, and with which code.

use async_trait::async_trait;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{
    Capabilities, Deletion, ListOptions, ListPage, Part, Preconditions, ReadAt, Revision, Store,
    StoreError, WatchOptions, WatchStream,
};

use super::*;

#[tokio::test]
async fn foreign_hosts_and_pages_are_refused_on_every_path() {
    let server = Server::new();
    for path in [CLAIMS, "/healthz", "/metrics", "/apis", "/nowhere"] {
        for (name, value) in [
            ("host", "ledger.example.com"),
            ("origin", "https://example.com"),
            ("sec-fetch-site", "cross-site"),
        ] {
            let mut request = request("GET", path, None);
            request.headers_mut().insert(name, value.parse().unwrap());
            server.send(request).await.refused(403, "Forbidden");
        }
        let mut request = request("GET", path, None);
        request.headers_mut().remove("host");
        server.send(request).await.refused(403, "Forbidden");
    }
    let mut request = request("GET", CLAIMS, None);
    request
        .headers_mut()
        .insert("host", "[::1]:7440".parse().unwrap());
    request
        .headers_mut()
        .insert("origin", "http://[::1]:7440".parse().unwrap());
    request
        .headers_mut()
        .insert("sec-fetch-site", "same-origin".parse().unwrap());
    let answer = server.send(request).await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.headers["x-content-type-options"], "nosniff");
}

#[tokio::test]
async fn a_body_of_a_type_that_browsers_send_by_themselves_is_refused() {
    let server = Server::new();
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        for method in ["POST", "DELETE"] {
            let path = if method == "POST" {
                CLAIMS.to_owned()
            } else {
                format!("{CLAIMS}/web")
            };
            let mut request = request(method, &path, Some(&claim("web")));
            request
                .headers_mut()
                .insert("content-type", content_type.parse().unwrap());
            server
                .send(request)
                .await
                .refused(415, "UnsupportedMediaType");
        }
    }
    let mut request = request("POST", CLAIMS, Some(&claim("web")));
    request.headers_mut().remove("content-type");
    server
        .send(request)
        .await
        .refused(415, "UnsupportedMediaType");
    assert_eq!(server.get(CLAIMS).await.names(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_body_that_cannot_be_an_object_of_the_path_is_refused() {
    let server = Server::new();
    let mut elsewhere = claim("web");
    elsewhere["metadata"]["namespace"] = json!("team-b");
    let mut versioned = claim("web");
    versioned["metadata"]["resourceVersion"] = json!("x");
    for body in [
        json!([]),
        json!("x"),
        json!({}),
        json!({"kind": "Pod", "apiVersion": "v1"}),
        json!({"kind": 7, "apiVersion": "v1"}),
        class("public"),
        elsewhere,
        versioned,
    ] {
        server.post(CLAIMS, &body).await.refused(400, "BadRequest");
    }
    server
        .put(&format!("{CLAIMS}/web"), &claim("other"))
        .await
        .refused(400, "BadRequest");
    server
        .send(request("POST", CLAIMS, None))
        .await
        .refused(400, "BadRequest");
    for text in ["{", "", "{\"a\":\u{0}}", &"[".repeat(200_000)] {
        let mut request = request("POST", CLAIMS, Some(&json!({})));
        *request.body_mut() = Body::from(text.to_owned());
        server.send(request).await.refused(400, "BadRequest");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let server = Server::new();
    let mut large = claim("web");
    large["spec"]["className"] = json!("x".repeat(ipledger::api::MAX_BODY_BYTES));
    let answer = server.post(CLAIMS, &large).await;
    answer.refused(413, "RequestEntityTooLarge");

    let server = Server::over(MemoryStore::default().with_max_object_bytes(2_000));
    let mut large = class("public");
    large["spec"]["parameters"] = json!({"x": "y".repeat(2_000)});
    server
        .post(CLASSES, &large)
        .await
        .refused(413, "RequestEntityTooLarge");
    let dry = server.post(&format!("{CLASSES}?dryRun=All"), &large).await;
    dry.refused(413, "RequestEntityTooLarge");
}

#[tokio::test]
async fn paths_and_methods_that_do_not_exist_are_answered_with_a_status() {
    let server = Server::new();
    for path in [
        "/",
        "/apis/example.com/v1",
        "/apis/local.sdn.cozystack.io/v1alpha1/pods",
        "/apis/local.sdn.cozystack.io/v1alpha1/namespaces/a/ipaddresses",
        "/api/v1/namespaces",
    ] {
        server.get(path).await.refused(404, "NotFound");
    }
    server
        .get(&format!("{CLAIMS}/web/scale"))
        .await
        .refused(404, "NotFound");
    server
        .get(&format!("{CLAIMS}/%2e%2e%2fx"))
        .await
        .refused(404, "NotFound");
    for (method, path) in [
        ("DELETE", CLAIMS.to_owned()),
        ("POST", ALL_CLAIMS.to_owned()),
        ("PUT", CLAIMS.to_owned()),
        ("POST", format!("{CLAIMS}/web")),
        ("DELETE", format!("{CLAIMS}/web/status")),
        ("POST", "/apis".to_owned()),
        ("OPTIONS", CLAIMS.to_owned()),
    ] {
        let answer = server.send(request(method, &path, None)).await;
        answer.refused(405, "MethodNotAllowed");
    }
}

#[tokio::test]
async fn a_path_with_a_namespace_that_cannot_be_is_refused_with_its_name() {
    let server = Server::new();
    for (namespace, shown) in [("A_B", "`A_B`"), ("%2e%2e", "`..`"), ("a%2fb", "`a/b`")] {
        let claims = CLAIMS.replace("team-a", namespace);
        let object = format!("{claims}/web");
        for answer in [
            server.get(&claims).await,
            server.get(&format!("{claims}?watch=1")).await,
            server.post(&claims, &claim("web")).await,
            server.get(&object).await,
            server.put(&object, &claim("web")).await,
            server.patch(&object, &json!({})).await,
            server.delete(&object).await,
        ] {
            let message = answer.refused(400, "BadRequest");
            assert!(message.contains(shown), "{message}");
            assert_eq!(answer.blamed(), ["metadata.namespace"]);
        }
    }
}

/// A store whose every operation fails in one way.
struct Broken(StoreError);

#[async_trait]
impl Store for Broken {
    async fn get(&self, _: &Key, _: ReadAt) -> Result<Object, StoreError> {
        Err(self.0.clone())
    }
    async fn list(&self, _: Kind, _: &ListOptions) -> Result<ListPage, StoreError> {
        Err(self.0.clone())
    }
    async fn create(&self, _: Object) -> Result<Object, StoreError> {
        Err(self.0.clone())
    }
    async fn update(&self, _: Object, _: Part) -> Result<Object, StoreError> {
        Err(self.0.clone())
    }
    async fn delete(&self, _: &Key, _: &Preconditions) -> Result<Deletion, StoreError> {
        Err(self.0.clone())
    }
    async fn watch(&self, _: Kind, _: &WatchOptions) -> Result<WatchStream, StoreError> {
        Err(self.0.clone())
    }
    async fn barrier(&self, _: Kind) -> Result<Revision, StoreError> {
        Err(self.0.clone())
    }
    fn capabilities(&self) -> Capabilities {
        MemoryStore::default().capabilities()
    }
}

#[tokio::test]
async fn what_a_store_refuses_reaches_the_client_with_its_code() {
    let (key, reason) = (Key::claim("team-a", "web"), "why".to_owned());
    for (error, code, word, retry) in [
        (
            StoreError::Unavailable {
                reason: reason.clone(),
            },
            503,
            "ServiceUnavailable",
            true,
        ),
        (
            StoreError::OutcomeUnknown {
                key: key.clone(),
                reason: reason.clone(),
            },
            504,
            "Timeout",
            false,
        ),
        (
            StoreError::Forbidden {
                key: key.clone(),
                reason: reason.clone(),
            },
            403,
            "Forbidden",
            false,
        ),
        (StoreError::Internal { reason }, 500, "InternalError", false),
    ] {
        let router = router(ApiState::new(Arc::new(Broken(error))));
        let server = Server {
            router,
            store: MemoryStore::default(),
        };
        let object = format!("{CLAIMS}/web");
        for answer in [
            server.get(&object).await,
            server.get(CLAIMS).await,
            server.get(&format!("{CLAIMS}?watch=1")).await,
            server.post(CLAIMS, &claim("web")).await,
            server.put(&object, &claim("web")).await,
            server.patch(&object, &json!({})).await,
            server.delete(&object).await,
        ] {
            answer.refused(code, word);
            // A client repeats by itself what it is told to repeat: never a write of unknown
            // outcome.
            assert_eq!(answer.headers.contains_key("retry-after"), retry, "{word}");
        }
    }
}
