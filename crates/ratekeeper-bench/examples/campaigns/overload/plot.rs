//! The plots.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::Curve;
use super::client::PATIENCE;
use super::point::Point;

const SIZE: (u32, u32) = (720, 380);

/// Distinct in print and for the colour-blind (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 2] = [RGBColor(213, 94, 0), RGBColor(0, 114, 178)];

/// A line of a plot: its name, its colour, its width, and a value of each point.
type Line = (String, RGBColor, u32, Vec<(f64, f64)>);

/// Goodput against offered load, and the success of critical requests.
pub(crate) fn goodput(path: &Path, curves: &[Curve]) -> Result<()> {
    let mut lines = vec![(
        "capacity".to_owned(),
        RGBColor(150, 150, 150),
        1,
        vec![(0.0, 0.0), (1.0, 100.0), (4.0, 100.0)],
    )];
    lines.extend(of(curves, "goodput", 3, |point| point.goodput * 100.0));
    lines.extend(of(curves, "critical requests that succeed", 1, |point| {
        point.critical * 100.0
    }));
    draw(path, "Goodput, % of capacity", 115.0, &lines)
}

/// Latency of answers in time against offered load.
pub(crate) fn latency(path: &Path, curves: &[Curve]) -> Result<()> {
    let mut lines = of(curves, "99th percentile", 3, |point| point.p99_ms);
    lines.extend(of(curves, "median", 1, |point| point.p50_ms));
    let patience = PATIENCE.as_secs_f64() * 1e3;
    draw(path, "Latency, ms", patience * 1.1, &lines)
}

fn of(curves: &[Curve], what: &str, width: u32, value: fn(&Point) -> f64) -> Vec<Line> {
    let lines = curves.iter().zip(COLOURS).map(|(curve, colour)| {
        let points = curve.points.iter().map(|point| (point.load, value(point)));
        let name = format!("{}: {what}", curve.name);
        (name, colour, width, points.collect())
    });
    lines.collect()
}

fn draw(path: &Path, title: &str, largest: f64, lines: &[Line]) -> Result<()> {
    let drawn = try_draw(path, title, largest, lines);
    // Its errors borrow the drawing.
    drawn.map_err(|error| anyhow!("{}: {error}", path.display()))
}

fn try_draw(
    path: &Path,
    title: &str,
    largest: f64,
    lines: &[Line],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..4.0, 0.0..largest)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("Offered load, multiples of capacity")
        .y_desc(title)
        .draw()?;
    for (name, colour, width, points) in lines {
        let style = colour.stroke_width(*width);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    area.present()?;
    Ok(())
}
