//! How long checks take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_limiter::{STRIPES, stripe_of_thread};

/// Upper bounds of the buckets, in nanoseconds.
const BOUNDS_NS: [u64; 14] = [
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    1_000_000,
    5_000_000,
    25_000_000,
    100_000_000,
];

/// A histogram without locks, striped as the limiter stripes its counts.
#[derive(Debug, Default)]
pub(crate) struct Durations([Stripe; STRIPES]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    /// One for each bound, and one for everything above.
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

/// All durations up to some moment.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DurationCounts {
    /// Upper bound in seconds, and how many lie between it and the one before. The last
    /// bound is infinite.
    pub(crate) buckets: Vec<(f64, u64)>,
    pub(crate) sum_seconds: f64,
}

impl Durations {
    pub(crate) fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS
            .iter()
            .position(|bound| nanos <= *bound)
            .unwrap_or(BOUNDS_NS.len());
        // Both are in range: the stripe by construction, the bucket by the line above.
        let stripe = &self.0[stripe_of_thread()];
        // Relaxed: a scrape between the two is off by one duration.
        stripe.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        stripe.sum_ns.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> DurationCounts {
        let sum = |of: &dyn Fn(&Stripe) -> &AtomicU64| -> u64 {
            self.0
                .iter()
                .map(|stripe| of(stripe).load(Ordering::Relaxed))
                .sum()
        };
        let bounds = BOUNDS_NS
            .iter()
            .map(|nanos| *nanos as f64 / 1e9)
            .chain([f64::INFINITY]);
        let buckets = bounds
            .enumerate()
            .map(|(i, bound)| (bound, sum(&|s| &s.buckets[i])));
        DurationCounts {
            buckets: buckets.collect(),
            sum_seconds: sum(&|stripe| &stripe.sum_ns) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_land_below_their_bound() {
        let durations = Durations::default();
        for nanos in [0, 250, 251, 100_000_000, 100_000_001] {
            durations.record(Duration::from_nanos(nanos));
        }
        let counts = durations.counts();
        let taken: Vec<_> = counts
            .buckets
            .iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(
            taken,
            [&(250e-9, 2), &(500e-9, 1), &(0.1, 1), &(f64::INFINITY, 1)]
        );
        assert!((counts.sum_seconds - 0.200_000_502).abs() < 1e-9);
    }
}
