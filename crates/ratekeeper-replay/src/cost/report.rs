//! The results of a replay of costs.

use ratekeeper_core::Timestamp;
use serde::{Serialize, Serializer};

use crate::read::LogFaults;
use crate::record::BadLine;
use crate::report::json::Span;
use crate::report::{DeniedKey, LineCounts, RuleReport, percent};

/// The results of a replay of costs. Serializes as the JSON of `ratekeeper replay --cost --json`, and displays as tables.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CostReport {
    /// The number of lines.
    pub lines: LineCounts,
    /// Further figures: domain, span, lines out of order and notes.
    #[serde(flatten)]
    pub(crate) summary: CostSummary,
    /// Reasons why the figures may be wrong, one sentence each; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The same calls by each way to pay.
    pub ways: Vec<WayReport>,
}

/// The calls by one way to pay.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WayReport {
    /// The way: `post_paid`, `reserved` or `in_advance`.
    pub way: &'static str,
    /// The calls.
    pub calls: Split,
    /// The tokens of the calls.
    #[serde(flatten)]
    pub tokens: TokenCounts,
    /// The budgets, in the order of the file.
    pub rules: Vec<BudgetReport>,
    /// The tokens of the calls that were let in, by the minute in which they ended: every minute from the first one on, up
    /// to a week.
    pub minutes: Vec<MinuteReport>,
}

/// Numbers of what was let in and what was denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Split {
    /// Let in.
    pub allowed: u64,
    /// Denied.
    pub denied: u64,
}

/// The tokens of calls, which cost as much as they do whether they were let in or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct TokenCounts {
    /// Tokens of prompts.
    #[serde(rename = "prompt_tokens")]
    pub prompt: Split,
    /// Tokens of outputs.
    #[serde(rename = "output_tokens")]
    pub output: Split,
}

/// A budget by one way to pay.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BudgetReport {
    /// Its decisions.
    #[serde(flatten)]
    pub decisions: RuleReport,
    /// The hits of a window.
    pub limit: u64,
    /// The window, as rules write it.
    pub window: String,
    /// The most hits that calls used in any window, whatever was charged for them: windows that begin at every moment, or
    /// those of a fixed window. Null for calendar windows, and if the trace has too much in a window.
    pub most_in_a_window: Option<u64>,
}

/// The tokens of a minute.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MinuteReport {
    /// The start of the minute in UTC.
    pub minute: String,
    /// Tokens of prompts.
    pub prompt_tokens: u64,
    /// Tokens of outputs.
    pub output_tokens: u64,
}

/// Figures besides the counts.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct CostSummary {
    pub(crate) domain: String,
    /// The first and the last time of the trace; null if it has no call.
    #[serde(serialize_with = "as_times")]
    pub(crate) span: Option<(Timestamp, Timestamp)>,
    /// Lines that came before the line above them; they take its time.
    pub(crate) late: u64,
    /// Traces that were not read as they should be; warnings tell of them.
    #[serde(skip)]
    pub(crate) faults: LogFaults,
    /// The first few malformed lines.
    #[serde(skip)]
    pub(crate) bad_lines: Vec<BadLine>,
    /// By budget: the keys denied most, and their denials by each way. Each way has its own list as well.
    #[serde(skip)]
    pub(crate) most_denied: Vec<Vec<(String, Vec<u64>)>>,
    /// Notes, one sentence each.
    pub(crate) notes: Vec<String>,
}

#[allow(clippy::ref_option, reason = "serde passes the field by reference")]
fn as_times<S: Serializer>(
    span: &Option<(Timestamp, Timestamp)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    span.map(Span::new).serialize(serializer)
}

/// The warning of a trace that is empty, or has a head alone.
const NO_CALL: &str = "There is no call in the trace: nothing was replayed.";

impl CostReport {
    /// True if the figures do not speak of the trace: most lines came late, it has lines and no call, was not read to its
    /// end, or is empty.
    #[must_use]
    pub fn is_unsound(&self) -> bool {
        self.summary.late > self.lines.parsed / 2
            || self.summary.faults.is_unread
            || self.lines.read == 0
    }

    /// The first few malformed lines.
    #[must_use]
    pub fn bad_lines(&self) -> &[BadLine] {
        &self.summary.bad_lines
    }
}

impl CostSummary {
    pub(crate) fn new(domain: String) -> Self {
        Self {
            domain,
            ..Self::default()
        }
    }

    pub(crate) fn warnings(&self, lines: LineCounts) -> Vec<String> {
        let share = percent(self.late, lines.parsed);
        let late = (self.late > 0).then(|| {
            format!(
                "Lines out of order: {} ({share:.2} %). They count at the time of the line before, so too much may be denied. \
                 Sort the trace by time first.",
                self.late
            )
        });
        let of_nothing = (lines.read == 0).then(|| NO_CALL.to_owned());
        let of_logs = self.faults.warnings.iter().cloned();
        of_logs.chain(of_nothing).chain(late).collect()
    }
}

impl Split {
    pub(crate) fn add(&mut self, allowed: bool, count: u64) {
        let side = match allowed {
            true => &mut self.allowed,
            false => &mut self.denied,
        };
        *side = side.saturating_add(count);
    }

    pub(crate) const fn all(&self) -> u64 {
        self.allowed.saturating_add(self.denied)
    }
}

/// By budget: the keys that are denied most where calls pay afterwards, and else by another way, and their denials by each
/// way.
pub(crate) fn most_denied(ways: &[WayReport], top: usize) -> Vec<Vec<(String, Vec<u64>)>> {
    let budgets = ways.first().map_or(0, |way| way.rules.len());
    let of_budget = |at: usize| {
        let lists = ways.iter().map(|way| &way.rules[at].decisions.top_denied);
        let known = lists.clone().find(|list| !list.is_empty());
        let keys = known.into_iter().flatten().take(top);
        let row = |named: &DeniedKey| {
            let of_way = |list: &Vec<DeniedKey>| {
                let same = list.iter().find(|other| other.key == named.key);
                same.map_or(0, |same| same.denied)
            };
            (named.key.clone(), lists.clone().map(of_way).collect())
        };
        keys.map(row).collect()
    };
    (0..budgets).map(of_budget).collect()
}
