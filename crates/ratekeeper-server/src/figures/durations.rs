//! Histograms of the time that checks take.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ratekeeper_limiter::{STRIPES, stripe_of_thread};

/// Upper bounds of the buckets, in nanoseconds.
const BOUNDS_NS: [u64; 18] = [
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
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
];

/// One in this many checks is timed, where not all are.
const TIMED: usize = 8;

/// A histogram without locks, striped as the limiter stripes its counts.
#[derive(Debug, Default)]
pub(crate) struct Durations([Stripe; STRIPES]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    /// One for each bound, and one for everything above.
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
    /// Checks that were begun with [`Durations::start`].
    begun: AtomicUsize,
    /// The nanoseconds of the last that was timed, which those after it count as.
    last_ns: AtomicU64,
}

/// All durations up to some moment.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DurationCounts {
    /// The upper bound in seconds, and the number of checks between it and the previous bound. The
    /// last bound is infinite.
    pub(crate) buckets: Vec<(f64, u64)>,
    pub(crate) sum_seconds: f64,
}

impl Durations {
    /// The time, if the check that begins is one of those that are timed: the first, and one in
    /// eight of this thread's.
    pub(crate) fn start(&self) -> Option<Instant> {
        // In range by construction.
        let begun = &self.0[stripe_of_thread()].begun;
        // Relaxed, and not in one step: threads that share a stripe may lose a turn.
        let number = begun.load(Ordering::Relaxed);
        begun.store(number.wrapping_add(1), Ordering::Relaxed);
        number.is_multiple_of(TIMED).then(Instant::now)
    }

    /// Counts a check begun with [`Self::start`]. One that was not timed counts as the last timed
    /// one did: so every check is counted, and one in eight is measured.
    pub(crate) fn record(&self, took: Option<Duration>) {
        // In range by construction.
        let stripe = &self.0[stripe_of_thread()];
        // Relaxed: a number by itself.
        if let Some(took) = took {
            stripe.last_ns.store(nanos(took), Ordering::Relaxed);
        }
        stripe.add(stripe.last_ns.load(Ordering::Relaxed));
    }

    /// Counts a check that took this long.
    pub(crate) fn add(&self, took: Duration) {
        // In range by construction.
        self.0[stripe_of_thread()].add(nanos(took));
    }

    #[expect(clippy::cast_precision_loss, reason = "figures of metrics are doubles")]
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

impl Stripe {
    fn add(&self, nanos: u64) {
        let bucket = BOUNDS_NS.iter().position(|bound| nanos <= *bound);
        let bucket = bucket.unwrap_or(BOUNDS_NS.len());
        // Relaxed: a scrape between the two is off by one duration.
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(nanos, Ordering::Relaxed);
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_land_below_their_bound() {
        let durations = Durations::default();
        for nanos in [0, 250, 251, 100_000_000, 2_000_000_001] {
            durations.add(Duration::from_nanos(nanos));
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
        assert!((counts.sum_seconds - 2.100_000_502).abs() < 1e-9);
    }

    #[test]
    fn one_in_eight_is_timed_and_all_are_counted() {
        let durations = Durations::default();
        let timed = (0..16).filter(|_| durations.start().is_some()).count();
        assert_eq!(timed, 2);
        durations.record(Some(Duration::from_nanos(300)));
        (0..7).for_each(|_| durations.record(None));
        let counts = durations.counts();
        let taken: Vec<_> = counts.buckets.iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(taken, [&(500e-9, 8)]);
        assert!((counts.sum_seconds - 2.4e-6).abs() < 1e-12);
    }
}
