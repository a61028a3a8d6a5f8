//! The view of operators meanwhile: readiness, metrics, log and memory of each node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use crate::ask::get;
use crate::ledger::Ledger;

/// The interval between looks at each node, and the time that one may take.
const EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(5);

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

/// A watcher that looks at all nodes until it is dropped.
pub(crate) struct Looks {
    seen: Arc<Mutex<Vec<Look>>>,
    is_over: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl Looks {
    /// Starts to look at the nodes with these admin ports.
    pub(crate) fn start(runtime: &Handle, ports: &[u16], ledger: &Arc<Ledger>) -> Self {
        let (seen, is_over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        for (node, port) in ports.iter().copied().enumerate() {
            let look = look(
                node,
                port,
                Arc::clone(ledger),
                Arc::clone(&seen),
                Arc::clone(&is_over),
            );
            tasks.spawn_on(look, runtime);
        }
        Self {
            seen,
            is_over,
            _tasks: tasks,
        }
    }

    /// All looks so far, oldest first.
    pub(crate) fn all(&self) -> Vec<Look> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// The latest look at each of `nodes` nodes after `from`. None if a node has none.
    pub(crate) fn latest(&self, nodes: usize, from: Duration) -> Option<Vec<Look>> {
        let all = self.all();
        let latest = |node| {
            let mut of_node = all.iter().rev().filter(|look| look.node == node);
            of_node.next().filter(|look| look.at > from).cloned()
        };
        (0..nodes).map(latest).collect()
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

async fn look(
    node: usize,
    port: u16,
    ledger: Arc<Ledger>,
    seen: Arc<Mutex<Vec<Look>>>,
    is_over: Arc<AtomicBool>,
) {
    let web = Client::builder(TokioExecutor::new()).build_http();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !is_over.load(Ordering::Relaxed) {
        ticks.tick().await;
        let at = ledger.now();
        // A node that is being restarted is not there to be looked at.
        if let Ok(Ok(mut look)) = timeout(PATIENCE, one(&web, port, node, at)).await {
            look.until = ledger.now();
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(look);
        }
    }
}

async fn one(
    web: &Client<HttpConnector, Full<Bytes>>,
    port: u16,
    node: usize,
    at: Duration,
) -> Result<Look> {
    let ready: serde_json::Value = serde_json::from_str(&get(web, port, "/readyz").await?)?;
    let faults = ready["faults"].as_array().into_iter().flatten();
    let faults = faults.filter_map(|fault| Some(fault.as_str()?.to_owned()));
    let metrics = get(web, port, "/metrics").await?;
    Ok(Look {
        node,
        at,
        until: at,
        faults: faults.collect(),
        is_open: sum(&metrics, "ratelimit_circuit_state") > 0,
        failopen: sum(&metrics, "ratelimit_failopen_total"),
        stranded: sum(&metrics, "ratelimit_redis_stranded_hits_total"),
        errors: sum(&metrics, "ratelimit_redis_errors_total"),
    })
}

/// The sum of a counter over all label sets.
fn sum(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = rest.strip_prefix('{')?.rsplit_once("} ")?.1;
        value.parse::<f64>().ok()
    });
    values.sum::<f64>() as u64
}
