//! The plots of the manual.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use ratekeeper_testkit::plot::{BLACK, COLOURS, Color, Plot, RGBColor, SeriesLabelPosition};

use super::Way;
use super::figures::{Count, Figures};
use super::scenario::Scenario;

const GREY: RGBColor = RGBColor(120, 120, 120);

/// Draws what all regions admitted in each window, into a file in `folder`.
pub(super) fn draw(folder: &Path, scenario: &Scenario, figures: &Figures) -> Result<()> {
    let name = scenario.plot.context("a scenario with a plot")?;
    let path = folder.join(name);
    fs::write(&path, plot(figures).svg()).with_context(|| path.display().to_string())
}

/// All windows but the first and the last, of which only a part was asked for.
fn whole(windows: &[Count]) -> &[Count] {
    let last = windows.len().saturating_sub(1);
    windows.get(1..last).unwrap_or_default()
}

fn plot(figures: &Figures) -> Plot<'static> {
    let bounded = whole(&figures.windows[&Way::Bounded]);
    let length = bounded.len() as f64;
    let asked = bounded.iter().map(|count| count.all_asked());
    let highest = asked.clone().max().unwrap_or(0).max(figures.limit) as f64 * 1.1;
    let limit = vec![(0.0, figures.limit as f64), (length, figures.limit as f64)];
    let middle = |(at, hits): (usize, u64)| (at as f64 + 0.5, hits as f64);
    let asked = asked.enumerate().map(middle).collect();
    let mut lines = vec![
        ("the limit".to_owned(), BLACK.stroke_width(1), limit),
        ("asked for".to_owned(), GREY.stroke_width(1), asked),
    ];
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
        lines.push((label.to_owned(), colour.stroke_width(2), points));
    }
    Plot {
        x: ("Windows", length),
        y: ("Hits of all regions in a window", highest),
        legend: SeriesLabelPosition::LowerLeft,
        lines,
    }
}
