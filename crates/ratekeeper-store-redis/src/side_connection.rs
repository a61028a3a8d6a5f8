//! A connection beside those of decisions: it neither waits for them nor holds them up.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use crate::link::{Link, LinkError};
use crate::shard::Shard;

/// The time within which Redis has to answer, unless a use has another one.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BoardError {
    /// No server is known that serves the keys.
    #[error("no server is known that serves {0}")]
    Nowhere(String),
    /// There is no connection.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The server refused the call, or the connection broke.
    #[error("{0}: {1}")]
    Refused(String, #[source] RedisError),
    /// The connection was closed.
    #[error("{0} closed the connection")]
    Closed(String),
    /// The server took too long.
    #[error("{0} did not answer within {1:?}")]
    Timeout(String, Duration),
}

/// The refusals of a server that serves the keys no more, or not yet, or not to whoever has logged in as this connection has.
const OF_THE_CONNECTION: [&str; 7] = [
    "ASK",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MOVED",
    "NOAUTH",
    "READONLY",
];

impl BoardError {
    /// True if the server has answered, and the next answer is that to the next call.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Self::Refused(_, error) => error.clone().into_server_errors().is_some(),
            Self::Nowhere(_) | Self::Link(_) | Self::Closed(_) | Self::Timeout(..) => false,
        }
    }

    /// True if another connection may be answered at once. After a time-out it is not: what was sent may be done yet.
    pub(crate) fn is_of_the_connection(&self) -> bool {
        match self {
            Self::Refused(_, error) => {
                let refusals = error.clone().into_server_errors();
                refusals.is_none_or(|all| {
                    let mut codes = all.iter().map(|(_, error)| error.code());
                    codes.any(|code| OF_THE_CONNECTION.contains(&code))
                })
            }
            Self::Link(_) | Self::Closed(_) => true,
            Self::Nowhere(_) | Self::Timeout(..) => false,
        }
    }
}

/// An open connection. After an error that is no answer it is to be dropped: a late one would be taken for that of the next call.
pub(crate) struct SideConnection {
    pub(crate) shard: Arc<Shard>,
    link: Link,
}

impl fmt::Debug for SideConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SideConnection")
            .field("shard", &self.shard.name)
            .finish_non_exhaustive()
    }
}

impl SideConnection {
    /// Connects to `shard` and logs in, all of it `within` that time.
    pub(crate) async fn open(shard: Arc<Shard>, within: Duration) -> Result<Self, LinkError> {
        let link = Link::open(&shard.server, within).await?;
        Ok(Self { shard, link })
    }

    /// A handle that asks over this connection. It is answered within [`Self::answer`] and [`Self::closed`] only.
    pub(crate) fn asker(&self) -> MultiplexedConnection {
        self.link.connection.clone()
    }

    /// Waits for what was `asked`, for up to `patience`.
    pub(crate) async fn answer<T>(
        &mut self,
        patience: Duration,
        asked: impl Future<Output = T>,
    ) -> Result<T, BoardError> {
        let name = || self.shard.name.to_string();
        tokio::select! {
            answered = timeout(patience, asked) => {
                answered.map_err(|_| BoardError::Timeout(name(), patience))
            }
            () = &mut self.link.driver => Err(BoardError::Closed(name())),
        }
    }

    /// Waits until the connection is closed.
    pub(crate) async fn closed(&mut self) {
        (&mut self.link.driver).await;
    }
}
