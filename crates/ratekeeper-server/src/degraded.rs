//! The share of decisions that failure modes gave in the last seconds, by store.
//!
//! A counter since the start says that it happened; a share of late says how bad it is now, also
//! where a store answers most decisions in time and misses the others.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use ratekeeper_limiter::Snapshot;

/// How many samples, one a second, are looked back over.
pub(crate) const SECONDS: usize = 10;

/// What the store is called that rules name no other than.
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
        let mut sums: BTreeMap<&str, Decided> = BTreeMap::new();
        for (stats, rule) in snapshot.stats().zip(snapshot.rules().rules()) {
            let counts = stats.counts();
            let sum = sums.entry(rule.store.as_deref().unwrap_or(DEFAULT));
            let sum = sum.or_default();
            sum.all += counts.allowed + counts.denied + counts.shadow_denied;
            sum.degraded += counts.uncounted;
        }
        let mut stores = self.0.lock();
        stores.retain(|name, _| sums.contains_key(&**name));
        for (name, sum) in sums {
            stores.entry(name.into()).or_default().add(sum);
        }
    }

    /// By store, from 0 to 1; 0 where nothing was decided.
    pub(crate) fn shares(&self) -> Vec<(Box<str>, f64)> {
        let stores = self.0.lock();
        if stores.is_empty() {
            return vec![(DEFAULT.into(), 0.0)];
        }
        let stores = stores.iter();
        stores
            .map(|(name, samples)| (name.clone(), samples.share()))
            .collect()
    }
}

impl Samples {
    fn add(&mut self, sum: Decided) {
        // Rules that are gone took their counts with them.
        self.seconds[self.next] = Decided {
            all: sum.all.saturating_sub(self.last.all),
            degraded: sum.degraded.saturating_sub(self.last.degraded),
        };
        self.next = (self.next + 1) % SECONDS;
        self.last = sum;
    }

    #[allow(clippy::cast_precision_loss, reason = "a share needs no more digits")]
    fn share(&self) -> f64 {
        let all: u64 = self.seconds.iter().map(|it| it.all).sum();
        let degraded: u64 = self.seconds.iter().map(|it| it.degraded).sum();
        match all {
            0 => 0.0,
            // Counts are read one after the other, while they change.
            _ => (degraded as f64 / all as f64).min(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_seconds_count() {
        let mut samples = Samples::default();
        assert_eq!(samples.share(), 0.0);
        let (mut all, mut degraded) = (0, 0);
        for second in 0..2 * SECONDS {
            all += 100;
            degraded += if second < SECONDS { 100 } else { 0 };
            samples.add(Decided { all, degraded });
            let left = (2 * SECONDS).saturating_sub(second + 1).min(SECONDS);
            let seen = (second + 1).min(SECONDS);
            assert_eq!(samples.share(), left.min(seen) as f64 / seen as f64);
        }
        // A rule is gone.
        samples.add(Decided::default());
        assert_eq!(samples.share(), 0.0);
    }
}
