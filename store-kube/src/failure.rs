//! What an answer that is no success means for us.

use http::StatusCode;
use ipledger_core::api::{Key, Kind};
use ipledger_core::store::{FieldError, StoreError};
use serde::Deserialize;

/// Why a call has failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was done, another try may succeed.
    NotDone(String),
    /// Whether it was done is not known; for a read, another try may succeed.
    Unknown(String),
    /// The server answered and did nothing.
    Refused(Status),
}

/// The server's own words: `meta/v1` `Status`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Status {
    #[serde(default)]
    pub(crate) code: u16,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) details: Option<Box<Details>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Details {
    #[serde(default)]
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    causes: Vec<Cause>,
    #[serde(default)]
    pub(crate) retry_after_seconds: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Cause {
    #[serde(default)]
    field: String,
    #[serde(default)]
    message: String,
}

impl Status {
    /// Reads the body of an answer; anything may stand between us and the server, and answer too.
    pub(crate) fn read(code: StatusCode, body: &[u8]) -> Status {
        let mut status: Status = serde_json::from_slice(body).unwrap_or_default();
        if status.message.is_empty() {
            let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
            status.message = format!("{code}: {}", text.trim());
        }
        status.code = code.as_u16();
        status
    }

    /// Whether it is this object that does not exist. A kind that is not served answers 404 as
    /// well, and that must never be taken for the absence of an object.
    pub(crate) fn is_absence_of(&self, key: &Key) -> bool {
        self.is_absence_of_named(key.kind.plural(), &key.name)
    }

    /// The same for any kind, by the plural of its name.
    pub(crate) fn is_absence_of_named(&self, kind: &str, name: &str) -> bool {
        let names = |d: &Details| d.name == name && d.kind == kind;
        self.code == 404 && self.reason == "NotFound" && self.details.as_deref().is_some_and(names)
    }

    pub(crate) fn already_exists(&self) -> bool {
        self.code == 409 && self.reason == "AlreadyExists"
    }

    fn errors(&self) -> Vec<FieldError> {
        let causes = self.details.iter().flat_map(|d| &d.causes);
        let mut errors: Vec<_> = causes
            .map(|c| FieldError::new(c.field.clone(), c.message.clone()))
            .collect();
        if errors.is_empty() {
            errors.push(FieldError::new("object", self.message.clone()));
        }
        errors
    }
}

impl Failure {
    /// What an HTTP status means. Only the codes with which the API server says that it did nothing
    /// are taken for that.
    pub(crate) fn of_answer(status: Status) -> Failure {
        match status.code {
            401 => Failure::NotDone(format!(
                "it does not accept the credentials: {}",
                status.message
            )),
            429 => Failure::NotDone(format!("it is overloaded: {}", status.message)),
            code if code >= 500 => Failure::Unknown(status.message),
            _ => Failure::Refused(status),
        }
    }

    /// For a write of this object.
    pub(crate) fn of_write(self, key: &Key) -> StoreError {
        match self {
            Failure::Unknown(reason) => StoreError::OutcomeUnknown {
                key: key.clone(),
                reason,
            },
            other => other.of_read(key),
        }
    }

    /// For a read of this object, or of its kind if it has no name.
    pub(crate) fn of_read(self, key: &Key) -> StoreError {
        let status = match self {
            Failure::NotDone(reason) | Failure::Unknown(reason) => {
                return unavailable(format!("the API server: {reason}"));
            }
            Failure::Refused(status) => status,
        };
        let key = key.clone();
        match status.code {
            _ if status.is_absence_of(&key) => StoreError::NotFound { key },
            400 => StoreError::BadRequest {
                reason: status.message,
            },
            403 => StoreError::Forbidden {
                key,
                reason: status.message,
            },
            404 if is_namespace(&status) => StoreError::Invalid {
                key,
                errors: vec![FieldError::new("metadata.namespace", status.message)],
            },
            404 => not_served(key.kind, &status.message),
            409 => StoreError::Conflict { key },
            410 => StoreError::Expired {
                reason: status.message,
            },
            413 => StoreError::Forbidden {
                reason: format!(
                    "{}; this API server takes smaller objects than ipledger: lower its largest \
                     object size",
                    status.message
                ),
                key,
            },
            422 => StoreError::Invalid {
                errors: status.errors(),
                key,
            },
            code => StoreError::Internal {
                reason: format!(
                    "the API server answered {code} about {key}: {}",
                    status.message
                ),
            },
        }
    }
}

fn is_namespace(status: &Status) -> bool {
    status
        .details
        .as_ref()
        .is_some_and(|d| d.kind == "namespaces")
}

fn not_served(kind: Kind, message: &str) -> StoreError {
    unavailable(format!(
        "the API server does not serve {}.{} ({message}); install the CRDs of ipledger",
        kind.plural(),
        kind.group()
    ))
}

pub(crate) fn unavailable(reason: String) -> StoreError {
    StoreError::Unavailable { reason }
}

pub(crate) fn not_found(key: &Key) -> StoreError {
    StoreError::NotFound { key: key.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: u16, body: &str) -> Failure {
        let code = StatusCode::from_u16(code).unwrap();
        Failure::of_answer(Status::read(code, body.as_bytes()))
    }

    const ABSENT: &str = r#"{"kind": "Status", "reason": "NotFound", "code": 404,
        "details": {"name": "web", "group": "local.sdn.cozystack.io", "kind": "ipaddressclaims"}}"#;

    #[test]
    fn only_the_servers_word_about_this_object_is_its_absence() {
        let web = Key::claim("team-a", "web");
        assert!(matches!(
            failure(404, ABSENT).of_read(&web),
            StoreError::NotFound { .. }
        ));
        for (body, key) in [
            (ABSENT, Key::claim("team-a", "other")),
            (ABSENT, Key::class("web")),
            ("404 page not found\n", web.clone()),
            ("", web.clone()),
            (
                r#"{"kind": "Status", "reason": "NotFound", "code": 404}"#,
                web.clone(),
            ),
        ] {
            let e = failure(404, body).of_read(&key);
            assert!(matches!(e, StoreError::Unavailable { .. }), "{body}: {e}");
        }
    }

    #[test]
    fn a_write_is_unknown_after_every_5xx_and_refused_after_the_others() {
        let key = Key::class("public");
        for code in [500, 502, 503, 504] {
            let e = failure(code, "").of_write(&key);
            assert!(
                matches!(e, StoreError::OutcomeUnknown { .. }),
                "{code}: {e}"
            );
        }
        for code in [401, 429] {
            let e = failure(code, "").of_write(&key);
            assert!(matches!(e, StoreError::Unavailable { .. }), "{code}: {e}");
        }
        assert!(matches!(
            failure(403, "").of_write(&key),
            StoreError::Forbidden { .. }
        ));
        assert!(matches!(
            failure(410, "").of_read(&key),
            StoreError::Expired { .. }
        ));
    }

    #[test]
    fn refused_fields_are_named() {
        let body = r#"{"kind": "Status", "reason": "Invalid", "code": 422, "message": "m", "details":
            {"causes": [{"reason": "FieldValueInvalid", "field": "spec.address", "message": "no"}]}}"#;
        let key = Key::address("ip-192-0-2-1");
        assert_eq!(
            failure(422, body).of_write(&key),
            StoreError::Invalid {
                errors: vec![FieldError::new("spec.address", "no")],
                key,
            }
        );
    }
}
