//! Memory over time, and the bounds that it has to keep.

use std::fmt::{self, Write as _};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratekeeper_bench::Report;

use super::Times;
use crate::machine;

/// The most memory of the page.
const PAGE_BYTES_MAX: u64 = 100_000_000;

/// Memory at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// The time since the load began.
    pub(crate) at: Duration,
    pub(crate) node_bytes: u64,
    pub(crate) page_bytes: u64,
    pub(crate) heap_bytes: u64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [node, page, heap] = [self.node_bytes, self.page_bytes, self.heap_bytes].map(megabytes);
        let at = self.at.as_secs();
        write!(
            f,
            "{at:>4} s: node {node:.1} MB, page {page:.1} MB, its objects {heap:.1} MB"
        )
    }
}

/// All samples, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Samples(pub(crate) Vec<Sample>);

type Read = fn(&Sample) -> u64;

impl Samples {
    /// The samples from `settle` on.
    fn settled(&self, settle: Duration) -> impl Iterator<Item = &Sample> {
        self.0.iter().filter(move |sample| sample.at >= settle)
    }

    /// The share by which the node has grown at most since it settled.
    fn growth(&self, settle: Duration) -> Result<f64> {
        let nodes = || self.settled(settle).map(|sample| sample.node_bytes);
        let first = nodes().next().context("the run was too short")?;
        let most = nodes().max().unwrap_or(first);
        Ok(most as f64 / first as f64 - 1.0)
    }

    fn page_most(&self) -> u64 {
        let pages = self.0.iter().map(|sample| sample.page_bytes);
        pages.max().unwrap_or(0)
    }

    /// Fails if a bound was broken.
    pub(crate) fn verdict(&self, times: Times) -> Result<()> {
        if self.page_most() > PAGE_BYTES_MAX {
            bail!("the page took more than {} MB", PAGE_BYTES_MAX / 1_000_000);
        }
        let growth = self.growth(times.settle)?;
        if growth > times.growth_max {
            bail!("the node still grew by {:.1} %", growth * 100.0);
        }
        Ok(())
    }

    /// The results as Markdown.
    pub(crate) fn table(&self, times: Times, report: &Report) -> Result<String> {
        let settle = times.settle;
        let rows: [(&str, Read, String); 3] = [
            (
                "node, resident",
                |it| it.node_bytes,
                format!(
                    "{:+.1} % at most since {} s: bound {:.0} %",
                    self.growth(settle)? * 100.0,
                    settle.as_secs(),
                    times.growth_max * 100.0
                ),
            ),
            (
                "page, private memory of its process",
                |it| it.page_bytes,
                format!("bound {} MB", PAGE_BYTES_MAX / 1_000_000),
            ),
            (
                "page, objects of its program",
                |it| it.heap_bytes,
                String::new(),
            ),
        ];
        let (machine, load) = (machine::describe(), machine::load_average());
        let mut table = format!(
            "{machine}; load {load:.1} at the end; {:.0} decisions/s for {:.0} s, {:.0} % denied\n\n",
            report.decisions_per_second,
            report.duration_seconds,
            100.0 * report.denied as f64 / report.decisions.max(1) as f64
        );
        let settled = settle.as_secs();
        writeln!(
            table,
            "| MB | first | most | last | a minute, from {settled} s on | |\n|---|---:|---:|---:|---:|---|"
        )?;
        for (name, read, bound) in rows {
            let sizes = || self.0.iter().map(read);
            let [first, most, last] = [sizes().next(), sizes().max(), sizes().next_back()]
                .map(|size| megabytes(size.unwrap_or(0)));
            let slope = slope(self.settled(settle), read);
            writeln!(
                table,
                "| {name} | {first:.1} | {most:.1} | {last:.1} | {slope:+.2} | {bound} |"
            )?;
        }
        Ok(table)
    }
}

/// The slope of the line through the samples, by least squares, in MB a minute.
fn slope<'a>(samples: impl Iterator<Item = &'a Sample>, read: Read) -> f64 {
    let points: Vec<(f64, f64)> = samples
        .map(|sample| (sample.at.as_secs_f64() / 60.0, megabytes(read(sample))))
        .collect();
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (at, size) = (mean(|point| point.0), mean(|point| point.1));
    let (mut over, mut under) = (0.0, 0.0);
    for (x, y) in points {
        over += (x - at) * (y - size);
        under += (x - at) * (x - at);
    }
    if under > 0.0 { over / under } else { 0.0 }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times {
        run: Duration::from_secs(180),
        every: Duration::from_secs(60),
        settle: Duration::from_secs(60),
        growth_max: 0.05,
    };

    fn samples(nodes: &[u64], page_bytes: u64) -> Samples {
        let sample = |(minute, node_bytes): (u64, &u64)| Sample {
            at: Duration::from_secs(60 * minute),
            node_bytes: *node_bytes,
            page_bytes,
            heap_bytes: 1,
        };
        Samples((0..).zip(nodes).map(sample).collect())
    }

    #[test]
    fn a_node_that_grows_after_it_settled_fails() {
        let flat = samples(&[10_000_000, 90_000_000, 91_000_000, 90_000_000], 1);
        assert!(flat.verdict(TIMES).is_ok());
        let grows = samples(&[10_000_000, 90_000_000, 93_000_000, 96_000_000], 1);
        assert!(grows.verdict(TIMES).is_err());
        assert!((slope(grows.settled(TIMES.settle), |it| it.node_bytes) - 3.0).abs() < 1e-9);
        assert!(samples(&[1], 1).verdict(TIMES).is_err(), "too short");
    }

    #[test]
    fn a_page_that_is_too_large_fails() {
        assert!(samples(&[1, 1], 100_000_001).verdict(TIMES).is_err());
        assert!(samples(&[1, 1], 100_000_000).verdict(TIMES).is_ok());
    }
}
