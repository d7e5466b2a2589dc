//! A small client of the Kubernetes-shaped API.

use std::collections::VecDeque;
use std::time::Duration;

use futures::future::ready;
use futures::stream::{self, BoxStream, StreamExt};
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::FieldError;
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::Deserialize;
use serde_json::{Value, json};

/// Objects asked for in one page of a list.
const PAGE: usize = 500;
/// Longest line of a watch that is read: far above the largest object of any backend.
const MAX_LINE: usize = 64 * 1024 * 1024;
const CONNECT: Duration = Duration::from_secs(5);
/// A request that is not a watch is answered within this time, or not at all.
const ANSWER: Duration = Duration::from_secs(60);

/// Talks to one server.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
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

/// One line of a watch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WatchItem {
    /// The object came or changed.
    Applied(Object),
    /// The object went; its last state.
    Deleted(Object),
    /// Everything up to this revision was delivered.
    Bookmark(String),
}

/// What a delete did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deleted {
    /// The object is gone.
    Gone,
    /// The object waits for its finalizers.
    Marked(Box<Object>),
}

/// A refusal in the words of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// The HTTP status.
    pub(crate) code: u16,
    /// One word for machines, for example `NotFound`.
    pub(crate) reason: String,
    /// A sentence for people.
    pub(crate) message: String,
    /// The fields that are to blame.
    pub(crate) causes: Vec<FieldError>,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientError {
    /// The server refused.
    #[error("{}", text_of(.0))]
    Status(Status),
    /// The server cannot be reached.
    #[error("{server} cannot be reached ({reason}); is `ipledger serve` running?")]
    Unreachable {
        /// The server asked.
        server: String,
        /// What the system says.
        reason: String,
    },
    /// The connection broke or the answer took too long: a write may have happened.
    #[error(
        "{server} did not finish its answer ({reason}); look whether the change was made before repeating it"
    )]
    Broken {
        /// The server asked.
        server: String,
        /// What happened.
        reason: String,
    },
    /// The server's name is not a URL.
    #[error("`{server}` is not a server: {reason}; write for example http://127.0.0.1:7440")]
    BadServer {
        /// The text given.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server answered something that is not this API.
    #[error("{server} did not answer as an ipledger server does: {reason}")]
    Protocol {
        /// The server asked.
        server: String,
        /// What is wrong with the answer.
        reason: String,
    },
}

/// The message, with the causes unless the message names them already.
fn text_of(status: &Status) -> String {
    let mut text = status.message.clone();
    for cause in &status.causes {
        if !text.contains(&cause.message) {
            text.push_str(&format!("; {cause}"));
        }
    }
    text
}

impl ClientError {
    /// The HTTP status, or the nearest one if there was no answer.
    pub(crate) fn code(&self) -> u16 {
        match self {
            ClientError::Status(status) => status.code,
            ClientError::Unreachable { .. } => 503,
            ClientError::Broken { .. } => 504,
            ClientError::BadServer { .. } => 400,
            ClientError::Protocol { .. } => 500,
        }
    }

    /// One word for machines.
    pub(crate) fn reason(&self) -> &str {
        match self {
            ClientError::Status(status) => &status.reason,
            ClientError::Unreachable { .. } => "ServiceUnavailable",
            ClientError::Broken { .. } => "Timeout",
            ClientError::BadServer { .. } => "BadRequest",
            ClientError::Protocol { .. } => "InternalError",
        }
    }

    /// Whether the same command may succeed later.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            ClientError::Status(s) => {
                s.reason == "Conflict" || matches!(s.code, 410 | 429 | 502..=504)
            }
            ClientError::Unreachable { .. } | ClientError::Broken { .. } => true,
            ClientError::BadServer { .. } | ClientError::Protocol { .. } => false,
        }
    }
}

/// What the API calls `Status`.
#[derive(Deserialize)]
struct WireStatus {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: WireDetails,
}

#[derive(Default, Deserialize)]
struct WireDetails {
    #[serde(default)]
    causes: Vec<WireCause>,
}

#[derive(Deserialize)]
struct WireCause {
    #[serde(default)]
    field: String,
    #[serde(default)]
    message: String,
}

