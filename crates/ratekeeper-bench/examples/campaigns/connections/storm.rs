//! A thousand clients that connect at once, as after the restart of a proxy, beside checks that go on.

use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratekeeper_bench::{Pace, Report, run};
use ratekeeper_testkit::paired::{difference, median};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::clients::connect;
use super::servers;
use crate::pinned::Subject;

/// The argument of the program as clients.
pub(crate) const NAME: &str = "clients";

/// The clients that come at once.
const CLIENTS: u32 = 1_000;
/// Checks that are due in a second: far below what the server can do.
const CHECKS_PER_SECOND: f64 = 20_000.0;
const RUN: Duration = Duration::from_secs(1);
/// The time into a run at which they come.
const BEGIN: Duration = Duration::from_millis(300);

/// The comparison of runs with a storm and runs without.
pub(crate) struct Storm<'a> {
    pub(crate) server: &'a Subject,
    /// Runs of each.
    pub(crate) pairs: usize,
}

impl Storm<'_> {
    /// Rows: the latencies of checks without a storm and with one, and the difference of their 99th percentiles.
    pub(crate) fn row(&self) -> Result<String> {
        let mut pairs = Vec::new();
        let mut last = None;
        for _ in 0..self.pairs {
            let calm = self.run(false)?;
            let stormy = self.run(true)?;
            pairs.push((stormy.latency.p99_us, calm.latency.p99_us));
            last = Some((calm, stormy));
        }
        let Some((calm, stormy)) = last else {
            bail!("there are no runs");
        };
        let (more, (low, high)) = difference(&pairs);
        let row = |name: &str, report: &Report, p99: String| {
            let rate = report.decisions_per_second;
            let late = report.lateness.map_or(0.0, |late| late.p99_us);
            format!(
                "| {name} | {rate:.0} | {:.0} | {p99}; sent late by {late:.0} |",
                report.latency.p50_us
            )
        };
        let p99 = |of: fn(&(f64, f64)) -> f64| median(pairs.iter().map(of));
        Ok([
            row(
                "20,000 due a second",
                &calm,
                format!("{:.0}", p99(|pair| pair.1)),
            ),
            row(
                "the same, while 1,000 clients connect",
                &stormy,
                format!(
                    "{:.0}: {more:+.0} [{low:+.0}, {high:+.0}]",
                    p99(|pair| pair.0)
                ),
            ),
        ]
        .join("\n"))
    }

    fn run(&self, has_storm: bool) -> Result<Report> {
        let mut load = servers::load(self.server);
        load.pace = Pace::Open {
            per_second: CHECKS_PER_SECOND,
        };
        load.warm_up = Duration::from_millis(100);
        load.duration = RUN;
        let clients = match has_storm {
            true => Some(start(self.server.port)?),
            false => None,
        };
        let report = run(&load, |_| {})?;
        if let Some(mut clients) = clients
            && !clients.wait()?.success()
        {
            bail!("the clients failed");
        }
        if report.failed() > 0 {
            bail!("checks failed: {:?}", report.errors);
        }
        Ok(report)
    }
}

/// Starts the clients: this program again, on the same processor, but behind the load, which is else late with its checks.
fn start(port: u16) -> Result<Child> {
    let program = std::env::current_exe().context("this program is nowhere")?;
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(program);
    command.args(["connections", NAME, &port.to_string()]);
    command.spawn().context("the clients cannot be started")
}

/// Connects all of them at once, and leaves.
pub(crate) fn clients(port: u16) -> Result<()> {
    std::thread::sleep(BEGIN);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connecting = JoinSet::new();
        for number in 0..CLIENTS {
            connecting.spawn(connect(port, number));
        }
        let mut connected = Vec::new();
        while let Some(client) = connecting.join_next().await {
            connected.push(client??);
        }
        Ok(())
    })
}
