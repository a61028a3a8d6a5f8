//! Questions about the keys of one hash tag, over a side connection: what nodes tell each other, and streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{FromRedisValue, Pipeline};
use tokio::sync::Mutex;

use crate::script::slot_of_key;
use crate::side_connection::{BoardError, PATIENCE, SideConnection};
use crate::topology::Topology;

/// Asks the server with the keys of one hash tag. Each question connects if need be, and its failure is the caller's.
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
#[derive(Debug)]
struct Open {
    /// The number of the connections before it.
    number: u64,
    connection: SideConnection,
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
        let is_there = |open: &Open| Arc::ptr_eq(&open.connection.shard, &shard);
        let kept = open.take().filter(is_there);
        if let Some(kept) = kept {
            let answer = self.ask_and_keep(&mut open, kept, calls).await;
            // It may have been closed long ago, or lead to a server that serves no more.
            let is_to_be_made_anew = |error: &BoardError| error.is_of_the_connection();
            if !answer.as_ref().is_err_and(is_to_be_made_anew) {
                return answer;
            }
        }
        let connection = SideConnection::open(shard, self.connect_timeout).await?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        self.ask_and_keep(&mut open, Open { number, connection }, calls)
            .await
    }

    /// The number of the connection, unless the server has closed it.
    pub(crate) async fn connection(&self) -> Option<u64> {
        let mut open = self.open.lock().await;
        let kept = open.as_mut()?;
        let is_closed = tokio::select! {
            biased;
            () = kept.connection.closed() => true,
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
        let kept = kept.ok_or_else(|| BoardError::Closed(format!("{{{}}}", self.tag)))?;
        self.ask_and_keep(&mut open, kept, calls).await
    }

    /// Asks over `connection`, and keeps it in its `place` if it answers, if only to refuse.
    async fn ask_and_keep<T: FromRedisValue>(
        &self,
        place: &mut Option<Open>,
        mut connection: Open,
        calls: &Pipeline,
    ) -> Result<T, BoardError> {
        let answer = connection.ask(calls, self.patience).await;
        if let Err(BoardError::Refused(..)) = answer {
            // A cluster may have moved the keys.
            self.topology.doubt();
        }
        match &answer {
            Err(error) if error.is_of_the_connection() || !error.is_answer() => {}
            Ok(_) | Err(_) => *place = Some(connection),
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
        let mut asker = self.connection.asker();
        let asked = calls.query_async::<T>(&mut asker);
        let answer = self.connection.answer(patience, asked).await?;
        answer.map_err(|error| BoardError::Refused(self.connection.shard.name.to_string(), error))
    }
}

/// A random name for this process among the nodes.
pub(crate) fn random_name() -> String {
    let mut id = [0; 16];
    // Without random numbers all nodes would have one name, and each would take the last one's entry for its own.
    let _ = getrandom::fill(&mut id);
    format!("{:032x}", u128::from_be_bytes(id))
}
