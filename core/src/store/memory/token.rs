use crate::api::{Key, Kind};
use crate::store::{Revision, StoreError};

const VERSION: &str = "v1";

/// A continue token: which kind is listed at which revision, and the last key of the page before.
/// As text its parts are joined by `_`, which stands in no name.
#[derive(Debug, PartialEq)]
pub(super) struct Token {
    pub(super) revision: Revision,
    pub(super) after: Key,
}

impl Token {
    pub(super) fn encode(&self) -> String {
        let Key {
            kind,
            namespace,
            name,
        } = &self.after;
        [
            VERSION,
            &self.revision.to_string(),
            kind.plural(),
            namespace,
            name,
        ]
        .join("_")
    }

    /// Reads a token of a listing of this kind.
    pub(super) fn decode(text: &str, kind: Kind) -> Result<Token, StoreError> {
        let bad = |reason: &str| StoreError::BadRequest {
            reason: format!("the continue token {reason}; list again from the start"),
        };
        let parts: Vec<&str> = text.split('_').collect();
        let [VERSION, revision, plural, namespace, name] = parts.as_slice() else {
            return Err(bad("was not made here"));
        };
        if *plural != kind.plural() {
            return Err(bad("belongs to the listing of another kind"));
        }
        Ok(Token {
            revision: revision.parse().map_err(|_| bad("was not made here"))?,
            after: Key {
                kind,
                namespace: (*namespace).to_owned(),
                name: (*name).to_owned(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_the_same() {
        for after in [Key::claim("team-a", "web.1"), Key::class("public")] {
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
            "v1",
            "v1_x_ipaddresses__a",
            "v2_1_ipaddresses__a",
            "v1_1_ipaddressclaims_n_a",
        ] {
            let e = Token::decode(text, Kind::IPAddress).unwrap_err();
            assert!(matches!(e, StoreError::BadRequest { .. }), "{text}: {e}");
        }
    }
}
