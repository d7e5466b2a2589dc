//! Errors as Kubernetes `Status` objects.

use axum::Json;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use ipledger_core::api::{Key, Kind};
use ipledger_core::store::{FieldError, SelectorError, StoreError};
use serde_json::{Map, Value, json};

/// Seconds after which a client may try again what was not available.
const RETRY_AFTER: u64 = 1;

/// Why a request failed, in the words of Kubernetes (which has none for a request that does not
/// arrive: `RequestTimeout` is ours).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    AlreadyExists,
    Conflict,
    Expired,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    Invalid,
    InternalError,
    ServiceUnavailable,
    Timeout,
    RequestTimeout,
}

impl Reason {
    fn code(self) -> StatusCode {
        match self {
            Reason::BadRequest => StatusCode::BAD_REQUEST,
            Reason::Forbidden => StatusCode::FORBIDDEN,
            Reason::NotFound => StatusCode::NOT_FOUND,
            Reason::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Reason::AlreadyExists | Reason::Conflict => StatusCode::CONFLICT,
            Reason::Expired => StatusCode::GONE,
            Reason::RequestEntityTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Reason::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Reason::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Reason::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
            Reason::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Reason::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Reason::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Reason::BadRequest => "BadRequest",
            Reason::Forbidden => "Forbidden",
            Reason::NotFound => "NotFound",
            Reason::MethodNotAllowed => "MethodNotAllowed",
            Reason::AlreadyExists => "AlreadyExists",
            Reason::Conflict => "Conflict",
            Reason::Expired => "Expired",
            Reason::RequestEntityTooLarge => "RequestEntityTooLarge",
            Reason::UnsupportedMediaType => "UnsupportedMediaType",
            Reason::Invalid => "Invalid",
            Reason::InternalError => "InternalError",
            Reason::ServiceUnavailable => "ServiceUnavailable",
            Reason::Timeout => "Timeout",
            Reason::RequestTimeout => "RequestTimeout",
        }
    }
}

/// A refusal or failure, as it is answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ApiError {
    pub(super) reason: Reason,
    message: String,
    details: Map<String, Value>,
    /// Only where nothing was written: clients repeat any request that is answered with it.
    retry_after: Option<u64>,
}

impl ApiError {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> ApiError {
        ApiError {
            reason,
            message: message.into(),
            details: Map::new(),
            retry_after: None,
        }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(Reason::BadRequest, message)
    }

    /// The object is refused for what its fields say.
    pub(super) fn invalid(key: &Key, errors: Vec<FieldError>) -> ApiError {
        StoreError::Invalid {
            key: key.clone(),
            errors,
        }
        .into()
    }

    /// The object is refused because it cannot even be read, for these fields.
    pub(super) fn unreadable(key: &Key, errors: &[FieldError]) -> ApiError {
        let kind = key.kind;
        let message = format!(
            "{kind}.{} {:?} cannot be read: {}",
            kind.group(),
            key.name,
            all_of(errors)
        );
        ApiError::bad_request(message)
            .about(key, kind.name())
            .with_causes(errors)
    }

    /// The server stops and reads no further.
    pub(super) fn stopping() -> ApiError {
        let message = "the server stops and does not wait for the rest of the body; nothing was \
                       written, send the request again";
        ApiError::new(Reason::ServiceUnavailable, message).retry()
    }

    /// A revision that the store has not reached.
    pub(super) fn from_the_future(current: impl std::fmt::Display) -> ApiError {
        let message = format!("Too large resource version: the store is at {current}");
        let mut error = ApiError::new(Reason::Timeout, &message).retry();
        let causes = json!([{"reason": "ResourceVersionTooLarge", "message": message}]);
        error.details.insert("causes".to_owned(), causes);
        error
    }

    /// Names the fields that are to blame.
    pub(super) fn with_causes(mut self, errors: &[FieldError]) -> ApiError {
        let cause = |e: &FieldError| json!({"reason": "FieldValueInvalid", "message": e.message, "field": e.field});
        let causes = errors.iter().map(cause).collect();
        self.details
            .insert("causes".to_owned(), Value::Array(causes));
        self
    }

    fn about(mut self, key: &Key, kind: &str) -> ApiError {
        self.details.insert("name".to_owned(), json!(key.name));
        self.details
            .insert("group".to_owned(), json!(key.kind.group()));
        self.details.insert("kind".to_owned(), json!(kind));
        self
    }

