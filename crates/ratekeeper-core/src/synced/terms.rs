//! The limits that can be synced, and how often.

use crate::limit::Kind;
use crate::{Algorithm, Limit, LimitError, LimitSpec, Micros};

/// The shortest interval.
pub const INTERVAL_MIN: Micros = Micros::from_millis(10);

/// The longest interval.
pub const INTERVAL_MAX: Micros = Micros::from_secs(60);

/// The interval unless a rule names another, or has a window shorter than ten of it.
pub const DEFAULT_INTERVAL: Micros = Micros::from_secs(1);

/// The sub-windows of a sliding window that names none: groups of equal count cannot be added up.
pub const DEFAULT_SUB_WINDOWS: u32 = 12;

/// The reason for not syncing a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unsyncable {
    /// Its state is more than a count for each (sub-)window.
    #[error("{} cannot be synced: nodes add up counts of windows, and {}", .0.name(), reason(*.0))]
    Algorithm(Algorithm),
    /// A strict limit never lets more pass.
    #[error(
        "a strict limit cannot be synced: between two syncs nodes may let more than the limit pass"
    )]
    Strict,
    /// No interval is short enough for the window.
    #[error("windows below {} ms cannot be synced", 2 * INTERVAL_MIN.as_millis_ceil())]
    WindowTooShort,
    /// The interval is not within [`INTERVAL_MIN`] and [`INTERVAL_MAX`].
    #[error("`sync_interval` is {} ms to {} s", INTERVAL_MIN.as_millis_ceil(), INTERVAL_MAX.as_secs_ceil())]
    IntervalOutOfRange,
    /// The interval is longer than half the window.
    #[error("`sync_interval` is at most half the window, here {} ms", .0.get() / 1_000)]
    IntervalTooLong(Micros),
    /// The window cannot be cut into sub-windows.
    #[error("{0}")]
    Uncut(#[from] LimitError),
}

const fn reason(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::SlidingLog => "it remembers when each hit was admitted",
        Algorithm::TokenBucket | Algorithm::Gcra => "a bucket has none",
        Algorithm::LeakyBucket => "each request has a turn of its own",
        Algorithm::Concurrency => "permits are released one by one",
        Algorithm::FixedWindow | Algorithm::SlidingWindow => "",
    }
}

/// A limit that is synced, and how often.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SyncTerms {
    limit: Limit,
    interval: Micros,
}

impl SyncTerms {
    /// The terms of `limit` with this interval, or with a second or a tenth of the window, whichever is shorter. A sliding
    /// window without sub-windows gets [`DEFAULT_SUB_WINDOWS`].
    ///
    /// # Errors
    /// [`Unsyncable`]: the reason for counting it otherwise.
    pub fn try_new(limit: &Limit, interval: Option<Micros>) -> Result<Self, Unsyncable> {
        let (window, is_post_paid) = (limit.window(), limit.is_post_paid());
        let limit = match limit.prepaid().kind {
            Kind::FixedWindow | Kind::SubWindows(_) => *limit,
            Kind::EqualCount(_) if limit.is_strict() => return Err(Unsyncable::Strict),
            Kind::EqualCount(_) => Limit::try_new(LimitSpec {
                sub_windows: Some(DEFAULT_SUB_WINDOWS),
                ..LimitSpec::new(Algorithm::SlidingWindow, limit.quota(), window)
            })?,
            Kind::SlidingLog
            | Kind::TokenBucket(_)
            | Kind::Gcra(_)
            | Kind::LeakyBucket(..)
            | Kind::Concurrency
            | Kind::PostPaid(_) => return Err(Unsyncable::Algorithm(limit.algorithm())),
        };
        let limit = match is_post_paid {
            true => limit.paid_afterwards(),
            false => limit,
        };
        let most = Micros::new(window.get() / 2);
        if most < INTERVAL_MIN {
            return Err(Unsyncable::WindowTooShort);
        }
        let default = DEFAULT_INTERVAL.min(Micros::new(window.get() / 10));
        let interval = interval.unwrap_or_else(|| default.max(INTERVAL_MIN));
        if interval < INTERVAL_MIN || interval > INTERVAL_MAX {
            return Err(Unsyncable::IntervalOutOfRange);
        }
        if interval > most {
            return Err(Unsyncable::IntervalTooLong(most));
        }
        Ok(Self { limit, interval })
    }

    /// The limit as nodes test it.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The time between two syncs.
    #[must_use]
    pub const fn interval(&self) -> Micros {
        self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(spec: LimitSpec, interval_ms: Option<u64>) -> Result<SyncTerms, Unsyncable> {
        let limit = Limit::try_new(spec).expect("a valid limit");
        SyncTerms::try_new(&limit, interval_ms.map(Micros::from_millis))
    }

    fn spec(algorithm: Algorithm, window_ms: u64) -> LimitSpec {
        LimitSpec::new(algorithm, 100, Micros::from_millis(window_ms))
    }

    #[test]
    fn windows_are_synced_and_nothing_else_is() {
        for algorithm in Algorithm::ALL {
            let is_window = matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow);
            let made = terms(spec(algorithm, 60_000), None);
            assert_eq!(made.is_ok(), is_window, "{algorithm:?}: {made:?}");
        }
        let strict = LimitSpec {
            strict: true,
            ..spec(Algorithm::SlidingWindow, 60_000)
        };
        assert_eq!(terms(strict, None), Err(Unsyncable::Strict));
    }

    #[test]
    fn the_interval_is_a_second_or_a_tenth_of_the_window_and_at_most_half_of_it() {
        let interval = |window, asked| {
            let made = terms(spec(Algorithm::FixedWindow, window), asked);
            made.map(|made| made.interval().get() / 1_000)
        };
        assert_eq!(interval(60_000, None), Ok(1_000));
        assert_eq!(interval(1_000, None), Ok(100));
        assert_eq!(interval(50, None), Ok(10));
        assert_eq!(interval(19, None), Err(Unsyncable::WindowTooShort));
        assert_eq!(interval(1_000, Some(500)), Ok(500));
        let most = Micros::from_millis(500);
        assert_eq!(
            interval(1_000, Some(501)),
            Err(Unsyncable::IntervalTooLong(most))
        );
        assert_eq!(interval(600_000, Some(60_000)), Ok(60_000));
        for out in [9, 60_001] {
            let refused = interval(600_000, Some(out));
            assert_eq!(refused, Err(Unsyncable::IntervalOutOfRange));
        }
    }

    #[test]
    fn sliding_windows_are_cut_into_sub_windows() {
        for window in [20, 1_000, 60_000, 31_536_000_000] {
            let made = terms(spec(Algorithm::SlidingWindow, window), None);
            let made = made.expect("it can be synced");
            assert_eq!(made.limit().sub_windows(), DEFAULT_SUB_WINDOWS);
        }
        let own = LimitSpec {
            sub_windows: Some(3),
            ..spec(Algorithm::SlidingWindow, 60_000)
        };
        let made = terms(own, None).expect("it can be synced");
        assert_eq!(made.limit().sub_windows(), 3);
    }
}
