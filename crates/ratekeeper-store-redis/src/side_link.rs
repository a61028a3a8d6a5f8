//! A connection beside those of decisions, for what nodes tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{FromRedisValue, Pipeline, RedisError};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::link::{Link, LinkError};
use crate::script::slot_of_key;
use crate::shard::Shard;
use crate::topology::Topology;

/// The time within which Redis has to answer, unless the connection is told to wait longer.
const PATIENCE: Duration = Duration::from_millis(500);

/// The reason why nothing is known of the other nodes.
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

/// A connection to the server with the keys of one hash tag. It neither waits for decisions nor holds them up.
#[derive(Debug)]
pub(crate) struct SideLink {
    topology: Arc<Topology>,
    connect_timeout: Duration,
    /// The longest time for an answer.
    patience: Duration,
    /// The part of the keys that decides their slot.
    tag: Box<str>,
    open: Mutex<Option<Open>>,
    /// The connections that were opened.
    opened: AtomicU64,
}

/// An open connection to the server that serves the keys.
struct Open {
    /// The number of the connections before it.
    number: u64,
    shard: Arc<Shard>,
    link: Link,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open")
            .field("shard", &self.shard.name)
            .finish_non_exhaustive()
    }
}

impl SideLink {
    pub(crate) fn new(topology: Arc<Topology>, connect_timeout: Duration, tag: &str) -> Self {
        Self {
            topology,
            connect_timeout,
            patience: PATIENCE,
            tag: tag.into(),
            open: Mutex::new(None),
            opened: AtomicU64::new(0),
        }
    }

    /// The same connection, which waits for each answer for up to `patience`.
    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sends `calls` and returns their answers. Unless it is told to wait longer, it takes at most about a second.
    ///
    /// # Errors
    /// There is no answer. The next call reconnects.
    pub(crate) async fn ask<T: FromRedisValue>(&self, calls: &Pipeline) -> Result<T, BoardError> {
        let mut open = self.open.lock().await;
        let shard = self.topology.map().shard(slot_of_key(&self.tag)).cloned();
        let shard = shard.ok_or_else(|| BoardError::Nowhere(format!("{{{}}}", self.tag)))?;
        // Left out of the lock's place, so that one that fails, or is given up halfway, is not used again.
        let kept = open.take().filter(|open| Arc::ptr_eq(&open.shard, &shard));
        if let Some(mut kept) = kept
            && let Ok(answer) = kept.ask(calls, self.patience).await
        {
            *open = Some(kept);
            return Ok(answer);
        }
        // A kept connection may have been closed long ago.
        let link = Link::open(&shard.node, self.connect_timeout).await?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let mut fresh = Open {
            number,
            shard,
            link,
        };
        let answer = fresh.ask(calls, self.patience).await;
        match answer {
            Ok(_) => *open = Some(fresh),
            // A cluster may have moved the keys.
            Err(BoardError::Refused(..)) => self.topology.doubt(),
            Err(_) => {}
        }
        answer
    }

    /// The number of the connection, unless the server has closed it.
    pub(crate) async fn connection(&self) -> Option<u64> {
        let mut open = self.open.lock().await;
        let kept = open.as_mut()?;
        let is_closed = tokio::select! {
            biased;
            () = &mut kept.link.driver => true,
            () = std::future::ready(()) => false,
        };
        if is_closed {
            *open = None;
        }
        open.as_ref().map(|open| open.number)
    }

    /// Sends `calls` over the connection of this number, and over no other.
    ///
    /// # Errors
    /// There is no answer, or it is another connection by now.
    pub(crate) async fn ask_over<T: FromRedisValue>(
        &self,
        connection: u64,
        calls: &Pipeline,
    ) -> Result<T, BoardError> {
        let mut open = self.open.lock().await;
        // As in `ask`, out of its place until there is an answer.
        let kept = open.take().filter(|open| open.number == connection);
        let mut kept = kept.ok_or_else(|| BoardError::Closed(format!("{{{}}}", self.tag)))?;
        let answer = kept.ask(calls, self.patience).await;
        match answer {
            Ok(_) => *open = Some(kept),
            Err(BoardError::Refused(..)) => self.topology.doubt(),
            Err(_) => {}
        }
        answer
    }
}

impl Open {
    async fn ask<T: FromRedisValue>(
        &mut self,
        calls: &Pipeline,
        patience: Duration,
    ) -> Result<T, BoardError> {
        let Self { shard, link, .. } = self;
        let name = || shard.name.to_string();
        let mut connection = link.connection.clone();
        let asked = calls.query_async::<T>(&mut connection);
        let answered = tokio::select! {
            answered = timeout(patience, asked) => answered,
            () = &mut link.driver => return Err(BoardError::Closed(name())),
        };
        match answered {
            Ok(answer) => answer.map_err(|error| BoardError::Refused(name(), error)),
            Err(_) => Err(BoardError::Timeout(name(), patience)),
        }
    }
}

/// A random name for this process among the nodes.
pub(crate) fn random_name() -> String {
    let mut id = [0; 16];
    // Without random numbers all nodes would have one name, and each would take the last one's entry for its own.
    let _ = getrandom::fill(&mut id);
    format!("{:032x}", u128::from_be_bytes(id))
}
