use crate::api::{DecodeError, Key};

/// What a caller may do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The same call will fail again.
    Permanent,
    /// The same call may succeed later.
    Retry,
    /// The caller's view is old: read again, then decide again.
    Refresh,
    /// Whether the write happened is not known: read again and decide by uid.
    Unknown,
}

/// One field that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field, for example `spec.address`.
    pub field: String,
    /// What is wrong with it and what to write instead.
    pub message: String,
}

impl FieldError {
    /// An error about one field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> FieldError {
        FieldError {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

fn joined(errors: &[FieldError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Why an operation of a store failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such object.
    #[error("{key} does not exist")]
    NotFound {
        /// The object.
        key: Key,
    },
    /// A create met an object of that name.
    #[error("{key} already exists")]
    AlreadyExists {
        /// The object.
        key: Key,
        /// The uid of the one that exists.
        uid: String,
        /// Its operation id (see [`rules::OPERATION`](super::rules::OPERATION)), if it has one.
        operation: Option<String>,
    },
    /// A compare-and-swap lost: the object has moved to another revision.
    #[error("{key} has changed meanwhile; read it again and repeat the change")]
    Conflict {
        /// The object.
        key: Key,
    },
    /// The object is another one than the caller means (uid), or not as asked.
    #[error("{key} is not the object that is meant: {reason}")]
    PreconditionFailed {
        /// The object.
        key: Key,
        /// What does not hold.
        reason: String,
    },
    /// A token or revision is older than the history.
    #[error("the history no longer reaches back to the revision asked for ({reason}); list again")]
    Expired {
        /// Which revision, and where the history starts.
        reason: String,
    },
    /// The object is refused for what it says.
    #[error("{key} is invalid: {}", joined(errors))]
    Invalid {
        /// The object.
        key: Key,
        /// Each refused field.
        errors: Vec<FieldError>,
    },
    /// A request is refused for what it asks (not about one object).
    #[error("the request is invalid: {reason}")]
    BadRequest {
        /// What is wrong and what to write instead.
        reason: String,
    },
    /// The object is larger than the backend takes.
    #[error("{key} has {size} bytes; at most {limit} are possible")]
    TooLarge {
        /// The object.
        key: Key,
        /// Its size in bytes of JSON.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The backend refuses the caller.
    #[error("{key}: forbidden: {reason}")]
    Forbidden {
        /// The object.
        key: Key,
        /// Why, as far as it may be said.
        reason: String,
    },
    /// The backend cannot be reached or cannot work; nothing was written.
    #[error("the store is not available: {reason}")]
    Unavailable {
        /// Why, and what to do.
        reason: String,
    },
    /// A write was sent and its outcome is not known.
    #[error("{key}: it is not known whether the write happened ({reason}); read the object again")]
    OutcomeUnknown {
        /// The object.
        key: Key,
        /// What went wrong.
        reason: String,
    },
    /// A stored object cannot be read.
    #[error("{key} is stored in a form that cannot be read: {reason}")]
    Corrupt {
        /// The object.
        key: Key,
        /// What is wrong with it.
        reason: String,
    },
    /// A watch that reads too slowly was cut off; watch again from the last revision seen.
    #[error("the watch was cut off because it read too slowly; watch again from revision {resume}")]
    TooSlow {
        /// The last revision that the stream delivered.
        resume: super::Revision,
    },
    /// A fault of ipledger or of the backend.
    #[error("internal error: {reason}")]
    Internal {
        /// What happened.
        reason: String,
    },
}

impl StoreError {
    /// The error's name in metrics, for example `outcome_unknown`.
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::NotFound { .. } => "not_found",
            StoreError::AlreadyExists { .. } => "already_exists",
            StoreError::Conflict { .. } => "conflict",
            StoreError::PreconditionFailed { .. } => "precondition_failed",
            StoreError::Expired { .. } => "expired",
            StoreError::Invalid { .. } => "invalid",
            StoreError::BadRequest { .. } => "bad_request",
            StoreError::TooLarge { .. } => "too_large",
            StoreError::Forbidden { .. } => "forbidden",
            StoreError::Unavailable { .. } => "unavailable",
            StoreError::OutcomeUnknown { .. } => "outcome_unknown",
            StoreError::Corrupt { .. } => "corrupt",
            StoreError::TooSlow { .. } => "too_slow",
            StoreError::Internal { .. } => "internal",
        }
    }

    /// What a caller may do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            StoreError::NotFound { .. }
            | StoreError::Conflict { .. }
            | StoreError::AlreadyExists { .. }
            | StoreError::PreconditionFailed { .. }
            | StoreError::Expired { .. } => ErrorClass::Refresh,
            StoreError::Invalid { .. }
            | StoreError::BadRequest { .. }
            | StoreError::TooLarge { .. }
            | StoreError::Forbidden { .. }
            | StoreError::Corrupt { .. } => ErrorClass::Permanent,
            StoreError::Unavailable { .. } | StoreError::TooSlow { .. } => ErrorClass::Retry,
            StoreError::OutcomeUnknown { .. } | StoreError::Internal { .. } => ErrorClass::Unknown,
        }
    }
}

/// Our own types failed to read what a store delivered.
impl From<DecodeError> for StoreError {
    fn from(e: DecodeError) -> StoreError {
        StoreError::Internal {
            reason: e.to_string(),
        }
    }
}
