//! The results of a replay.

pub(crate) mod json;
pub(crate) mod table;
pub(crate) mod words;

use serde::Serialize;

use ratekeeper_core::{Micros, Timestamp};

use crate::parse::Format;
use crate::read::LogFaults;
use crate::record::BadLine;

/// The results of a replay. Serializes as the JSON of `ratekeeper replay --json`, and displays as a
/// table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The number of lines.
    pub lines: LineCounts,
    /// Further figures: domain, format, span, requests, order and notes.
    #[serde(flatten)]
    pub summary: Summary,
    /// Reasons why the figures may be wrong, one sentence each; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// One entry for each rule of the domain, in the order of the file, also if it never matched.
    pub rules: Vec<RuleReport>,
    /// Unusual growth that a service would have reported; left out if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<GrowthReport>,
}

/// The part of the lines that may be late: one of so many.
const LATE_PART_MAX: u64 = 20;

/// A rule, or one of its callers, with far more requests than in the hour before.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GrowthReport {
    /// The rule's id.
    pub rule: String,
    /// The entry that names the caller; secrets are fingerprints. Left out for all requests of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The start of the time in which it would have been found.
    pub since: String,
    /// The end; null if it went on at the end of the log.
    pub until: Option<String>,
    /// The requests a minute that were usual before.
    pub usual_per_minute: f64,
    /// The most requests of a minute since.
    pub peak_per_minute: u64,
}

/// The number of lines; `read` is the sum of the others. Blank lines are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LineCounts {
    /// Lines of all logs.
    pub read: u64,
    /// Lines with a time and an address, each a request.
    pub parsed: u64,
    /// All other lines.
    pub malformed: u64,
}

/// The decisions of one rule.
///
/// A shadow rule counts the requests that it would have denied. A request that one rule denied
/// counts as allowed by every other rule whose limit it fitted.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RuleReport {
    /// The rule's id.
    pub rule: String,
    /// Requests that its limit decided: allowed and denied.
    pub requests: u64,
    /// Requests that fitted.
    pub allowed: u64,
    /// Requests that did not fit.
    pub denied: u64,
    /// The keys with the most denials, most denied first.
    pub top_denied: Vec<DeniedKey>,
    /// The minute with the most denials; the first of them if there are several.
    pub worst_minute: Option<WorstMinute>,
    /// The comparison with the exact log: left out if none was requested, null if the rule has no
    /// limit, or one that no log can be compared with (calendar windows, concurrency).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compare: Option<Option<Compared>>,
}

/// A key and its denials.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeniedKey {
    /// The entries in the form that `rules explain` takes: `key=value,key=value`. Values of secret
    /// entries are fingerprints; a counter shared by a pattern has the pattern.
    pub key: String,
    /// Denials; never too low.
    pub denied: u64,
    /// The most by which `denied` may be too high, which happens only with more than 1,024 denied
    /// keys; left out if it is exact.
    #[serde(skip_serializing_if = "is_zero")]
    pub overcounted_at_most: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The minute with the most denials.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WorstMinute {
    /// The start of the minute in UTC: `2015-05-17T10:05:00Z`.
    pub minute: String,
    /// Denials in it.
    pub denied: u64,
}

/// The differences between a rule's decisions and those of the exact log, each on its own
/// admissions.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// Compared requests: all of the rule's, unless the exact log outgrew its memory (256 MiB).
    pub requests: u64,
    /// Requests that the exact log denied.
    pub exact_denied: u64,
    /// Requests that only the exact log denied.
    pub wrongly_allowed: u64,
    /// Requests that only the rule denied.
    pub wrongly_denied: u64,
    /// Wrongly allowed minus wrongly denied: the excess that the rule lets pass.
    pub net: i64,
    /// Wrongly allowed, in % of `requests`.
    pub wrongly_allowed_percent: f64,
    /// Wrongly denied, in % of `requests`.
    pub wrongly_denied_percent: f64,
    /// Net, in % of `requests`.
    pub net_percent: f64,
}

/// Figures besides the rules' counts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Summary {
    /// The rules' domain.
    pub domain: String,
    /// The format of the last log, once it was known.
    pub format: Option<Format>,
    /// The earliest and the latest time of the log.
    pub span: Option<(Timestamp, Timestamp)>,
    /// Requests that every rule allows.
    pub allowed: u64,
    /// Requests that a rule denies.
    pub denied: u64,
    /// Requests refused before any rule is checked, because they are ambiguous.
    pub refused: u64,
    /// Requests that no limit matched, so that all of them passed.
    pub unmatched: u64,
    /// Lines that were out of order and have been sorted.
    pub sorted: u64,
    /// Lines that were too far out of order to be sorted; they take the time of the line before.
    pub late: u64,
    /// The largest difference.
    pub late_by_max: Micros,
    /// True if a time had a fraction of a second.
    pub has_fractions: bool,
    /// Requests decided without counting, because the memory for counters was full.
    pub uncounted: u64,
    /// Logs that were not read as they should be.
    pub(crate) faults: LogFaults,
    /// The first few malformed lines.
    pub bad_lines: Vec<BadLine>,
    /// Notes on the figures of single rules, one sentence each.
    pub notes: Vec<String>,
}

impl Report {
    /// True if the figures do not speak of the log: more than a twentieth of the lines were too late to be sorted, a log has
    /// lines and no request, or was not read to its end, or there is no line.
    #[must_use]
    pub fn is_unsound(&self) -> bool {
        self.summary.late > self.lines.parsed / LATE_PART_MAX
            || self.summary.faults.is_unread
            || self.lines.read == 0
    }
}

/// `count` in percent of `all`; 0 if `all` is 0.
#[expect(clippy::cast_precision_loss, reason = "a percentage for people")]
pub(crate) fn percent(count: u64, all: u64) -> f64 {
    if all == 0 {
        0.0
    } else {
        100.0 * count as f64 / all as f64
    }
}

#[cfg(test)]
mod tests;
