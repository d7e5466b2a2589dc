//! A small client of the Kubernetes-shaped API.

mod error;
mod warnings;
mod watch;

use std::time::Duration;

use ipledger_core::api::{Key, Kind, Object};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde_json::{Value, json};

pub(crate) use error::{ClientError, Status};
pub(crate) use watch::WatchItem;

use error::{WireStatus, innermost};
use warnings::Warnings;

/// Objects asked for in one page of a list.
const PAGE: usize = 500;
const CONNECT: Duration = Duration::from_secs(5);
/// A request that is not a watch is answered within this time, or not at all.
const ANSWER: Duration = Duration::from_secs(60);

/// Talks to one server.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    warnings: Warnings,
}

/// Which objects of a kind are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Only this namespace; `None` means all.
    pub(crate) namespace: Option<String>,
    /// Only objects with these labels, in the form of `kubectl -l`.
    pub(crate) labels: Option<String>,
    /// Only the object of this name.
    pub(crate) name: Option<String>,
}

/// A list at one revision.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listing {
    /// In key order.
    pub(crate) items: Vec<Object>,
    /// Where a watch goes on.
    pub(crate) version: String,
}

/// What a delete did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deleted {
    /// The object is gone.
    Gone,
    /// The object waits for its finalizers.
    Marked(Box<Object>),
}

