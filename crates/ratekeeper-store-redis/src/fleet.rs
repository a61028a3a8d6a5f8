//! The requests that the nodes of a fleet have in flight, which each of them reports to all others.

use std::sync::Arc;
use std::time::Duration;

use redis::Pipeline;

use crate::side_connection::BoardError;
use crate::side_link::{SideLink, random_name};
use crate::topology::Topology;

/// The part of the keys that decides their slot.
const TAG: &str = "fleet";

/// Reports how many requests this node has in flight, and learns how many the others have.
///
/// A report is one script call on two small keys, `rk:{fleet}nodes` and `rk:{fleet}in-flight`. Nodes that have not
/// reported for 2 seconds no longer count. Reports go over a connection of their own, so that they neither wait for
/// decisions nor hold them up.
#[derive(Debug)]
pub struct FleetBoard {
    link: SideLink,
    keys: [String; 2],
    /// The name of this node, random.
    node: String,
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

impl FleetBoard {
    /// A board among the keys with `prefix`.
    pub(crate) fn new(topology: Arc<Topology>, connect_timeout: Duration, prefix: &str) -> Self {
        Self {
            link: SideLink::new(topology, connect_timeout, TAG),
            keys: ["nodes", "in-flight"].map(|end| format!("{prefix}{{{TAG}}}{end}")),
            node: random_name(),
        }
    }

    /// Reports that this node has `in_flight` requests. Takes at most about a second.
    ///
    /// # Errors
    /// Nothing is known of the other nodes. The next report reconnects.
    pub async fn report(&self, in_flight: u32) -> Result<FleetReport, BoardError> {
        let mut call = Pipeline::new();
        call.cmd("EVAL")
            .arg(include_str!("script/fleet.lua"))
            .arg(2);
        call.arg(&self.keys).arg(&self.node).arg(in_flight);
        let ((nodes, others),) = self.link.ask::<((u32, u32),)>(&call).await?;
        Ok(FleetReport { nodes, others })
    }
}
