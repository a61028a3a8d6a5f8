//! Replays calls of language models through budgets, by three ways to pay.
//!
//! A trace tells when a call came and what it cost, which a service knows only at the end. So every call is decided three
//! times: paid when its answer has streamed, reserved and then settled, and asked for in advance with no correction.

mod ledger;
mod options;
mod peak;
mod report;
mod table;
mod trace;

use ratekeeper_core::Timestamp;
use ratekeeper_rules::RuleSet;

use crate::error::{ReplayError, choose_domain};
use crate::input::{Line, Log};
use crate::read::{Progress, read_log};
use crate::record::{BadLine, MalformedLine};
use crate::report::LineCounts;
use ledger::Ledger;
use report::CostSummary;
use trace::{Columns, Descriptors};

pub use options::{CostOptions, CostWeights, PayWay};
pub use report::{BudgetReport, CostReport, MinuteReport, Split, TokenCounts, WayReport};

/// Replays traces of calls through the budgets of a domain, at the times in the traces. Nothing is random: the same trace
/// gives the same report.
#[derive(Debug)]
pub struct CostReplay {
    options: CostOptions,
    descriptors: Descriptors,
    ledgers: Vec<Ledger>,
    lines: LineCounts,
    summary: CostSummary,
}

impl CostReplay {
    /// Prepares a replay of `rules`.
    ///
    /// # Errors
    /// [`ReplayError`] if there is no domain to check, several to choose from, no budget in it, or not enough memory.
    pub fn new(options: CostOptions, rules: &RuleSet) -> Result<Self, ReplayError> {
        let domain = choose_domain(rules, options.domain.as_deref())?;
        let ledgers = PayWay::ALL.map(|way| Ledger::new(way, &options, rules, &domain));
        let ledgers: Vec<Ledger> = ledgers.into_iter().collect::<Result<_, _>>()?;
        if !ledgers.iter().any(Ledger::has_budgets) {
            return Err(ReplayError::NoBudget { domain });
        }
        Ok(Self {
            descriptors: Descriptors::new(&options, rules, &domain),
            summary: CostSummary::new(domain),
            lines: LineCounts::default(),
            ledgers,
            options,
        })
    }

    /// Replays `log`. Several logs are replayed one after the other, oldest first. `progress` is called every few thousand
    /// lines, and at the end.
    ///
    /// # Errors
    /// [`ReplayError::Read`] if the log cannot be read to its end, [`ReplayError::Columns`] if its first line does not name
    /// the columns.
    pub fn read(&mut self, log: &Log, progress: impl FnMut(Progress)) -> Result<(), ReplayError> {
        let mut columns = None;
        let before = self.lines;
        let done = read_log(log, self.lines.read, progress, |number, line| {
            match (&columns, line) {
                (None, Line::Whole(text) | Line::TooLong(text)) => {
                    let named = Columns::named(text, &self.descriptors);
                    columns = Some(named.map_err(|fault| ReplayError::Columns {
                        log: log.name(),
                        fault,
                    })?);
                }
                (Some(columns), line) => self.line(columns, number, line),
            }
            Ok(self.lines.read)
        });
        let lines = (
            self.lines.read - before.read,
            self.lines.parsed - before.parsed,
        );
        self.summary.faults.take(log, lines, None, done)
    }

    /// The results. Calls that have not ended yet end now.
    #[must_use]
    pub fn report(&mut self) -> CostReport {
        for ledger in &mut self.ledgers {
            ledger.end_all();
        }
        let ways = self.ledgers.iter().map(Ledger::report);
        let mut ways: Vec<WayReport> = ways.collect();
        let mut summary = self.summary.clone();
        summary.notes = self.ledgers.first().map(Ledger::notes).unwrap_or_default();
        summary.most_denied = report::most_denied(&ways, self.options.top_denied);
        for budget in ways.iter_mut().flat_map(|way| &mut way.rules) {
            budget
                .decisions
                .top_denied
                .truncate(self.options.top_denied);
        }
        CostReport {
            lines: self.lines,
            warnings: summary.warnings(self.lines),
            ways,
            summary,
        }
    }

    fn line(&mut self, columns: &Columns, number: u64, line: Line<'_>) {
        let (text, read) = match line {
            Line::Whole(text) if text.trim_ascii().is_empty() => return,
            Line::Whole(text) => (text, columns.read(text)),
            Line::TooLong(start) => (start, Err(MalformedLine::TooLong)),
        };
        self.lines.read += 1;
        let mut row = match read {
            Ok(row) => row,
            Err(reason) => {
                self.lines.malformed += 1;
                if self.summary.bad_lines.len() < self.options.bad_lines {
                    let bad = BadLine::new(number, reason, text);
                    self.summary.bad_lines.push(bad);
                }
                return;
            }
        };
        self.lines.parsed += 1;
        let now = self.advance(row.time);
        self.descriptors.deal(&mut row, self.lines.parsed);
        let asked = self.descriptors.of(&self.summary.domain, &row);
        for ledger in &mut self.ledgers {
            ledger.call(&row, &asked, now);
        }
    }

    /// The time of a line; a late line takes the latest time seen.
    fn advance(&mut self, time: Timestamp) -> Timestamp {
        let (first, latest) = self.summary.span.unwrap_or((time, time));
        self.summary.late += u64::from(time < latest);
        let now = latest.max(time);
        self.summary.span = Some((first, now));
        now
    }
}
