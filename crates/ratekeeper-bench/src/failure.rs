//! What can go wrong: with a run, and with one request of it.

use std::fmt;
use std::io;

use crate::service::BATCH_MAX;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The load makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The target is no address.
    #[error("`{target}` is no address; write HOST:PORT, such as 127.0.0.1:8081")]
    Target {
        /// What was asked for.
        target: String,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody answers there.
    #[error("cannot connect to {target} for {service}: {reason}")]
    Connect {
        /// What was asked for.
        target: String,
        /// What is spoken there.
        service: &'static str,
        /// What the system said.
        reason: String,
    },
    /// The first request got no decision.
    #[error("{target} answers `{answer}` instead of a decision")]
    Answer {
        /// What was asked for.
        target: String,
        /// The kind of error, as in reports.
        answer: String,
    },
    /// The process to watch is not there, or not ours to look at.
    #[error(
        "the process {pid} cannot be watched; --pid takes the id of a running process, on Linux"
    )]
    Process {
        /// Its id.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// The system gave no thread or no runtime.
    #[error("the load cannot be started")]
    System(#[from] io::Error),
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

/// Why a request got no decision. There are some dozens at the most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Failure {
    /// The connection was lost and not had again.
    Connect,
    /// The connection was lost while a request was under way.
    Lost,
    /// An HTTP status that is no decision.
    Status(u16),
    /// A gRPC code other than OK.
    Grpc(u8),
    /// An answer that is none.
    Malformed,
    /// No answer until long after the end.
    Unanswered,
    /// Due in an open loop, and never sent: all streams waited for answers.
    Unsent,
}

impl Failure {
    /// Whether the connection is of no use any more.
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
