//! The HTTP API of the standalone server: Kubernetes-shaped REST over any [`Store`].
//!
//! | to change ... | look in |
//! |---|---|
//! | which paths and methods exist | this file |
//! | who may connect from where | `guard` |
//! | query parameters, bodies | `query`, `body`, `json` |
//! | what is pruned, defaulted and refused on the way in | `admission` |
//! | get and list; watch; create, replace and delete; patch | `read`, `watch`, `write`, `patch` |
//! | the code and reason of an error | `error` |
//! | what clients discover, probes and metrics | `discovery`, `health` |
//!
//! # Guarantees
//! * Every error is a `Status` object with reason and, for refused fields, their paths.
//! * A body, a query or a header never makes the server panic or hold more than a few MiB.
//!
//! # Caveats
//! * Authentication, TLS, server-side apply, JSON patch, `deletecollection`, tables, OpenAPI and
//!   stored namespaces do not exist yet: any valid namespace name works, and only the local
//!   machine may connect.
//! * A watch ends when its client reads too slowly for the store's buffer. The socket of a client
//!   that does not read at all is left to the connection's own limits.

mod admission;
mod body;
mod discovery;
mod error;
mod guard;
mod health;
mod json;
mod patch;
mod query;
mod read;
mod target;
mod watch;
mod write;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, get};
use axum::{Extension, Router, middleware};
use ipledger_core::api::Kind;
use ipledger_core::store::Store;
use tokio::sync::watch as flag;

/// Largest request body in bytes, as in Kubernetes.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

type Ready = dyn Fn() -> Result<(), String> + Send + Sync;
type Metrics = dyn Fn() -> String + Send + Sync;

/// What the API works on.
#[derive(Clone)]
pub struct ApiState {
    store: Arc<dyn Store>,
    ready: Arc<Ready>,
    metrics: Arc<Metrics>,
    stop: Option<flag::Receiver<bool>>,
}

impl ApiState {
    /// An API over this store that is ready at once, has no metrics and never stops.
    pub fn new(store: Arc<dyn Store>) -> ApiState {
        ApiState {
            store,
            ready: Arc::new(|| Ok(())),
            metrics: Arc::new(String::new),
            stop: None,
        }
    }

    /// `/readyz` asks this; an error is the reason why the server is not ready yet.
    #[must_use]
    pub fn with_ready(
        mut self,
        ready: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> ApiState {
        self.ready = Arc::new(ready);
        self
    }

    /// `/metrics` answers with this: the Prometheus text format.
    #[must_use]
    pub fn with_metrics(
        mut self,
        metrics: impl Fn() -> String + Send + Sync + 'static,
    ) -> ApiState {
        self.metrics = Arc::new(metrics);
        self
    }

    /// Once the flag is true, every watch ends, and a request whose body does not come is answered
    /// soon, so that a graceful stop does not wait for them.
    #[must_use]
    pub fn with_stop(mut self, stop: flag::Receiver<bool>) -> ApiState {
        self.stop = Some(stop);
        self
    }

    /// Returns when the server stops.
    async fn stopped(self) {
        if let Some(mut stop) = self.stop
            && stop.wait_for(|stop| *stop).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

/// All paths of the API.
pub fn router(state: ApiState) -> Router {
    let mut router = Router::new()
        .merge(discovery::router())
        .merge(health::router());
    for kind in Kind::ALL {
        router = router.merge(kind_router(kind));
    }
    router
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn(guard::local_only))
        .with_state(state)
}

/// Probes and metrics alone, without anything of the ledger.
#[cfg(feature = "kube")]
pub(crate) fn probes(state: ApiState) -> Router {
    health::router().with_state(state)
}

fn kind_router(kind: Kind) -> Router<ApiState> {
    let base = format!("/apis/{}", kind.api_version());
    let plural = kind.plural();
    let scope = if kind.namespaced() {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let collection = format!("{base}{scope}/{plural}");
    let mut router = Router::new()
        .route(&collection, get(read::collection).post(write::create))
        .route(&format!("{collection}/{{name}}"), object())
        .route(&format!("{collection}/{{name}}/status"), status());
    if kind.namespaced() {
        router = router.route(&format!("{base}/{plural}"), get(read::collection));
    }
    router.layer(Extension(kind))
}

fn object() -> MethodRouter<ApiState> {
    get(read::object)
        .put(write::replace)
        .patch(patch::main)
        .delete(write::delete)
}

fn status() -> MethodRouter<ApiState> {
    get(read::object)
        .put(write::replace_status)
        .patch(patch::status)
}
