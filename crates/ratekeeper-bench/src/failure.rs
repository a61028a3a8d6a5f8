//! Errors of a run, and of a single request.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::service::BATCH_MAX;

/// The reason why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The load is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The target is not an address.
    #[error("`{target}` is not an address; write HOST:PORT, such as 127.0.0.1:8081")]
    Target {
        /// The target as given.
        target: String,
        /// The system's error.
        source: io::Error,
    },
    /// The connection failed.
    #[error("cannot connect to {target} for {service}: {reason}")]
    Connect {
        /// The target as given.
        target: String,
        /// The name of the service.
        service: &'static str,
        /// The reason.
        reason: NoConnection,
    },
    /// The answer to the first request was not a decision.
    #[error("{target} answers `{answer}` instead of a decision")]
    Answer {
        /// The target as given.
        target: String,
        /// The kind of answer, as in reports.
        answer: String,
    },
    /// The process to measure does not exist, or is not accessible.
    #[error(
        "the process {pid} cannot be watched; --pid takes the id of a running process, on Linux"
    )]
    Process {
        /// The process id.
        pid: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The system could not create a thread or a runtime.
    #[error("the load cannot be started")]
    System(#[from] io::Error),
}

/// The reason there is no connection to a target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoConnection {
    /// It took too long.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// The system or the peer refused it.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// The HTTP/1.1 handshake failed.
    #[error(transparent)]
    Http1(#[from] hyper::Error),
    /// The HTTP/2 handshake failed.
    #[error(transparent)]
    Http2(#[from] h2::Error),
    /// There is no target.
    #[error("there is no target")]
    NoTarget,
}

impl LoadError {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    pub(crate) fn batch(size: u32) -> Self {
        Self::Invalid(format!(
            "a batch of {size} checks: a request takes 1 to {BATCH_MAX}"
        ))
    }
}

/// The reason why a request got no decision. There are some dozens of values at most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Failure {
    /// The connection was lost and could not be re-established.
    Connect,
    /// The connection was lost with the request in flight.
    Lost,
    /// An HTTP status that is not a decision.
    Status(u16),
    /// A gRPC code other than OK.
    Grpc(u8),
    /// An answer that cannot be parsed.
    Malformed,
    /// No answer within the grace period after the end.
    Unanswered,
    /// Due in an open loop but never sent, because all streams were waiting for answers.
    Unsent,
}

impl Failure {
    /// Returns true if the connection is unusable.
    pub(crate) const fn is_of_connection(self) -> bool {
        matches!(self, Self::Connect | Self::Lost)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect => f.write_str("cannot connect"),
            Self::Lost => f.write_str("connection lost"),
            Self::Status(status) => write!(f, "http {status}"),
            Self::Grpc(code) => write!(f, "grpc {code}"),
            Self::Malformed => f.write_str("malformed answer"),
            Self::Unanswered => f.write_str("unanswered"),
            Self::Unsent => f.write_str("unsent"),
        }
    }
}
