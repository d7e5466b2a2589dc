//! Probes and metrics.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::ApiState;

pub(super) fn router() -> Router<ApiState> {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/livez", get(async || "ok"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
}

/// Ready means: what the server answers is up to date and what it is asked for gets done.
async fn ready(State(api): State<ApiState>) -> Result<&'static str, (StatusCode, String)> {
    (api.ready)().map(|()| "ok").map_err(|reason| {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {reason}\n"),
        )
    })
}

async fn metrics(State(api): State<ApiState>) -> impl IntoResponse {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], (api.metrics)())
}
