//! Errors as Kubernetes `Status` objects.

use axum::Json;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use ipledger_core::api::{Key, Kind};
use ipledger_core::store::{FieldError, SelectorError, StoreError};
use serde_json::{Map, Value, json};

/// Seconds after which a client may try again what was not available.
const RETRY_AFTER: u64 = 1;

/// Why a request failed, in the words of Kubernetes.
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
                let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
                let all = match all.as_slice() {
                    [one] => one.clone(),
                    many => format!("[{}]", many.join(", ")),
                };
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
mod tests {
    use ipledger_core::store::Revision;

    use super::*;

    #[test]
    fn every_error_of_a_store_has_its_code_reason_and_permission_to_retry() {
        let key = || Key::claim("team-a", "web");
        let reason = || "why".to_owned();
        let resource = r#"ipaddressclaims.local.sdn.cozystack.io "web""#;
        for (error, code, word, message, retry) in [
            (
                StoreError::NotFound { key: key() },
                404,
                "NotFound",
                format!("{resource} not found"),
                false,
            ),
            (
                StoreError::AlreadyExists {
                    key: key(),
                    uid: "u".to_owned(),
                    operation: None,
                },
                409,
                "AlreadyExists",
                format!("{resource} already exists"),
                false,
            ),
            (
                StoreError::Conflict { key: key() },
                409,
                "Conflict",
                format!(
                    "Operation cannot be fulfilled on {resource}: the object has been modified"
                ),
                false,
            ),
            (
                StoreError::PreconditionFailed {
                    key: key(),
                    reason: reason(),
                },
                409,
                "Conflict",
                "Precondition failed: why".to_owned(),
                false,
            ),
            (
                StoreError::Expired { reason: reason() },
                410,
                "Expired",
                reason(),
                false,
            ),
            (
                StoreError::Invalid {
                    key: key(),
                    errors: vec![FieldError::new("spec.family", "is wrong")],
                },
                422,
                "Invalid",
                r#"IPAddressClaim.local.sdn.cozystack.io "web" is invalid: spec.family: is wrong"#
                    .to_owned(),
                false,
            ),
            (
                StoreError::BadRequest { reason: reason() },
                400,
                "BadRequest",
                reason(),
                false,
            ),
            (
                StoreError::TooLarge {
                    key: key(),
                    size: 7,
                    limit: 5,
                },
                413,
                "RequestEntityTooLarge",
                "7 bytes".to_owned(),
                false,
            ),
            (
                StoreError::Forbidden {
                    key: key(),
                    reason: reason(),
                },
                403,
                "Forbidden",
                format!("{resource} is forbidden: why"),
                false,
            ),
            (
                StoreError::Unavailable { reason: reason() },
                503,
                "ServiceUnavailable",
                reason(),
                true,
            ),
            (
                StoreError::OutcomeUnknown {
                    key: key(),
                    reason: reason(),
                },
                504,
                "Timeout",
                reason(),
                false,
            ),
            (
                StoreError::Corrupt {
                    key: key(),
                    reason: reason(),
                },
                500,
                "InternalError",
                reason(),
                false,
            ),
            (
                StoreError::TooSlow {
                    resume: Revision(5),
                },
                503,
                "ServiceUnavailable",
                "revision 5".to_owned(),
                true,
            ),
            (
                StoreError::Internal { reason: reason() },
                500,
                "InternalError",
                reason(),
                false,
            ),
        ] {
            let name = format!("{error:?}");
            let answer = ApiError::from(error);
            let status = answer.to_status();
            assert_eq!(
                (&status["code"], &status["reason"]),
                (&json!(code), &json!(word)),
                "{name}"
            );
            let text = status["message"].as_str().unwrap();
            assert!(text.contains(&message), "{name}: {text}");
            let response = answer.into_response();
            assert_eq!(response.status().as_u16(), code, "{name}");
            assert_eq!(
                response.headers().contains_key("retry-after"),
                retry,
                "{name}"
            );
        }
    }

    #[test]
    fn refused_fields_are_causes_with_their_paths() {
        let errors = vec![
            FieldError::new("spec.a", "x"),
            FieldError::new("spec.b", "y"),
        ];
        let status = ApiError::invalid(&Key::claim("n", "web"), errors).to_status();
        assert_eq!(
            status["details"],
            json!({"name": "web", "group": "local.sdn.cozystack.io", "kind": "IPAddressClaim",
                "causes": [{"reason": "FieldValueInvalid", "message": "x", "field": "spec.a"},
                    {"reason": "FieldValueInvalid", "message": "y", "field": "spec.b"}]})
        );
        assert!(
            status["message"]
                .as_str()
                .unwrap()
                .ends_with("[spec.a: x, spec.b: y]")
        );
    }
}
