//! Draws the output tokens that a budget lets in each minute, by each way to pay.
//!
//! ```sh
//! cargo run -p ratekeeper-replay --example budgets -- RULES TRACE RULE PLOT.svg
//! ```
//!
//! The window of RULE is a minute. Calls are dealt to 50 made-up users.

use std::path::Path;

use anyhow::{Context, Result, bail};
use ratekeeper_replay::{CostOptions, CostReplay, CostReport, Log};
use ratekeeper_rules::{Options, ReadOptions};
use ratekeeper_testkit::plot::{COLOURS, Color, Plot, RGBColor, SeriesLabelPosition};

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
#[expect(clippy::cast_precision_loss, reason = "tokens of a minute, for a plot")]
fn draw(report: &CostReport, rule: &str) -> Result<String> {
    let budgets = report.ways.first().map_or(&[][..], |way| &way.rules);
    let budget = budgets.iter().find(|budget| budget.decisions.rule == rule);
    let budget = budget.with_context(|| format!("there is no budget {rule}"))?;
    let budget = budget.limit;
    let ways = || report.ways.iter().map(|way| &way.minutes);
    let length = ways().map(Vec::len).max().unwrap_or(0) as f64;
    let all = ways().flatten().map(|minute| minute.output_tokens);
    let highest = all.max().unwrap_or(0).max(budget) as f64 * 1.1;
    let grey = RGBColor(60, 60, 60).stroke_width(2);
    let line = vec![(0.0, budget as f64), (length, budget as f64)];
    let mut lines = vec![("the budget".to_owned(), grey, line)];
    for ((name, colour), minutes) in NAMES.into_iter().zip(COLOURS).zip(ways()) {
        let points = minutes.iter().enumerate();
        let points = points.map(|(at, minute)| (at as f64 + 0.5, minute.output_tokens as f64));
        lines.push((name.to_owned(), colour.stroke_width(2), points.collect()));
    }
    let plot = Plot {
        x: ("Minutes", length),
        y: ("Output tokens that were let in, a minute", highest),
        legend: SeriesLabelPosition::LowerLeft,
        lines,
    };
    Ok(plot.svg())
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
