//! The view of operators meanwhile: what nodes tell of their Redis.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::ledger::Ledger;
use crate::watch::{Pages, Watch};

/// The interval between looks at each node.
const EVERY: Duration = Duration::from_millis(100);

/// One look at one node.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) node: usize,
    /// The time since the ledger was opened at which it began.
    pub(crate) at: Duration,
    /// The time at which it was over.
    pub(crate) until: Duration,
    /// The faults that `/readyz` reports.
    pub(crate) faults: Vec<String>,
    /// True if the breaker of any server is not closed.
    pub(crate) is_open: bool,
    /// Decisions of failure modes, by the metric.
    pub(crate) failopen: u64,
    /// Hits that may stay charged for denied requests, by the metric.
    pub(crate) stranded: u64,
    /// Hits that failure modes let pass, and that were not added to Redis, by the metric: given up, or perhaps counted.
    pub(crate) unposted: u64,
    /// Those of them that Redis may have counted.
    pub(crate) unknown: u64,
    /// Leases that Redis granted, by the metric.
    pub(crate) leases: u64,
    /// Failures of Redis, by the metric.
    pub(crate) errors: u64,
}

impl Look {
    /// Returns true if readiness reports a fault that contains `text`, which is in lower case.
    pub(crate) fn tells(&self, text: &str) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|fault| fault.to_lowercase().contains(text))
    }
}

/// The hits owed to Redis in that state.
fn owed(pages: &Pages, state: &str) -> u64 {
    pages.sum_with("ratelimit_owed_hits_total", &format!("state=\"{state}\""))
}

/// A watcher of all nodes.
pub(crate) struct Looks(Watch<Look>);

impl Looks {
    /// Starts to look at the nodes with these admin ports.
    pub(crate) fn start(runtime: &Handle, ports: &[u16], ledger: &Arc<Ledger>) -> Self {
        let ledger = Arc::clone(ledger);
        let read = move |pages: Pages| Look {
            node: pages.node,
            at: ledger.at(pages.at),
            until: ledger.now(),
            is_open: pages.sum("ratelimit_circuit_state") > 0,
            failopen: pages.sum("ratelimit_failopen_total"),
            stranded: pages.sum("ratelimit_redis_stranded_hits_total"),
            unposted: ["dropped", "unknown"]
                .map(|it| owed(&pages, it))
                .iter()
                .sum(),
            unknown: owed(&pages, "unknown"),
            leases: pages.sum("ratelimit_lease_grants_total"),
            errors: pages.sum("ratelimit_redis_errors_total"),
            faults: pages.faults,
        };
        Self(Watch::start(runtime, ports, EVERY, read))
    }

    /// All looks so far, oldest first.
    pub(crate) fn all(&self) -> Vec<Look> {
        self.0.seen(<[Look]>::to_vec)
    }

    /// The latest look at each of `nodes` nodes after `from`. None if a node has none.
    pub(crate) fn latest(&self, nodes: usize, from: Duration) -> Option<Vec<Look>> {
        self.0.seen(|all| {
            let latest = |node| {
                let mut of_node = all.iter().rev().filter(|look| look.node == node);
                of_node.next().filter(|look| look.at > from).cloned()
            };
            (0..nodes).map(latest).collect()
        })
    }
}
