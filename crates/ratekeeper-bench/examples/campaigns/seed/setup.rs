//! Redis, three gateways with limits, three without, and their upstream.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use ratekeeper_testkit::process::{Process, pin};
use ratekeeper_testkit::ratekeeper::{self, Ratekeeper};
use ratekeeper_testkit::redis::Server;

use crate::pinned::{MEASURED, prefix, upstream};

pub(crate) const NODES: usize = 3;

/// The article's interval.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// The rules for a mode.
fn levels(mode: &str) -> String {
    format!("{mode}{LEVELS}")
}

/// The article's limits.
const LEVELS: &str = "
slas_base: /v1/organizations/{tenant}
slas:
  - id: get-product
    match: { methods: [ GET ], pathPattern: /product/* }
    tiers: [ { period: 10, threshold: 1000 } ]
  - id: put-product
    match: { methods: [ PUT ], pathPattern: /product/* }
    tiers: [ { period: 10, threshold: 100 } ]
";

/// All programs; they run while this lives.
pub(crate) struct Setup {
    pub(crate) on: Fleet,
    pub(crate) off: Fleet,
    /// As `on`, with limits that are synced.
    pub(crate) synced: Fleet,
    pub(crate) redis: Server,
    _upstream: Process,
    _folder: tempfile::TempDir,
}

/// Gateways that take turns.
pub(crate) struct Fleet(Vec<Ratekeeper>);

impl Setup {
    pub(crate) fn start(binary: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let exact = "consistency: exact";
        let synced = format!(
            "consistency: synced\nsync_interval: {}s",
            INTERVAL.as_secs()
        );
        // Everything but the load is on one processor.
        let (behind, upstream) = upstream(folder.path(), MEASURED)?;
        let mut redis = Server::start();
        pin(redis.process().id(), MEASURED);
        let fleet = |limits: &str, mode: &str| {
            let node = || node(binary, redis.port(), behind, (limits, mode));
            Fleet(std::iter::repeat_with(node).take(NODES).collect())
        };
        Ok(Self {
            on: fleet("on", exact),
            off: fleet("off", exact),
            synced: fleet("on", &synced),
            redis,
            _upstream: upstream,
            _folder: folder,
        })
    }
}

fn node(binary: &Path, redis: u16, behind: u16, (limits, mode): (&str, &str)) -> Ratekeeper {
    let store = format!("redis://127.0.0.1:{redis}/");
    // A deadline that a busy machine meets: load may change the times, but not the admissions.
    let args = "--worker-threads 1 --log-level warn --store-deadline 1s --require-store";
    ratekeeper::Setup::gateway(binary, &format!("http://127.0.0.1:{behind}"))
        .behind(&prefix(MEASURED))
        .rules(&levels(mode))
        .args(args)
        .args(&["--store", &store, "--limits", limits])
        .start()
}

impl Fleet {
    /// The addresses, in the form that a load takes.
    pub(crate) fn target(&self) -> String {
        let targets = self.0.iter().map(|node| format!("127.0.0.1:{}", node.port));
        targets.collect::<Vec<_>>().join(",")
    }

    /// Total processor time of all of them, in microseconds.
    pub(crate) fn cpu_us(&self) -> Result<f64> {
        let times = self
            .0
            .iter()
            .map(|node| ratekeeper_bench::cpu_time(node.process.id()));
        let times = times.map(|time| Ok(time?.as_secs_f64() * 1e6));
        times.sum()
    }

    /// Total number of answers from their failure mode.
    pub(crate) fn failed_open(&self) -> f64 {
        let each = self.0.iter();
        each.map(|node| node.metric_sum(&["ratelimit_failopen_total"]))
            .sum()
    }
}
