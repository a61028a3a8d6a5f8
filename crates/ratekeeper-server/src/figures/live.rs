//! The figures of each second of the last hour, for those who watch.

pub(crate) mod watchers;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::Mutex;
use ratekeeper_limiter::Totals;
use tokio::sync::watch;

use super::durations::{DurationCounts, Durations};
use super::rule_counts::CountsDelta;
use crate::admin_json::SecondFigures;
use crate::admin_json::moments::unix_seconds;
use watchers::{Watchers, WatchersPlace};

/// Seconds that are kept.
const SECONDS_MAX: usize = 3_600;

/// Counts since the start that no rule has, and the time of reading them.
#[derive(Clone, PartialEq, Debug)]
struct Sums {
    read_at: Instant,
    beside: BesideRules,
    durations: DurationCounts,
}

/// Counts since the start that no rule has.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct BesideRules {
    /// Requests that were shed.
    pub(crate) shed: u64,
    /// Descriptors that no limit matched.
    pub(crate) unmatched: u64,
    /// Requests for a domain without rules.
    pub(crate) unknown_domain: u64,
}

impl BesideRules {
    /// The counts of a limiter's `totals`, and of requests shed beside it.
    pub(crate) fn read(totals: &Totals, shed: u64) -> Self {
        Self {
            shed,
            unmatched: totals.unmatched.load(Ordering::Relaxed),
            unknown_domain: totals.unknown_domain.load(Ordering::Relaxed),
        }
    }
}

impl Sums {
    fn read(durations: &Durations, beside: BesideRules) -> Self {
        Self {
            read_at: Instant::now(),
            beside,
            durations: durations.counts(),
        }
    }

    /// The figures of a second with these answers of rules, which began when the sums were `before`.
    fn since(&self, before: &Self, answers: &CountsDelta<'_>) -> SecondFigures {
        let span = self.read_at.duration_since(before.read_at);
        let buckets = self.durations.buckets.iter().zip(&before.durations.buckets);
        let buckets: Vec<_> = buckets
            .map(|((bound, now), (_, then))| (*bound, now.saturating_sub(*then)))
            .collect();
        let (beside, before) = (&self.beside, &before.beside);
        let mut figures = SecondFigures {
            at: unix_seconds(),
            span_ms: u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
            shed: beside.shed.saturating_sub(before.shed),
            unmatched: beside.unmatched.saturating_sub(before.unmatched),
            unknown_domain: beside.unknown_domain.saturating_sub(before.unknown_domain),
            p50_us: quantile_us(&buckets, 0.5),
            p99_us: quantile_us(&buckets, 0.99),
            ..SecondFigures::default()
        };
        for (_, counts) in answers.iter() {
            figures.allowed += counts.allowed;
            figures.denied += counts.denied;
            figures.shadow_denied += counts.shadow_denied;
            figures.degraded += counts.uncounted;
        }
        figures
    }
}

/// The quantile of a histogram (upper bound in seconds, count), evenly spread within a bucket; beyond the last bound
/// that bound.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of one second are far below 2^53"
)]
fn quantile_us(buckets: &[(f64, u64)], quantile: f64) -> Option<f64> {
    let total: u64 = buckets.iter().map(|(_, count)| count).sum();
    let wanted = total as f64 * quantile;
    let (mut below, mut lower) = (0.0, 0.0);
    for (upper, count) in buckets {
        let count = *count as f64;
        if count > 0.0 && below + count >= wanted {
            let part = (wanted - below) / count;
            let upper = if upper.is_finite() { *upper } else { lower };
            let seconds = lower + (upper - lower) * part;
            return Some((seconds * 1e9).round() / 1e3);
        }
        below += count;
        lower = *upper;
    }
    None
}

/// The last hour, and those who watch.
#[derive(Debug)]
pub(crate) struct Live {
    last: Mutex<Option<Sums>>,
    /// The states of the circuit breakers at the last look.
    circuits: Mutex<Vec<u8>>,
    seconds: Mutex<VecDeque<SecondFigures>>,
    /// The latest state as JSON; none is made while there is no watcher.
    state: watch::Sender<Arc<str>>,
    /// The circuit breakers as JSON, as they were when one of them last turned.
    breakers: watch::Sender<Arc<str>>,
    watchers: Watchers,
}

impl Live {
    pub(crate) fn new() -> Self {
        Self {
            last: Mutex::default(),
            circuits: Mutex::default(),
            seconds: Mutex::default(),
            state: watch::Sender::new("".into()),
            breakers: watch::Sender::new("".into()),
            watchers: Watchers::default(),
        }
    }

    /// Takes the figures since the last look, with the `answers` of rules; to be called once a second. `describe` makes
    /// the state for those who watch.
    pub(crate) fn look(
        &self,
        answers: &CountsDelta<'_>,
        durations: &Durations,
        beside: BesideRules,
        describe: impl FnOnce(&SecondFigures) -> String,
    ) {
        let sums = Sums::read(durations, beside);
        let before = self.last.lock().replace(sums.clone());
        let Some(before) = before else {
            return;
        };
        let figures = sums.since(&before, answers);
        let mut seconds = self.seconds.lock();
        if seconds.len() >= SECONDS_MAX {
            seconds.pop_front();
        }
        seconds.push_back(figures);
        drop(seconds);
        if self.is_watched() {
            self.state.send_replace(describe(&figures).into());
        }
    }

    /// Tells those who watch that a circuit breaker has turned, if one has since the last look. `describe` makes the
    /// state of all of them.
    pub(crate) fn look_at_breakers(&self, states: Vec<u8>, describe: impl FnOnce() -> String) {
        let mut last = self.circuits.lock();
        let is_first = last.is_empty();
        if *last == states {
            return;
        }
        *last = states;
        drop(last);
        if !is_first {
            self.breakers.send_replace(describe().into());
        }
    }

    /// The circuit breakers, whenever one turns from now on.
    pub(crate) fn breakers(&self) -> watch::Receiver<Arc<str>> {
        self.breakers.subscribe()
    }

    /// Returns true if anybody watches.
    pub(crate) fn is_watched(&self) -> bool {
        !self.watchers.are_none()
    }

    /// The seconds of the last hour, the oldest first.
    pub(crate) fn seconds(&self) -> Vec<SecondFigures> {
        self.seconds.lock().iter().copied().collect()
    }

    /// Takes a place among those who watch, if there is one.
    pub(crate) fn join(&self) -> Option<WatchersPlace> {
        self.watchers.join(Instant::now())
    }

    /// The states from now on. A slow reader misses some.
    pub(crate) fn states(&self) -> watch::Receiver<Arc<str>> {
        self.state.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let buckets = [(0.001, 0), (0.002, 98), (0.1, 1), (f64::INFINITY, 1)];
        assert_eq!(quantile_us(&buckets, 0.5), Some(1_510.204));
        assert_eq!(quantile_us(&buckets, 0.99), Some(100_000.0));
        assert_eq!(quantile_us(&buckets, 1.0), Some(100_000.0));
        assert_eq!(quantile_us(&[(0.001, 0), (f64::INFINITY, 0)], 0.5), None);
        assert_eq!(quantile_us(&[], 0.5), None);
    }
}
