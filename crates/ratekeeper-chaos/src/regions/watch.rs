//! The view of operators meanwhile: readiness and metrics of each node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::NAMES;
use crate::ask::get;

/// The interval between looks at each node, and the time that one may take.
const EVERY: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(5);

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

/// A watcher that looks at all nodes.
pub(super) struct Watch {
    nodes: usize,
    seen: Arc<Mutex<Vec<Look>>>,
    is_over: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl Watch {
    /// Starts to look at the nodes with these admin ports.
    pub(super) fn start(runtime: &Handle, nodes: &[u16]) -> Self {
        let (seen, is_over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        for (node, port) in nodes.iter().copied().enumerate() {
            let (seen, is_over) = (Arc::clone(&seen), Arc::clone(&is_over));
            tasks.spawn_on(look(node, port, seen, is_over), runtime);
        }
        Self {
            nodes: nodes.len(),
            seen,
            is_over,
            _tasks: tasks,
        }
    }

    /// Waits until each node has links to all other regions.
    pub(super) fn wait_for_links(&self) -> Result<()> {
        let end = Instant::now() + LINKS_MAX;
        let has_links = |node: usize| {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let mut last = seen.iter().rev().filter(|look| look.node == node);
            last.next()
                .is_some_and(|look| look.reached == NAMES.len() as u64 - 1)
        };
        while !(0..self.nodes).all(has_links) {
            ensure!(Instant::now() < end, "a node has no links");
            sleep(EVERY);
        }
        Ok(())
    }

    /// Stops to look, and returns all looks.
    pub(super) fn stop(self) -> Vec<Look> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut seen)
    }
}

async fn look(node: usize, port: u16, seen: Arc<Mutex<Vec<Look>>>, is_over: Arc<AtomicBool>) {
    let web = Client::builder(TokioExecutor::new()).build_http();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !is_over.load(Ordering::Relaxed) {
        ticks.tick().await;
        // A node that is dead is not there to be looked at.
        if let Ok(Ok(look)) = timeout(PATIENCE, one(&web, port, node)).await {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(look);
        }
    }
}

async fn one(web: &Client<HttpConnector, Full<Bytes>>, port: u16, node: usize) -> Result<Look> {
    let at = Instant::now();
    let ready: serde_json::Value = serde_json::from_str(&get(web, port, "/readyz").await?)?;
    let faults = ready["faults"].as_array().into_iter().flatten();
    let faults = faults.filter_map(|fault| Some(fault.as_str()?.to_owned()));
    let metrics = get(web, port, "/metrics").await?;
    let sum = |name: &str| sum(&metrics, name);
    Ok(Look {
        node,
        at,
        faults: faults.filter(|fault| fault.contains("region ")).collect(),
        reached: sum("ratelimit_region_reachable"),
        asks: sum("ratelimit_region_asks_total"),
        lent: sum("ratelimit_region_lent_hits"),
        borrowed: sum("ratelimit_region_borrowed_hits"),
        failopen: sum("ratelimit_failopen_total"),
    })
}

/// The sum of a metric over all label sets.
fn sum(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = rest.strip_prefix('{')?.rsplit_once("} ")?.1;
        value.parse::<f64>().ok()
    });
    values.sum::<f64>() as u64
}
