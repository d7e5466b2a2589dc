//! Request bodies: by content type, bounded in size, depth and time.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::Value;

use super::MAX_BODY_BYTES;
use super::error::{ApiError, Reason};

/// A body that takes longer to arrive is given up.
const ARRIVAL: Duration = Duration::from_secs(30);
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

impl<S: Send + Sync> FromRequest<S> for ObjectBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<ObjectBody, ApiError> {
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

impl<S: Send + Sync> FromRequest<S> for PatchBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<PatchBody, ApiError> {
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

async fn receive<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    let body = tokio::time::timeout(ARRIVAL, Bytes::from_request(request, state));
    match body.await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(rejection)) => {
            let text = rejection.body_text();
            if rejection.into_response().status() == StatusCode::PAYLOAD_TOO_LARGE {
                let message = format!("the body has more than {MAX_BODY_BYTES} bytes");
                return Err(ApiError::new(Reason::RequestEntityTooLarge, message));
            }
            Err(ApiError::bad_request(text))
        }
        Err(_) => Err(ApiError::bad_request(format!(
            "the body did not arrive within {} s",
            ARRIVAL.as_secs()
        ))),
    }
}

fn json(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes)
        .map_err(|e| ApiError::bad_request(format!("the body is not JSON that can be read: {e}")))
}

fn yaml(bytes: &[u8]) -> Result<Value, ApiError> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        reject_unsupported_tags: true,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIASED },
    };
    serde_saphyr::from_slice_with_options(bytes, options)
        .map_err(|e| ApiError::bad_request(format!("the body is not YAML that can be read: {e}")))
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
