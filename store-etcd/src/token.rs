//! Continue tokens: which kind is listed at which revision, and the last key of the page before.

use ipledger_core::api::{Key, Kind};
use ipledger_core::store::{Revision, StoreError};

const VERSION: &str = "e1";

/// As text its parts are joined by `_`, which stands in no name.
#[derive(Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) revision: Revision,
    pub(crate) after: Key,
}

impl Token {
    pub(crate) fn encode(&self) -> String {
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
    /// `BadRequest`.
    pub(crate) fn decode(text: &str, kind: Kind) -> Result<Token, StoreError> {
        let parts: Vec<&str> = text.splitn(5, '_').collect();
        let [VERSION, revision, plural, namespace, name] = parts.as_slice() else {
            return Err(refused("was not made here"));
        };
        if *plural != kind.plural() {
            return Err(refused("belongs to the listing of another kind"));
        }
        let revision: Revision = revision.parse().map_err(|_| refused("was not made here"))?;
        if revision.0 == 0 || i64::try_from(revision.0).is_err() {
            return Err(refused("was not made here"));
        }
        Ok(Token {
            revision,
            after: Key {
                kind,
                namespace: (*namespace).to_owned(),
                name: (*name).to_owned(),
            },
        })
    }
}

pub(crate) fn refused(reason: &str) -> StoreError {
    StoreError::BadRequest {
        reason: format!("the continue token {reason}; list again from the start"),
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
            Key::class("a_b"),
        ] {
            let kind = after.kind;
            let token = Token {
                revision: Revision(17),
                after,
            };
            assert_eq!(Token::decode(&token.encode(), kind), Ok(token));
        }
    }

    #[test]
    fn a_token_from_elsewhere_is_refused() {
        for text in [
            "",
            "e1",
            "e1_x_ipaddresses__a",
            "e1_0_ipaddresses__a",
            "e1_18446744073709551615_ipaddresses__a",
            "v1_1_ipaddresses__a",
            "e1_1_ipaddressclaims_n_a",
        ] {
            let e = Token::decode(text, Kind::IPAddress).unwrap_err();
            assert!(matches!(e, StoreError::BadRequest { .. }), "{text}: {e}");
        }
    }
}
