//! The verdicts on the answers and looks of one row.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ask::Key;
use crate::fault::Counters;
use crate::ledger::Entry;
use crate::look::Look;
use crate::rules::{PERIOD, Rule};

/// The times at which the fault began and ended, since the ledger was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) struck: Duration,
    pub(crate) healed: Duration,
}

impl Span {
    pub(crate) fn has(&self, at: Duration) -> bool {
        (self.struck..=self.healed).contains(&at)
    }
}

/// Checks of one rotating limit, over all of its keys.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Passed {
    /// Checks that passed.
    pub(crate) admitted: u64,
    /// The sum of the limits of its keys.
    pub(crate) limit: u64,
    /// Unmarked checks that passed beyond what their key may have.
    pub(crate) over: u64,
}

/// As [`passed`], of a limit that each of `nodes` may use up before it knows of the others.
pub(crate) fn passed_by_each(entries: &[Entry], rule: Rule, span: Span, nodes: u64) -> Passed {
    let mut by_key = passed(entries, rule, span, Counters::Kept);
    let mut keys: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.key.rule == rule) {
        let unmarked = entry.answer.allowed && !entry.answer.degraded;
        *keys.entry(entry.key.value).or_default() += u64::from(unmarked);
    }
    let over = keys
        .values()
        .map(|unmarked| unmarked.saturating_sub(nodes * rule.limit()));
    by_key.over = over.sum();
    by_key
}

/// Counts the checks of a rotating limit that passed. `counters` tells which keys may pass their limit more than once.
pub(crate) fn passed(entries: &[Entry], rule: Rule, span: Span, counters: Counters) -> Passed {
    let mut keys: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.key.rule == rule) {
        let (admitted, unmarked) = keys.entry(entry.key.value).or_default();
        *admitted += u64::from(entry.answer.allowed);
        *unmarked += u64::from(entry.answer.allowed && !entry.answer.degraded);
    }
    let mut passed = Passed::default();
    for (period, (admitted, unmarked)) in keys {
        passed.admitted += admitted;
        passed.limit += rule.limit();
        let times = 1 + excused(period, span, counters);
        passed.over += unmarked.saturating_sub(rule.limit() * times);
    }
    passed
}

/// The number of additional times that a key of that period may pass its limit because its counts were lost.
fn excused(period: u64, span: Span, counters: Counters) -> u64 {
    let begin = PERIOD * u32::try_from(period).unwrap_or(u32::MAX);
    let end = begin + PERIOD;
    match counters {
        Counters::Kept => 0,
        Counters::Lost => u64::from(begin <= span.struck && span.healed <= end),
        Counters::Copied(times) => {
            // The old primary is told a moment after its successor.
            let told = span.healed + Duration::from_secs(1);
            times * u64::from(begin <= told && span.struck <= end)
        }
    }
}

/// The number of hits that Redis charged beyond those that passed, by whatever answer; `charged` has the hits by key.
pub(crate) fn charged_twice(entries: &[Entry], charged: &[(Key, u64)]) -> u64 {
    let surplus = charged.iter().map(|(key, charged)| {
        let granted = entries
            .iter()
            .filter(|entry| entry.key == *key && entry.answer.allowed);
        charged.saturating_sub(granted.count() as u64)
    });
    surplus.sum()
}

/// The number of hits that passed, by whatever answer, and that Redis has not charged; `charged` has the hits by key.
pub(crate) fn never_charged(entries: &[Entry], charged: &[(Key, u64)]) -> u64 {
    let missing = charged.iter().map(|(key, charged)| {
        let granted = entries
            .iter()
            .filter(|entry| entry.key == *key && entry.answer.allowed);
        (granted.count() as u64).saturating_sub(*charged)
    });
    missing.sum()
}

/// The longest time for which a limit with a window of a second denied everybody, while Redis decided.
pub(crate) fn frozen(entries: &[Entry]) -> Duration {
    [Rule::FixedFlow, Rule::SlidingFlow]
        .into_iter()
        .map(|rule| longest_denial(entries.iter().filter(|entry| entry.key.rule == rule)))
        .max()
        .unwrap_or_default()
}

