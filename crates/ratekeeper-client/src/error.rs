//! Why a call has no answer.

use std::error::Error as _;
use std::io;

use tonic::{Code, Status};

/// Why a call has no answer. Checks have one even while the service is away.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request makes no sense or is more than 64 KiB, or a permit or reservation is none of the service's.
    #[error("{0}")]
    Invalid(String),
    /// Whoever answers knows no such call: an older service, or none of Ratekeeper's.
    #[error("{0}")]
    Unknown(String),
    /// The service does not know this caller, or does not let it.
    #[error("{0}")]
    NotAllowed(String),
    /// A permit is not held any more, a reservation is over or was settled otherwise, a key
    /// stands for another request.
    #[error("{0}")]
    State(String),
    /// The service is away, or did not answer in time: whatever was asked may have been done.
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

/// What is behind a call that failed on its way: the transport says why at the end of the chain.
fn with_causes(mut message: String, status: &Status) -> String {
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Of itself the transport says nothing but that it is one.
        if !error.is::<tonic::transport::Error>() && !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = error.source();
    }
    message
}

/// Whether a call that failed so was not carried out, for certain: the service said so, or was
/// not reached.
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

/// Whether the same call may succeed if it is made again.
pub(crate) fn may_pass_later(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal
    )
}
