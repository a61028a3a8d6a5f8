//! The four modes of consistency side by side: what each costs, and how exactly it keeps a limit over several nodes.
//!
//! Redis shares a processor with the load, so that the service has one of its own. Rules say `on_store_failure: deny`, so that
//! no failure mode hides excess.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratekeeper_bench::{Keys, Load, Pace, Windows, run as run_load};
use ratekeeper_testkit::paired::Patience;
use ratekeeper_testkit::redis::{Client, Server as Redis};
use serde::Serialize;

use crate::Plan;
use crate::loads::{SPREADS, closed};
use crate::machine;
use crate::servers::Server;
use crate::versus::{By, once, versus};

const MODES: [&str; 4] = ["exact", "leased", "synced", "local"];

/// Nodes that share the limit which is exceeded.
const NODES: usize = 3;

/// That limit, its window, and the requests a second that all nodes get together.
const LIMIT: u64 = 4_000;
const WINDOW: Duration = Duration::from_secs(2);
const ASKED: f64 = 6_000.0;

/// Whole windows in which admissions are counted; two more are cut.
const WINDOWS: u32 = 6;

/// The time of a run in which calls to Redis are counted.
const COUNTED: Duration = Duration::from_secs(2);

/// The modes that keep the limit which is exceeded, each with further keys of its rules. The last one adds hits up as often
/// as leases are granted: it shows what it costs, and buys, to charge hits before they are admitted.
const KEEPERS: [(&str, &str, &str); 5] = [
    ("exact", "exact", ""),
    ("leased", "leased", ""),
    ("synced", "synced", ""),
    ("local", "local", ""),
    ("synced, 100 ms", "synced", "sync_interval: 100ms"),
];

/// The pairs of runs that are enough to tell the modes apart.
const PAIRS: Patience = Patience {
    pairs_min: 11,
    pairs_max: 17,
};

fn rules((mode, more): (&str, &str), limit: u64, window: Duration) -> String {
    let window = window.as_secs();
    format!(
        "\
domain: bench
consistency: {mode}
on_store_failure: deny
{more}
descriptors:
  - key: api_key
    descriptors:
      - key: endpoint
        value: POST /api/v1/orders
        rate_limit: {{ window: {window}s, limit: {limit}, algorithm: fixed_window }}
"
    )
}

/// The cost of a mode under one load, with one node and nothing denied.
#[derive(Debug, Serialize)]
struct Cost {
    mode: &'static str,
    load: &'static str,
    decisions_per_second: f64,
    /// Of the same limit in memory, with its 95 % interval.
    ratio: (f64, f64, f64),
    cpu_us: f64,
    p50_us: f64,
    p99_us: f64,
    redis_calls_per_1000: f64,
}

/// The hits that pass of a limit that several nodes share.
#[derive(Debug, Serialize)]
struct Kept {
    mode: &'static str,
    windows: Windows,
    redis_calls_per_1000: f64,
    /// Requests that this machine was too slow to send, or to answer in time: they count as not asked.
    failed: u64,
}

/// All results. Its serde form is `modes.json`.
#[derive(Debug, Serialize)]
pub(crate) struct ModesTable {
    machine: String,
    load_average_before: f64,
    costs: Vec<Cost>,
    kept: Vec<Kept>,
    /// Answers of failure modes, which no mode vouches for.
    degraded: f64,
}

/// Runs everything.
pub(crate) fn all(plan: &Plan) -> Result<ModesTable> {
    let mut plan = plan.clone();
    let patience = &mut plan.patience;
    patience.pairs_min = patience.pairs_min.min(PAIRS.pairs_min);
    patience.pairs_max = patience.pairs_max.min(PAIRS.pairs_max);
    run(&plan)
}

fn run(plan: &Plan) -> Result<ModesTable> {
    let redis = Redis::start();
    let mut client = redis.client();
    let mut table = ModesTable {
        machine: machine::describe(),
        load_average_before: machine::load_average(),
        costs: Vec::new(),
        kept: Vec::new(),
        degraded: 0.0,
    };
    let wide = |mode| rules((mode, ""), 4_000_000_000, Duration::from_secs(60));
    let memory = Server::with_rules(plan, &wide("exact"), &[]);
    for mode in MODES {
        let store = store(&redis, &format!("{mode}1"));
        let server = Server::with_rules(plan, &wide(mode), &["--store", &store]);
        for (load, keys) in [SPREADS[0], SPREADS[2]] {
            eprintln!("{mode}, {load} …");
            let cost = cost(plan, (mode, load), (&server, &memory), keys, &mut client)?;
            eprintln!("{cost}");
            table.costs.push(cost);
        }
        table.degraded += server.degraded();
    }
    drop(memory);
    for (number, (name, mode, more)) in KEEPERS.into_iter().enumerate() {
        eprintln!("{name}, {NODES} nodes …");
        let store = store(&redis, &format!("kept{number}"));
        let text = rules((mode, more), LIMIT, WINDOW);
        let node = || Server::with_rules(plan, &text, &["--store", &store]);
        let nodes: Vec<_> = std::iter::repeat_with(node).take(NODES).collect();
        table.kept.push(kept(name, &nodes, &mut client)?);
        for node in &nodes {
            table.degraded += node.degraded();
        }
    }
    Ok(table)
}

fn store(redis: &Redis, prefix: &str) -> String {
    format!("redis://127.0.0.1:{}/?prefix={prefix}:", redis.port())
}

