//! The calls of a tenant over the period of its limit.

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_rules::ObservedCalls;

/// The microseconds of a minute.
pub(super) const MINUTE: u64 = 60_000_000;

/// The minute of a time, counted from 1970.
pub(super) const fn minute(now: Timestamp) -> u64 {
    now.as_micros() / MINUTE
}

/// The most calls in a period of whole minutes, among those that end in the current minute or the one before, and among
/// those that end since `lower_after` ago. `calls` are by minute, in order.
pub(super) fn of(
    calls: &[(u64, u64)],
    period: u64,
    (lower_after, now): (Micros, Timestamp),
) -> ObservedCalls {
    let current = minute(now);
    let quiet = minute(Timestamp::from_micros(
        now.as_micros().saturating_sub(lower_after.get()),
    ));
    // Between minutes with calls a period only loses some: these are the ends that matter.
    let ends = [quiet, current.saturating_sub(1), current].map(|end| (end, 0));
    let mut calls: Vec<_> = calls.iter().copied().chain(ends).collect();
    calls.sort_unstable();
    let mut demand = ObservedCalls::default();
    let (mut first, mut sum) = (0, 0_u64);
    for (end, calls_then) in &calls {
        let end = *end;
        sum += calls_then;
        while let Some((minute, calls_there)) = calls.get(first)
            && minute + period <= end
        {
            sum -= calls_there;
            first += 1;
        }
        if end >= quiet && end <= current {
            demand.peak = demand.peak.max(sum);
        }
        if end + 1 >= current && end <= current {
            demand.latest = demand.latest.max(sum);
        }
    }
    demand
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same, by adding up each period again.
    fn slowly(calls: &[(u64, u64)], period: u64, lower_after: u64, current: u64) -> ObservedCalls {
        let sum = |end: u64| {
            let within = |minute: u64| minute <= end && minute + period > end;
            let counted = calls.iter().filter(|(minute, _)| within(*minute));
            counted.map(|(_, calls)| calls).sum::<u64>()
        };
        let quiet = current.saturating_sub(lower_after);
        ObservedCalls {
            latest: sum(current).max(sum(current - 1)),
            peak: (quiet..=current).map(sum).max().unwrap_or(0),
        }
    }

    proptest! {
        #[test]
        fn periods_are_added_up_as_a_slow_model_does(
            calls in proptest::collection::btree_map(100..160_u64, 0..50_u64, 0..30),
            period in 1..20_u64,
            lower_after in 1..60_u64,
            current in 100..160_u64,
        ) {
            let calls: Vec<_> = calls.into_iter().filter(|(minute, _)| *minute <= current).collect();
            let now = Timestamp::from_secs(current * 60 + 17);
            // The quiet time begins within a minute.
            let lower_after_span = Micros::from_secs(lower_after * 60);
            let found = of(&calls, period, (lower_after_span, now));
            prop_assert_eq!(found.latest, slowly(&calls, period, lower_after, current).latest);
            prop_assert_eq!(found.peak, slowly(&calls, period, lower_after, current).peak);
        }
    }
}
