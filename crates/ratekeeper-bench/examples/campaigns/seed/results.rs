//! The results, as text and as JSON.

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};
use ratekeeper_bench::{Latency, Windows};
use ratekeeper_testkit::paired::{Paired, difference, quantile};
use serde::Serialize;
use serde_json::{Value, json};

use super::increments;
use super::redis::Seen;
use super::runs::{PER_SECOND, TENANTS};
use super::synced::SyncedRuns;
use crate::files::write;
use crate::machine;

/// The article's figure for the latency that its limiter adds at p95, in microseconds.
pub(crate) const ADDED_MAX_US: f64 = 1_000.0;

/// A run below the limits.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) latency: Latency,
    /// Processor time of all gateways per request.
    pub(crate) cpu_us: f64,
    pub(crate) seen: Seen,
    pub(crate) seconds: f64,
}

/// The run above the limits.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Admissions {
    /// The limit of a tenant per window.
    pub(crate) limit: u64,
    pub(crate) windows: Windows,
    /// Answers from the failure mode, to which no limit in Redis applies.
    pub(crate) failed_open: f64,
    /// Calls per second in Redis while most requests were denied.
    pub(crate) calls_per_second: f64,
    pub(crate) latency: Latency,
}

impl Admissions {
    /// Returns true if every tenant got exactly its limit in every window.
    fn are_exact(&self) -> bool {
        let Windows {
            windows,
            asked_min,
            passed_min,
            passed_max,
            ..
        } = self.windows;
        windows > 0
            && asked_min > self.limit
            && passed_min >= self.limit
            && passed_max <= self.limit
    }
}

/// All results.
pub(crate) struct Results {
    machine: String,
    load_average_before: f64,
    /// Runs with limits on and off.
    pub(crate) pairs: Vec<(Run, Run)>,
    /// Latencies of plain increments.
    pub(crate) increments_us: Vec<f64>,
    pub(crate) admissions: Option<Admissions>,
    pub(crate) synced: SyncedRuns,
}

impl Results {
    pub(crate) fn new() -> Self {
        Self {
            machine: machine::describe(),
            load_average_before: machine::load_average(),
            pairs: Vec::new(),
            increments_us: Vec::new(),
            admissions: None,
            synced: SyncedRuns::default(),
        }
    }

    fn compared(&self, of: impl Fn(&Run) -> f64) -> Compared {
        Compared::of(&self.pairs, of)
    }

    fn p95(&self) -> Compared {
        self.compared(|run| run.latency.p95_us)
    }

    fn redis(&self) -> Value {
        let mut seen = Seen::default();
        let mut seconds = 0.0;
        for (on, _) in &self.pairs {
            seen += on.seen;
            seconds += on.seconds;
        }
        json!({
            "calls_per_second": seen.calls / seconds,
            "commands_per_second": seen.commands / seconds,
            "script_us_per_call": seen.script_us / seen.calls,
        })
    }

    /// The latency in microseconds that this share of the increments did not exceed.
    fn increment_us(&self, share: f64) -> f64 {
        quantile(self.increments_us.iter().copied(), share)
    }

    fn json(&self) -> Value {
        json!({
            "machine": self.machine,
            "load_average_before": self.load_average_before,
            "pairs": self.pairs.len(),
            "offered_per_second": PER_SECOND,
            "tenants": TENANTS,
            "p50_us": self.compared(|run| run.latency.p50_us),
            "p95_us": self.p95(),
            "p99_us": self.compared(|run| run.latency.p99_us),
            "cpu_us": self.compared(|run| run.cpu_us),
            "redis": self.redis(),
            "increment_us": {
                "p50": self.increment_us(0.5),
                "p95": self.increment_us(0.95),
                "p99": self.increment_us(0.99),
            },
            "admissions": self.admissions,
            "synced": self.synced.json(),
        })
    }

    /// Writes `seed.json` and `seed.md` into `folder`.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(&self.json())? + "\n";
        write(folder, "seed.json", &json)?;
        write(folder, "seed.md", &self.to_string())
    }

    /// Fails on wrong admissions only; times depend on the machine too.
    pub(crate) fn verdict(&self) -> Result<()> {
        match &self.admissions {
            Some(admissions) if admissions.are_exact() => self.synced.verdict(),
            _ => bail!("what passed is not what the limits say; see above"),
        }
    }
}

/// Medians of both, and of the paired differences with their 95 % interval.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Compared {
    on: f64,
    off: f64,
    pub(crate) added: f64,
    low: f64,
    high: f64,
}

impl Compared {
    pub(crate) fn of(pairs: &[(Run, Run)], of: impl Fn(&Run) -> f64) -> Self {
        let runs: Vec<_> = pairs.iter().map(|(on, off)| (of(on), of(off))).collect();
        let (added, (low, high)) = difference(&runs);
        let medians = Paired::of(&runs);
        Self {
            on: medians.ours,
            off: medians.theirs,
            added,
            low,
            high,
        }
    }

