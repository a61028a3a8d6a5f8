//! Boards on which each node lays out a text for all others.

use std::sync::Arc;
use std::time::Duration;

use redis::Pipeline;

use crate::side_connection::BoardError;
use crate::side_link::{SideLink, random_name};
use crate::topology::Topology;

/// The time after which the list of a node that no longer renews it is gone.
const KEPT: Duration = Duration::from_secs(10);

/// The most lists that are read: those of this many nodes.
const NODES_MAX: usize = 64;

/// The most bytes of a list. A longer one is not laid out, and not taken in.
const LIST_BYTES_MAX: usize = 256 * 1024;

/// Lays out this node's list, and reads those of the others.
///
/// The list of a node is at `rk:{TAG}:<node>` and expires after 10 seconds; `rk:{TAG}nodes` has the nodes by the time
/// at which they renewed it. All have one hash tag, so that they lie on one server of a cluster. The tag `top` has the
/// keys that are denied and allowed most, `quotas` the databases in which nodes find tenants' quotas.
#[derive(Debug)]
pub struct NodeBoard {
    link: SideLink,
    /// The beginning of all keys.
    prefix: String,
    /// The name of this node, random.
    node: String,
}

/// The lists of the other nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct NodeLists {
    /// The lists.
    pub lists: Vec<NodeList>,
    /// Nodes whose lists were not read, because there are too many.
    pub left_out: u64,
}

/// The list of one node.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeList {
    /// The time since the node laid it out.
    pub age: Duration,
    /// The list, as the node wrote it.
    pub text: String,
}

impl NodeBoard {
    /// The board with `tag` among the keys with `prefix`.
    pub(crate) fn new(
        topology: Arc<Topology>,
        connect_timeout: Duration,
        prefix: &str,
        tag: &'static str,
    ) -> Self {
        Self {
            link: SideLink::new(topology, connect_timeout, tag),
            prefix: format!("{prefix}{{{tag}}}"),
            node: random_name(),
        }
    }

    fn nodes(&self) -> String {
        format!("{}nodes", self.prefix)
    }

    fn list_of(&self, node: &str) -> String {
        format!("{}:{node}", self.prefix)
    }

    /// Lays out `list` in place of the one before; one that is too long is left out. Takes at most about a second.
    ///
    /// # Errors
    /// Redis does not take it.
    pub async fn publish(&self, list: &str) -> Result<(), BoardError> {
        if list.len() > LIST_BYTES_MAX {
            return Ok(());
        }
        let mut call = Pipeline::new();
        call.cmd("EVAL").arg(include_str!("script/top.lua")).arg(2);
        call.arg(self.nodes()).arg(self.list_of(&self.node));
        call.arg(&self.node).arg(list).arg(millis(KEPT));
        self.link.ask::<((),)>(&call).await?;
        Ok(())
    }

    /// Reads the lists of the other nodes. Takes at most about two seconds.
    ///
    /// # Errors
    /// Redis does not tell them.
    pub async fn read(&self) -> Result<NodeLists, BoardError> {
        let mut call = Pipeline::new();
        call.cmd("EVAL").arg(include_str!("script/top_nodes.lua"));
        call.arg(1)
            .arg(self.nodes())
            .arg(millis(KEPT))
            .arg(NODES_MAX);
        let ((nodes, left_out),) = self.link.ask::<((Vec<(String, u64)>, u64),)>(&call).await?;
        let others: Vec<_> = nodes
            .into_iter()
            .filter(|(node, _)| *node != self.node)
            .collect();
        if others.is_empty() {
            return Ok(NodeLists {
                left_out,
                ..NodeLists::default()
            });
        }
        let mut calls = Pipeline::new();
        for (node, _) in &others {
            calls.cmd("GET").arg(self.list_of(node));
        }
        let texts: Vec<Option<String>> = self.link.ask(&calls).await?;
        let lists = others
            .into_iter()
            .zip(texts)
            .filter_map(|((_, age), text)| {
                let text = text.filter(|text| text.len() <= LIST_BYTES_MAX)?;
                let age = Duration::from_millis(age);
                Some(NodeList { age, text })
            });
        Ok(NodeLists {
            lists: lists.collect(),
            left_out,
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