fn cost(
    plan: &Plan,
    (mode, load): (&'static str, &'static str),
    (server, memory): (&Server, &Server),
    keys: Keys,
    client: &mut Client,
) -> Result<Cost> {
    let ours = (mode, closed(server, keys));
    let theirs = ("memory", closed(memory, keys));
    let compared = versus(plan, load, By::Rate, ours, theirs)?;
    let mut counted = closed(server, keys);
    (counted.warm_up, counted.duration) = (Duration::ZERO, COUNTED);
    let before = calls(client);
    let report = once(&counted)?;
    let calls = calls(client) - before;
    Ok(Cost {
        mode,
        load,
        decisions_per_second: compared.ours.decisions_per_second,
        ratio: compared.ratio,
        cpu_us: compared.ours.cpu_us,
        p50_us: compared.ours.p50_us,
        p99_us: compared.ours.p99_us,
        redis_calls_per_1000: calls / report.decisions as f64 * 1e3,
    })
}

fn kept(mode: &'static str, nodes: &[Server], client: &mut Client) -> Result<Kept> {
    let first = nodes.first().context("there is a node")?;
    let targets = nodes.iter().map(Server::address).collect::<Vec<_>>();
    let mut load: Load = first.load();
    load.pid = None;
    load.target = targets.join(",");
    load.connections = 2 * NODES as u32;
    load.pace = Pace::Open { per_second: ASKED };
    (load.warm_up, load.duration) = (Duration::ZERO, WINDOW * (WINDOWS + 2));
    load.windows = Some(WINDOW);
    let before = calls(client);
    let report = run_load(&load, |_| {})?;
    let calls = calls(client) - before;
    match report.windows {
        Some(windows) if windows.windows > 0 && report.decisions > 0 => Ok(Kept {
            mode,
            windows,
            redis_calls_per_1000: calls / report.decisions as f64 * 1e3,
            failed: report.failed(),
        }),
        _ => bail!("windows were not counted"),
    }
}

/// Calls of scripts so far.
pub(crate) fn calls(client: &mut Client) -> f64 {
    client.calls("evalsha") as f64
}

impl Kept {
    /// The most beyond the limit, and the most missing to it, in percent.
    fn errors(&self) -> (f64, f64) {
        let limit = LIMIT as f64;
        let over = (self.windows.passed_max as f64 - limit).max(0.0);
        let under = (limit - self.windows.passed_min as f64).max(0.0);
        (over / limit * 100.0, under / limit * 100.0)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ratio, low, high) = self.ratio;
        write!(
            f,
            "| {} | {} | {:.1} | {ratio:.3} [{low:.3}, {high:.3}] | {:.2} | {:.0} | {:.0} | {:.2} |",
            self.mode,
            self.load,
            self.decisions_per_second / 1e3,
            self.cpu_us,
            self.p50_us,
            self.p99_us,
            self.redis_calls_per_1000
        )
    }
}

impl fmt::Display for ModesTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Measured on {}; load average before: {:.2}. One node over gRPC, closed loop, nothing denied.\n",
            self.machine, self.load_average_before
        )?;
        writeln!(
            f,
            "| mode | load | k decisions/s | of memory [95 %] | CPU us a decision | p50 us | p99 us | Redis calls per 1,000 |"
        )?;
        writeln!(f, "|---|---|---:|---|---:|---:|---:|---:|")?;
        for cost in &self.costs {
            writeln!(f, "{cost}")?;
        }
        writeln!(
            f,
            "\n{NODES} nodes, one key, limit {LIMIT} in {} s, asked {} times in it. `synced` adds once in {} ms, unless the row says otherwise.\n",
            WINDOW.as_secs(),
            ASKED * WINDOW.as_secs_f64(),
            WINDOW.as_millis() / 10
        )?;
        writeln!(
            f,
            "| mode | whole windows | passed | over, % | under, % | Redis calls per 1,000 | not sent or answered |"
        )?;
        writeln!(f, "|---|---:|---|---:|---:|---:|---:|")?;
        for kept in &self.kept {
            let (over, under) = kept.errors();
            writeln!(
                f,
                "| {} | {} | {} to {} | {over:.2} | {under:.2} | {:.2} | {} |",
                kept.mode,
                kept.windows.windows,
                kept.windows.passed_min,
                kept.windows.passed_max,
                kept.redis_calls_per_1000,
                kept.failed
            )?;
        }
        writeln!(f, "\nAnswers of failure modes: {}.", self.degraded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_what_each_mode_costs_and_keeps() {
        let table = ModesTable {
            machine: "a machine".to_owned(),
            load_average_before: 0.0,
            costs: vec![Cost {
                mode: "synced",
                load: "hot",
                decisions_per_second: 90_000.0,
                ratio: (0.95, 0.9, 1.0),
                cpu_us: 10.0,
                p50_us: 500.0,
                p99_us: 900.0,
                redis_calls_per_1000: 0.02,
            }],
            kept: vec![Kept {
                mode: "synced",
                windows: Windows {
                    window_seconds: 2.0,
                    windows: 6,
                    asked_min: 11_900,
                    passed_min: 3_800,
                    passed_max: 4_400,
                    due: None,
                },
                redis_calls_per_1000: 2.5,
                failed: 0,
            }],
            degraded: 0.0,
        };
        let text = table.to_string();
        for words in [
            "| synced | hot | 90.0 | 0.950 [0.900, 1.000] | 10.00 | 500 | 900 | 0.02 |",
            "| synced | 6 | 3800 to 4400 | 10.00 | 5.00 | 2.50 | 0 |",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
