//! The share of decisions that failure modes gave in the last seconds, by store.
//!
//! A counter since the start says that it happened; a recent share says how bad it is now, even if
//! a store answers most decisions in time and misses the others. Shares are as of the call: they
//! cover the completed seconds and the current one.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;

use super::rule_counts::CountsDelta;

/// The number of samples, one a second, that a share covers.
pub(crate) const SECONDS: usize = 10;

/// The least share that [`Degraded::faults`] tells: one decision in a thousand.
const TOLD_MIN: f64 = 0.001;

/// The name of the store of rules that name none.
const DEFAULT: &str = "default";

/// The answers of the last [`SECONDS`], by store. To be [sampled](Self::sample) once a second.
#[derive(Debug, Default)]
pub(crate) struct Degraded(Mutex<VecDeque<BTreeMap<Box<str>, Decided>>>);

/// Decisions about the limits of one store.
#[derive(Clone, Copy, Debug, Default)]
struct Decided {
    all: u64,
    /// Those that a failure mode gave.
    degraded: u64,
}

impl Degraded {
    /// Takes the answers of the second that ended.
    pub(crate) fn sample(&self, second: &CountsDelta<'_>) {
        self.add(sums(second));
    }

    fn add(&self, second: BTreeMap<Box<str>, Decided>) {
        let mut seconds = self.0.lock();
        seconds.truncate(SECONDS - 1);
        seconds.push_front(second);
    }

    /// By store, from 0 to 1, with the answers `now` of the current second; 0 where nothing was decided.
    pub(crate) fn shares(&self, now: &CountsDelta<'_>) -> Vec<(Box<str>, f64)> {
        let mut now = sums(now);
        if now.is_empty() {
            now.insert(DEFAULT.into(), Decided::default());
        }
        let shares = now.into_iter().map(|(store, now)| {
            let share = self.share(&store, now);
            (store, share)
        });
        shares.collect()
    }

    /// The share of one store, with what was decided `now`.
    #[allow(clippy::cast_precision_loss, reason = "a share needs no more digits")]
    fn share(&self, store: &str, now: Decided) -> f64 {
        let before = self.0.lock();
        let seconds = || before.iter().filter_map(|second| second.get(store));
        let all = now.all + seconds().map(|it| it.all).sum::<u64>();
        let degraded = now.degraded + seconds().map(|it| it.degraded).sum::<u64>();
        match all {
            0 => 0.0,
            // Counts are read one after the other, while they change.
            _ => (degraded as f64 / all as f64).min(1.0),
        }
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
fn sums(answers: &CountsDelta<'_>) -> BTreeMap<Box<str>, Decided> {
    let mut sums: BTreeMap<Box<str>, Decided> = BTreeMap::new();
    for (rule, counts) in answers.iter() {
        let store = rule.store.as_deref().unwrap_or(DEFAULT);
        let sum = sums.entry(store.into()).or_default();
        sum.all += counts.answers();
        sum.degraded += counts.uncounted;
    }
    sums
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss, reason = "figures of tests are small")]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_seconds_count() {
        let recent = Degraded::default();
        let decided = |all, degraded| Decided { all, degraded };
        let share = |now| recent.share(DEFAULT, now);
        assert_eq!(share(Decided::default()), 0.0);
        for second in 0..2 * SECONDS {
            let degraded = if second < SECONDS { 100 } else { 0 };
            recent.add(BTreeMap::from([(DEFAULT.into(), decided(100, degraded))]));
            let left = (2 * SECONDS).saturating_sub(second + 1).min(SECONDS);
            let seen = (second + 1).min(SECONDS);
            assert_eq!(
                share(Decided::default()),
                left.min(seen) as f64 / seen as f64
            );
        }
        // The second that is not over counts too, from its first decision on.
        assert_eq!(share(decided(1_000, 1_000)), 0.5);
        assert_eq!(recent.share("another", Decided::default()), 0.0);
    }
}
