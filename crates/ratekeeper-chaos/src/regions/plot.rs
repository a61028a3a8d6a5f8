//! The plots of the manual.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use super::Way;
use super::figures::{Count, Figures};
use super::scenario::Scenario;

const SIZE: (u32, u32) = (720, 380);

/// Distinct in print and for the colour-blind (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
];
const GREY: RGBColor = RGBColor(120, 120, 120);

/// Draws what all regions admitted in each window, into a file in `folder`.
pub(super) fn draw(folder: &Path, scenario: &Scenario, figures: &Figures) -> Result<()> {
    let name = scenario.plot.context("a scenario with a plot")?;
    let mut drawn = String::new();
    // Its errors borrow the drawing.
    let done = try_draw(&mut drawn, figures).map_err(|error| anyhow!("{error}"));
    done?;
    let path = folder.join(name);
    fs::write(&path, drawn).with_context(|| path.display().to_string())
}

/// All windows but the first and the last, of which only a part was asked for.
fn whole(windows: &[Count]) -> &[Count] {
    let last = windows.len().saturating_sub(1);
    windows.get(1..last).unwrap_or_default()
}

fn try_draw<'a>(
    drawn: &'a mut String,
    figures: &Figures,
) -> Result<(), Box<dyn std::error::Error + 'a>> {
    let bounded = whole(&figures.windows[&Way::Bounded]);
    let length = bounded.len() as f64;
    let asked = bounded.iter().map(|count| count.all_asked());
    let highest = asked.clone().max().unwrap_or(0).max(figures.limit) as f64 * 1.1;
    let area = SVGBackend::with_string(drawn, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(62)
        .build_cartesian_2d(0.0..length, 0.0..highest)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("Windows")
        .y_desc("Hits of all regions in a window")
        .x_label_formatter(&|window| format!("{window:.0}"))
        .y_label_formatter(&|hits| format!("{hits:.0}"))
        .draw()?;
    let limit = [(0.0, figures.limit as f64), (length, figures.limit as f64)];
    let limit = (limit.to_vec(), "the limit", BLACK.stroke_width(1));
    let middle = |(at, hits): (usize, u64)| (at as f64 + 0.5, hits as f64);
    let asked = asked.enumerate().map(middle).collect();
    let mut lines = vec![limit, (asked, "asked for", GREY.stroke_width(1))];
    for (way, colour) in Way::SHARED.into_iter().zip(COLOURS) {
        let windows = whole(&figures.windows[&way]).iter();
        let admitted = windows.map(Count::all_admitted);
        let label = match way {
            Way::Bounded => "regions: bounded",
            Way::Counted => "regions: counted",
            Way::Regional => "regions: regional",
            Way::Home | Way::Plain => "one Redis for all",
        };
        let points = admitted.enumerate().map(middle).collect();
        lines.push((points, label, colour.stroke_width(2)));
    }
    for (points, label, style) in lines {
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    area.present()?;
    Ok(())
}
