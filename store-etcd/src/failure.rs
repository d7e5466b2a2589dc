//! What an error of etcd means for us.

use etcd_client::Error;
use ipledger_core::api::Key;
use ipledger_core::store::StoreError;
use tonic::Code;

/// Why a call has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The revision asked for is older than the history.
    Compacted,
    /// The revision asked for is not reached.
    Future,
    /// The answer is larger than what is taken at once.
    AnswerTooLarge,
    /// etcd refuses the size of the request.
    RequestTooLarge(String),
    /// The quota of etcd is used up.
    NoSpace,
    /// User, password or permission.
    Denied(String),
    /// Nothing was done, another try may succeed.
    NotDone(String),
    /// Whether it was done is not known; for a read, another try may succeed.
    Unknown(String),
}

/// The messages of etcd and kine. Several meanings share one status code, so that only the text
/// tells them apart; it is part of etcd's API and has not changed since 3.0.
const COMPACTED: &str = "required revision has been compacted";
const FUTURE: &str = "required revision is a future revision";
const TOO_LARGE: &str = "request is too large";
const NO_SPACE: &str = "database space exceeded";
/// What to do about that.
const MAKE_SPACE: &str = "the space quota of etcd is used up: compact and defragment it, then clear the alarm \
                          (etcdctl alarm disarm)";
/// Said before a request is proposed to the cluster.
const NOT_PROPOSED: [&str; 4] = [
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "etcdserver: not capable",
    "etcdserver: auth: invalid auth token",
];
const WHO: [&str; 3] = [
    "user name is empty",
    "invalid user ID or password",
    "authentication is not enabled",
];
/// How the client says that there is no connection on which it could have sent anything.
const NOT_CONNECTED: &str = "tcp connect error";

impl Failure {
    pub(crate) fn of(error: &Error) -> Failure {
        let status = match error {
            Error::GRpcStatus(status) => status,
            Error::InvalidArgs(_) | Error::InvalidUri(_) => {
                return Failure::NotDone(error.to_string());
            }
            _ => return Failure::Unknown(error.to_string()),
        };
        let text = status.message();
        let reason = || format!("{} ({})", text, status.code());
        match status.code() {
            _ if text.contains(COMPACTED) => Failure::Compacted,
            _ if text.contains(FUTURE) => Failure::Future,
            _ if text.contains(NO_SPACE) => Failure::NoSpace,
            _ if text.contains(TOO_LARGE) => Failure::RequestTooLarge(text.to_owned()),
            _ if WHO.iter().any(|w| text.contains(w)) => Failure::Denied(text.to_owned()),
            _ if NOT_PROPOSED.iter().any(|n| text.contains(n)) => Failure::NotDone(reason()),
            Code::Unavailable if text.contains(NOT_CONNECTED) => Failure::NotDone(text.to_owned()),
            Code::PermissionDenied | Code::Unauthenticated => Failure::Denied(text.to_owned()),
            Code::ResourceExhausted if text.contains("message larger") => {
                Failure::RequestTooLarge(text.to_owned())
            }
            Code::OutOfRange => Failure::AnswerTooLarge,
            _ => Failure::Unknown(reason()),
        }
    }

    /// What it is about, for people.
    pub(crate) fn said(self) -> String {
        match self {
            Failure::Denied(reason)
            | Failure::NotDone(reason)
            | Failure::Unknown(reason)
            | Failure::RequestTooLarge(reason) => reason,
            Failure::NoSpace => MAKE_SPACE.to_owned(),
            other => format!("{other:?}"),
        }
    }

    /// For a write of this object.
    pub(crate) fn of_write(self, key: &Key) -> StoreError {
        let key = key.clone();
        match self {
            Failure::Unknown(reason) => StoreError::OutcomeUnknown { key, reason },
            // The write that uses up the quota is applied, and then answered like those that are not.
            Failure::NoSpace => StoreError::OutcomeUnknown {
                key,
                reason: MAKE_SPACE.to_owned(),
            },
            // The answer to a write is small: it tells what stands there instead.
            Failure::AnswerTooLarge => StoreError::Internal {
                reason: format!("etcd answered the write of {key} with too much"),
            },
            other => other.of_read(&key),
        }
    }

    /// For a read of this object, or of its kind if it has no name.
    pub(crate) fn of_read(self, key: &Key) -> StoreError {
        match self {
            Failure::Compacted => StoreError::Expired {
                reason: "etcd has compacted it".to_owned(),
            },
            Failure::Future => unavailable("the revision asked for is not reached yet".to_owned()),
            Failure::NoSpace => unavailable(MAKE_SPACE.to_owned()),
            Failure::RequestTooLarge(reason) => StoreError::Forbidden {
                key: key.clone(),
                reason: format!(
                    "{reason}; this etcd takes smaller requests than the usual 1.5 MiB: raise its \
                     --max-request-bytes, or lower the largest object size of ipledger"
                ),
            },
            Failure::Denied(reason) => StoreError::Forbidden {
                key: key.clone(),
                reason: format!("etcd refuses it: {reason}"),
            },
            Failure::AnswerTooLarge => StoreError::Internal {
                reason: format!("one value of {key} is larger than etcd can hold"),
            },
            Failure::NotDone(reason) | Failure::Unknown(reason) => {
                unavailable(format!("etcd: {reason}"))
            }
        }
    }
}

pub(crate) fn unavailable(reason: String) -> StoreError {
    StoreError::Unavailable { reason }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    fn failure(code: Code, text: &str) -> Failure {
        Failure::of(&Error::GRpcStatus(Status::new(code, text)))
    }

    #[test]
    fn only_what_was_surely_not_done_is_said_to_be_not_done() {
        for (code, text) in [
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
            (Code::Unavailable, "tcp connect error"),
        ] {
            assert!(matches!(failure(code, text), Failure::NotDone(_)), "{text}");
        }
        for (code, text) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
            ),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "etcdserver: server stopped"),
            (Code::Unavailable, "error reading a body from connection"),
            (Code::Unknown, "transport error"),
            (Code::Internal, "h2 protocol error"),
            (Code::Cancelled, "operation was canceled"),
            (Code::DeadlineExceeded, "context deadline exceeded"),
        ] {
            assert!(matches!(failure(code, text), Failure::Unknown(_)), "{text}");
        }
    }

    #[test]
    fn each_failure_has_the_error_that_tells_what_to_do() {
        let key = Key::class("public");
        let write = |code, text| failure(code, text).of_write(&key);
        assert!(matches!(
            write(Code::Unknown, "x"),
            StoreError::OutcomeUnknown { .. }
        ));
        let full = write(
            Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded",
        );
        assert!(
            matches!(&full, StoreError::OutcomeUnknown { reason, .. } if reason.contains("alarm disarm")),
            "{full}"
        );
        let said = Failure::NoSpace.said();
        assert!(said.contains("alarm disarm"), "{said}");
        let large = write(Code::InvalidArgument, "etcdserver: request is too large");
        assert!(
            matches!(&large, StoreError::Forbidden { reason, .. } if reason.contains("max-request-bytes")),
            "{large}"
        );
        let denied = write(Code::PermissionDenied, "etcdserver: permission denied");
        assert!(matches!(denied, StoreError::Forbidden { .. }), "{denied}");
        let old = failure(
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
        );
        assert!(matches!(old.of_read(&key), StoreError::Expired { .. }));
    }
}
