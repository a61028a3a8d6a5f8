//! The report as a table.

use std::fmt::{self, Write};

use super::words::{counted, grouped, printable, time_text};
use super::{Compared, LineCounts, Report, RuleReport, percent};
use crate::record::BadLine;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        for warning in &self.warnings {
            writeln!(f, "WARNING: {warning}")?;
        }
        self.rules_table(f)?;
        for rule in self.rules.iter().filter(|rule| !rule.top_denied.is_empty()) {
            top_denied(f, rule)?;
        }
        self.compare_table(f)?;
        self.growth_table(f)?;
        for note in &self.summary.notes {
            write!(f, "\nnote: {note}")?;
        }
        if !self.summary.notes.is_empty() {
            writeln!(f)?;
        }
        Ok(())
    }
}

impl Report {
    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = &self.summary;
        let format = summary.format.map(crate::Format::name);
        lines_read(f, self.lines, format, &summary.bad_lines)?;
        if let Some((first, last)) = summary.span {
            writeln!(f, "{} to {}", time_text(first), time_text(last))?;
        }
        let all = summary.allowed + summary.denied;
        writeln!(
            f,
            "domain {}: {}, {} allowed, {} denied ({:.2} %), {} matched no limit",
            printable(&summary.domain),
            counted(all, "request"),
            grouped(summary.allowed),
            grouped(summary.denied),
            percent(summary.denied, all),
            grouped(summary.unmatched),
        )
    }

    fn rules_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![row([
            "rule",
            "requests",
            "allowed",
            "denied",
            "%",
            "worst minute",
        ])];
        for rule in &self.rules {
            let worst = rule.worst_minute.as_ref().map_or_else(
                || "-".to_owned(),
                |worst| format!("{} ({})", worst.minute, grouped(worst.denied)),
            );
            rows.push([
                printable(&rule.rule),
                grouped(rule.requests),
                grouped(rule.allowed),
                grouped(rule.denied),
                format!("{:.2}", percent(rule.denied, rule.requests)),
                worst,
            ]);
        }
        writeln!(f)?;
        aligned(f, &rows)
    }

    fn compare_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compared: Vec<(&RuleReport, Compared)> = self
            .rules
            .iter()
            .filter_map(|rule| Some((rule, rule.compare.flatten()?)))
            .collect();
        if compared.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\nagainst the exact log, in requests (% of the rule's requests)"
        )?;
        let head = [
            "rule",
            "exact denies",
            "wrongly allowed",
            "wrongly denied",
            "net",
        ];
        let mut rows = vec![row(head)];
        for (rule, found) in compared {
            let share = |count: u64, percent: f64| format!("{} ({percent:.3} %)", grouped(count));
            let sign = if found.net < 0 { "-" } else { "+" };
            let net = grouped(found.net.unsigned_abs());
            rows.push([
                printable(&rule.rule),
                share(
                    found.exact_denied,
                    percent(found.exact_denied, found.requests),
                ),
                share(found.wrongly_allowed, found.wrongly_allowed_percent),
                share(found.wrongly_denied, found.wrongly_denied_percent),
                format!("{sign}{net} ({:+.3} %)", found.net_percent),
            ]);
        }
        aligned(f, &rows)
    }
}

impl Report {
    fn growth_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.growth.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\nunusual growth, which a service reports and does not limit"
        )?;
        let head = [
            "rule",
            "key",
            "since",
            "until",
            "usual a minute",
            "most a minute",
        ];
        let mut rows = vec![row(head)];
        for growth in &self.growth {
            rows.push([
                printable(&growth.rule),
                growth.key.as_deref().map_or("all".to_owned(), printable),
                growth.since.clone(),
                growth.until.clone().unwrap_or_else(|| "-".to_owned()),
                format!("{:.0}", growth.usual_per_minute),
                grouped(growth.peak_per_minute),
            ]);
        }
        aligned(f, &rows)
    }
}

/// The numbers of lines, and the first malformed ones.
pub(crate) fn lines_read(
    f: &mut fmt::Formatter<'_>,
    lines: LineCounts,
    format: Option<&str>,
    bad_lines: &[BadLine],
) -> fmt::Result {
    let [parsed, malformed] = [lines.parsed, lines.malformed].map(grouped);
    let read = counted(lines.read, "line");
    write!(f, "{read} read, {parsed} parsed, {malformed} malformed")?;
    if let Some(format) = format {
        write!(f, " ({format})")?;
    }
    writeln!(f)?;
    for line in bad_lines {
        writeln!(f, "  {line}")?;
    }
    let unshown = lines.malformed.saturating_sub(bad_lines.len() as u64);
    if unshown > 0 {
        writeln!(f, "  and {} more", grouped(unshown))?;
    }
    Ok(())
}

fn top_denied(f: &mut fmt::Formatter<'_>, rule: &RuleReport) -> fmt::Result {
    writeln!(f, "\nmost denied by {}", printable(&rule.rule))?;
    for top in &rule.top_denied {
        write!(f, "{:>12}  {}", grouped(top.denied), printable(&top.key))?;
        if top.overcounted_at_most > 0 {
            write!(
                f,
                "  (at most {} too many)",
                grouped(top.overcounted_at_most)
            )?;
        }
        writeln!(f)?;
    }
    Ok(())
}

pub(crate) fn row<const N: usize>(cells: [&str; N]) -> [String; N] {
    cells.map(str::to_owned)
}

/// Aligns columns at their natural width: the first to the left, numbers to the right.
pub(crate) fn aligned<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    rows: &[[String; N]],
) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    for row in rows {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
            if index == 0 {
                write!(line, "{cell:<width$}")?;
            } else {
                write!(line, "  {cell:>width$}")?;
            }
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}
