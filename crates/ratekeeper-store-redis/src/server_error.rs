//! The reasons that looking after a server fails.

use std::time::Duration;

use redis::RedisError;

use crate::link::{LinkError, said};

/// The reason that a server cannot be asked or used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// There is no connection.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The connection ended.
    #[error("the connection was closed")]
    Closed,
    /// The server took too long to answer.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server refused a command.
    #[error("{}", said(.0))]
    Refused(RedisError),
    /// The server lacks commands that the script needs.
    #[error("{server} is too old; Redis 6.2 or newer is needed, or any Valkey")]
    TooOld {
        /// Its name and version.
        server: String,
    },
    /// Our user lacks rights.
    #[error("the user may not use {commands} on keys that begin with {prefix}; grant it: {grant}")]
    LacksRights {
        /// The commands that the user may not run.
        commands: String,
        /// The prefix of all keys.
        prefix: String,
        /// The command by which an operator grants them.
        grant: String,
    },
    /// Our user lacks the right to ask for its rights.
    #[error("{}; grant what is needed: {grant}", said(.error))]
    Forbidden {
        /// The server's answer.
        error: RedisError,
        /// The command by which an operator grants what is needed.
        grant: String,
    },
}

impl ServerError {
    /// The code of the server's error, such as `NOPERM`, if it refused a command.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(error) => error.code(),
            _ => None,
        }
    }

    /// Returns true if the server must be changed before it can be used, or is no Redis.
    pub(crate) const fn is_lasting(&self) -> bool {
        match self {
            Self::Link(error) => match error {
                LinkError::Login(..) | LinkError::Database(..) | LinkError::Closed(..) => true,
                LinkError::Tls(..) | LinkError::TlsFile(..) | LinkError::Name(..) => true,
                LinkError::Connect(..) | LinkError::Timeout(..) => false,
            },
            Self::TooOld { .. } | Self::LacksRights { .. } | Self::Forbidden { .. } => true,
            Self::Closed | Self::Timeout(_) | Self::Refused(_) => false,
        }
    }

    /// Returns true if the server says that a key is, or will soon be, elsewhere.
    pub(crate) fn is_moving(&self) -> bool {
        matches!(self.code(), Some("MOVED" | "ASK" | "TRYAGAIN"))
    }
}
