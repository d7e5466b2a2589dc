use super::{Revision, StoreError};
use crate::api::{Key, Kind};

const VERSION: &str = "v1";

/// A continue token: which kind is listed at which revision, and the last key of the page before.
/// As text its parts are joined by `_`, which stands in no kind, revision or namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision that all pages show.
    pub revision: Revision,
    /// The last key of the page before.
    pub after: Key,
}

impl ContinueToken {
    /// The token as it is given to callers.
    pub fn encode(&self) -> String {
        let Key {
            kind,
            namespace,
            name,
        } = &self.after;
        let revision = self.revision.to_string();
        [VERSION, &revision, kind.plural(), namespace, name].join("_")
    }

    /// Reads a token of a listing of this kind.
    ///
    /// # Errors
    /// `BadRequest` for anything else.
    pub fn decode(text: &str, kind: Kind) -> Result<ContinueToken, StoreError> {
        let not_ours = || ContinueToken::refused("was not made here");
        let parts: Vec<&str> = text.splitn(5, '_').collect();
        let [VERSION, revision, plural, namespace, name] = parts.as_slice() else {
            return Err(not_ours());
        };
        if *plural != kind.plural() {
            return Err(ContinueToken::refused(
                "belongs to the listing of another kind",
            ));
        }
        let revision: Revision = revision.parse().map_err(|_| not_ours())?;
        // Databases keep revisions as signed numbers, and none has shown anything at 0.
        if revision.0 == 0 || i64::try_from(revision.0).is_err() {
            return Err(not_ours());
        }
        Ok(ContinueToken {
            revision,
            after: Key {
                kind,
                namespace: (*namespace).to_owned(),
                name: (*name).to_owned(),
            },
        })
    }

    /// The token of this request if it carries one.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn of(
        options: &super::ListOptions,
        kind: Kind,
    ) -> Result<Option<ContinueToken>, StoreError> {
        let text = options.continue_token.as_deref();
        text.map(|text| ContinueToken::decode(text, kind))
            .transpose()
    }

    /// The error for a token that this listing cannot go on from, with the reason as the end of
    /// "the continue token ...".
    pub fn refused(reason: &str) -> StoreError {
        StoreError::BadRequest {
            reason: format!("the continue token {reason}; list again from the start"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_the_same() {
        for after in [
            Key::claim("team-a", "web.1"),
            Key::class("public"),
            // Not a name that we would take, but a foreign writer may have made it.
            Key::class("a_b"),
        ] {
            let kind = after.kind;
            let token = ContinueToken {
                revision: Revision(17),
                after,
            };
            assert_eq!(ContinueToken::decode(&token.encode(), kind), Ok(token));
        }
    }

    #[test]
    fn a_token_from_elsewhere_is_refused() {
        for text in [
            "",
            "v1",
            "v1_x_ipaddresses__a",
            "v1_-1_ipaddresses__a",
            "v1_0_ipaddresses__a",
            "v1_18446744073709551615_ipaddresses__a",
            "v2_1_ipaddresses__a",
            "v1_1_ipaddressclaims_n_a",
        ] {
            let e = ContinueToken::decode(text, Kind::IPAddress).unwrap_err();
            assert!(matches!(e, StoreError::BadRequest { .. }), "{text}: {e}");
        }
    }
}
