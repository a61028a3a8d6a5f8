//! The table, and the files for plots.

use std::fmt;

use serde_json::{Value, json};

use super::Way;
use super::figures::{Figures, Sums, name};
use super::scenario::Scenario;
use super::signals::Link;

/// The table's first two lines.
pub(super) const HEAD: &str = "\
| scenario | way | asked | admitted of possible | over | denied falsely, of the limit | lost | asks a second | p50, p99 beyond a local counter | \
by failure mode | links back | missed |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|";

/// The first line of `windows.csv`.
pub(super) const CSV_HEAD: &str = "scenario,way,window,region,asked,admitted,limit\n";

/// A way in a scenario.
pub(super) struct Row {
    scenario: &'static str,
    way: Way,
    sums: Sums,
    denied_falsely: f64,
    /// Milliseconds beyond `plain`, in the same run.
    added_ms: [f64; 2],
    /// Of the way that has links.
    link: Option<Link>,
    missed: String,
}

impl Row {
    pub(super) fn of(scenario: &Scenario, figures: &Figures) -> Vec<Self> {
        let plain = figures.sums[&Way::Plain];
        let row = |way: Way| {
            let sums = figures.sums[&way];
            let added = [(sums.p50, plain.p50), (sums.p99, plain.p99)];
            let is_bounded = way == Way::Bounded;
            Self {
                scenario: scenario.name,
                way,
                sums,
                denied_falsely: figures.falsely(way),
                added_ms: added.map(|(of, plain)| (of.as_secs_f64() - plain.as_secs_f64()) * 1e3),
                link: is_bounded.then_some(figures.link),
                missed: match is_bounded {
                    true => figures.missed.join("; "),
                    false => String::new(),
                },
            }
        };
        Way::SHARED.map(row).into()
    }

    fn json(&self) -> Value {
        json!({
            "scenario": self.scenario,
            "way": self.way.name(),
            "asked": self.sums.asked,
            "admitted": self.sums.admitted,
            "possible": self.sums.possible,
            "over": self.sums.over,
            "denied_falsely": self.denied_falsely,
            "lost": self.sums.lost(),
            "asks_per_second": self.link.map(|link| link.asks_per_second),
            "added_ms": self.added_ms,
            "by_failure_mode": self.sums.degraded,
            "links_back_s": self.link.and_then(|link| link.back).map(|back| back.as_secs_f64()),
            "missed": self.missed,
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asks = self.link.map_or("–".to_owned(), |link| {
            format!("{:.1}", link.asks_per_second)
        });
        let back = self.link.and_then(|link| link.back);
        let back = back.map_or("–".to_owned(), |back| {
            format!("{:.1} s", back.as_secs_f64())
        });
        write!(
            f,
            "| {} | `{}` | {} | {} of {} | {} | {:.1} % | {:.1} % | {asks} | {:+.1}, {:+.1} ms | {} | {back} | {} |",
            self.scenario,
            self.way.name(),
            self.sums.asked,
            self.sums.admitted,
            self.sums.possible,
            self.sums.over,
            self.denied_falsely * 100.0,
            self.sums.lost() * 100.0,
            self.added_ms[0],
            self.added_ms[1],
            self.sums.degraded,
            self.missed.replace(['|', '\n'], " "),
        )
    }
}

/// All rows, for plots.
pub(super) fn json(rows: &[Row]) -> String {
    Value::from_iter(rows.iter().map(Row::json)).to_string()
}

/// The windows of a scenario, a line for each region.
pub(super) fn csv(scenario: &Scenario, figures: &Figures) -> String {
    let mut lines = String::new();
    for (way, windows) in &figures.windows {
        for (window, count) in windows.iter().enumerate() {
            for (region, (asked, admitted)) in count.asked.iter().zip(count.admitted).enumerate() {
                let line = format!(
                    "\"{}\",{},{window},{},{asked},{admitted},{}\n",
                    scenario.name,
                    way.name(),
                    name(region),
                    figures.limit,
                );
                lines.push_str(&line);
            }
        }
    }
    lines
}
