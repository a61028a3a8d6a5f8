//! Goodput and latency against offered load, through the gateway with a slow upstream behind it, without and with load
//! shedding.
//!
//! `cargo xtask bench overload` builds the parts and runs it. It writes a table to `--out`, and the plots of
//! docs/measurements.md and docs/shedding.md to `--docs`.

mod client;
mod plot;
mod point;
mod upstream;

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use self::point::{Point, measure};
use crate::args::{Args, Words};
use anyhow::Result;

/// Offered loads, as multiples of the upstream's capacity.
const LOADS: [f64; 9] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0];

/// A way to run the gateway: its name, and what its rules say of shedding.
const WAYS: [(&str, &str); 2] = [
    ("no shedding", ""),
    (
        "shedding",
        "shed: { classify: [ { class: critical, header: x-critical }, { class: test, header: x-test } ], workers: {}, adaptive: {} }\n",
    ),
];

/// The times of one point.
#[derive(Clone, Copy)]
struct Times {
    warm: Duration,
    measured: Duration,
}

pub(crate) fn main(words: Words) -> Result<()> {
    let args = Args::of(words, &["--docs"], &[])?;
    let seconds = if args.is_quick { (2, 2) } else { (4, 10) };
    let times = Times {
        warm: Duration::from_secs(seconds.0),
        measured: Duration::from_secs(seconds.1),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let curves = runtime.block_on(curves(&args.ratekeeper, times))?;
    args.tell("overload", &table(&curves)?)?;
    if let Some(docs) = args.path("--docs") {
        plot::goodput(&docs.join("shedding-goodput.svg"), &curves)?;
        plot::latency(&docs.join("shedding-latency.svg"), &curves)?;
    }
    Ok(())
}

/// The results of one way: a point for each load.
struct Curve {
    name: &'static str,
    points: Vec<Point>,
}

async fn curves(binary: &Path, times: Times) -> Result<Vec<Curve>> {
    let mut curves = Vec::new();
    for (name, shed) in WAYS {
        let mut points = Vec::new();
        for load in LOADS {
            eprintln!("{name}, {load} x capacity");
            points.push(measure(binary, shed, load, times).await?);
        }
        curves.push(Curve { name, points });
    }
    Ok(curves)
}

fn table(curves: &[Curve]) -> Result<String> {
    let mut table = String::from("| offered |");
    for curve in curves {
        let name = curve.name;
        write!(table, " goodput, {name} | critical | p50, ms | p99, ms |")?;
    }
    write!(table, "\n|---:|{}\n", "---:|".repeat(4 * curves.len()))?;
    for (at, load) in LOADS.into_iter().enumerate() {
        write!(table, "| {load} x |")?;
        for Curve { points, .. } in curves {
            let Point {
                goodput,
                critical,
                p50_ms,
                p99_ms,
                ..
            } = points[at];
            let (goodput, critical) = (goodput * 100.0, critical * 100.0);
            write!(
                table,
                " {goodput:.0} % | {critical:.1} % | {p50_ms:.0} | {p99_ms:.0} |"
            )?;
        }
        table.push('\n');
    }
    Ok(table)
}
