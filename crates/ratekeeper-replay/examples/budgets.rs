//! Draws the output tokens that a budget lets in each minute, by each way to pay.
//!
//! ```sh
//! cargo run -p ratekeeper-replay --example budgets -- RULES TRACE RULE PLOT.svg
//! ```
//!
//! The window of RULE is a minute. Calls are dealt to 50 made-up users.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use plotters::prelude::*;
use ratekeeper_replay::{CostOptions, CostReplay, CostReport, Log};
use ratekeeper_rules::{Options, ReadOptions};

const SIZE: (u32, u32) = (720, 380);

/// Distinct in print and for the colour-blind (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 3] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
];
const NAMES: [&str; 3] = ["post-paid", "reserved", "asked for in advance"];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [rules, trace, rule, plot] = &args[..] else {
        bail!("give RULES TRACE RULE PLOT.svg");
    };
    let drawn = draw(&replayed(Path::new(rules), Path::new(trace))?, rule)?;
    std::fs::write(plot, drawn).with_context(|| plot.clone())
}

fn replayed(rules: &Path, trace: &Path) -> Result<CostReport> {
    let sources = ratekeeper_rules::read(rules, &ReadOptions::default())?;
    let loaded = ratekeeper_rules::load(&sources, &Options::default())?;
    let mut options = CostOptions::default();
    options.users = 50;
    let mut replay = CostReplay::new(options, &loaded.rules)?;
    replay.read(&Log::from_arg(trace), |_| {})?;
    Ok(replay.report())
}

/// The plot as SVG.
fn draw(report: &CostReport, rule: &str) -> Result<String> {
    let budgets = report.ways.first().map_or(&[][..], |way| &way.rules);
    let budget = budgets.iter().find(|budget| budget.decisions.rule == rule);
    let budget = budget.with_context(|| format!("there is no budget {rule}"))?;
    let mut drawn = String::new();
    // Its errors borrow the drawing.
    let done = try_draw(&mut drawn, report, budget.limit).map_err(|error| anyhow!("{error}"));
    done.map(|()| drawn)
}

#[expect(clippy::cast_precision_loss, reason = "tokens of a minute, for a plot")]
fn try_draw<'a>(
    drawn: &'a mut String,
    report: &CostReport,
    budget: u64,
) -> Result<(), Box<dyn std::error::Error + 'a>> {
    let ways = || report.ways.iter().map(|way| &way.minutes);
    let length = ways().map(Vec::len).max().unwrap_or(0) as f64;
    let all = ways().flatten().map(|minute| minute.output_tokens);
    let highest = all.max().unwrap_or(0).max(budget) as f64 * 1.1;
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
        .x_desc("Minutes")
        .y_desc("Output tokens that were let in, a minute")
        .x_label_formatter(&|minute| format!("{minute:.0}"))
        .y_label_formatter(&|tokens| format!("{tokens:.0}"))
        .draw()?;
    let line = [(0.0, budget as f64), (length, budget as f64)];
    let grey = RGBColor(60, 60, 60).stroke_width(2);
    chart
        .draw_series(LineSeries::new(line, grey))?
        .label("the budget")
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], grey));
    for ((name, colour), minutes) in NAMES.into_iter().zip(COLOURS).zip(ways()) {
        let style = colour.stroke_width(2);
        let points = minutes.iter().enumerate();
        let points = points.map(|(at, minute)| (at as f64 + 0.5, minute.output_tokens as f64));
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(name)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The plot in the manual is that of the command beside it.
    #[test]
    fn the_manual_shows_this_plot() -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let logs = root.join("examples/logs");
        let report = replayed(
            &logs.join("azure-llm.yaml"),
            &logs.join("azure-llm-2023-11-16.csv.gz"),
        )?;
        let shown = std::fs::read_to_string(root.join("docs/budgets.svg"))?;
        assert!(
            draw(&report, "llm.tokens_output")? == shown,
            "draw it again"
        );
        Ok(())
    }
}
