//! Leased limits that four nodes share, flooded: nothing may pass beyond them, and little may be denied that would fit.
//!
//! Rules say `on_store_failure: deny`, so that no failure mode hides excess. Nodes share one processor; the load shares the
//! other one with Redis.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use ratekeeper_bench::{Due, Keys, Load, Pace, Report, Windows, run as run_load};
use ratekeeper_testkit::redis::{Client, Cluster, Server as Redis};
use serde::Serialize;

use crate::Plan;
use crate::machine;
use crate::modes::calls;
use crate::servers::Server;
use crate::versus::once;

const NODES: usize = 4;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A limit and the load on it.
struct Case {
    name: &'static str,
    /// The limit as rules have it.
    limit: &'static str,
    window: Duration,
    /// Hits that fit in a window.
    quota: u64,
    /// Hits that a bucket lets pass in addition, once.
    burst: u64,
    keys: (&'static str, Keys),
    /// Requests a second, one run after the other.
    rates: &'static [f64],
}

const ZIPF: (&str, Keys) = (
    "zipf, 1,000",
    Keys::Zipf {
        keys: 1_000,
        exponent: 1.0,
    },
);
const HOT: (&str, Keys) = ("hot", Keys::Hot);

const TEN_THOUSAND: Case = Case {
    name: "10,000 a second",
    limit: "{ window: 1s, limit: 10000, algorithm: fixed_window }",
    window: SECOND,
    quota: 10_000,
    burst: 0,
    keys: HOT,
    rates: &[16_000.0],
};

const GCRA: Case = Case {
    name: "gcra, 1,000 a second, burst 2,000",
    limit: "{ window: 1s, limit: 1000, burst: 2000, algorithm: gcra }",
    window: SECOND,
    quota: 1_000,
    burst: 2_000,
    keys: HOT,
    rates: &[3_000.0],
};

/// Those that one server counts. Each needs seconds, the last two a minute.
const CASES: [Case; 6] = [
    TEN_THOUSAND,
    Case {
        name: "10,000 a second, a ramp of 50, 90, 110 and 160 %",
        rates: &[5_000.0, 9_000.0, 11_000.0, 16_000.0],
        ..TEN_THOUSAND
    },
    GCRA,
    Case {
        name: "100 a second",
        limit: "{ window: 1s, limit: 100, algorithm: fixed_window }",
        quota: 100,
        keys: ZIPF,
        rates: &[10_000.0],
        ..TEN_THOUSAND
    },
    Case {
        name: "600,000 a minute",
        limit: "{ window: 1m, limit: 600000, algorithm: fixed_window }",
        window: MINUTE,
        quota: 600_000,
        rates: &[14_000.0],
        ..TEN_THOUSAND
    },
    Case {
        name: "100 a minute",
        limit: "{ window: 1m, limit: 100, algorithm: fixed_window }",
        window: MINUTE,
        quota: 100,
        keys: ZIPF,
        rates: &[5_000.0],
        ..TEN_THOUSAND
    },
];

/// Those that a cluster counts, whose replicas acknowledge each grant.
const ON_A_CLUSTER: [Case; 2] = [TEN_THOUSAND, GCRA];

/// Whole windows of a second in which admissions are counted.
const WINDOWS: u32 = 6;

/// The result of a case.
#[derive(Debug, Serialize)]
struct Flood {
    limit: &'static str,
    store: &'static str,
    keys: &'static str,
    asked_per_second: &'static [f64],
    windows: u64,
    /// The most that passed of a key in a window, and the most that may.
    passed_max: u64,
    allowed: u64,
    due: Due,
    redis_calls_per_1000: f64,
    /// Requests that this machine was too slow to send, or to answer in time: they count as not asked.
    failed: u64,
    /// Answers of failure modes.
    degraded: f64,
}

/// All results. Its serde form is `leases.json`.
#[derive(Debug, Serialize)]
pub(crate) struct LeasesTable {
    machine: String,
    load_average_before: f64,
    floods: Vec<Flood>,
}

/// The servers of Redis.
struct Stores {
    name: &'static str,
    url: String,
    clients: Vec<Client>,
}

/// Runs everything.
pub(crate) fn all(plan: &Plan) -> Result<LeasesTable> {
    let mut table = LeasesTable {
        machine: machine::describe(),
        load_average_before: machine::load_average(),
        floods: Vec::new(),
    };
    let redis = Redis::start();
    let mut single = Stores {
        name: "one server",
        url: format!("redis://127.0.0.1:{}/", redis.port()),
        clients: vec![redis.client()],
    };
    let is_wanted = |case: &&Case| !plan.is_quick || case.window < MINUTE;
    for case in CASES.iter().filter(is_wanted) {
        table.floods.push(flood(plan, case, &mut single)?);
    }
    drop(redis);
    let cluster = Cluster::start();
    let ports = cluster.ports();
    let mut many = Stores {
        name: "cluster, 3 + 3",
        url: format!("redis+cluster://127.0.0.1:{}/", ports[0]),
        clients: (0..ports.len()).map(|node| cluster.client(node)).collect(),
    };
    for case in ON_A_CLUSTER {
        table.floods.push(flood(plan, &case, &mut many)?);
    }
    Ok(table)
}

fn rules(case: &Case) -> String {
    format!(
        "\
domain: bench
consistency: leased
on_store_failure: deny
descriptors:
  - key: api_key
    descriptors:
      - key: endpoint
        value: POST /api/v1/orders
        rate_limit: {}
",
        case.limit
    )
}

fn flood(plan: &Plan, case: &Case, stores: &mut Stores) -> Result<Flood> {
    eprintln!("{}, {} …", case.name, stores.name);
    // Each case has counters of its own.
    let store = format!("{}?prefix=leases{}:", stores.url, wall().as_nanos());
    let node = || Server::with_rules(plan, &rules(case), &["--store", &store]);
    let nodes: Vec<_> = std::iter::repeat_with(node).take(NODES).collect();
    warm(&nodes)?;
    let before: f64 = stores.clients.iter_mut().map(calls).sum();
    let (mut decisions, mut failed, mut passed_max, mut windows) = (0, 0, 0, 0);
    let mut due = Due::default();
    for rate in case.rates {
        let (report, counted) = flood_once(&nodes, case, *rate)?;
        decisions += report.decisions;
        failed += report.failed();
        passed_max = passed_max.max(counted.passed_max);
        windows += counted.windows;
        let more = counted.due.unwrap_or_default();
        due.requests += more.requests;
        due.denied += more.denied;
    }
    let after: f64 = stores.clients.iter_mut().map(calls).sum();
    let degraded = nodes.iter().map(Server::degraded).sum();
    let flood = Flood {
        limit: case.name,
        store: stores.name,
        keys: case.keys.0,
        asked_per_second: case.rates,
        windows,
        passed_max,
        allowed: case.quota + case.burst,
        due,
        redis_calls_per_1000: (after - before) / decisions as f64 * 1e3,
        failed,
        degraded,
    };
    eprintln!("{flood}");
    Ok(flood)
}

/// Asks each node a few times, over many keys, so that all have met their Redis.
fn warm(nodes: &[Server]) -> Result<()> {
    for node in nodes {
        let mut load = node.load();
        load.pid = None;
        load.keys = Keys::Uniform(1_000);
        load.pace = Pace::Open { per_second: 200.0 };
        (load.warm_up, load.duration) = (Duration::ZERO, SECOND);
        once(&load)?;
    }
    Ok(())
}

/// One run, and what passed in its whole windows.
fn flood_once(nodes: &[Server], case: &Case, rate: f64) -> Result<(Report, Windows)> {
    let first = nodes.first().context("there is a node")?;
    let targets = nodes.iter().map(Server::address).collect::<Vec<_>>();
    let mut load: Load = first.load();
    load.pid = None;
    load.target = targets.join(",");
    load.connections = 2 * NODES as u32;
    load.keys = case.keys.1;
    load.pace = Pace::Open { per_second: rate };
    load.windows = Some(case.window);
    load.limit = Some(case.quota);
    load.warm_up = Duration::ZERO;
    load.duration = case.window * WINDOWS + case.window / 2;
    if case.window == MINUTE {
        // One whole window.
        let lead = Duration::from_millis(500);
        let into = Duration::from_nanos((wall().as_nanos() % MINUTE.as_nanos()) as u64);
        let wait = (MINUTE * 2).saturating_sub(into + lead);
        std::thread::sleep(wait.checked_sub(MINUTE).unwrap_or(wait));
        load.duration = MINUTE + lead * 2;
    }
    let report = run_load(&load, |_| {})?;
    match report.windows {
        Some(windows) if windows.windows > 0 && report.decisions > 0 => Ok((report, windows)),
        _ => bail!("windows were not counted"),
    }
}

/// The time since the epoch.
fn wall() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

impl Flood {
    fn over(&self) -> u64 {
        self.passed_max.saturating_sub(self.allowed)
    }
}

impl fmt::Display for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = self
            .asked_per_second
            .iter()
            .map(|rate| format!("{rate:.0}"));
        let Due { requests, denied } = self.due;
        write!(
            f,
            "| {} | {} | {} | {} | {} | {} of {} | {} | {:.2} | {:.1} | {} | {} |",
            self.limit,
            self.store,
            self.keys,
            rates.collect::<Vec<_>>().join(", "),
            self.windows,
            self.passed_max,
            self.allowed,
            self.over(),
            denied as f64 / requests.max(1) as f64 * 100.0,
            self.redis_calls_per_1000,
            self.failed,
            self.degraded
        )
    }
}

