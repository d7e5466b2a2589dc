//! Continue tokens: which kind is listed at which revision, and the last name of the page before.

use ipledger_core::api::Kind;
use ipledger_core::store::{Revision, StoreError};

use crate::span::Name;

const VERSION: &str = "v1";

/// As text its parts are joined by `_`, which stands in no name.
#[derive(Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) revision: Revision,
    pub(crate) last: Name,
}

impl Token {
    pub(crate) fn encode(&self, kind: Kind) -> String {
        let (namespace, name) = &self.last;
        let revision = self.revision.to_string();
        [VERSION, &revision, kind.plural(), namespace, name].join("_")
    }

    /// Reads a token of a listing of this kind.
    ///
    /// # Errors
    /// `BadRequest` for anything else.
    pub(crate) fn decode(text: &str, kind: Kind) -> Result<Token, StoreError> {
        let parts: Vec<&str> = text.split('_').collect();
        let [VERSION, revision, plural, namespace, name] = parts.as_slice() else {
            return Err(refused("was not made here"));
        };
        if *plural != kind.plural() {
            return Err(refused("belongs to the listing of another kind"));
        }
        Ok(Token {
            revision: revision.parse().map_err(|_| refused("was not made here"))?,
            last: ((*namespace).to_owned(), (*name).to_owned()),
        })
    }
}

/// The error for a token that this listing cannot go on from.
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
        for last in [("team-a", "web.1"), ("", "public")] {
            let token = Token {
                revision: Revision(17),
                last: (last.0.to_owned(), last.1.to_owned()),
            };
            let text = token.encode(Kind::IPAddressClaim);
            assert_eq!(Token::decode(&text, Kind::IPAddressClaim), Ok(token));
        }
    }

    #[test]
    fn a_token_from_elsewhere_is_refused() {
        for text in [
            "",
            "v1",
            "v1_x_ipaddresses__a",
            "v1_-1_ipaddresses__a",
            "v2_1_ipaddresses__a",
            "v1_1_ipaddressclaims_n_a",
        ] {
            let e = Token::decode(text, Kind::IPAddress).unwrap_err();
            assert!(matches!(e, StoreError::BadRequest { .. }), "{text}: {e}");
        }
    }
}
