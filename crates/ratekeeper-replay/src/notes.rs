//! Notes and warnings on the figures of a report.

use std::time::Duration;

use ratekeeper_core::{Algorithm, Micros};
use ratekeeper_rules::{Rule, RuleSet};

use crate::described::Requests;
use crate::replay::Replay;
use crate::report::percent;

/// The warning of a log that is empty, as that of a pipe whose writer has failed.
const NO_LINE: &str = "There is no line in the log: nothing was replayed.";

/// The most rules that one warning names.
const RULES_NAMED_MAX: usize = 5;

impl Replay {
    /// The notes, one sentence each.
    pub(crate) fn notes(&self, rules: &RuleSet) -> Vec<String> {
        let mut notes = self.notes_on_lines();
        if let Some(note) = self.note_on_matching(rules) {
            notes.push(note);
        }
        if !self.unasked.is_empty() && self.lines.parsed > 0 {
            notes.push(format!(
                "Rules that begin with {} are not asked: no descriptor of the settings does, so a gateway would not ask them \
                 either. `auth` sets descriptors, and `--descriptors` tries some.",
                self.unasked.join(", ")
            ));
        }
        let of_domain = rules
            .rules()
            .iter()
            .filter(|rule| *rule.domain == *self.domain);
        let reads_usage = rules
            .domain(&self.domain)
            .is_some_and(|domain| domain.usage().is_some());
        let wait_max = self.options.wait_max;
        notes.extend(of_domain.flat_map(|rule| {
            let note = note_on_limit(rule, wait_max, reads_usage);
            note_on_rule(rule).into_iter().chain(note)
        }));
        if self
            .comparison
            .as_ref()
            .is_some_and(|comparison| comparison.has_ended())
        {
            notes.push(
                "The exact log outgrew its memory; the comparison covers the requests before that."
                    .to_owned(),
            );
        }
        notes
    }

    /// The reasons why the figures may be wrong, one sentence each.
    pub(crate) fn warnings(&self, rules: &RuleSet) -> Vec<String> {
        let of_logs = self.summary.faults.warnings.iter().cloned();
        let of_nothing = (self.lines.read == 0).then(|| NO_LINE.to_owned());
        of_logs
            .chain(of_nothing)
            .chain(self.warning_of_order())
            .chain(self.warning_of_seconds(rules))
            .collect()
    }

    fn warning_of_order(&self) -> Option<String> {
        let late = self.summary.late;
        let by = self.summary.late_by_max.as_secs_ceil();
        let share = percent(late, self.lines.parsed);
        (late > 0).then(|| {
            format!(
                "Lines too far out of order to be sorted: {late} ({share:.2} %), late by up to {by} s. They count at the time of \
                 the line before, closer together than they came, so too much is denied. Sort the log by time first, name all files of several \
                 servers, which are put in order then, or sort within a longer span: --sort-within."
            )
        })
    }

    fn warning_of_seconds(&self, rules: &RuleSet) -> Option<String> {
        if self.summary.has_fractions || self.lines.parsed < 2 {
            return None;
        }
        let minute = Micros::from_secs(60);
        let is_short = |rule: &&Rule| {
            let limit = rule.limited().filter(|_| rule.enabled);
            limit.is_some_and(|limit| !limit.algorithm().holds_permits() && limit.window() < minute)
        };
        let of_domain = rules
            .rules()
            .iter()
            .filter(|rule| *rule.domain == *self.domain);
        let short: Vec<&Rule> = of_domain.filter(is_short).collect();
        let named = short.iter().take(RULES_NAMED_MAX);
        let named: Vec<String> = named
            .map(|rule| format!("{} ({})", rule.id, rule.window_text))
            .collect();
        let more = match short.len().saturating_sub(RULES_NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!short.is_empty()).then(|| {
            format!(
                "The log's times are whole seconds, and windows of seconds need finer ones: {}{more}. What came within a \
                 second counts as if it came at once, up to a second early, so the denials of these rules are estimates.",
                named.join(", ")
            )
        })
    }

    fn notes_on_lines(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let sorted = self.summary.sorted;
        if sorted > 0 {
            let share = percent(sorted, self.lines.parsed);
            notes.push(format!(
                "Lines out of order that were put in order: {sorted} ({share:.2} %)."
            ));
        }
        let refused = self.summary.refused;
        if refused > 0 {
            notes.push(format!(
                "Requests that are refused with 400 before any rule is asked, since they have two meanings, or a method in small letters: {refused}."
            ));
        }
        let untrusted = self.clients.untrusted_lists;
        if untrusted > 0 {
            notes.push(format!(
                "Lines with a list of proxies in place of the address, whose last one is not among `trusted_proxies` and so counts as the client: {untrusted}."
            ));
        }
        let unknown = self.requests.as_ref().map(Requests::unknown);
        let unknown = unknown.unwrap_or_default();
        if self.lines.parsed > 0 && !unknown.is_empty() {
            notes.push(format!(
                "Parts of requests that count, and that this log does not tell: {}. All {} requests are described as if they had none.",
                unknown.join(", "),
                self.lines.parsed
            ));
        }
        let uncounted = self.summary.uncounted;
        if uncounted > 0 {
            notes.push(format!(
                "Decisions that were not counted, because the counters outgrew their memory: {uncounted}."
            ));
        }
        let evicted = self.limiter.store().stats().evicted_live;
        if evicted > 0 {
            notes.push(format!(
                "Counters that made room for others before their time, as in a service with as much memory: {evicted}."
            ));
        }
        notes
    }

    /// A note if nothing matched, which is more often a mistake than a result.
    fn note_on_matching(&self, rules: &RuleSet) -> Option<String> {
        let matched = self.tallies.iter().any(|tally| tally.requests() > 0);
        if matched || self.lines.parsed == 0 {
            return None;
        }
        let nodes = rules.domain(&self.domain)?.nodes();
        let mut keys: Vec<&str> = nodes.iter().map(|node| node.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(10);
        Some(format!(
            "No line matched a limit. The rules begin with: {}. Use --descriptors to make such entries of the log's fields.",
            keys.join(", ")
        ))
    }
}

/// A note on a limit that other ways in than a gateway treat otherwise, or that a log tells too little of.
fn note_on_limit(rule: &Rule, wait_max: Micros, reads_usage: bool) -> Option<String> {
    let limit = rule.limited().filter(|_| rule.enabled)?;
    let id = &rule.id;
    if limit.algorithm().has_turns() {
        return Some(format!(
            "{id} delays requests: those that wait for no more than {:?} are allowed, as at a gateway.",
            Duration::from(wait_max)
        ));
    }
    (limit.is_post_paid() && reads_usage).then(|| {
        format!(
            "{id} is charged what responses use, which a log does not tell: it was looked at. `--cost` charges logs of calls."
        )
    })
}

fn note_on_rule(rule: &Rule) -> Option<String> {
    let id = &rule.id;
    let algorithm = rule.limited().map(ratekeeper_core::Limit::algorithm);
    if !rule.enabled {
        return Some(format!("{id} is switched off."));
    }
    if algorithm.is_some_and(Algorithm::holds_permits) {
        return Some(format!(
            "{id} limits concurrency, which a log does not show: it was skipped."
        ));
    }
    if rule.shadow || rule.enforce.hundredths() == 0 {
        return Some(format!(
            "{id} only watches: its denials are those it would make."
        ));
    }
    if !rule.enforce.is_all() {
        let share = rule.enforce;
        return Some(format!(
            "{id} is enforced for {share} of subjects: its denials are all it would make."
        ));
    }
    None
}
