//! How a command ends: exit codes and errors.

use std::fmt;

use ipledger_core::store::StoreError;
use ipledger_store_sqlite::{CopyError, OpenError};
use serde_json::json;

use super::client::ClientError;
use crate::ledger::LedgerError;
use crate::serve::ServeError;

/// The exit code of a command (design page 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything asked for is done.
    Ok = 0,
    /// None of the following.
    Other = 1,
    /// The command line or an object is refused for what it says.
    Usage = 2,
    /// There is no such object.
    NotFound = 3,
    /// The object exists already, is held, or has changed meanwhile.
    Conflict = 4,
    /// No address is left.
    Exhausted = 5,
    /// What was waited for has not come.
    TimeOut = 6,
    /// The server refuses the caller.
    Unauthorised = 7,
    /// The server or its store cannot be reached or cannot work now.
    Unavailable = 8,
    /// Objects hold finalizers that only running controllers remove.
    #[cfg(feature = "kube")]
    Held = 10,
    /// A second signal ended the process at once.
    Interrupted = 130,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// A manifest is wrong in at least one place.
    #[error("{0}")]
    Manifest(super::manifest::ManifestError),
    /// A server did not do what it was asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A request about one object failed.
    #[error("{object}: {error}")]
    Object {
        /// `ipaddressclaim/default/web`.
        object: String,
        /// Why.
        error: ClientError,
    },
    /// What was waited for has not come.
    #[error("{0}")]
    TimeOut(String),
    /// The server cannot start or go on.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A ledger file cannot be read, copied or written.
    #[error("{message}")]
    Ledger {
        /// The code.
        exit: Exit,
        /// What happened, where, and what to do.
        message: String,
    },
    /// Output cannot be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] std::io::Error),
    /// Everything was reported already.
    #[error("failed")]
    Reported(Exit),
}

impl CliError {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            CliError::Usage(_) | CliError::Manifest(_) => Exit::Usage,
            CliError::Client(e) | CliError::Object { error: e, .. } => client_exit(e),
            CliError::TimeOut(_) => Exit::TimeOut,
            CliError::Serve(e) => e.exit(),
            CliError::Ledger { exit, .. } => *exit,
            CliError::Output(_) => Exit::Other,
            CliError::Reported(exit) => *exit,
        }
    }

    /// The error as one line of JSON: `{code, reason, message, retryable}`, with the codes and
    /// reasons of the API where it has one.
    pub(crate) fn to_json(&self) -> String {
        let (code, reason) = match self {
            CliError::Client(e) | CliError::Object { error: e, .. } => (e.code(), e.reason()),
            CliError::Usage(_) => (400, "BadRequest"),
            CliError::Manifest(_) => (422, "Invalid"),
            CliError::TimeOut(_) => (504, "Timeout"),
            CliError::Ledger { exit, .. } if *exit == Exit::Conflict => (409, "Conflict"),
            CliError::Ledger { .. } => (503, "ServiceUnavailable"),
            CliError::Serve(_) | CliError::Output(_) | CliError::Reported(_) => {
                (500, "InternalError")
            }
        };
        let retryable = match self {
            CliError::Client(e) | CliError::Object { error: e, .. } => e.is_retryable(),
            CliError::TimeOut(_) => true,
            _ => false,
        };
        json!({"code": code, "reason": reason, "message": self.to_string(), "retryable": retryable})
            .to_string()
    }
}

impl From<CopyError> for CliError {
    fn from(error: CopyError) -> CliError {
        CliError::Ledger {
            exit: match error {
                CopyError::Exists { .. } => Exit::Conflict,
                _ => Exit::Unavailable,
            },
            message: error.to_string(),
        }
    }
}

impl From<LedgerError> for CliError {
    fn from(error: LedgerError) -> CliError {
        ServeError::Open(error).into()
    }
}

impl From<OpenError> for CliError {
    fn from(error: OpenError) -> CliError {
        LedgerError::from(error).into()
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> CliError {
        CliError::Ledger {
            exit: Exit::Unavailable,
            message: error.to_string(),
        }
    }
}

/// The exit code for an error of a request.
pub(crate) fn client_exit(error: &ClientError) -> Exit {
    match error.code() {
        400 | 405 | 406 | 413 | 415 | 422 => Exit::Usage,
        401 | 403 => Exit::Unauthorised,
        404 => Exit::NotFound,
        409 | 412 => Exit::Conflict,
        429 | 502..=504 => Exit::Unavailable,
        507 => Exit::Exhausted,
        _ => Exit::Other,
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", *self as u8)
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::client::Status;

    fn answered(code: u16, reason: &str) -> CliError {
        CliError::Client(ClientError::Status(Status {
            code,
            reason: reason.to_owned(),
            message: "m".to_owned(),
            causes: Vec::new(),
        }))
    }

    #[test]
    fn each_answer_of_the_api_has_its_exit_code() {
        for (code, exit) in [
            (400, 2),
            (401, 7),
            (403, 7),
            (404, 3),
            (409, 4),
            (410, 1),
            (412, 4),
            (422, 2),
            (429, 8),
            (500, 1),
            (503, 8),
            (504, 8),
            (507, 5),
        ] {
            assert_eq!(answered(code, "R").exit() as u8, exit, "{code}");
        }
    }

    #[test]
    fn errors_that_come_from_no_answer_have_exit_codes_too() {
        let refused = ClientError::Unreachable {
            server: "http://127.0.0.1:1".to_owned(),
            reason: "refused".to_owned(),
        };
        assert_eq!(CliError::Client(refused).exit(), Exit::Unavailable);
        assert_eq!(CliError::Usage("u".to_owned()).exit(), Exit::Usage);
        assert_eq!(CliError::TimeOut("t".to_owned()).exit(), Exit::TimeOut);
        assert_eq!(CliError::Reported(Exit::Conflict).exit(), Exit::Conflict);
    }

    #[test]
    fn an_error_in_json_has_four_fields() {
        let error = answered(409, "Conflict").to_json();
        assert_eq!(
            error,
            r#"{"code":409,"message":"m","reason":"Conflict","retryable":true}"#
        );
    }
}
