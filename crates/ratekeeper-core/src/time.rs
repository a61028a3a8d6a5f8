//! Points and spans of time, in whole microseconds.

use std::fmt;
use std::time::Duration;

/// The largest integer in a counter, a limit or a time: 2^53 - 1, up to which a double, the only
/// number of Lua in Redis, is exact.
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// A point in time: microseconds since the Unix epoch, at most [`MAX_COUNT`]
/// (the year 2255).
///
/// Steps take one as an argument; nothing in this crate reads a clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);

    /// A point `micros` after the epoch; later than [`MAX_COUNT`] becomes [`MAX_COUNT`].
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(if micros > MAX_COUNT {
            MAX_COUNT
        } else {
            micros
        })
    }

    /// A point `secs` after the epoch, capped like [`Self::from_micros`].
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self::from_micros(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// `self` moved on by `span`, capped at [`MAX_COUNT`].
    #[must_use]
    pub const fn after(self, span: Micros) -> Self {
        Self::from_micros(self.0.saturating_add(span.0))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// A span of time in microseconds, at most [`MAX_COUNT`] (285 years).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(u64);

impl Micros {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// The longest span; as a wait it means that no wait helps.
    pub const MAX: Self = Self(MAX_COUNT);

    /// A span of `micros`, capped at [`MAX_COUNT`].
    #[must_use]
    pub const fn new(micros: u64) -> Self {
        Self(if micros > MAX_COUNT {
            MAX_COUNT
        } else {
            micros
        })
    }

    /// A span of `secs` seconds, capped at [`MAX_COUNT`] microseconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self::new(secs.saturating_mul(1_000_000))
    }

    /// A span of `millis` milliseconds, capped at [`MAX_COUNT`] microseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self::new(millis.saturating_mul(1_000))
    }

    /// The number of microseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole milliseconds, rounded up, so that a client that waits this long has waited enough.
    #[must_use]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Whole seconds, rounded up.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Returns true if the span is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

impl From<Micros> for Duration {
    fn from(span: Micros) -> Self {
        Self::from_micros(span.0)
    }
}

impl From<Duration> for Micros {
    /// Fractions of a microsecond are dropped; longer than the range is capped.
    fn from(span: Duration) -> Self {
        Self::new(u64::try_from(span.as_micros()).unwrap_or(MAX_COUNT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_cut_to_whole_microseconds_in_range() {
        assert_eq!(Micros::from(Duration::from_nanos(1_999)), Micros::new(1));
        assert_eq!(Micros::from(Duration::MAX), Micros::MAX);
        assert_eq!(
            Duration::from(Micros::new(1_999)),
            Duration::from_nanos(1_999_000)
        );
    }

    #[test]
    fn whole_seconds_are_enough() {
        let secs = [0, 1, 1_000_000, 1_000_001].map(|micros| Micros::new(micros).as_secs_ceil());
        assert_eq!(secs, [0, 1, 1, 2]);
    }

    #[test]
    fn times_are_shown_with_their_unit() {
        let shown = format!("{:?} {:?}", Timestamp::from_micros(7), Micros::new(12));
        assert_eq!(shown, "7us 12us");
    }
}
