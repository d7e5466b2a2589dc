//! The HTTP API, driven in process over the in-memory store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod bodies;
mod discovery;
mod fields;
mod lists;
mod objects;
mod patches;
mod refusals;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, header};
use futures::StreamExt;
use ipledger::api::{ApiState, router};
use ipledger_core::store::MemoryStore;
use serde_json::{Value, json};
use tower::ServiceExt;

const CLAIMS: &str = "/apis/local.sdn.cozystack.io/v1alpha1/namespaces/team-a/ipaddressclaims";
const ALL_CLAIMS: &str = "/apis/local.sdn.cozystack.io/v1alpha1/ipaddressclaims";
const ADDRESSES: &str = "/apis/local.sdn.cozystack.io/v1alpha1/ipaddresses";
const CLASSES: &str = "/apis/local.sdn.cozystack.io/v1alpha1/ipaddressclasses";

/// A server and the ledger behind it.
struct Server {
    store: MemoryStore,
    router: Router,
}

/// An answer that has arrived as a whole.
struct Answer {
    code: u16,
    headers: HeaderMap,
    body: Value,
}

impl Server {
    fn new() -> Server {
        Server::over(MemoryStore::default())
    }

    fn over(store: MemoryStore) -> Server {
        let router = router(ApiState::new(Arc::new(store.clone())));
        Server { store, router }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(request("GET", path, None)).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(request("POST", path, Some(body))).await
    }

    async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(request("PUT", path, Some(body))).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.send(request("DELETE", path, None)).await
    }

    async fn patch(&self, path: &str, body: &Value) -> Answer {
        let mut request = request("PATCH", path, Some(body));
        let merge = "application/merge-patch+json".parse().unwrap();
        request.headers_mut().insert(header::CONTENT_TYPE, merge);
        self.send(request).await
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
        }
    }

    /// Creates an object and returns it as stored.
    async fn made(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        answer.body
    }

    /// Opens a watch.
    async fn watch(&self, path_and_query: &str) -> Watch {
        let request = request("GET", path_and_query, None);
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/json");
        Watch {
            chunks: response.into_body().into_data_stream().boxed(),
            rest: Vec::new(),
        }
    }
}

/// A running watch.
struct Watch {
    chunks: futures::stream::BoxStream<'static, Result<Bytes, axum::Error>>,
    rest: Vec<u8>,
}

impl Watch {
    /// The next event; `None` if the stream has ended.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let chunk = tokio::time::timeout(Duration::from_secs(10), self.chunks.next());
            match chunk.await.expect("an event or the end comes in time") {
                Some(chunk) => self.rest.extend_from_slice(&chunk.unwrap()),
                None => {
                    assert!(self.rest.is_empty(), "the stream ends within a line");
                    return None;
                }
            }
        }
    }

    /// The type and the object's name of the next event.
    async fn next_name(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        (
            text(&event["type"]),
            text(&event["object"]["metadata"]["name"]),
        )
    }
}

fn request(method: &str, path: &str, body: Option<&Value>) -> Request<Body> {
    let builder = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "127.0.0.1:7440");
    match body {
        Some(body) => builder
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string())),
        None => builder.body(Body::empty()),
    }
    .unwrap()
}

impl Answer {
    /// Asserts code and reason of a `Status` and returns its message.
    fn refused(&self, code: u16, reason: &str) -> &str {
        let body = &self.body;
        assert_eq!(
            (self.code, &body["reason"]),
            (code, &json!(reason)),
            "{body}"
        );
        assert_eq!(
            (
                &body["kind"],
                &body["apiVersion"],
                &body["status"],
                &body["code"]
            ),
            (
                &json!("Status"),
                &json!("v1"),
                &json!("Failure"),
                &json!(code)
            )
        );
        body["message"].as_str().unwrap()
    }

    /// The paths of the fields that are to blame.
    fn blamed(&self) -> Vec<&str> {
        let causes = self.body["details"]["causes"].as_array().expect("causes");
        causes
            .iter()
            .map(|c| c["field"].as_str().unwrap())
            .collect()
    }

    fn warnings(&self) -> Vec<&str> {
        let all = self.headers.get_all(header::WARNING);
        all.iter().map(|v| v.to_str().unwrap()).collect()
    }

    /// The names of the items of a list.
    fn names(&self) -> Vec<&str> {
        assert_eq!(self.code, 200, "{}", self.body);
        let items = self.body["items"].as_array().unwrap();
        items
            .iter()
            .map(|i| i["metadata"]["name"].as_str().unwrap())
            .collect()
    }
}

fn claim(name: &str) -> Value {
    json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
        "metadata": {"name": name}, "spec": {}})
}

fn class(name: &str) -> Value {
    json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClass",
        "metadata": {"name": name}, "spec": {"provisioner": "example.com/range"}})
}

/// 192.0.2.N
fn address(last: u8) -> Value {
    json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddress",
        "metadata": {"name": format!("ip-192-0-2-{last}")},
        "spec": {"address": format!("192.0.2.{last}"), "className": "public"}})
}
