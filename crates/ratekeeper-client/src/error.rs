//! Errors of calls.

use std::error::Error as _;
use std::io;

use tonic::{Code, Status};

/// The reason why a call failed. Checks have an answer even while the service is away.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is malformed or larger than 4 MiB, or the permit or reservation is not the
    /// service's.
    #[error("{0}")]
    Invalid(String),
    /// The endpoint does not know the method: an older version, or a different service.
    #[error("{0}")]
    Unknown(String),
    /// The service does not know this caller, or does not permit it the call.
    #[error("{0}")]
    NotAllowed(String),
    /// A permit is not held any more, a reservation has expired or was settled differently, or an
    /// idempotency key belongs to another request.
    #[error("{0}")]
    State(String),
    /// The service is away, or did not answer in time: the call may have been executed. Or the rules of its domain were
    /// refused, and it was not.
    #[error("the rate limit service gave no answer: {0}")]
    Away(String),
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let message = status.message().to_owned();
        match status.code() {
            Code::InvalidArgument | Code::OutOfRange => Self::Invalid(message),
            Code::Unimplemented => Self::Unknown(message),
            Code::Unauthenticated | Code::PermissionDenied => Self::NotAllowed(message),
            Code::FailedPrecondition => Self::State(message),
            _ => Self::Away(with_causes(message, &status)),
        }
    }
}

/// The status message with its causes: for a transport failure the end of the chain has the reason.
fn with_causes(mut message: String, status: &Status) -> String {
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // The transport's own error adds nothing but its name.
        if !error.is::<tonic::transport::Error>() && !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = error.source();
    }
    message
}

/// Returns true if the failed call was certainly not executed: the service said so, or was not
/// reached.
pub(crate) fn was_not_carried_out(status: &Status) -> bool {
    if status.code() != Code::Unavailable {
        return false;
    }
    let mut cause = status.source();
    if cause.is_none() {
        return true;
    }
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            );
        }
        cause = error.source();
    }
    false
}

/// Returns true if the service decided nothing because the rules of the call's domain were refused. It is well, and decides
/// other domains.
pub(crate) fn has_no_rules(status: &Status) -> bool {
    status.code() == Code::NotFound
}

/// Returns true if the same call may succeed when retried.
pub(crate) fn may_pass_later(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal
    )
}
