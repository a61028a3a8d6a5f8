//! The lists of the keys that are denied and allowed most, which each node lays out for all others.

use std::sync::Arc;
use std::time::Duration;

use redis::Pipeline;

use crate::side_link::{BoardError, SideLink, random_name};
use crate::topology::Topology;

/// The part of the keys that decides their slot.
const TAG: &str = "top";

/// The time after which the list of a node that no longer renews it is gone.
const KEPT: Duration = Duration::from_secs(10);

/// The most lists that are read: those of this many nodes.
const NODES_MAX: usize = 64;

/// The most bytes of a list. A longer one is not laid out, and not taken in.
const LIST_BYTES_MAX: usize = 256 * 1024;

/// Lays out this node's list, and reads those of the others.
///
/// The list of a node is at `rk:{top}:<node>` and expires after 10 seconds; `rk:{top}nodes` has the nodes by the time
/// at which they renewed it. All have one hash tag, so that they lie on one server of a cluster.
#[derive(Debug)]
pub struct TopBoard {
    link: SideLink,
    /// The beginning of all keys.
    prefix: String,
    /// The name of this node, random.
    node: String,
}

/// The lists of the other nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TopLists {
    /// The lists.
    pub lists: Vec<TopList>,
    /// Nodes whose lists were not read, because there are too many.
    pub left_out: u64,
}

/// The list of one node.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TopList {
    /// The time since the node laid it out.
    pub age: Duration,
    /// The list, as the node wrote it.
    pub text: String,
}

impl TopBoard {
    /// A board among the keys with `prefix`.
    pub(crate) fn new(topology: Arc<Topology>, connect_timeout: Duration, prefix: &str) -> Self {
        Self {
            link: SideLink::new(topology, connect_timeout, TAG),
            prefix: format!("{prefix}{{{TAG}}}"),
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
    pub async fn read(&self) -> Result<TopLists, BoardError> {
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
            return Ok(TopLists {
                left_out,
                ..TopLists::default()
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
                Some(TopList { age, text })
            });
        Ok(TopLists {
            lists: lists.collect(),
            left_out,
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
