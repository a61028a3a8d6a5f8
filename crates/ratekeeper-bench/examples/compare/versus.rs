//! Alternating runs of two servers under the same load.

use std::time::Duration;

use anyhow::{Result, bail};
use ratekeeper_bench::{Load, Report, run};
use ratekeeper_testkit::paired::{difference, median, try_paired};
use serde::Serialize;

use crate::Plan;
use crate::servers::Server;

/// Load before the measured part of each run.
const WARM_UP: Duration = Duration::from_millis(60);

/// The figure by which two servers are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum By {
    /// Decisions per second in a closed loop.
    Rate,
    /// Processor time per decision, both servers at one offered rate.
    Cpu,
}

/// The comparison of two servers.
#[derive(Debug, Serialize)]
pub(crate) struct Versus {
    pub(crate) name: String,
    pub(crate) by: By,
    pub(crate) ours: Side,
    pub(crate) theirs: Side,
    /// Median of ours / theirs over pairs, and its 95 % confidence interval.
    pub(crate) ratio: (f64, f64, f64),
    /// The same for ours - theirs, in microseconds of processor time per decision.
    pub(crate) cpu_us_more: (f64, f64, f64),
    pub(crate) pairs: usize,
    /// True if the ratio is known within 3 %.
    pub(crate) converged: bool,
}

/// Medians of the runs of one server.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) who: &'static str,
    pub(crate) decisions_per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) cpu_us: f64,
    pub(crate) resident_bytes: u64,
    /// Bytes of the shortest and the longest answer.
    pub(crate) answer_bytes: (usize, usize),
}

/// Runs `ours` and `theirs`, which differ only in their target, alternately.
pub(crate) fn versus(
    plan: &Plan,
    name: &str,
    by: By,
    ours: (&'static str, Load),
    theirs: (&'static str, Load),
) -> Result<Versus> {
    let mut runs = (Vec::new(), Vec::new());
    let (our_load, their_load) = (prepared(plan, ours.1), prepared(plan, theirs.1));
    let result = try_paired(
        plan.patience,
        || measure(&our_load, by, &mut runs.0),
        || measure(&their_load, by, &mut runs.1),
    )?;
    // As in the pairs, the first run of each is not counted.
    let (ours_runs, their_runs) = (counted(&runs.0), counted(&runs.1));
    let cpu: Vec<(f64, f64)> = ours_runs
        .iter()
        .zip(their_runs)
        .map(|(ours, theirs)| (cpu_us(ours), cpu_us(theirs)))
        .collect();
    let (more, (more_low, more_high)) = difference(&cpu);
    let (low, high) = result.interval;
    Ok(Versus {
        name: name.to_owned(),
        by,
        ours: Side::of(ours.0, ours_runs),
        theirs: Side::of(theirs.0, their_runs),
        ratio: (result.ratio, low, high),
        cpu_us_more: (more, more_low, more_high),
        pairs: result.pairs,
        converged: result.is_narrow(),
    })
}

/// The same by the rates of closed loops: names and servers, ours first.
pub(crate) fn by_rate(
    plan: &Plan,
    name: &str,
    ours: (&'static str, &Server),
    theirs: (&'static str, &Server),
    load: impl Fn(&Server) -> Load,
) -> Result<Versus> {
    let [ours, theirs] = [ours, theirs].map(|(who, server)| (who, load(server)));
    versus(plan, name, By::Rate, ours, theirs)
}

fn prepared(plan: &Plan, mut load: Load) -> Load {
    load.duration = plan.run;
    load.warm_up = WARM_UP;
    load
}

fn measure(load: &Load, by: By, runs: &mut Vec<Report>) -> Result<f64> {
    let report = once(load)?;
    let measure = match by {
        By::Rate => report.decisions_per_second,
        By::Cpu => cpu_us(&report),
    };
    runs.push(report);
    Ok(measure)
}

/// Runs a load; requests without a decision make it an error.
pub(crate) fn once(load: &Load) -> Result<Report> {
    let report = run(load, |_| {})?;
    if report.failed() > 0 || report.decisions == 0 {
        bail!(
            "{} at {}: {:?}",
            report.service,
            report.target,
            report.errors
        );
    }
    Ok(report)
}

fn counted(runs: &[Report]) -> &[Report] {
    runs.split_first().map_or(runs, |(_, counted)| counted)
}

pub(crate) fn cpu_us(report: &Report) -> f64 {
    report
        .server
        .map_or(f64::NAN, |server| server.cpu_us_per_decision)
}

impl Side {
    pub(crate) fn of(who: &'static str, runs: &[Report]) -> Self {
        let median = |of: fn(&Report) -> f64| median(runs.iter().map(of));
        let shortest = runs.iter().map(|report| report.answer_bytes_min).min();
        let longest = runs.iter().map(|report| report.answer_bytes_max).max();
        let resident = runs.iter().filter_map(|report| report.server);
        Self {
            who,
            decisions_per_second: median(|report| report.decisions_per_second),
            p50_us: median(|report| report.latency.p50_us),
            p99_us: median(|report| report.latency.p99_us),
            cpu_us: median(cpu_us),
            resident_bytes: resident
                .map(|server| server.resident_bytes)
                .max()
                .unwrap_or_default(),
            answer_bytes: (shortest.unwrap_or_default(), longest.unwrap_or_default()),
        }
    }
}