impl From<WireStatus> for Status {
    fn from(wire: WireStatus) -> Status {
        let cause = |c: WireCause| FieldError::new(c.field, c.message);
        Status {
            code: wire.code,
            reason: wire.reason,
            message: wire.message,
            causes: wire.details.causes.into_iter().map(cause).collect(),
        }
    }
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
        Ok(Client { http, base })
    }

    /// The server's URL, as it is shown.
    pub(crate) fn server(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    /// Reads one object.
    pub(crate) async fn get(&self, key: &Key) -> Result<Object, ClientError> {
        let request = self.request(Method::GET, self.object_url(key));
        self.object(self.send(request).await?).await
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
        self.object(self.send(request.json(object)).await?).await
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, key: &Key) -> Result<Deleted, ClientError> {
        let request = self.request(Method::DELETE, self.object_url(key));
        let value = self.json(self.send(request).await?).await?;
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
            let mut page = self.json(self.send(request).await?).await?;
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

    /// Follows a kind from just after this revision. The stream ends when the server ends it;
    /// after an error nothing follows.
    pub(crate) async fn watch(
        &self,
        kind: Kind,
        scope: &Scope,
        version: &str,
    ) -> Result<BoxStream<'static, Result<WatchItem, ClientError>>, ClientError> {
        let request = self
            .http
            .get(self.kind_url(kind, scope.namespace.as_deref()))
            .query(&[("watch", "true"), ("allowWatchBookmarks", "true")])
            .query(&[("resourceVersion", version)])
            .query(&scope.query());
        let bytes = self.send(request).await?.bytes_stream();
        let (client, name) = (self.clone(), scope.name.clone());
        let mut failed = false;
        let items = lines(bytes.map({
            let client = client.clone();
            move |chunk| chunk.map(|c| c.to_vec()).map_err(|e| client.failed(&e))
        }))
        .map(move |line| client.watch_item(&line?))
        .filter(move |item| {
            let other = |o: &Object| name.as_ref().is_some_and(|n| o.metadata.name != *n);
            ready(!matches!(item, Ok(WatchItem::Applied(o) | WatchItem::Deleted(o)) if other(o)))
        })
        .take_while(move |item| ready(!std::mem::replace(&mut failed, item.is_err())));
        Ok(items.boxed())
    }

    fn watch_item(&self, line: &[u8]) -> Result<WatchItem, ClientError> {
        #[derive(Deserialize)]
        struct Event {
            r#type: String,
            object: Value,
        }
        let event: Event = serde_json::from_slice(line)
            .map_err(|e| self.protocol(format!("an event of a watch that cannot be read: {e}")))?;
        match event.r#type.as_str() {
            "ADDED" | "MODIFIED" => Ok(WatchItem::Applied(self.read(event.object)?)),
            "DELETED" => Ok(WatchItem::Deleted(self.read(event.object)?)),
            "BOOKMARK" => {
                let version = event.object.pointer("/metadata/resourceVersion");
                let version = version.and_then(Value::as_str).unwrap_or_default();
                Ok(WatchItem::Bookmark(version.to_owned()))
            }
            "ERROR" => {
                let status: WireStatus = serde_json::from_value(event.object)
                    .map_err(|e| self.protocol(format!("an error that cannot be read: {e}")))?;
                Err(ClientError::Status(status.into()))
            }
            other => Err(self.protocol(format!("an event of a watch of type `{other}`"))),
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

    /// Sends a request; an answer that is not a success is an error.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|e| self.failed(&e))?;
        let code = response.status().as_u16();
        if response.status().is_success() {
            return Ok(response);
        }
        let text = response.text().await.map_err(|e| self.failed(&e))?;
        let Ok(wire) = serde_json::from_str::<WireStatus>(&text) else {
            let start: String = text.trim().chars().take(200).collect();
            return Err(self.protocol(format!("HTTP {code} {start}")));
        };
        Err(ClientError::Status(Status {
            code,
            ..Status::from(wire)
        }))
    }

    async fn json(&self, response: Response) -> Result<Value, ClientError> {
        let body = response.bytes().await.map_err(|e| self.failed(&e))?;
        serde_json::from_slice(&body).map_err(|e| self.protocol(e.to_string()))
    }

    async fn object(&self, response: Response) -> Result<Object, ClientError> {
        self.read(self.json(response).await?)
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

    fn failed(&self, error: &reqwest::Error) -> ClientError {
        let (server, reason) = (self.server(), innermost(error));
        if error.is_connect() {
            ClientError::Unreachable { server, reason }
        } else {
            ClientError::Broken { server, reason }
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

/// What the system said, without the layers of libraries around it.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Cuts chunks into lines. What is left without a line end when the stream ends is dropped: it is
/// half an event, which the next watch repeats.
fn lines<S>(chunks: S) -> impl futures::Stream<Item = Result<Vec<u8>, ClientError>> + Send
where
    S: futures::Stream<Item = Result<Vec<u8>, ClientError>> + Send + 'static,
{
    let start = (chunks.boxed(), Vec::<u8>::new(), VecDeque::new());
    stream::try_unfold(start, |(mut chunks, mut part, mut whole)| async move {
        loop {
            if let Some(line) = whole.pop_front() {
                return Ok(Some((line, (chunks, part, whole))));
            }
            if part.len() > MAX_LINE {
                return Err(ClientError::Protocol {
                    server: "the server".to_owned(),
                    reason: format!("a line of a watch has more than {MAX_LINE} bytes"),
                });
            }
            let Some(chunk) = chunks.next().await else {
                return Ok(None);
            };
            part.extend(chunk?);
            let mut pieces = part
                .split(|b| *b == b'\n')
                .map(<[u8]>::to_vec)
                .collect::<VecDeque<_>>();
            part = pieces.pop_back().unwrap_or_default();
            whole = pieces;
        }
    })
    .filter(|line| ready(!matches!(line, Ok(line) if line.is_empty())))
}