impl Client {
    /// A client of the server at this URL; nothing is sent yet.
    ///
    /// # Errors
    /// `BadServer` if it is not an `http://` URL.
    pub(crate) fn new(server: &str) -> Result<Client, ClientError> {
        let bad = |reason: String| ClientError::BadServer {
            server: server.to_owned(),
            reason,
        };
        let base = Url::parse(server).map_err(|e| bad(e.to_string()))?;
        if base.scheme() != "http" || base.host_str().is_none() {
            return Err(bad("only http:// URLs are known".to_owned()));
        }
        // A server on this machine is never behind a proxy, whatever the environment says.
        let http = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(CONNECT)
            .user_agent(concat!("ipledger/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| bad(e.to_string()))?;
        Ok(Client {
            http,
            base,
            warnings: Warnings::default(),
        })
    }

    /// The server's URL, as it is shown.
    pub(crate) fn server(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    /// What the server has warned of since this was last asked, each once.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    /// Reads one object.
    pub(crate) async fn get(&self, key: &Key) -> Result<Object, ClientError> {
        let request = self.request(Method::GET, self.object_url(key));
        self.read(self.answer(request).await?)
    }

    /// Reads one object; `None` if it does not exist.
    pub(crate) async fn find(&self, key: &Key) -> Result<Option<Object>, ClientError> {
        match self.get(key).await {
            Ok(object) => Ok(Some(object)),
            Err(e) if e.code() == 404 => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Creates an object, or only has the server check that it could be created. A field that the
    /// server does not know is an error.
    pub(crate) async fn create(
        &self,
        object: &Object,
        dry_run: bool,
    ) -> Result<Object, ClientError> {
        let url = self.kind_url(object.kind, Some(&object.metadata.namespace));
        self.write(Method::POST, url, object, dry_run).await
    }

    /// Replaces an object that is still at its resourceVersion (all but its status), or only has
    /// the server check that it could be replaced.
    pub(crate) async fn replace(
        &self,
        object: &Object,
        dry_run: bool,
    ) -> Result<Object, ClientError> {
        self.write(Method::PUT, self.object_url(&object.key()), object, dry_run)
            .await
    }

    async fn write(
        &self,
        method: Method,
        url: Url,
        object: &Object,
        dry_run: bool,
    ) -> Result<Object, ClientError> {
        let mut request = self
            .request(method, url)
            .query(&[("fieldValidation", "Strict")]);
        if dry_run {
            request = request.query(&[("dryRun", "All")]);
        }
        self.read(self.answer(request.json(object)).await?)
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, key: &Key) -> Result<Deleted, ClientError> {
        let request = self.request(Method::DELETE, self.object_url(key));
        let value = self.answer(request).await?;
        if value.get("kind").and_then(Value::as_str) == Some("Status") {
            return Ok(Deleted::Gone);
        }
        let object = self.read(value)?;
        if object.metadata.is_deleting() && !object.metadata.finalizers.is_empty() {
            return Ok(Deleted::Marked(Box::new(object)));
        }
        Ok(Deleted::Gone)
    }

    /// Lists objects, page by page, all at one revision.
    pub(crate) async fn list(&self, kind: Kind, scope: &Scope) -> Result<Listing, ClientError> {
        let mut items = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let mut request = self
                .request(Method::GET, self.kind_url(kind, scope.namespace.as_deref()))
                .query(&[("limit", PAGE)])
                .query(&scope.query());
            if let Some(token) = &token {
                request = request.query(&[("continue", token)]);
            }
            let mut page = self.answer(request).await?;
            let found = page.get_mut("items").map_or(Value::Null, Value::take);
            let Value::Array(found) = found else {
                return Err(self.protocol("a list without `items`"));
            };
            for mut value in found {
                if let Value::Object(fields) = &mut value {
                    fields
                        .entry("apiVersion")
                        .or_insert_with(|| json!(kind.api_version()));
                    fields.entry("kind").or_insert_with(|| json!(kind.name()));
                }
                items.push(self.read(value)?);
            }
            let text = |field: &str| {
                let value = page.get("metadata").and_then(|m| m.get(field));
                value
                    .and_then(Value::as_str)
                    .filter(|t| !t.is_empty())
                    .map(str::to_owned)
            };
            match text("continue") {
                Some(next) => token = Some(next),
                None => {
                    let version = text("resourceVersion").unwrap_or_default();
                    // A server may not know field selectors; a name is cheap to look for here.
                    if let Some(name) = &scope.name {
                        items.retain(|o| o.metadata.name == *name);
                    }
                    return Ok(Listing { items, version });
                }
            }
        }
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.http.request(method, url).timeout(ANSWER)
    }

    /// The URL of a kind, in one namespace if there is one.
    fn kind_url(&self, kind: Kind, namespace: Option<&str>) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty()
                .extend(["apis", kind.group(), kind.version()]);
            if let Some(namespace) = namespace.filter(|n| kind.namespaced() && !n.is_empty()) {
                path.extend(["namespaces", namespace]);
            }
            path.push(kind.plural());
        }
        url
    }

    fn object_url(&self, key: &Key) -> Url {
        let mut url = self.kind_url(key.kind, Some(&key.namespace));
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(&key.name);
        }
        url
    }

    /// Sends a request and reads the answer.
    async fn answer(&self, request: RequestBuilder) -> Result<Value, ClientError> {
        let (response, write) = self.send(request).await?;
        let body = response.bytes().await.map_err(|e| self.failed(&e, write))?;
        serde_json::from_slice(&body).map_err(|e| self.protocol(e.to_string()))
    }

    /// Sends a request; an answer that is not a success is an error. Tells, too, whether the
    /// request may have changed something.
    async fn send(&self, request: RequestBuilder) -> Result<(Response, bool), ClientError> {
        let request = request.build().map_err(|e| self.failed(&e, false))?;
        let write = *request.method() != Method::GET;
        let failed = |e| self.failed(&e, write);
        let response = self.http.execute(request).await.map_err(failed)?;
        let code = response.status().as_u16();
        self.warnings.add(response.headers());
        if response.status().is_success() {
            return Ok((response, write));
        }
        let text = response.text().await.map_err(failed)?;
        let Ok(wire) = serde_json::from_str::<WireStatus>(&text) else {
            let start: String = text.trim().chars().take(200).collect();
            return Err(self.protocol(format!("HTTP {code} {start}")));
        };
        Err(ClientError::Status(Status {
            code,
            ..Status::from(wire)
        }))
    }

    fn read(&self, value: Value) -> Result<Object, ClientError> {
        Object::from_value(value).map_err(|e| self.protocol(e.to_string()))
    }

    fn protocol(&self, reason: impl Into<String>) -> ClientError {
        ClientError::Protocol {
            server: self.server(),
            reason: reason.into(),
        }
    }

    fn failed(&self, error: &reqwest::Error, write: bool) -> ClientError {
        let (server, reason) = (self.server(), innermost(error));
        if error.is_connect() {
            ClientError::Unreachable { server, reason }
        } else {
            ClientError::Broken {
                server,
                reason,
                write,
            }
        }
    }
}

impl Scope {
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if let Some(labels) = &self.labels {
            query.push(("labelSelector", labels.clone()));
        }
        if let Some(name) = &self.name {
            query.push(("fieldSelector", format!("metadata.name={name}")));
        }
        query
    }
}
