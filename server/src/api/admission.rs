//! From a body to an object that may be written: what a server of a kind's definition does on the
//! way in. The store behind preserves whatever it is given.

use axum::http::{HeaderMap, HeaderValue, header};
use ipledger_core::api::validate::{self, UnknownField};
use ipledger_core::api::{Kind, Object};
use ipledger_core::store::FieldError;
use serde_json::Value;

use super::error::ApiError;
use super::query::FieldValidation;
use super::target::Target;

/// Warnings of one answer, and characters of each, at most.
const MAX_WARNINGS: usize = 16;
const MAX_WARNING_CHARS: usize = 256;

/// What the server has to say beside its answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Warnings(Vec<String>);

impl Warnings {
    pub(super) fn add(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }

    /// Puts them into the headers of the answer.
    pub(super) fn write(self, headers: &mut HeaderMap) {
        for text in self.0.iter().take(MAX_WARNINGS) {
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{}\"", quotable(text))) {
                headers.append(header::WARNING, value);
            }
        }
    }
}

/// As the content of a quoted string in a header.
fn quotable(text: &str) -> String {
    let mut quotable = String::new();
    for c in text.chars().take(MAX_WARNING_CHARS) {
        match c {
            '"' | '\\' => quotable.extend(['\\', c]),
            ' '..='~' => quotable.push(c),
            _ => quotable.push('?'),
        }
    }
    quotable
}

/// Reads the object of a body for this target: fields that the kind does not have are taken out
/// (or refused), defaults are filled in. Its fields are not judged yet.
pub(super) fn read_object(
    mut body: Value,
    target: &Target,
    validation: FieldValidation,
) -> Result<(Object, Warnings), ApiError> {
    tidy_metadata(&mut body);
    check_metadata(&body, target)?;
    let mut object = Object::from_value(body).map_err(|e| ApiError::bad_request(e.to_string()))?;
    fit(&mut object, target)?;
    let unknown = validate::unknown_fields(&object);
    let mut warnings = Warnings::default();
    match validation {
        FieldValidation::Strict if !unknown.is_empty() => return Err(strict(&object, unknown)),
        FieldValidation::Strict | FieldValidation::Ignore => {}
        FieldValidation::Warn => unknown.iter().for_each(|u| warnings.add(u.to_string())),
    }
    validate::prune_unknown(&mut object);
    validate::apply_defaults(&mut object);
    Ok((object, warnings))
}

/// Names the fields of `metadata` that have the wrong type. An object of another kind than the
/// path's is left to be refused for that.
fn check_metadata(body: &Value, target: &Target) -> Result<(), ApiError> {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
    let kind = Kind::find(
        text("/apiVersion").unwrap_or_default(),
        text("/kind").unwrap_or_default(),
    );
    let errors = validate::metadata_types(body);
    if errors.is_empty() || kind != Some(target.kind) {
        return Ok(());
    }
    let mut key = target.key();
    if key.name.is_empty() {
        key.name = text("/metadata/name").unwrap_or_default().to_owned();
    }
    Err(ApiError::unreadable(&key, &errors))
}

/// Manifests say `labels:` with nothing behind it, and tools write `resourceVersion: ""` for none.
fn tidy_metadata(body: &mut Value) {
    let Value::Object(fields) = body else {
        return;
    };
    match fields.get_mut("metadata") {
        Some(Value::Object(metadata)) => {
            let none =
                |name: &str, v: &Value| v.is_null() || (name == "resourceVersion" && *v == "");
            metadata.retain(|name, value| !none(name, value));
        }
        Some(Value::Null) => {
            fields.remove("metadata");
        }
        _ => {}
    }
}

/// The object of the body must be the one that the path names; what it leaves out is filled in.
fn fit(object: &mut Object, target: &Target) -> Result<(), ApiError> {
    if object.kind != target.kind {
        return Err(ApiError::bad_request(format!(
            "the path is of kind {}, the object is a {}",
            target.kind, object.kind
        )));
    }
    let meta = &mut object.metadata;
    let path = [
        ("namespace", target.namespace.as_deref()),
        ("name", Some(target.name.as_str())),
    ];
    for ((what, wanted), is) in path.into_iter().zip([&mut meta.namespace, &mut meta.name]) {
        let Some(wanted) = wanted.filter(|w| !w.is_empty()) else {
            continue;
        };
        if is.is_empty() {
            wanted.clone_into(is);
        } else if is != wanted {
            return Err(ApiError::bad_request(format!(
                "the {what} of the object ({is}) does not match the {what} of the path ({wanted})"
            )));
        }
    }
    Ok(())
}

fn strict(object: &Object, unknown: Vec<UnknownField>) -> ApiError {
    let all: Vec<String> = unknown.iter().map(ToString::to_string).collect();
    let message = format!(
        "{} in version {:?} cannot be handled as a {}: strict decoding error: {}",
        object.kind,
        object.kind.version(),
        object.kind,
        all.join(", ")
    );
    let causes: Vec<FieldError> = unknown.into_iter().map(FieldError::from).collect();
    ApiError::bad_request(message).with_causes(&causes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_bounded_and_fit_into_a_header() {
        let mut warnings = Warnings::default();
        warnings.add("unknown field \"spec.é\\\u{7}\n\"");
        (0..100).for_each(|_| warnings.add("x".repeat(1_000_000)));
        let mut headers = HeaderMap::new();
        warnings.write(&mut headers);
        let all: Vec<_> = headers.get_all(header::WARNING).iter().collect();
        assert_eq!(all.len(), MAX_WARNINGS);
        assert_eq!(all[0], r#"299 - "unknown field \"spec.?\\??\"""#);
        assert!(all.iter().all(|w| w.len() < 600));
    }
}
