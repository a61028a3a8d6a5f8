//! Looks at the readiness and the metrics of all nodes again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::ask::get;

/// The time that one look may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pages of one node at one time.
pub(crate) struct Pages {
    pub(crate) node: usize,
    /// The time at which they were asked for.
    pub(crate) at: Instant,
    /// The faults that `/readyz` tells.
    pub(crate) faults: Vec<String>,
    metrics: String,
}

impl Pages {
    /// The sum of a metric over all label sets.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        self.sum_with(name, "")
    }

    /// The same over those with a label, written as `name="value"`.
    pub(crate) fn sum_with(&self, name: &str, label: &str) -> u64 {
        let values = self.metrics.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = rest.strip_prefix('{')?.rsplit_once("} ")?;
            let value = labels.contains(label).then_some(value)?;
            value.parse::<f64>().ok()
        });
        values.sum::<f64>() as u64
    }
}

/// A watcher that looks at all nodes until it is dropped, and keeps a `Look` of all that it sees.
pub(crate) struct Watch<Look> {
    seen: Arc<Mutex<Vec<Look>>>,
    is_over: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl<Look: Send + 'static> Watch<Look> {
    /// Starts to look at the nodes with these admin ports; `read` makes a look of pages.
    pub(crate) fn start(
        runtime: &Handle,
        ports: &[u16],
        every: Duration,
        read: impl Fn(Pages) -> Look + Clone + Send + 'static,
    ) -> Self {
        let seen = Arc::<Mutex<Vec<Look>>>::default();
        let is_over = Arc::<AtomicBool>::default();
        let mut tasks = JoinSet::new();
        for (node, port) in ports.iter().copied().enumerate() {
            let (seen, is_over, read) = (Arc::clone(&seen), Arc::clone(&is_over), read.clone());
            let look = async move {
                let web = Client::builder(TokioExecutor::new()).build_http();
                let mut ticks = interval(every);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                while !is_over.load(Ordering::Relaxed) {
                    ticks.tick().await;
                    // A node that is dead, or is being restarted, is not there to be looked at.
                    if let Ok(Ok(pages)) = timeout(PATIENCE, pages(&web, port, node)).await {
                        let look = read(pages);
                        seen.lock().push(look);
                    }
                }
            };
            tasks.spawn_on(look, runtime);
        }
        Self {
            seen,
            is_over,
            _tasks: tasks,
        }
    }

    /// Reads all looks so far, oldest first.
    pub(crate) fn seen<T>(&self, read: impl FnOnce(&[Look]) -> T) -> T {
        read(&self.seen.lock())
    }
}

impl<Look> Drop for Watch<Look> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

async fn pages(web: &Client<HttpConnector, Full<Bytes>>, port: u16, node: usize) -> Result<Pages> {
    let at = Instant::now();
    let ready: serde_json::Value = serde_json::from_str(&get(web, port, "/readyz").await?)?;
    let faults = ready["faults"].as_array().into_iter().flatten();
    let faults = faults.filter_map(|fault| Some(fault.as_str()?.to_owned()));
    Ok(Pages {
        node,
        at,
        faults: faults.collect(),
        metrics: get(web, port, "/metrics").await?,
    })
}
