use std::collections::BTreeMap;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use ipledger_core::api::{Key, Kind};
use ipledger_core::store::FieldError;
use ipledger_core::store::rules::check_namespace;

use super::error::{ApiError, Reason};

/// What the path of a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: Kind,
    /// `None` for cluster-scoped kinds, and for a list over all namespaces.
    pub(super) namespace: Option<String>,
    /// Empty for a collection.
    pub(super) name: String,
}

impl Target {
    pub(super) fn key(&self) -> Key {
        Key {
            kind: self.kind,
            namespace: self.namespace.clone().unwrap_or_default(),
            name: self.name.clone(),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Target {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Target, ApiError> {
        let Some(kind) = parts.extensions.get::<Kind>().copied() else {
            return Err(ApiError::new(
                Reason::InternalError,
                "the route has no kind",
            ));
        };
        let Path(mut path) = Path::<BTreeMap<String, String>>::from_request_parts(parts, state)
            .await
            .map_err(|e| ApiError::bad_request(format!("the path cannot be read: {e}")))?;
        let namespace = path.remove("namespace");
        // A list of a namespace that cannot exist would be empty, and nobody would see the slip.
        if let Some(Err(message)) = namespace.as_deref().map(check_namespace) {
            let error = FieldError::new("metadata.namespace", message);
            return Err(ApiError::bad_request(format!(
                "the namespace in the path: {}",
                error.message
            ))
            .with_causes(&[error]));
        }
        Ok(Target {
            kind,
            namespace,
            name: path.remove("name").unwrap_or_default(),
        })
    }
}
