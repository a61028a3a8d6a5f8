//! The gateways whose limits are synced: the article's own scheme.

use std::fmt;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::redis::Seen;
use super::results::{ADDED_MAX_US, Admissions, Compared, Run};
use super::runs::{PER_SECOND, TENANTS};
use super::setup::{INTERVAL, NODES};

/// The share by which the increments may differ from one for each tenant, gateway and interval.
const TOLERANCE: f64 = 0.02;

/// Runs with synced limits, each with one without limits.
#[derive(Default)]
pub(crate) struct SyncedRuns {
    pub(crate) pairs: Vec<(Run, Run)>,
    pub(crate) admissions: Option<Admissions>,
}

impl SyncedRuns {
    /// The increments that the article expects.
    fn expected(&self) -> f64 {
        f64::from(TENANTS) * NODES as f64 / INTERVAL.as_secs_f64()
    }

    /// Commands a second, by the first number of each.
    fn per_second(&self, of: impl Fn(&Seen) -> f64) -> f64 {
        let seconds: f64 = self.pairs.iter().map(|(run, _)| run.seconds).sum();
        let all: f64 = self.pairs.iter().map(|(run, _)| of(&run.seen)).sum();
        all / seconds
    }

    fn increments(&self) -> f64 {
        self.per_second(|seen| seen.increments)
    }

    /// The most that may pass beyond a limit: what the other gateways admit in two intervals, and in the time of an answer.
    fn bound(&self, admissions: &Admissions) -> u64 {
        let others = (NODES - 1) as f64 / NODES as f64;
        let asked = PER_SECOND / f64::from(TENANTS) * others;
        let span = 2.0 * INTERVAL.as_secs_f64() + 0.1;
        let more = (asked * span).ceil() as u64;
        more.min(admissions.limit * (NODES as u64 - 1))
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "p50_us": Compared::of(&self.pairs, |run| run.latency.p50_us),
            "p95_us": Compared::of(&self.pairs, |run| run.latency.p95_us),
            "p99_us": Compared::of(&self.pairs, |run| run.latency.p99_us),
            "cpu_us": Compared::of(&self.pairs, |run| run.cpu_us),
            "increments_per_second": self.increments(),
            "calls_per_second": self.per_second(|seen| seen.calls),
            "increments_expected": self.expected(),
            "admissions": self.admissions,
            "bound": self.admissions.as_ref().map(|it| self.bound(it)),
        })
    }

    /// Fails on other increments than the article's, and on more than the stated bound.
    pub(crate) fn verdict(&self) -> Result<()> {
        let (increments, expected) = (self.increments(), self.expected());
        if (increments / expected - 1.0).abs() > TOLERANCE {
            bail!("{increments:.1} increments a second instead of {expected}");
        }
        let Some(admissions) = &self.admissions else {
            bail!("synced limits were not exceeded");
        };
        let (most, windows) = (self.bound(admissions), admissions.windows);
        if windows.windows == 0 || windows.passed_max > admissions.limit + most {
            bail!("more than {most} calls beyond the limit passed, or none were counted");
        }
        if windows.passed_min < admissions.limit {
            bail!("calls below a synced limit were denied");
        }
        Ok(())
    }
}

impl fmt::Display for SyncedRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let every = INTERVAL.as_secs();
        writeln!(
            f,
            "\n| the same, `synced` every {every} s | limits on | off | added [95 %] | target |"
        )?;
        writeln!(f, "|---|---:|---:|---|---|")?;
        let target = format!("<= {ADDED_MAX_US}");
        Compared::of(&self.pairs, |run| run.latency.p50_us).row(f, "p50, us", "")?;
        Compared::of(&self.pairs, |run| run.latency.p95_us).row(f, "p95, us", &target)?;
        Compared::of(&self.pairs, |run| run.latency.p99_us).row(f, "p99, us", "")?;
        Compared::of(&self.pairs, |run| run.cpu_us).row(f, "gateways, CPU us a request", "")?;
        writeln!(
            f,
            "\nRedis: {:.1} increments/s in {:.1} calls/s (expected: {}).",
            self.increments(),
            self.per_second(|seen| seen.calls),
            self.expected()
        )?;
        let Some(admissions) = &self.admissions else {
            return Ok(());
        };
        writeln!(
            f,
            "Above the limit of {} in {} s: in {} whole windows {} to {} calls passed (bound: {} more). The failure mode gave {} \
             answers; p95 {:.0} us.",
            admissions.limit,
            admissions.windows.window_seconds,
            admissions.windows.windows,
            admissions.windows.passed_min,
            admissions.windows.passed_max,
            self.bound(admissions),
            admissions.failed_open,
            admissions.latency.p95_us
        )
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_bench::{Latency, Windows};

    use super::*;

    fn runs(increments: f64, passed: (u64, u64)) -> SyncedRuns {
        let run = Run {
            latency: Latency::default(),
            cpu_us: 1.0,
            seen: Seen {
                increments,
                ..Seen::default()
            },
            seconds: 1.0,
        };
        SyncedRuns {
            pairs: vec![(run, run)],
            admissions: Some(Admissions {
                limit: 100,
                windows: Windows {
                    window_seconds: 10.0,
                    windows: 3,
                    asked_min: 350,
                    passed_min: passed.0,
                    passed_max: passed.1,
                    due: None,
                },
                failed_open: 0.0,
                calls_per_second: 75.0,
                latency: Latency::default(),
            }),
        }
    }

    #[test]
    fn the_verdict_holds_the_increments_and_the_bound() {
        assert!(runs(75.0, (100, 156)).verdict().is_ok());
        assert!(runs(76.4, (100, 100)).verdict().is_ok());
        for (increments, passed) in [
            (77.0, (100, 100)),
            (73.0, (100, 100)),
            (75.0, (99, 100)),
            (75.0, (100, 157)),
        ] {
            assert!(
                runs(increments, passed).verdict().is_err(),
                "{increments} {passed:?}"
            );
        }
    }
}