    fn retry(mut self) -> ApiError {
        self.retry_after = Some(RETRY_AFTER);
        self.details
            .insert("retryAfterSeconds".to_owned(), json!(RETRY_AFTER));
        self
    }

    /// The `Status` object.
    pub(super) fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason.as_str(),
            "code": self.reason.code().as_u16(),
        });
        if let (Value::Object(status), false) = (&mut status, self.details.is_empty()) {
            status.insert("details".to_owned(), Value::Object(self.details.clone()));
        }
        status
    }
}

/// The one place that says what an error of the store is to a client.
impl From<StoreError> for ApiError {
    fn from(e: StoreError) -> ApiError {
        let text = e.to_string();
        let about = |reason, key: &Key, message: String| {
            ApiError::new(reason, message).about(key, key.kind.plural())
        };
        match e {
            StoreError::NotFound { key } => about(
                Reason::NotFound,
                &key,
                format!("{} not found", resource(&key)),
            ),
            StoreError::AlreadyExists { key, uid, .. } => {
                let message = format!("{} already exists", resource(&key));
                let mut error = about(Reason::AlreadyExists, &key, message);
                error.details.insert("uid".to_owned(), json!(uid));
                error
            }
            StoreError::Conflict { key } => {
                let message = format!(
                    "Operation cannot be fulfilled on {}: the object has been modified; please \
                     apply your changes to the latest version and try again",
                    resource(&key)
                );
                about(Reason::Conflict, &key, message)
            }
            StoreError::PreconditionFailed { key, reason } => {
                let message = format!(
                    "Operation cannot be fulfilled on {}: Precondition failed: {reason}",
                    resource(&key)
                );
                about(Reason::Conflict, &key, message)
            }
            StoreError::Expired { .. } => ApiError::new(Reason::Expired, text),
            StoreError::Invalid { key, errors } => {
                let all = all_of(&errors);
                let (kind, group) = (key.kind.name(), key.kind.group());
                let message = format!("{kind}.{group} {:?} is invalid: {all}", key.name);
                ApiError::new(Reason::Invalid, message)
                    .about(&key, kind)
                    .with_causes(&errors)
            }
            StoreError::BadRequest { .. } => ApiError::bad_request(text),
            StoreError::TooLarge { key, .. } => about(Reason::RequestEntityTooLarge, &key, text),
            StoreError::Forbidden { key, reason } => {
                let message = format!("{} is forbidden: {reason}", resource(&key));
                about(Reason::Forbidden, &key, message)
            }
            StoreError::Unavailable { .. } | StoreError::TooSlow { .. } => {
                ApiError::new(Reason::ServiceUnavailable, text).retry()
            }
            StoreError::OutcomeUnknown { key, .. } => about(Reason::Timeout, &key, text),
            StoreError::Corrupt { key, .. } => about(Reason::InternalError, &key, text),
            StoreError::Internal { .. } => ApiError::new(Reason::InternalError, text),
            // `StoreError` may grow; what is not known here is never taken for a success.
            _ => ApiError::new(Reason::InternalError, text),
        }
    }
}

/// `spec.a: x`, or `[spec.a: x, spec.b: y]`.
pub(super) fn all_of(errors: &[FieldError]) -> String {
    let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match all.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// `ipaddressclaims.local.sdn.cozystack.io "web"`.
fn resource(key: &Key) -> String {
    format!("{}.{} {:?}", key.kind.plural(), key.kind.group(), key.name)
}

impl From<SelectorError> for ApiError {
    fn from(e: SelectorError) -> ApiError {
        ApiError::bad_request(e.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.reason == Reason::InternalError {
            tracing::error!(message = %self.message, "a request failed");
        }
        let mut response = (self.reason.code(), Json(self.to_status())).into_response();
        if let Some(seconds) = self.retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The answer for a path that does not exist.
pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    let groups = Kind::ALL.map(Kind::api_version);
    let known = groups.first().map_or("", String::as_str);
    ApiError::new(
        Reason::NotFound,
        format!(
            "the server could not find the requested resource ({}); see /apis/{known} for what is \
             here",
            uri.path()
        ),
    )
}

/// The answer for a method that a path does not have.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(
        Reason::MethodNotAllowed,
        format!(
            "the server does not allow this method on the requested resource ({method} {})",
            uri.path()
        ),
    )
}

#[cfg(test)]
mod tests;