/// The most that the time between two answers counts for: where no request is sent because the machine stands still, no caller is
/// denied either.
const GAP_MAX: Duration = Duration::from_millis(250);

fn longest_denial<'a>(entries: impl Iterator<Item = &'a Entry>) -> Duration {
    let (mut longest, mut denied, mut last) = (Duration::ZERO, Duration::ZERO, None);
    for entry in entries {
        if entry.answer.allowed || entry.answer.degraded {
            (denied, last) = (Duration::ZERO, None);
            continue;
        }
        let gap = last.map_or(Duration::ZERO, |last| entry.done.saturating_sub(last));
        denied += gap.min(GAP_MAX);
        last = Some(entry.done);
        longest = longest.max(denied);
    }
    longest
}

/// The number of answers given by failure modes.
pub(crate) fn degraded(entries: &[Entry]) -> u64 {
    entries.iter().filter(|entry| entry.answer.degraded).count() as u64
}

/// The share of `entries` answered by failure modes, from 0 to 1.
pub(crate) fn share<'a>(entries: impl Iterator<Item = &'a Entry>) -> f64 {
    let (mut all, mut degraded) = (0_u32, 0_u32);
    for entry in entries {
        all += 1;
        degraded += u32::from(entry.answer.degraded);
    }
    f64::from(degraded) / f64::from(all.max(1))
}

/// The number of tenants decided by failure modes most of the time.
pub(crate) fn tenants_lost(entries: &[Entry], span: Span) -> usize {
    let mut tenants: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let during = entries
        .iter()
        .filter(|entry| entry.key.rule == Rule::Tenant && span.has(entry.sent));
    for entry in during {
        let (all, degraded) = tenants.entry(entry.key.value).or_default();
        *all += 1;
        *degraded += u64::from(entry.answer.degraded);
    }
    let is_lost = |(all, degraded): &&(u64, u64)| degraded * 2 > *all;
    tenants.values().filter(is_lost).count()
}

/// Counts of looks at readiness while failure modes decided, and of those among them that reported no fault.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Readiness {
    pub(crate) looks: u64,
    pub(crate) clean: u64,
}

/// The share of a node's answers from failure modes in the second before a look above which the look must report a
/// fault, if some came just before and just after it too: not if the fault has just begun or ended.
const SHARE_TOLD: f64 = 0.1;
const BEFORE: Duration = Duration::from_secs(1);
const NEAR: Duration = Duration::from_millis(250);

pub(crate) fn readiness(entries: &[Entry], looks: &[Look]) -> Readiness {
    let mut told = Readiness::default();
    for look in looks {
        let from = look.at.saturating_sub(BEFORE);
        // Entries are in the order in which answers came.
        let first = entries.partition_point(|entry| entry.done < from);
        let last = entries.partition_point(|entry| entry.done < look.at);
        // The node told of its faults at some time in between.
        let after = entries.partition_point(|entry| entry.done < look.until);
        let near = |entries: &[Entry], at: Duration| {
            entries.iter().any(|entry| {
                let is_near = entry.done.abs_diff(at) < NEAR;
                entry.node == look.node && entry.answer.degraded && is_near
            })
        };
        let of_node = entries[first..last]
            .iter()
            .filter(|entry| entry.node == look.node);
        let is_between =
            near(&entries[first..last], look.at) && near(&entries[after..], look.until);
        if is_between && share(of_node) > SHARE_TOLD {
            told.looks += 1;
            told.clean += u64::from(look.faults.is_empty());
        }
    }
    told
}

/// Counts looks at the breaker, from a second after the fault began to its end, and those that found it closed.
pub(crate) fn closed(looks: &[Look], span: Span) -> Readiness {
    let during = Span {
        struck: span.struck + Duration::from_secs(1),
        ..span
    };
    let mut told = Readiness::default();
    for look in looks.iter().filter(|look| during.has(look.at)) {
        told.looks += 1;
        told.clean += u64::from(!look.is_open);
    }
    told
}
