//! Query parameters.

use std::collections::BTreeMap;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Query as QueryPairs};
use axum::http::request::Parts;
use ipledger_core::api::Kind;
use ipledger_core::store::{FieldSelector, LabelSelector, Revision};

use super::error::ApiError;

/// The parameters of a request, each with its values in order. Of a repeated one the first counts
/// (of `dryRun` each); an unknown one is ignored, as clients send what newer servers know.
#[derive(Debug, Default)]
pub(super) struct Query(BTreeMap<String, Vec<String>>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Query, ApiError> {
        let QueryPairs(pairs) =
            QueryPairs::<Vec<(String, String)>>::from_request_parts(parts, state)
                .await
                .map_err(|e| ApiError::bad_request(format!("the query cannot be read: {e}")))?;
        let mut query = BTreeMap::<String, Vec<String>>::new();
        for (name, value) in pairs {
            query.entry(name).or_default().push(value);
        }
        Ok(Query(query))
    }
}

/// What to do about fields that the kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValidation {
    /// Leave them out.
    Ignore,
    /// Leave them out and say so.
    Warn,
    /// Refuse the object.
    Strict,
}

/// Whether a write happens, or is only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    Real,
    Dry,
}

/// How `resourceVersion` of a list is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    NotOlderThan,
    Exact,
}

impl Query {
    /// A parameter that is there and not empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .and_then(|values| values.first())
            .map(String::as_str)
            .filter(|v| !v.is_empty())
    }

    fn parsed<T: FromStr>(&self, name: &str, wanted: &str) -> Result<Option<T>, ApiError> {
        let refuse = |text: &str| {
            ApiError::bad_request(format!(
                "the parameter {name} must be {wanted}, not {text:?}"
            ))
        };
        let read = |text: &str| text.parse().map_err(|_| refuse(text));
        self.text(name).map(read).transpose()
    }

    /// `None` if the parameter is absent.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.text(name) {
            Some("1") => Ok(Some(true)),
            Some("0") => Ok(Some(false)),
            _ => self.parsed(name, "true or false"),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u32>, ApiError> {
        self.parsed(name, "a whole number")
    }

    /// `resourceVersion`; `None` also for 0, which means "any".
    pub(super) fn revision(&self) -> Result<Option<Revision>, ApiError> {
        let revision: Option<Revision> =
            self.parsed("resourceVersion", "a resourceVersion as it was read")?;
        Ok(revision.filter(|r| r.0 != 0))
    }

    /// `resourceVersionMatch`.
    pub(super) fn revision_match(&self) -> Result<Option<Match>, ApiError> {
        match self.text("resourceVersionMatch") {
            None => Ok(None),
            Some("NotOlderThan") => Ok(Some(Match::NotOlderThan)),
            Some("Exact") => Ok(Some(Match::Exact)),
            Some(other) => Err(ApiError::bad_request(format!(
                "the parameter resourceVersionMatch must be NotOlderThan or Exact, not {other:?}"
            ))),
        }
    }

    pub(super) fn labels(&self) -> Result<LabelSelector, ApiError> {
        Ok(LabelSelector::parse(
            self.text("labelSelector").unwrap_or_default(),
        )?)
    }

    /// Only fields that the kind's definition names as selectable.
    pub(super) fn fields(&self, kind: Kind) -> Result<FieldSelector, ApiError> {
        let selector = FieldSelector::parse(self.text("fieldSelector").unwrap_or_default())?;
        let selectable = selectable(kind);
        let common = ["metadata.name", "metadata.namespace"];
        if let Some(path) = selector
            .paths()
            .find(|p| !common.contains(p) && !selectable.contains(p))
        {
            return Err(ApiError::bad_request(format!(
                "field label not supported: {path:?}; objects of kind {kind} can be selected by {}, {}",
                common.join(", "),
                selectable.join(", ")
            )));
        }
        Ok(selector)
    }

    pub(super) fn field_validation(&self) -> Result<FieldValidation, ApiError> {
        match self.text("fieldValidation") {
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some(other) => Err(ApiError::bad_request(format!(
                "the parameter fieldValidation must be Strict, Warn or Ignore, not {other:?}"
            ))),
        }
    }

    /// Each `dryRun` is read, also an empty one: whoever writes it down does not mean a real write.
    pub(super) fn run(&self) -> Result<Run, ApiError> {
        let values = self.0.get("dryRun").into_iter().flatten();
        values
            .map(|v| Run::parse(v))
            .try_fold(Run::Real, |_, run| run)
    }
}

impl Run {
    /// Reads a value of `dryRun`. What is not understood must not become a real write.
    pub(super) fn parse(text: &str) -> Result<Run, ApiError> {
        match text {
            "All" => Ok(Run::Dry),
            other => Err(ApiError::bad_request(format!(
                "dryRun must be All, not {other:?}"
            ))),
        }
    }
}

/// The fields by which objects of a kind can be selected, beside name and namespace.
fn selectable(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::IPAddressClass => &["spec.provisioner"],
        Kind::IPAddress => &[
            "spec.address",
            "spec.className",
            "spec.claimRef.namespace",
            "spec.claimRef.name",
            "status.phase",
        ],
        Kind::IPAddressClaim => &[
            "spec.className",
            "spec.family",
            "spec.addressName",
            "status.phase",
        ],
    }
}
