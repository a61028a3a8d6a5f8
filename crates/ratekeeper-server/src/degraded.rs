//! The share of decisions that failure modes gave in the last seconds, by store.
//!
//! A counter since the start says that it happened; a recent share says how bad it is now, even if
//! a store answers most decisions in time and misses the others. Shares are as of the call: they
//! cover the completed seconds and the current one.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use ratekeeper_limiter::Snapshot;

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
    /// As it was at the last sample, since the start.
    last: Decided,
    seconds: [Decided; SECONDS],
    next: usize,
}

impl Degraded {
    /// Takes what the rules of `snapshot` have counted since the last sample.
    pub(crate) fn sample(&self, snapshot: &Snapshot) {
        let sums = sums(snapshot);
        let mut stores = self.0.lock();
        stores.retain(|name, _| sums.contains_key(&**name));
        for (name, sum) in sums {
            stores.entry(name.into()).or_default().add(sum);
        }
    }

    /// By store, from 0 to 1, with what `snapshot` has counted since the last sample; 0 where nothing
    /// was decided.
    pub(crate) fn shares(&self, snapshot: &Snapshot) -> Vec<(Box<str>, f64)> {
        let sums = sums(snapshot);
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
    pub(crate) fn faults(&self, snapshot: &Snapshot) -> Vec<String> {
        let shares = self.shares(snapshot).into_iter();
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

/// Sums the decisions that the rules of `snapshot` have counted since the start, by store.
fn sums(snapshot: &Snapshot) -> BTreeMap<&str, Decided> {
    let mut sums: BTreeMap<&str, Decided> = BTreeMap::new();
    for (rule, stats) in snapshot.counted() {
        let counts = stats.counts();
        let sum = sums.entry(rule.store.as_deref().unwrap_or(DEFAULT));
        let sum = sum.or_default();
        sum.all += counts.allowed + counts.denied + counts.shadow_denied;
        sum.degraded += counts.uncounted;
    }
    sums
}

impl Samples {
    fn add(&mut self, sum: Decided) {
        self.seconds[self.next] = self.since(sum);
        self.next = (self.next + 1) % SECONDS;
        self.last = sum;
    }

    /// The decisions made since the last sample.
    fn since(&self, sum: Decided) -> Decided {
        // Rules that are gone took their counts with them.
        Decided {
            all: sum.all.saturating_sub(self.last.all),
            degraded: sum.degraded.saturating_sub(self.last.degraded),
        }
    }

    /// The share until now, when `sum` was decided since the start.
    #[allow(clippy::cast_precision_loss, reason = "a share needs no more digits")]
    fn share(&self, sum: Decided) -> f64 {
        let now = self.since(sum);
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
        let total = |all, degraded| Decided { all, degraded };
        assert_eq!(samples.share(Decided::default()), 0.0);
        let (mut all, mut degraded) = (0, 0);
        for second in 0..2 * SECONDS {
            all += 100;
            degraded += if second < SECONDS { 100 } else { 0 };
            samples.add(total(all, degraded));
            let left = (2 * SECONDS).saturating_sub(second + 1).min(SECONDS);
            let seen = (second + 1).min(SECONDS);
            assert_eq!(
                samples.share(total(all, degraded)),
                left.min(seen) as f64 / seen as f64
            );
        }
        // The second that is not over counts too, from its first decision on.
        assert_eq!(samples.share(total(all + 1_000, degraded + 1_000)), 0.5);
        // A rule is gone.
        samples.add(Decided::default());
        assert_eq!(samples.share(Decided::default()), 0.0);
    }
}
