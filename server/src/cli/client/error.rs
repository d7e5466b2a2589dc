//! Why a request failed.

use ipledger_core::store::FieldError;
use serde::Deserialize;

/// A refusal in the words of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// The HTTP status.
    pub(crate) code: u16,
    /// One word for machines, for example `NotFound`.
    pub(crate) reason: String,
    /// A sentence for people.
    pub(crate) message: String,
    /// The fields that are to blame.
    pub(crate) causes: Vec<FieldError>,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientError {
    /// The server refused.
    #[error("{}", text_of(.0))]
    Status(Status),
    /// The server cannot be reached.
    #[error("{server} cannot be reached ({reason}); is `ipledger serve` running?")]
    Unreachable {
        /// The server asked.
        server: String,
        /// What the system says.
        reason: String,
    },
    /// The connection broke or the answer took too long.
    #[error("{server} did not finish its answer ({reason}); {}", advice(*write))]
    Broken {
        /// The server asked.
        server: String,
        /// What happened.
        reason: String,
        /// Whether something may have been changed.
        write: bool,
    },
    /// The server's name is not a URL.
    #[error("`{server}` is not a server: {reason}; write for example http://127.0.0.1:7440")]
    BadServer {
        /// The text given.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server answered something that is not this API.
    #[error("{server} did not answer as an ipledger server does: {reason}")]
    Protocol {
        /// The server asked.
        server: String,
        /// What is wrong with the answer.
        reason: String,
    },
}

fn advice(write: bool) -> &'static str {
    if write {
        "look whether the change was made before you repeat it"
    } else {
        "try again"
    }
}

/// The message, with the causes unless the message names them already.
fn text_of(status: &Status) -> String {
    let mut text = status.message.clone();
    for cause in &status.causes {
        if !text.contains(&cause.message) {
            text.push_str(&format!("; {cause}"));
        }
    }
    text
}

impl ClientError {
    /// The HTTP status, or the nearest one if there was no answer.
    pub(crate) fn code(&self) -> u16 {
        match self {
            ClientError::Status(status) => status.code,
            ClientError::Unreachable { .. } => 503,
            ClientError::Broken { .. } => 504,
            ClientError::BadServer { .. } => 400,
            ClientError::Protocol { .. } => 500,
        }
    }

    /// One word for machines.
    pub(crate) fn reason(&self) -> &str {
        match self {
            ClientError::Status(status) => &status.reason,
            ClientError::Unreachable { .. } => "ServiceUnavailable",
            ClientError::Broken { .. } => "Timeout",
            ClientError::BadServer { .. } => "BadRequest",
            ClientError::Protocol { .. } => "InternalError",
        }
    }

    /// Whether the same command may succeed later.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            ClientError::Status(s) => {
                s.reason == "Conflict" || matches!(s.code, 410 | 429 | 502..=504)
            }
            ClientError::Unreachable { .. } | ClientError::Broken { .. } => true,
            ClientError::BadServer { .. } | ClientError::Protocol { .. } => false,
        }
    }
}

/// What the API calls `Status`.
#[derive(Deserialize)]
pub(super) struct WireStatus {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: WireDetails,
}

#[derive(Default, Deserialize)]
struct WireDetails {
    #[serde(default)]
    causes: Vec<WireCause>,
}

#[derive(Deserialize)]
struct WireCause {
    #[serde(default)]
    field: String,
    #[serde(default)]
    message: String,
}

impl From<WireStatus> for Status {
    fn from(wire: WireStatus) -> Status {
        let cause = |c: WireCause| FieldError::new(c.field, c.message);
        Status {
            code: wire.code,
            reason: wire.reason,
            message: wire.message,
            causes: wire.details.causes.into_iter().map(cause).collect(),
        }
    }
}

/// What the system said, without the layers of libraries around it.
pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