impl fmt::Display for LeasesTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Measured on {}; load average before: {:.2}. {NODES} nodes with `consistency: leased` over gRPC.\n",
            self.machine, self.load_average_before
        )?;
        writeln!(
            f,
            "| limit | Redis | keys | asked a second | whole windows | most that passed of a key | over | denied although it fit, % | \
             Redis calls per 1,000 | not sent or answered | answers of failure modes |"
        )?;
        writeln!(f, "|---|---|---|---|---:|---|---:|---:|---:|---:|---:|")?;
        for flood in &self.floods {
            writeln!(f, "{flood}")?;
        }
        Ok(())
    }
}

impl LeasesTable {
    /// Fails if more passed than a limit.
    pub(crate) fn verdict(&self) -> Result<()> {
        match self.floods.iter().find(|flood| flood.over() > 0) {
            Some(flood) => bail!("{}: {} over the limit", flood.limit, flood.over()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(passed_max: u64) -> LeasesTable {
        LeasesTable {
            machine: "a machine".to_owned(),
            load_average_before: 0.0,
            floods: vec![Flood {
                limit: "10 a second",
                store: "one server",
                keys: "hot",
                asked_per_second: &[5.0, 20.0],
                windows: 6,
                passed_max,
                allowed: 10,
                due: Due {
                    requests: 200,
                    denied: 3,
                },
                redis_calls_per_1000: 12.0,
                failed: 2,
                degraded: 0.0,
            }],
        }
    }

    #[test]
    fn the_table_fails_if_more_passed_than_a_limit() {
        assert!(table(10).verdict().is_ok());
        assert!(table(11).verdict().is_err());
        let text = table(11).to_string();
        let row =
            "| 10 a second | one server | hot | 5, 20 | 6 | 11 of 10 | 1 | 1.50 | 12.0 | 2 | 0 |";
        assert!(text.contains(row), "{text}");
    }
}
