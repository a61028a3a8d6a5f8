//! The report as tables.

use std::fmt;

use super::options::PayWay;
use super::report::{BudgetReport, CostReport, Split};
use crate::report::percent;
use crate::report::table::{aligned, lines_read, row};
use crate::report::words::{counted, grouped, printable, time_text};

impl fmt::Display for CostReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        for warning in &self.warnings {
            writeln!(f, "WARNING: {warning}")?;
        }
        self.calls(f)?;
        self.budgets(f)?;
        self.most_denied(f)?;
        for note in &self.summary.notes {
            write!(f, "\nnote: {note}")?;
        }
        if !self.summary.notes.is_empty() {
            writeln!(f)?;
        }
        Ok(())
    }
}

impl CostReport {
    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        lines_read(f, self.lines, Some("csv"), &self.summary.bad_lines)?;
        if let Some((first, last)) = self.summary.span {
            writeln!(f, "{} to {}", time_text(first), time_text(last))?;
        }
        let Some(way) = self.ways.first() else {
            return Ok(());
        };
        writeln!(
            f,
            "domain {}: {}, {}, {}",
            printable(&self.summary.domain),
            counted(way.calls.all(), "call"),
            counted(way.tokens.prompt.all(), "prompt token"),
            counted(way.tokens.output.all(), "output token"),
        )
    }

    fn calls(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "paid",
            "calls let in",
            "denied",
            "%",
            "prompt tokens let in",
            "output tokens let in",
        ];
        let mut rows = vec![row(head)];
        for (way, name) in self.ways.iter().zip(PayWay::ALL) {
            let let_in = |tokens: Split| {
                let share = percent(tokens.allowed, tokens.all());
                format!("{} ({share:.1} %)", grouped(tokens.allowed))
            };
            rows.push([
                name.in_words().to_owned(),
                grouped(way.calls.allowed),
                grouped(way.calls.denied),
                format!("{:.2}", percent(way.calls.denied, way.calls.all())),
                let_in(way.tokens.prompt),
                let_in(way.tokens.output),
            ]);
        }
        writeln!(f)?;
        aligned(f, &rows)
    }

    /// The budgets of one place by each way.
    fn by_way(&self, at: usize) -> impl Iterator<Item = (PayWay, &BudgetReport)> {
        let ways = PayWay::ALL.into_iter().zip(&self.ways);
        ways.filter_map(move |(name, way)| Some((name, way.rules.get(at)?)))
    }

    fn budgets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "budget",
            "paid",
            "denied",
            "%",
            "most used in a window",
            "of the budget",
            "worst minute",
        ];
        let mut rows = vec![row(head)];
        for at in 0..self.ways.first().map_or(0, |way| way.rules.len()) {
            for (way, budget) in self.by_way(at) {
                let name = format!(
                    "{}: {} in {}",
                    budget.decisions.rule,
                    grouped(budget.limit),
                    budget.window
                );
                let most = budget.most_in_a_window;
                let worst = budget.decisions.worst_minute.as_ref();
                rows.push([
                    match way {
                        PayWay::PostPaid => printable(&name),
                        _ => String::new(),
                    },
                    way.in_words().to_owned(),
                    grouped(budget.decisions.denied),
                    format!(
                        "{:.2}",
                        percent(budget.decisions.denied, budget.decisions.requests)
                    ),
                    most.map_or_else(|| "-".to_owned(), grouped),
                    most.map_or_else(
                        || "-".to_owned(),
                        |most| format!("{:.1} %", percent(most, budget.limit)),
                    ),
                    worst.map_or_else(
                        || "-".to_owned(),
                        |worst| format!("{} ({})", worst.minute, grouped(worst.denied)),
                    ),
                ]);
            }
        }
        writeln!(f)?;
        aligned(f, &rows)
    }

    /// The keys that budgets deny most, and their denials by each way.
    fn most_denied(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let budgets = self.ways.first().into_iter().flat_map(|way| &way.rules);
        for (budget, keys) in budgets.zip(&self.summary.most_denied) {
            if keys.is_empty() {
                continue;
            }
            let [first, second, third] = PayWay::ALL.map(|way| way.in_words().to_owned());
            let name = format!("most denied by {}", printable(&budget.decisions.rule));
            let mut rows = vec![[name, first, second, third]];
            for (key, denied) in keys {
                let count = |way: usize| grouped(denied.get(way).copied().unwrap_or(0));
                rows.push([printable(key), count(0), count(1), count(2)]);
            }
            writeln!(f)?;
            aligned(f, &rows)?;
        }
        Ok(())
    }
}
