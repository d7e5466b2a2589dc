//! Lists, page by page.

use ipledger_core::api::{Key, Kind};
use ipledger_core::store::{ListOptions, ListPage, Revision, StoreError};
use serde_json::Value;

use crate::failure::Failure;
use crate::health::Right;
use crate::path::{self, Query};
use crate::{Inner, wire};

impl Inner {
    pub(crate) async fn list(
        &self,
        kind: Kind,
        options: &ListOptions,
    ) -> Result<ListPage, StoreError> {
        let path = path::of_kind(kind, options.namespace.as_deref());
        let mut query = Query::new(path).selecting(&options.labels, &options.fields);
        if let Some(limit) = options.limit.filter(|limit| *limit > 0) {
            query = query.with("limit", &limit.to_string());
        }
        if let Some(token) = &options.continue_token {
            query = query.with("continue", unwrapped(kind, token)?);
        }
        let answer = self.caller.get(query.into_path()).await;
        self.caller.health().allowed(Right::List(kind), &answer);
        let answer = answer.map_err(|failure| match failure {
            Failure::Refused(status) if status.code == 400 && options.continue_token.is_some() => {
                refused(&status.message)
            }
            other => other.of_read(&Key::cluster(kind, "")),
        })?;
        page(kind, answer)
    }

    /// The last revision: everything that was committed before the call is at or before it.
    pub(crate) async fn committed(&self, kind: Kind) -> Result<Revision, StoreError> {
        let query = Query::new(path::of_kind(kind, None)).with("limit", "1");
        let answer = self.caller.get(query.into_path()).await;
        self.caller.health().allowed(Right::List(kind), &answer);
        let answer = answer.map_err(|failure| failure.of_read(&Key::cluster(kind, "")))?;
        list_revision(kind, &answer)
    }
}

fn list_revision(kind: Kind, answer: &Value) -> Result<Revision, StoreError> {
    wire::revision_of(answer).ok_or_else(|| StoreError::Internal {
        reason: format!("the API server sent a list of {kind} without a resourceVersion"),
    })
}

fn page(kind: Kind, mut answer: Value) -> Result<ListPage, StoreError> {
    let revision = list_revision(kind, &answer)?;
    let token = answer["metadata"]["continue"].as_str().unwrap_or("");
    let continue_token = (!token.is_empty()).then(|| wrapped(kind, token));
    let mut page = ListPage {
        revision,
        continue_token,
        ..ListPage::default()
    };
    if let Value::Array(items) = answer["items"].take() {
        for item in items {
            match wire::read(kind, item) {
                Ok(object) => page.items.push(object),
                Err(e) => page.corrupt.push(e),
            }
        }
    }
    // The server sorts `a-b/x` before `a/y`.
    page.items.sort_by_cached_key(|o| o.key());
    Ok(page)
}

/// The server's own tokens do not tell of which kind they are, and would be taken for any.
fn wrapped(kind: Kind, token: &str) -> String {
    format!("{}.{token}", kind.plural())
}

fn unwrapped(kind: Kind, token: &str) -> Result<&str, StoreError> {
    match token.split_once('.') {
        Some((plural, token)) if plural == kind.plural() && !token.is_empty() => Ok(token),
        Some((plural, _)) if Kind::ALL.iter().any(|k| k.plural() == plural) => {
            Err(refused("it belongs to the listing of another kind"))
        }
        _ => Err(refused("it was not made here")),
    }
}

fn refused(reason: &str) -> StoreError {
    StoreError::BadRequest {
        reason: format!("the continue token is refused ({reason}); list again from the start"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_taken_back_for_its_own_kind_only() {
        let token = wrapped(Kind::IPAddress, "eyJ2In0");
        assert_eq!(unwrapped(Kind::IPAddress, &token), Ok("eyJ2In0"));
        for (kind, token) in [
            (Kind::IPAddressClass, token.as_str()),
            (Kind::IPAddress, ""),
            (Kind::IPAddress, "eyJ2In0"),
            (Kind::IPAddress, "ipaddresses."),
            (Kind::IPAddress, "pods.eyJ2In0"),
        ] {
            let e = unwrapped(kind, token).unwrap_err();
            assert!(matches!(e, StoreError::BadRequest { .. }), "{token}: {e}");
        }
    }
}
