//! What a replay found.

pub(crate) mod table;

use serde::Serialize;

use ratekeeper_core::{Micros, Timestamp};

use crate::parse::Format;
use crate::record::BadLine;

/// What a replay found. It serialises as the JSON of `ratekeeper replay --json`, and
/// displays as a table for people.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// How many lines there were.
    pub lines: LineCounts,
    /// Why the figures may be wrong, one sentence each; missing if nothing is known against them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// One for each rule of the domain, in the order of the file, also if it never matched.
    pub rules: Vec<RuleReport>,
    /// What people want to know besides.
    #[serde(skip)]
    pub summary: Summary,
}

/// How many lines there were; `read` is the sum of the others. Blank lines are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LineCounts {
    /// Lines of all logs.
    pub read: u64,
    /// Lines with a time and an address: each was a request.
    pub parsed: u64,
    /// The others.
    pub malformed: u64,
}

/// How one rule answered.
///
/// A rule that only watches counts what it would have denied. A request that one rule
/// denied counts as allowed by every other rule whose own limit it fitted.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RuleReport {
    /// The rule's id.
    pub rule: String,
    /// Requests that its limit was asked about: allowed and denied ones.
    pub requests: u64,
    /// Requests that fitted.
    pub allowed: u64,
    /// Requests that did not fit.
    pub denied: u64,
    /// The keys that were denied most, the most denied first.
    pub top_denied: Vec<DeniedKey>,
    /// The minute with the most denials, the first of them if there are several.
    pub worst_minute: Option<WorstMinute>,
    /// The comparison with the exact log: missing if none was asked for, null if the rule
    /// has no limit, or one that no log can be held against (calendar windows, concurrency).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compare: Option<Option<Compared>>,
}

/// A key and how often it was denied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeniedKey {
    /// The entries as `rules explain` takes them: `key=value,key=value`. Values of secret
    /// entries are fingerprints; a counter that a pattern shares has the pattern.
    pub key: String,
    /// How often; never too low.
    pub denied: u64,
    /// By how much `denied` may be too high, which only happens with more than 1,024 denied
    /// keys; missing if it is exact.
    #[serde(skip_serializing_if = "is_zero")]
    pub overcounted_at_most: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The minute with the most denials.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WorstMinute {
    /// When it began, in UTC: `2015-05-17T10:05:00Z`.
    pub minute: String,
    /// Denials in it.
    pub denied: u64,
}

/// How a rule's decisions differ from those of the exact log, each on its own admissions.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// Requests that were compared: all of the rule's, unless the exact log outgrew its
    /// memory (256 MiB) on the way.
    pub requests: u64,
    /// Requests that the exact log denied.
    pub exact_denied: u64,
    /// Requests that only the exact log denied.
    pub wrongly_allowed: u64,
    /// Requests that only the rule denied.
    pub wrongly_denied: u64,
    /// Wrongly allowed less wrongly denied: what the rule lets pass more than the exact log.
    pub net: i64,
    /// Wrongly allowed, in % of `requests`.
    pub wrongly_allowed_percent: f64,
    /// Wrongly denied, in % of `requests`.
    pub wrongly_denied_percent: f64,
    /// Net, in % of `requests`.
    pub net_percent: f64,
}

/// What people want to know besides the counts of the rules.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Summary {
    /// The rules' domain.
    pub domain: String,
    /// The format of the last log, once it was known.
    pub format: Option<Format>,
    /// The first and the last time of the log.
    pub span: Option<(Timestamp, Timestamp)>,
    /// Requests that may pass every rule.
    pub allowed: u64,
    /// Requests that a rule denies.
    pub denied: u64,
    /// Requests that are refused before any rule is asked: they have two meanings.
    pub refused: u64,
    /// Requests that no limit matched, so that all of them passed.
    pub unmatched: u64,
    /// Lines that were earlier than one before them, and were put in order.
    pub sorted: u64,
    /// Lines that were further out of order than is sorted, and took the time of the one before them.
    pub late: u64,
    /// By how much at most.
    pub late_by_max: Micros,
    /// Whether a time was between two whole seconds.
    pub has_fractions: bool,
    /// Decisions without counting: the memory for counters was full.
    pub uncounted: u64,
    /// The first few lines that could not be read.
    pub bad_lines: Vec<BadLine>,
    /// What to know about the figures of single rules, one sentence each.
    pub notes: Vec<String>,
}

/// `count` in % of `all`; 0 of none.
pub(crate) fn percent(count: u64, all: u64) -> f64 {
    if all == 0 {
        0.0
    } else {
        100.0 * count as f64 / all as f64
    }
}

#[cfg(test)]
mod tests;
