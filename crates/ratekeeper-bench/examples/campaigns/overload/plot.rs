//! The plots.

use std::path::Path;

use anyhow::{Context, Result};
use ratekeeper_testkit::plot::{COLOURS, Color, Line, Plot, RGBColor, SeriesLabelPosition};

use super::Curve;
use super::client::PATIENCE;
use super::point::Point;

const GREY: RGBColor = RGBColor(150, 150, 150);

/// Goodput against offered load, and the success of critical requests.
pub(crate) fn goodput(path: &Path, curves: &[Curve]) -> Result<()> {
    let capacity = vec![(0.0, 0.0), (1.0, 100.0), (4.0, 100.0)];
    let mut lines = vec![("capacity".to_owned(), GREY.stroke_width(1), capacity)];
    lines.extend(of(curves, "goodput", 3, |point| point.goodput * 100.0));
    lines.extend(of(curves, "critical requests that succeed", 1, |point| {
        point.critical * 100.0
    }));
    draw(path, ("Goodput, % of capacity", 115.0), lines)
}

/// Latency of answers in time against offered load.
pub(crate) fn latency(path: &Path, curves: &[Curve]) -> Result<()> {
    let mut lines: Vec<_> = of(curves, "99th percentile", 3, |point| point.p99_ms).collect();
    lines.extend(of(curves, "median", 1, |point| point.p50_ms));
    let patience = PATIENCE.as_secs_f64() * 1e3;
    draw(path, ("Latency, ms", patience * 1.1), lines)
}

fn of(
    curves: &[Curve],
    what: &str,
    width: u32,
    value: fn(&Point) -> f64,
) -> impl Iterator<Item = Line> {
    curves.iter().zip(COLOURS).map(move |(curve, colour)| {
        let points = curve.points.iter().map(|point| (point.load, value(point)));
        let name = format!("{}: {what}", curve.name);
        (name, colour.stroke_width(width), points.collect())
    })
}

fn draw(path: &Path, y: (&str, f64), lines: Vec<Line>) -> Result<()> {
    let plot = Plot {
        x: ("Offered load, multiples of capacity", 4.0),
        y,
        legend: SeriesLabelPosition::MiddleRight,
        lines,
    };
    std::fs::write(path, plot.svg()).with_context(|| path.display().to_string())
}
