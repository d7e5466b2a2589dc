//! GET: one object, or a list (and the way into a watch).

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ipledger_core::api::{Kind, Object};
use ipledger_core::store::{ListOptions, ReadAt, Revision, Store, StoreError};
use serde::Serialize;

use super::ApiState;
use super::admission::Warnings;
use super::error::{ApiError, Reason};
use super::query::{Match, Query};
use super::target::Target;
use super::watch;

/// GET on one object or on its `status`, which is answered with the whole object.
pub(super) async fn object(
    State(api): State<ApiState>,
    target: Target,
    query: Query,
) -> Result<Json<Object>, ApiError> {
    let revision = query.revision()?;
    let at = revision.map_or(ReadAt::Latest, ReadAt::NotOlderThan);
    match (api.store.get(&target.key(), at).await, revision) {
        (Ok(object), _) => Ok(Json(object)),
        (Err(e), Some(revision)) => Err(explain(&*api.store, target.kind, e, revision).await),
        (Err(e), None) => Err(e.into()),
    }
}

/// GET on a collection: a list, or with `watch` a stream.
pub(super) async fn collection(
    State(api): State<ApiState>,
    target: Target,
    query: Query,
) -> Result<Response, ApiError> {
    if query.flag("watch")? == Some(true) {
        return watch::start(api, target, &query).await;
    }
    list(&*api.store, target, &query).await
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List {
    kind: String,
    api_version: String,
    metadata: ListMeta,
    items: Vec<Object>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: Revision,
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    continue_token: Option<String>,
}

async fn list(store: &dyn Store, target: Target, query: &Query) -> Result<Response, ApiError> {
    let kind = target.kind;
    let options = ListOptions {
        namespace: target.namespace,
        labels: query.labels()?,
        fields: query.fields(kind)?,
        limit: query
            .number("limit")?
            .filter(|n| *n > 0)
            .map(|n| n as usize),
        continue_token: query.text("continue").map(str::to_owned),
    };
    let (wanted, how) = (query.revision()?, query.revision_match()?);
    if how.is_some() && query.text("resourceVersion").is_none() {
        return Err(ApiError::bad_request(
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ));
    }
    let page = store.list(kind, &options).await?;
    // A list shows the latest state, which is never older than any revision of the past.
    if let Some(wanted) = wanted.filter(|_| options.continue_token.is_none()) {
        if wanted > page.revision {
            return Err(ApiError::from_the_future(page.revision));
        }
        if how == Some(Match::Exact) && wanted != page.revision {
            let message = format!(
                "the state at revision {wanted} is no longer here, only the one at {}",
                page.revision
            );
            return Err(ApiError::new(Reason::Expired, message));
        }
    }
    let mut warnings = Warnings::default();
    for corrupt in &page.corrupt {
        tracing::error!(error = %corrupt, "an object cannot be read; it is left out of a list");
        warnings.add(format!("left out: {corrupt}"));
    }
    let list = List {
        kind: format!("{kind}List"),
        api_version: kind.api_version(),
        metadata: ListMeta {
            resource_version: page.revision,
            continue_token: page.continue_token,
        },
        items: page.items,
    };
    let mut response = Json(list).into_response();
    warnings.write(response.headers_mut());
    Ok(response)
}

/// The revision at which a list would show this kind now.
pub(super) async fn current_revision(
    store: &dyn Store,
    kind: Kind,
) -> Result<Revision, StoreError> {
    let options = ListOptions {
        limit: Some(1),
        ..ListOptions::default()
    };
    Ok(store.list(kind, &options).await?.revision)
}

/// An error of a read from `revision` on: a store says `Unavailable` also for one of the future,
/// but a client should know.
pub(super) async fn explain(
    store: &dyn Store,
    kind: Kind,
    error: StoreError,
    revision: Revision,
) -> ApiError {
    if matches!(error, StoreError::Unavailable { .. })
        && let Ok(current) = current_revision(store, kind).await
        && revision > current
    {
        return ApiError::from_the_future(current);
    }
    error.into()
}