    /// Writes it as a row of a table.
    pub(crate) fn row(&self, f: &mut fmt::Formatter<'_>, name: &str, target: &str) -> fmt::Result {
        let Self {
            on,
            off,
            added,
            low,
            high,
        } = self;
        writeln!(
            f,
            "| {name} | {on:.1} | {off:.1} | {added:+.1} [{low:+.1}, {high:+.1}] | {target} |"
        )
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Measured on {}; load average before: {:.2}; {} pairs.\n",
            self.machine,
            self.load_average_before,
            self.pairs.len()
        )?;
        writeln!(
            f,
            "| {PER_SECOND} calls/s, {TENANTS} tenants, 3 gateways, `exact` | limits on | off | added [95 %] | target |"
        )?;
        writeln!(f, "|---|---:|---:|---|---|")?;
        self.row(f, "p50, us", "", |run| run.latency.p50_us)?;
        let target = format!("<= {ADDED_MAX_US}");
        self.row(f, "p95, us", &target, |run| run.latency.p95_us)?;
        self.row(f, "p99, us", "", |run| run.latency.p99_us)?;
        self.row(f, "gateways, CPU us a request", "", |run| run.cpu_us)?;
        let redis = self.redis();
        let of = |field: &str| redis.get(field).and_then(Value::as_f64).unwrap_or(f64::NAN);
        writeln!(
            f,
            "\nRedis: {:.0} calls/s and {:.0} commands/s in all, {:.1} us of its own time a call. A bare INCR beside it, \
             {} a second: p50 {:.0} us, p95 {:.0}, p99 {:.0}.",
            of("calls_per_second"),
            of("commands_per_second"),
            of("script_us_per_call"),
            increments::PER_SECOND,
            self.increment_us(0.5),
            self.increment_us(0.95),
            self.increment_us(0.99)
        )?;
        self.admissions.iter().try_for_each(|it| it.fmt(f))?;
        self.synced.fmt(f)
    }
}

impl fmt::Display for Admissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Windows {
            window_seconds,
            windows,
            asked_min,
            passed_min,
            passed_max,
            ..
        } = self.windows;
        writeln!(
            f,
            "\nAbove the limit of {} in {window_seconds} s: in {windows} whole windows each tenant asked at least {asked_min} \
             times, and {passed_min} to {passed_max} calls passed: {}. The failure mode gave {} answers. Redis saw {:.0} \
             calls/s; p95 {:.0} us.",
            self.limit,
            if self.are_exact() { "exact" } else { "WRONG" },
            self.failed_open,
            self.calls_per_second,
            self.latency.p95_us
        )
    }
}

impl Results {
    fn row(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        target: &str,
        of: impl Fn(&Run) -> f64,
    ) -> fmt::Result {
        self.compared(of).row(f, name, target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(p95_us: f64) -> Run {
        let latency = Latency {
            p95_us,
            ..Latency::default()
        };
        Run {
            latency,
            cpu_us: p95_us / 10.0,
            seen: Seen {
                calls: 990.0,
                commands: 2_970.0,
                increments: 75.0,
                script_us: 9_900.0,
            },
            seconds: 1.0,
        }
    }

    fn admissions(asked_min: u64, passed_min: u64, passed_max: u64) -> Admissions {
        Admissions {
            limit: 100,
            windows: Windows {
                window_seconds: 10.0,
                windows: 3,
                asked_min,
                passed_min,
                passed_max,
                due: None,
            },
            failed_open: 0.0,
            calls_per_second: 250.0,
            latency: Latency::default(),
        }
    }

    #[test]
    fn results_are_told_and_written() {
        let mut results = Results::new();
        results.pairs = vec![(run(500.0), run(300.0)); 3];
        results.increments_us = (1..=100).map(f64::from).collect();
        results.admissions = Some(admissions(350, 100, 100));
        results.synced.pairs = vec![(run(400.0), run(300.0)); 3];
        results.synced.admissions = Some(admissions(350, 110, 120));
        let folder = tempfile::tempdir().expect("a folder can be made");
        results.write(folder.path()).expect("files can be written");
        let text = std::fs::read_to_string(folder.path().join("seed.md")).expect("it was written");
        for words in [
            "| p95, us | 500.0 | 300.0 | +200.0 [+200.0, +200.0] | <= 1000 |",
            "990 calls/s and 2970 commands/s",
            "10.0 us of its own time",
            "p95 96,",
            "100 to 100 calls passed: exact",
            "| p95, us | 400.0 | 300.0 | +100.0 [+100.0, +100.0] | <= 1000 |",
            "75.0 increments/s",
            "110 to 120 calls passed",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let json = std::fs::read(folder.path().join("seed.json")).expect("it was written");
        let json: Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(json["p95_us"]["added"], 200.0);
        assert_eq!(json["admissions"]["windows"]["passed_max"], 100);
        assert!(results.verdict().is_ok());
    }

    #[test]
    fn admissions_are_exact_or_the_verdict_says_no() {
        for (asked_min, passed_min, passed_max) in
            [(350, 100, 101), (350, 99, 100), (100, 100, 100)]
        {
            let mut results = Results::new();
            results.pairs = vec![(run(1.0), run(1.0))];
            results.synced.pairs = results.pairs.clone();
            assert!(results.verdict().is_err(), "nothing was counted");
            results.admissions = Some(admissions(asked_min, passed_min, passed_max));
            assert!(results.verdict().is_err());
            assert!(results.to_string().contains("WRONG"), "{results}");
        }
    }
}
