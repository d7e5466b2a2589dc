//! Request bodies: by content type, bounded in size, depth and time.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::Value;
use serde_saphyr::budget::BudgetBreach as Breach;
use serde_saphyr::{Error as YamlError, UserMessageFormatter};

use super::error::{ApiError, Reason};
use super::json::{self, Unambiguous};
use super::{ApiState, MAX_BODY_BYTES};

/// A body that takes longer to arrive is given up.
const ARRIVAL: Duration = Duration::from_secs(30);
/// How long a body that is not here yet may still take once the server stops: those who wait for
/// the stop should not wait for clients that say nothing.
const ARRIVAL_AT_STOP: Duration = Duration::from_secs(1);
/// Lists and objects within each other, in a body.
const MAX_DEPTH: usize = 64;
/// How both parsers begin what they say about a body that is far deeper.
const TOO_DEEP: &str = "recursion limit exceeded";
/// Nodes that the aliases of a YAML body may add.
const MAX_ALIASED: usize = 10_000;

/// Content types of an object. A browser sends none of them without asking first.
const OBJECT_TYPES: [MediaType; 2] = [MediaType::Json, MediaType::Yaml];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MediaType {
    Json,
    Yaml,
    MergePatch,
}

impl MediaType {
    fn as_str(self) -> &'static str {
        match self {
            MediaType::Json => "application/json",
            MediaType::Yaml => "application/yaml",
            MediaType::MergePatch => "application/merge-patch+json",
        }
    }
}

/// An object (or options) as JSON or YAML; `None` for an empty body.
#[derive(Debug)]
pub(super) struct ObjectBody(pub(super) Option<Value>);

/// A JSON merge patch (RFC 7386).
#[derive(Debug)]
pub(super) struct PatchBody(pub(super) Value);

impl ObjectBody {
    /// The body of a request that cannot be without.
    pub(super) fn required(self) -> Result<Value, ApiError> {
        self.0
            .ok_or_else(|| ApiError::bad_request("the request has no body; send the object"))
    }
}

impl FromRequest<ApiState> for ObjectBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &ApiState) -> Result<ObjectBody, ApiError> {
        let headers = request.headers().clone();
        let bytes = receive(request, state).await?;
        if bytes.is_empty() {
            return Ok(ObjectBody(None));
        }
        let media = media_type(&headers, &OBJECT_TYPES)?;
        let value = if media == MediaType::Yaml {
            yaml(&bytes)?
        } else {
            json(&bytes)?
        };
        Ok(ObjectBody(Some(value)))
    }
}

impl FromRequest<ApiState> for PatchBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &ApiState) -> Result<PatchBody, ApiError> {
        media_type(request.headers(), &[MediaType::MergePatch])?;
        let patch = json(&receive(request, state).await?)?;
        if !patch.is_object() {
            return Err(ApiError::bad_request(
                "a merge patch of an object must be a JSON object",
            ));
        }
        Ok(PatchBody(patch))
    }
}

fn media_type(headers: &HeaderMap, accepted: &[MediaType]) -> Result<MediaType, ApiError> {
    let refuse = |what: String| {
        let accepted: Vec<&str> = accepted.iter().map(|m| m.as_str()).collect();
        let message = format!("{what}; accepted are: {}", accepted.join(", "));
        ApiError::new(Reason::UnsupportedMediaType, message)
    };
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && encoding != "identity"
    {
        return Err(refuse(
            "bodies with a Content-Encoding are not read".to_owned(),
        ));
    }
    let text = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    accepted
        .iter()
        .copied()
        .find(|m| m.as_str().eq_ignore_ascii_case(essence))
        .ok_or_else(|| refuse(format!("the Content-Type {essence:?} is not read here")))
}

async fn receive(request: Request, state: &ApiState) -> Result<Bytes, ApiError> {
    let stop = async {
        state.clone().stopped().await;
        tokio::time::sleep(ARRIVAL_AT_STOP).await;
    };
    let body = tokio::select! {
        biased;
        body = Bytes::from_request(request, state) => body,
        () = tokio::time::sleep(ARRIVAL) => {
            let message = format!(
                "the body did not arrive within {} s; send the request again",
                ARRIVAL.as_secs()
            );
            return Err(ApiError::new(Reason::RequestTimeout, message));
        }
        () = stop => return Err(ApiError::stopping()),
    };
    body.map_err(|rejection| {
        let text = rejection.body_text();
        if rejection.into_response().status() == StatusCode::PAYLOAD_TOO_LARGE {
            let message = format!("the body has more than {MAX_BODY_BYTES} bytes");
            return ApiError::new(Reason::RequestEntityTooLarge, message);
        }
        ApiError::bad_request(text)
    })
}

fn json(bytes: &[u8]) -> Result<Value, ApiError> {
    let Unambiguous(value) = serde_json::from_slice(bytes).map_err(|e| {
        let text = e.to_string();
        if text.starts_with(TOO_DEEP) {
            return too_deep();
        }
        if text.starts_with(json::TWICE) {
            return ApiError::bad_request(format!("the JSON body has {text}"));
        }
        ApiError::bad_request(format!("the body is not JSON that can be read: {text}"))
    })?;
    bounded(value)
}

fn yaml(bytes: &[u8]) -> Result<Value, ApiError> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        reject_unsupported_tags: true,
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIASED },
    };
    let value =
        serde_saphyr::from_slice_with_options(bytes, options).map_err(|e| yaml_error(&e))?;
    bounded(value)
}

