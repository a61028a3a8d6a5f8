//! The memory of the dashboard's page, and of the node that it watches, over ten minutes with 10,000 tenants and 10,000
//! decisions a second.
//!
//! `cargo xtask bench dashboard` builds the parts and runs it. Chromium shows the page, driven as in the tests.

mod samples;

use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use self::samples::{Sample, Samples};
use crate::args::{Args, Words};
use crate::node::Node;
use anyhow::{Context, Result, anyhow, ensure};
use ratekeeper_bench::{Keys, Load, LoadError, Pace, Question, Report, Service, run};
use ratekeeper_testkit::page::Page;
use serde_json::json;

/// Tenants with a plan and a limit of their own.
const TENANTS: u32 = 10_000;

/// Decisions a second.
const RATE: f64 = 10_000.0;

/// The least share of them that must have been made for the figures to mean anything.
const RATE_SHARE_MIN: f64 = 0.98;

/// The part of the page that tells if it shows live figures.
const CONNECTION: &str = "#connection";

/// The times of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// The whole run.
    run: Duration,
    /// The time between two samples.
    every: Duration,
    /// The time after which memory should not grow any more.
    settle: Duration,
    /// The largest share by which the node may still grow then.
    growth_max: f64,
}

pub(crate) fn main(words: Words) -> Result<()> {
    let args = Args::of(words, &[], &[])?;
    let (run, every, settle, growth_max) = match args.is_quick {
        // Counters and metering of the first minute are still to come and go.
        true => (60, 5, 30, 0.25),
        false => (600, 10, 120, 0.05),
    };
    let times = Times {
        run: Duration::from_secs(run),
        every: Duration::from_secs(every),
        settle: Duration::from_secs(settle),
        growth_max,
    };
    let node = Node::start(&args.ratekeeper, "sqlite://quotas.db");
    node.import(TENANTS)?;
    let mut page = Page::open(&node.0);
    page.wait(CONNECTION, |text| text == "live");
    let (samples, report) = measure(&node, &mut page, times)?;
    page.end();
    args.tell("dashboard", &samples.table(times, &report)?)?;
    check_load(&report)?;
    samples.verdict(times)
}

/// Samples while the load runs.
fn measure(node: &Node, page: &mut Page, times: Times) -> Result<(Samples, Report)> {
    let load = start_load(node, times);
    let start = Instant::now();
    let mut samples = Samples::default();
    while start.elapsed() < times.run {
        sleep(times.every);
        if load.is_finished() {
            break;
        }
        let memory = page.tell(json!({"command": "memory"}));
        let bytes = |of: &str| memory[of].as_u64().context("the page tells its memory");
        let sample = Sample {
            at: start.elapsed(),
            node_bytes: node.resident_bytes(),
            page_bytes: bytes("process_bytes")?,
            heap_bytes: bytes("heap_bytes")?,
        };
        eprintln!("{sample}");
        samples.0.push(sample);
        // A page that fell asleep would take no memory either.
        let said = page.text(CONNECTION);
        ensure!(said == "live", "the page is not connected any more: {said}");
    }
    let report = load.join().map_err(|_| anyhow!("the load panicked"))??;
    Ok((samples, report))
}

fn start_load(node: &Node, times: Times) -> JoinHandle<Result<Report, LoadError>> {
    let entries = [("customer", "{key}"), ("endpoint", "POST /orders")];
    let question = Question::new("d", &entries);
    let target = format!("127.0.0.1:{}", node.0.grpc);
    let mut load = Load::new(target, Service::Rls(question));
    load.keys = Keys::Zipf {
        keys: TENANTS,
        exponent: 1.0,
    };
    load.pace = Pace::Open { per_second: RATE };
    load.warm_up = Duration::ZERO;
    load.duration = times.run;
    std::thread::spawn(move || run(&load, |_| {}))
}

/// Fails if the node did not make the decisions, or all of one kind: the page would have had little to show.
fn check_load(report: &Report) -> Result<()> {
    ensure!(
        report.errors.is_empty() && report.decisions_per_second >= RATE_SHARE_MIN * RATE,
        "the load was not what it should be: {report}"
    );
    ensure!(
        report.denied > 0 && report.allowed > 0,
        "all decisions were alike: {report}"
    );
    Ok(())
}
