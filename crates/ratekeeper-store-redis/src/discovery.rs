//! Questions to cluster nodes and sentinels, and the reasons that they go unanswered.

use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use tokio::time::timeout;

use crate::link::{Link, LinkError, said};
use crate::server_address::ServerAddress;

/// The time limit for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// The reason that a node of a cluster tells no slot map, or a sentinel no primary.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiscoveryError {
    /// There is no connection to the server.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The connection ended before the answer.
    #[error("{0} closed the connection")]
    Closed(String),
    /// The answer took too long.
    #[error("{0} did not answer within {PATIENCE:?}")]
    Timeout(String),
    /// The server refused the command.
    #[error("{server}: {}", said(.error))]
    Refused {
        /// The server.
        server: String,
        /// Its answer.
        error: RedisError,
    },
    /// No node of the cluster is known.
    #[error("no node of it is known")]
    NoNodes,
    /// The cluster has no slots, as far as a node knows.
    #[error("{0} lists no owner of a slot")]
    NoSlots(String),
    /// A node's slot map is not of the documented form.
    #[error("the cluster reply of {0} cannot be parsed")]
    Garbled(String),
    /// No sentinel is known.
    #[error("there are none")]
    NoSentinels,
    /// A sentinel watches over no primary of this name.
    #[error("the sentinel {sentinel} knows no primary by the name `{name}`")]
    UnknownName {
        /// The sentinel.
        sentinel: String,
        /// The name.
        name: String,
    },
    /// A server that a sentinel names as the primary denies being one.
    #[error("{0}, which a sentinel names, is no primary any more, or not yet")]
    NotPrimary(String),
}

impl DiscoveryError {
    /// Returns true if our user may not run the command.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { error, .. } if error.code() == Some("NOPERM"))
    }
}

/// Asks `server` over `link`, and polls the link meanwhile.
pub(crate) async fn ask(
    server: &ServerAddress,
    link: &mut Link,
    question: &Cmd,
) -> Result<Value, DiscoveryError> {
    let mut connection = link.connection.clone();
    let answered = question.query_async::<Value>(&mut connection);
    let answered = tokio::select! {
        answered = timeout(PATIENCE, answered) => answered,
        () = &mut link.driver => return Err(DiscoveryError::Closed(server.name())),
    };
    match answered {
        Ok(answer) => answer.map_err(|error| DiscoveryError::Refused {
            server: server.name(),
            error,
        }),
        Err(_) => Err(DiscoveryError::Timeout(server.name())),
    }
}