/// The parser's errors speak to who calls it; these speak to who wrote the body.
fn yaml_error(error: &YamlError) -> ApiError {
    let error = error.without_snippet();
    let line = error.location().map(|at| at.line()).filter(|n| *n > 0);
    let at = line.map_or_else(String::new, |n| format!(" (line {n})"));
    let bad = |text: String| ApiError::bad_request(format!("the YAML body {text}{at}"));
    match error {
        YamlError::AliasError { error, .. } => yaml_error(error),
        YamlError::MultipleDocuments { .. } => {
            bad("has several documents; send one object a request".to_owned())
        }
        YamlError::Budget {
            breach: Breach::Depth { .. },
            ..
        } => too_deep(),
        YamlError::Budget {
            breach:
                Breach::Aliases { .. }
                | Breach::Anchors { .. }
                | Breach::AliasAnchorRatio { .. }
                | Breach::MergeKeys { .. }
                | Breach::RecordedAnchorEvents { .. }
                | Breach::RecordedAnchorBytes { .. },
            ..
        }
        | YamlError::AliasReplayCounterOverflow { .. }
        | YamlError::AliasReplayLimitExceeded { .. }
        | YamlError::AliasExpansionLimitExceeded { .. }
        | YamlError::AliasReplayStackDepthExceeded { .. } => {
            bad("uses too many anchors and aliases; write the values out".to_owned())
        }
        YamlError::RecursiveReferencesRequireWeakTypes { .. } => {
            bad("has an alias within its own anchor; write the value out".to_owned())
        }
        YamlError::Budget {
            breach: Breach::SequenceUnbalanced,
            ..
        } => bad("closes a bracket that it has not opened".to_owned()),
        YamlError::Budget { .. } => bad("has too many fields and items; send less".to_owned()),
        YamlError::DuplicateMappingKey { key: Some(key), .. } => bad(format!(
            "has the field {key:?} twice in one mapping; remove one of them"
        )),
        YamlError::InvalidUtf8Input => bad("is not UTF-8 text".to_owned()),
        YamlError::Eof { .. } => bad("ends too early".to_owned()),
        other => {
            let text = other.render_with_formatter(&UserMessageFormatter);
            if text.starts_with(TOO_DEEP) {
                return too_deep();
            }
            ApiError::bad_request(format!("the body is not YAML that can be read: {text}"))
        }
    }
}

/// What is stored must be readable again where it stands in lists and events, by parsers that
/// bound the depth too; so both forms of a body have one limit well below theirs.
fn bounded(value: Value) -> Result<Value, ApiError> {
    if depth(&value) > MAX_DEPTH {
        return Err(too_deep());
    }
    Ok(value)
}

/// Lists and objects within each other. The parsers have bounded the recursion already.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn too_deep() -> ApiError {
    ApiError::bad_request(format!(
        "the body has more than {MAX_DEPTH} lists and objects within each other; make it flatter"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_is_read_as_the_json_it_stands_for() {
        let text = b"a: &x {b: [1, 2.5, true, yes, null, '7']}\nc: *x\n";
        let inner = json!({"b": [1, 2.5, true, "yes", null, "7"]});
        assert_eq!(yaml(text).unwrap(), json!({"a": inner, "c": inner}));
    }

    #[test]
    fn bodies_that_grow_or_nest_without_bound_are_refused() {
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..9 {
            let last = format!("*a{}", i - 1);
            laughs.push_str(&format!("a{i}: &a{i} [{}]\n", vec![last; 10].join(", ")));
        }
        assert!(yaml(laughs.as_bytes()).is_err());
        assert!(yaml("[".repeat(100_000).as_bytes()).is_err());
        assert!(yaml(b"a: 1\na: 2\n").is_err());
        assert!(yaml(b"a: 1\n---\nb: 2\n").is_err());
        assert!(json("[".repeat(100_000).as_bytes()).is_err());
        assert!(json(&"{\"a\":".repeat(100_000).into_bytes()).is_err());
        assert!(json(b"{} {}").is_err());
        assert!(json(b"\xff").is_err());
        assert!(yaml(b"\xff\xfe").is_err());
    }

    #[test]
    fn the_line_of_a_mistake_is_named() {
        let e = yaml(b"a: 1\nb: [\n").unwrap_err().to_status();
        assert!(e["message"].as_str().unwrap().contains("line"), "{e}");
        let e = json(b"{\n\"a\": }").unwrap_err().to_status();
        assert!(e["message"].as_str().unwrap().contains("line 2"), "{e}");
    }

    #[test]
    fn only_the_types_that_are_accepted_are_read() {
        let with = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, text.parse().unwrap());
            media_type(&headers, &OBJECT_TYPES)
        };
        assert_eq!(with("application/json").unwrap(), MediaType::Json);
        assert_eq!(
            with("Application/JSON; charset=utf-8").unwrap(),
            MediaType::Json
        );
        assert_eq!(with("application/yaml").unwrap(), MediaType::Yaml);
        for other in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonx",
            "",
        ] {
            assert_eq!(
                with(other).unwrap_err().reason,
                Reason::UnsupportedMediaType,
                "{other}"
            );
        }
        assert!(media_type(&HeaderMap::new(), &OBJECT_TYPES).is_err());
        let mut packed = HeaderMap::new();
        packed.insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
        packed.insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
        assert!(media_type(&packed, &OBJECT_TYPES).is_err());
    }
}
