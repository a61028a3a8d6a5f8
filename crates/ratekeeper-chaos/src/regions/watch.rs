//! The view of operators meanwhile: what nodes tell of other regions.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ratekeeper_testkit::process::within;
use tokio::runtime::Handle;

use super::NAMES;
use crate::watch::{self, Pages};

/// The interval between looks at each node.
const EVERY: Duration = Duration::from_millis(250);

/// The time that links may take at the start.
const LINKS_MAX: Duration = Duration::from_secs(60);

/// One look at one node.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) node: usize,
    pub(super) at: Instant,
    /// The faults that `/readyz` tells of regions.
    pub(super) faults: Vec<String>,
    /// Other regions to which there is a link.
    pub(super) reached: u64,
    /// Asks that were sent.
    pub(super) asks: u64,
    /// Hits of this window that are lent to, and borrowed from, others.
    pub(super) lent: u64,
    pub(super) borrowed: u64,
    /// Decisions of failure modes.
    pub(super) failopen: u64,
}

/// A watcher of all nodes.
pub(super) struct Watch {
    nodes: usize,
    looks: watch::Watch<Look>,
}

impl Watch {
    /// Starts to look at the nodes with these admin ports.
    pub(super) fn start(runtime: &Handle, nodes: &[u16]) -> Self {
        let read = |pages: Pages| {
            let faults = pages.faults.iter();
            Look {
                node: pages.node,
                at: pages.at,
                faults: faults
                    .filter(|it| it.contains("region "))
                    .cloned()
                    .collect(),
                reached: pages.sum("ratelimit_region_reachable"),
                asks: pages.sum("ratelimit_region_asks_total"),
                lent: pages.sum("ratelimit_region_lent_hits"),
                borrowed: pages.sum("ratelimit_region_borrowed_hits"),
                failopen: pages.sum("ratelimit_failopen_total"),
            }
        };
        Self {
            nodes: nodes.len(),
            looks: watch::Watch::start(runtime, nodes, EVERY, read),
        }
    }

    /// Waits until each node has links to all other regions.
    pub(super) fn wait_for_links(&self) -> Result<()> {
        let has_links = |node: usize| {
            self.looks.seen(|seen| {
                let mut last = seen.iter().rev().filter(|look| look.node == node);
                last.next()
                    .is_some_and(|look| look.reached == NAMES.len() as u64 - 1)
            })
        };
        let have_links = within(LINKS_MAX, EVERY, || (0..self.nodes).all(has_links));
        ensure!(have_links, "a node has no links");
        Ok(())
    }

    /// Stops to look, and returns all looks.
    pub(super) fn stop(self) -> Vec<Look> {
        self.looks.seen(<[Look]>::to_vec)
    }
}
