//! The runs, one after the other.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http::Method;
use indicatif::{ProgressBar, ProgressStyle};
use ratekeeper_bench::{Forwarded, Keys, Load, Pace, Report, Service, run};
use ratekeeper_testkit::redis::Client;

use super::Plan;
use super::increments::Increments;
use super::redis::Seen;
use super::results::{Admissions, Results, Run};
use super::setup::{Fleet, Setup};

pub(crate) const PER_SECOND: f64 = 1_000.0;
pub(crate) const TENANTS: u32 = 25;

/// Connections: eight to each gateway.
const CONNECTIONS: u32 = 24;

const PATH: &str = "/v1/organizations/{key}/product/7";

/// The window of the limits.
const WINDOW: Duration = Duration::from_secs(10);

/// Runs everything and shows a progress bar.
pub(crate) fn all(plan: &Plan) -> Result<Results> {
    let setup = Setup::start(&plan.ratekeeper)?;
    let bar = Bar::new(plan);
    let mut results = Results::new();
    let increments = Increments::start(setup.redis.client());
    for pair in 0..plan.pairs {
        let text = format!("latency, pair {} of {}", pair + 1, plan.pairs);
        let on = || reads(plan, &setup, &setup.on, &bar, &text);
        let off = || reads(plan, &setup, &setup.off, &bar, &text);
        let synced = || synced_reads(plan, &setup, &bar, &text);
        let (on, off, synced) = if pair.is_multiple_of(2) {
            (on()?, off()?, synced()?)
        } else {
            let (synced, off) = (synced()?, off()?);
            (on()?, off, synced)
        };
        results.pairs.push((on, off));
        results.synced.pairs.push((synced, off));
    }
    results.increments_us = increments.end()?;
    results.admissions = Some(writes(plan, &setup, &setup.on, &bar)?);
    results.synced.admissions = Some(writes(plan, &setup, &setup.synced, &bar)?);
    bar.0.finish_and_clear();
    Ok(results)
}

fn load(fleet: &Fleet, method: Method) -> Load {
    let forwarded = Forwarded {
        method,
        path: PATH.to_owned(),
    };
    let mut load = Load::new(fleet.target(), Service::Gateway(forwarded));
    load.connections = CONNECTIONS;
    load.keys = Keys::Uniform(TENANTS);
    load.pace = Pace::Open {
        per_second: PER_SECOND,
    };
    load
}

/// The load below all limits: each tenant sends 400 requests in a window that allows 1,000.
fn reads(plan: &Plan, setup: &Setup, fleet: &Fleet, bar: &Bar, text: &str) -> Result<Run> {
    let mut load = load(fleet, Method::GET);
    load.warm_up = plan.warm_up;
    load.duration = plan.run;
    let mut client = setup.redis.client();
    let (seen, cpu_us) = (Seen::by(&mut client), fleet.cpu_us()?);
    let report = bar.run(&load, text)?;
    let seen = Seen::by(&mut client) - seen;
    let seconds = (load.warm_up + load.duration).as_secs_f64();
    if report.denied > 0 {
        bail!("calls were denied below their limit: {report}");
    }
    Ok(Run {
        latency: report.latency,
        cpu_us: (fleet.cpu_us()? - cpu_us) / (seconds * PER_SECOND),
        seen,
        seconds,
    })
}

/// As [`reads`], with synced limits. Calls are counted for the measured time, which is whole intervals: a node has as many
/// turns in it, wherever it begins.
fn synced_reads(plan: &Plan, setup: &Setup, bar: &Bar, text: &str) -> Result<Run> {
    let (client, warm_up, span) = (setup.redis.client(), plan.warm_up, plan.run);
    let counted = std::thread::spawn(move || counted(client, warm_up, span));
    let run = reads(plan, setup, &setup.synced, bar, text)?;
    let Ok((seen, seconds)) = counted.join() else {
        bail!("the connection that counts commands was lost");
    };
    Ok(Run {
        seen,
        seconds,
        ..run
    })
}

/// The commands in that span after a while, and how long it was.
fn counted(mut client: Client, after: Duration, span: Duration) -> (Seen, f64) {
    std::thread::sleep(after);
    let (begun, before) = (Instant::now(), Seen::by(&mut client));
    std::thread::sleep(span.saturating_sub(begun.elapsed()));
    let seen = Seen::by(&mut client) - before;
    (seen, span.as_secs_f64())
}

/// The load above the limits: each tenant sends 400 requests in a window that allows 100.
fn writes(plan: &Plan, setup: &Setup, fleet: &Fleet, bar: &Bar) -> Result<Admissions> {
    let mut load = load(fleet, Method::PUT);
    load.warm_up = Duration::ZERO;
    load.duration = writing(plan);
    load.windows = Some(WINDOW);
    let mut client = setup.redis.client();
    let seen = Seen::by(&mut client);
    let report = bar.run(&load, "admissions")?;
    let seen = Seen::by(&mut client) - seen;
    let Some(windows) = report.windows else {
        bail!("windows were not counted");
    };
    Ok(Admissions {
        limit: 100,
        windows,
        failed_open: fleet.failed_open(),
        calls_per_second: seen.calls / load.duration.as_secs_f64(),
        latency: report.latency,
    })
}

/// One window more than needed, because the first and the last are cut.
fn writing(plan: &Plan) -> Duration {
    WINDOW * (plan.windows + 1)
}

/// Overall progress, in milliseconds.
struct Bar(ProgressBar);

impl Bar {
    fn new(plan: &Plan) -> Self {
        let pairs = u32::try_from(plan.pairs).unwrap_or(u32::MAX);
        let total = (plan.run + plan.warm_up) * 3 * pairs + writing(plan) * 2;
        let bar = ProgressBar::new(millis(total));
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg}  {eta} left") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Runs a load; requests without an answer make it an error.
    fn run(&self, load: &Load, text: &str) -> Result<Report> {
        let before = self.0.position();
        self.0.set_message(text.to_owned());
        let report = run(load, |progress| {
            let elapsed = progress.elapsed.min(progress.total);
            self.0.set_position(before + millis(elapsed));
        })?;
        self.0
            .set_position(before + millis(load.warm_up + load.duration));
        if report.failed() > 0 {
            bail!("not everything was answered: {report}");
        }
        Ok(report)
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
