//! The share of decisions that failure modes gave in the last seconds, by store.
//!
//! A counter since the start says that it happened; a recent share says how bad it is now, even if
//! a store answers most decisions in time and misses the others. Shares are as of the call: they
//! cover the completed seconds and the current one.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::rule_counts::CountsDelta;

/// The number of samples, one a second, that a share covers.
pub(crate) const SECONDS: usize = 10;

/// The least share that [`Degraded::faults`] tells: one decision in a thousand.
const TOLD_MIN: f64 = 0.001;

/// The name of the store of rules that name none.
const DEFAULT: &str = "default";

/// The shares of the last [`SECONDS`]. To be [sampled](Self::sample) once a second.
#[derive(Debug, Default)]
pub(crate) struct Degraded(Mutex<BTreeMap<Box<str>, Samples>>);

/// Decisions about the limits of one store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Decided {
    all: u64,
    /// Those that a failure mode gave.
    degraded: u64,
}

#[derive(Debug, Default)]
struct Samples {
    seconds: [Decided; SECONDS],
    next: usize,
}

impl Degraded {
    /// Takes the answers of the second that ended.
    pub(crate) fn sample(&self, second: &CountsDelta<'_>) {
        let sums = sums(second);
        let mut stores = self.0.lock();
        stores.retain(|name, _| sums.contains_key(&**name));
        for (name, sum) in sums {
            stores.entry(name.into()).or_default().add(sum);
        }
    }

    /// By store, from 0 to 1, with the answers `now` of the current second; 0 where nothing was decided.
    pub(crate) fn shares(&self, now: &CountsDelta<'_>) -> Vec<(Box<str>, f64)> {
        let sums = sums(now);
        if sums.is_empty() {
            return vec![(DEFAULT.into(), 0.0)];
        }
        let stores = self.0.lock();
        let none = Samples::default();
        let share = |(name, sum): (&str, Decided)| {
            let share = stores.get(name).unwrap_or(&none).share(sum);
            (Box::from(name), share)
        };
        sums.into_iter().map(share).collect()
    }

    /// The faults for operators: the shares of stores that failed, even if only now and then.
    pub(crate) fn faults(&self, now: &CountsDelta<'_>) -> Vec<String> {
        let shares = self.shares(now).into_iter();
        let told = shares.filter(|(_, share)| *share >= TOLD_MIN);
        let told = told.map(|(store, share)| {
            let percent = share * 100.0;
            format!(
                "failure modes gave {percent:.1} % of the last {SECONDS} seconds' decisions, in place of store `{store}`"
            )
        });
        told.collect()
    }
}

/// Sums answers by store.
fn sums<'s>(answers: &CountsDelta<'s>) -> BTreeMap<&'s str, Decided> {
    let mut sums: BTreeMap<&str, Decided> = BTreeMap::new();
    for (rule, counts) in answers.iter() {
        let sum = sums.entry(rule.store.as_deref().unwrap_or(DEFAULT));
        let sum = sum.or_default();
        sum.all += counts.answers();
        sum.degraded += counts.uncounted;
    }
    sums
}

impl Samples {
    fn add(&mut self, second: Decided) {
        self.seconds[self.next] = second;
        self.next = (self.next + 1) % SECONDS;
    }

    /// The share until now, with the answers of the current second.
    #[allow(clippy::cast_precision_loss, reason = "a share needs no more digits")]
    fn share(&self, now: Decided) -> f64 {
        let seconds = || self.seconds.iter().chain([&now]);
        let all: u64 = seconds().map(|it| it.all).sum();
        let degraded: u64 = seconds().map(|it| it.degraded).sum();
        match all {
            0 => 0.0,
            // Counts are read one after the other, while they change.
            _ => (degraded as f64 / all as f64).min(1.0),
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss, reason = "figures of tests are small")]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_seconds_count() {
        let mut samples = Samples::default();
        let none = Decided::default();
        let decided = |all, degraded| Decided { all, degraded };
        assert_eq!(samples.share(none), 0.0);
        for second in 0..2 * SECONDS {
            samples.add(decided(100, if second < SECONDS { 100 } else { 0 }));
            let left = (2 * SECONDS).saturating_sub(second + 1).min(SECONDS);
            let seen = (second + 1).min(SECONDS);
            assert_eq!(samples.share(none), left.min(seen) as f64 / seen as f64);
        }
        // The second that is not over counts too, from its first decision on.
        assert_eq!(samples.share(decided(1_000, 1_000)), 0.5);
    }
}
