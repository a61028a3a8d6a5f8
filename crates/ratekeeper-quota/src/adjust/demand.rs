//! The calls of a tenant over the period of its limit.

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_rules::ObservedCalls;

use super::AdjustTimes;

/// The microseconds of a minute.
pub(super) const MINUTE: u64 = 60_000_000;

/// The minutes by which the clock that another node records its calls by may be ahead of both of this node: as far as a state
/// file may be from the future.
const AHEAD_MAX: u64 = 60;

/// The minute of a time, counted from 1970.
pub(super) const fn minute(now: Timestamp) -> u64 {
    now.as_micros() / MINUTE
}

/// The most calls in a period of whole minutes, among those that end in the current minute or the one before, and among
/// those that end since `lower_after` ago. `calls` are by minute, in order.
///
/// Nodes may record calls by clocks that are ahead of the wall: the current minute of either clock counts, and a call up to
/// [`AHEAD_MAX`] later is a reason for a limit that is raised. Later ones are of a clock that was wrong: they would keep it raised
/// until the wall gets there.
pub(super) fn of(
    calls: &[(u64, u64)],
    period: u64,
    (lower_after, times): (Micros, AdjustTimes),
) -> ObservedCalls {
    let current = [times.wall, times.recorded].map(minute);
    let before = current.map(|minute| minute.saturating_sub(1));
    let latest = minute(times.wall.max(times.recorded)) + AHEAD_MAX;
    let quiet = times.wall.as_micros().saturating_sub(lower_after.get());
    let quiet = minute(Timestamp::from_micros(quiet));
    // Between minutes with calls a period only loses some: these are the ends that matter.
    let ends = current.into_iter().chain(before).chain([quiet]);
    let ends = ends.map(|end| (end, 0));
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
        if (quiet..=latest).contains(&end) {
            demand.peak = demand.peak.max(sum);
        }
        if current.contains(&end) || before.contains(&end) {
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
    fn slowly(
        calls: &[(u64, u64)],
        period: u64,
        lower_after: u64,
        (current, recorded): (u64, u64),
    ) -> ObservedCalls {
        let sum = |end: u64| {
            let within = |minute: u64| minute <= end && minute + period > end;
            let counted = calls.iter().filter(|(minute, _)| within(*minute));
            counted.map(|(_, calls)| calls).sum::<u64>()
        };
        let quiet = current.saturating_sub(lower_after);
        ObservedCalls {
            latest: [current - 1, current, recorded - 1, recorded]
                .map(sum)
                .into_iter()
                .max()
                .unwrap_or(0),
            peak: (quiet..=recorded + 60).map(sum).max().unwrap_or(0),
        }
    }

    proptest! {
        #[test]
        fn periods_are_added_up_as_a_slow_model_does(
            calls in proptest::collection::btree_map(100..300_u64, 0..50_u64, 0..60),
            period in 1..20_u64,
            lower_after in 1..60_u64,
            current in 100..160_u64,
            ahead in 0..30_u64,
        ) {
            let calls: Vec<_> = calls.into_iter().collect();
            // The quiet time begins within a minute.
            let time = |minute: u64| Timestamp::from_secs(minute * 60 + 17);
            let recorded = current + ahead;
            let times = AdjustTimes { wall: time(current), recorded: time(recorded) };
            let lower_after_span = Micros::from_secs(lower_after * 60);
            let found = of(&calls, period, (lower_after_span, times));
            prop_assert_eq!(found, slowly(&calls, period, lower_after, (current, recorded)));
        }
    }
}
