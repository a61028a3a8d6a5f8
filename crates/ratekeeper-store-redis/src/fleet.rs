//! The requests that the nodes of a fleet have in flight, which each of them reports to all others.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::link::{Link, LinkError};
use crate::script::slot_of_key;
use crate::shard::Shard;
use crate::topology::Topology;

/// The time within which Redis has to answer a report.
const PATIENCE: Duration = Duration::from_millis(500);

/// The part of the keys that decides their slot.
const TAG: &str = "fleet";

/// Reports how many requests this node has in flight, and learns how many the others have.
///
/// A report is one script call on two small keys, `rk:{fleet}nodes` and `rk:{fleet}in-flight`. Nodes that have not
/// reported for 2 seconds no longer count. Reports go over a connection of their own, so that they neither wait for
/// decisions nor hold them up.
#[derive(Debug)]
pub struct FleetBoard {
    topology: Arc<Topology>,
    connect_timeout: Duration,
    keys: [String; 2],
    /// The name of this node, random.
    node: String,
    open: Mutex<Option<Open>>,
}

/// The usage of a fleet's other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FleetReport {
    /// Nodes that reported in the last 2 seconds, this one included.
    pub nodes: u32,
    /// The requests that the others had in flight.
    pub others: u32,
}

/// The reason why nothing is known of the other nodes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// No server is known that serves the keys.
    #[error("no server is known that serves {0}")]
    Nowhere(String),
    /// There is no connection.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The server refused the report, or the connection broke.
    #[error("{0}: {1}")]
    Refused(String, #[source] RedisError),
    /// The connection was closed.
    #[error("{0} closed the connection")]
    Closed(String),
    /// The server took too long.
    #[error("{0} did not answer within {PATIENCE:?}")]
    Timeout(String),
}

/// An open connection to the server that serves the keys.
struct Open {
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

impl FleetBoard {
    /// A board among the keys with `prefix`.
    pub(crate) fn new(topology: Arc<Topology>, connect_timeout: Duration, prefix: &str) -> Self {
        let mut id = [0; 16];
        // Without random numbers all nodes would have one name, and each would see the last report as its own.
        let _ = getrandom::fill(&mut id);
        Self {
            topology,
            connect_timeout,
            keys: ["nodes", "in-flight"].map(|end| format!("{prefix}{{{TAG}}}{end}")),
            node: format!("{:032x}", u128::from_be_bytes(id)),
            open: Mutex::new(None),
        }
    }

    /// Reports that this node has `in_flight` requests. Takes at most about a second.
    ///
    /// # Errors
    /// Nothing is known of the other nodes. The next report connects anew.
    pub async fn report(&self, in_flight: u32) -> Result<FleetReport, FleetError> {
        let mut open = self.open.lock().await;
        let shard = self.topology.map().shard(slot_of_key(TAG)).cloned();
        let shard = shard.ok_or_else(|| FleetError::Nowhere(self.keys[0].clone()))?;
        // Left out of the lock's place, so that one that fails, or is given up halfway, is not used again.
        let kept = open.take().filter(|open| Arc::ptr_eq(&open.shard, &shard));
        if let Some(mut kept) = kept
            && let Ok(report) = self.ask(&mut kept, in_flight).await
        {
            *open = Some(kept);
            return Ok(report);
        }
        // A kept connection may have been closed long ago.
        let link = Link::open(&shard.node, self.connect_timeout).await?;
        let mut fresh = Open { shard, link };
        let report = self.ask(&mut fresh, in_flight).await;
        match report {
            Ok(_) => *open = Some(fresh),
            // A cluster may have moved the keys.
            Err(FleetError::Refused(..)) => self.topology.doubt(),
            Err(_) => {}
        }
        report
    }

    async fn ask(&self, open: &mut Open, in_flight: u32) -> Result<FleetReport, FleetError> {
        let Open { shard, link } = open;
        let name = || shard.name.to_string();
        let mut connection: MultiplexedConnection = link.connection.clone();
        let command = self.command(in_flight);
        let asked = command.query_async::<(u32, u32)>(&mut connection);
        let answered = tokio::select! {
            answered = timeout(PATIENCE, asked) => answered,
            () = &mut link.driver => return Err(FleetError::Closed(name())),
        };
        match answered {
            Ok(Ok((nodes, others))) => Ok(FleetReport { nodes, others }),
            Ok(Err(error)) => Err(FleetError::Refused(name(), error)),
            Err(_) => Err(FleetError::Timeout(name())),
        }
    }

    fn command(&self, in_flight: u32) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(include_str!("script/fleet.lua")).arg(2);
        command.arg(&self.keys).arg(&self.node).arg(in_flight);
        command
    }
}
