//! A limit as an operator writes it.

use crate::{MAX_COUNT, Micros};

/// The algorithms by name. `sliding_window` is one of two, depending on sub-windows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// [`fixed_window`](crate::fixed_window)
    FixedWindow,
    /// [`equal_count`](crate::equal_count); with sub-windows
    /// [`sub_windows`](crate::sub_windows)
    SlidingWindow,
    /// [`sliding_log`](crate::sliding_log)
    SlidingLog,
    /// [`token_bucket`](crate::token_bucket)
    TokenBucket,
    /// [`gcra`](crate::gcra)
    Gcra,
    /// [`leaky_bucket`](crate::leaky_bucket)
    LeakyBucket,
    /// [`concurrency`](crate::concurrency)
    Concurrency,
}

impl Algorithm {
    /// Every algorithm, in the order in which the documentation lists them.
    pub const ALL: [Self; 7] = [
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingLog,
        Self::TokenBucket,
        Self::Gcra,
        Self::LeakyBucket,
        Self::Concurrency,
    ];

    /// The name in rules files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::SlidingLog => "sliding_log",
            Self::TokenBucket => "token_bucket",
            Self::Gcra => "gcra",
            Self::LeakyBucket => "leaky_bucket",
            Self::Concurrency => "concurrency",
        }
    }

    /// The algorithm with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
    }

    /// The algorithm of a limit that names none: a bucket if it has a `burst`, else a sliding window. A rule that names none
    /// has that of its profile instead.
    #[must_use]
    pub const fn by_burst(burst: Option<u64>) -> Self {
        match burst {
            Some(_) => Self::TokenBucket,
            None => Self::SlidingWindow,
        }
    }

    /// Returns true if the algorithm has a bucket, and so takes a `burst`.
    #[must_use]
    pub const fn has_burst(self) -> bool {
        match self {
            Self::TokenBucket | Self::Gcra | Self::LeakyBucket => true,
            Self::FixedWindow | Self::SlidingWindow | Self::SlidingLog | Self::Concurrency => false,
        }
    }

    /// Returns true if all counters of a limit begin their windows at the same moments, as those of a calendar do.
    #[must_use]
    #[inline]
    pub const fn has_fixed_windows(self) -> bool {
        match self {
            Self::FixedWindow => true,
            Self::SlidingWindow | Self::SlidingLog => false,
            Self::TokenBucket | Self::Gcra | Self::LeakyBucket | Self::Concurrency => false,
        }
    }

    /// Returns true if the algorithm takes `sub_windows`, or `strict` without them.
    #[must_use]
    pub const fn has_sub_windows(self) -> bool {
        match self {
            Self::SlidingWindow => true,
            Self::FixedWindow | Self::SlidingLog => false,
            Self::TokenBucket | Self::Gcra | Self::LeakyBucket | Self::Concurrency => false,
        }
    }

    /// Returns true if the algorithm counts permits, which are held and released, rather than hits in a window.
    #[must_use]
    #[inline]
    pub const fn holds_permits(self) -> bool {
        match self {
            Self::Concurrency => true,
            Self::FixedWindow | Self::SlidingWindow | Self::SlidingLog => false,
            Self::TokenBucket | Self::Gcra | Self::LeakyBucket => false,
        }
    }

    /// Returns true if the algorithm gives requests turns, which they wait for, rather than deny them.
    #[must_use]
    #[inline]
    pub const fn has_turns(self) -> bool {
        match self {
            Self::LeakyBucket => true,
            Self::FixedWindow | Self::SlidingWindow | Self::SlidingLog => false,
            Self::TokenBucket | Self::Gcra | Self::Concurrency => false,
        }
    }

    /// Returns true if hits can be charged afterwards, even beyond the limit.
    #[must_use]
    pub const fn can_be_post_paid(self) -> bool {
        match self {
            Self::FixedWindow | Self::SlidingWindow | Self::SlidingLog => true,
            Self::TokenBucket | Self::Gcra => true,
            Self::LeakyBucket | Self::Concurrency => false,
        }
    }

    /// Returns true if a debt of the algorithm outlives its window, so that `max_debt` bounds it.
    #[must_use]
    pub const fn has_debt(self) -> bool {
        match self {
            Self::TokenBucket | Self::Gcra => true,
            Self::FixedWindow | Self::SlidingWindow | Self::SlidingLog => false,
            Self::LeakyBucket | Self::Concurrency => false,
        }
    }

    /// Returns true if the algorithm keeps each hit by itself: a store need not read more of them than a request asks about.
    #[must_use]
    #[inline]
    pub const fn lists_hits(self) -> bool {
        match self {
            Self::SlidingLog => true,
            Self::FixedWindow | Self::SlidingWindow => false,
            Self::TokenBucket | Self::Gcra | Self::LeakyBucket | Self::Concurrency => false,
        }
    }
}

/// The most sub-windows a sliding window may have.
pub const MAX_SUB_WINDOWS: u32 = 64;

/// The most hits of a sliding log, which keeps every one of them.
pub const MAX_LOG: u64 = 10_000;

/// The most permits of a concurrency limit, whose state lists their holders.
pub const MAX_PERMITS: u64 = 100_000;

/// A limit as an operator writes it, before validation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitSpec {
    /// The counting algorithm.
    pub algorithm: Algorithm,
    /// Hits per window, or concurrent permits: 0 (block everything) to [`MAX_COUNT`]; at most
    /// [`MAX_LOG`] for a log and [`MAX_PERMITS`] for concurrency, which list them.
    pub quota: u64,
    /// The length of the window; for a calendar window, its longest (a month: 31 days). For
    /// concurrency, the time after which a lost permit expires.
    pub window: Micros,
    /// True if the window's edges follow a calendar; each step then brings the edges along.
    pub calendar: bool,
    /// Buckets only: the most hits that can pass at once after idle time. Default: the quota.
    pub burst: Option<u64>,
    /// Sliding windows only: 1 to [`MAX_SUB_WINDOWS`] parts of equal time, of which the oldest is
    /// interpolated; up to twice the quota passes in a window. Default: groups of equal count,
    /// which let at most a sixteenth more than the quota pass.
    pub sub_windows: Option<u32>,
    /// Sliding windows without sub-windows only: never exceeds the quota in any window, and denies
    /// some hits from 16/17 of it on. No effect for quotas that are exact anyway.
    pub strict: bool,
    /// True if hits are charged in full whatever is left, as their number is known only afterwards; see
    /// [`post_paid`](crate::post_paid). Not for sub-windows, leaky buckets and concurrency.
    pub post_paid: bool,
    /// Post-paid buckets only: the most hits that they go below zero. Default: ten bursts.
    pub max_debt: Option<u64>,
}

impl LimitSpec {
    /// A limit of `quota` hits per `window` with `algorithm`, everything else by default.
    #[must_use]
    pub const fn new(algorithm: Algorithm, quota: u64, window: Micros) -> Self {
        Self {
            algorithm,
            quota,
            window,
            calendar: false,
            burst: None,
            sub_windows: None,
            strict: false,
            post_paid: false,
            max_debt: None,
        }
    }

    /// Checks what can be seen without computing the steps.
    pub(crate) fn check(&self) -> Result<(), LimitError> {
        let algorithm = self.algorithm;
        if self.quota > MAX_COUNT {
            return Err(LimitError::QuotaTooLarge);
        }
        if self.window.is_zero() {
            return Err(LimitError::EmptyWindow);
        }
        match self.burst {
            Some(_) if !algorithm.has_burst() => return Err(LimitError::NoBurst(algorithm)),
            Some(0) => return Err(LimitError::ZeroBurst),
            Some(burst) if burst > MAX_COUNT => return Err(LimitError::BurstTooLarge),
            _ => {}
        }
        if self.sub_windows.is_some() && !algorithm.has_sub_windows() {
            return Err(LimitError::NoSubWindows(algorithm));
        }
        if self.strict && !algorithm.has_sub_windows() {
            return Err(LimitError::NoStrict(algorithm));
        }
        if self.strict && self.sub_windows.is_some() {
            return Err(LimitError::StrictWithSubWindows);
        }
        if self.calendar && !algorithm.has_fixed_windows() {
            return Err(LimitError::NoCalendar(algorithm));
        }
        if self.max_debt.is_some() && !self.post_paid {
            return Err(LimitError::DebtWithoutPostPaid);
        }
        Ok(())
    }
}

/// The reason why a [`LimitSpec`] is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// The quota is above [`MAX_COUNT`].
    #[error("a limit is at most 9007199254740991 (2^53 - 1)")]
    QuotaTooLarge,
    /// The window is empty.
    #[error("a window is at least 1 microsecond")]
    EmptyWindow,
    /// The burst is above [`MAX_COUNT`].
    #[error("a burst is at most 9007199254740991 (2^53 - 1)")]
    BurstTooLarge,
    /// A burst of 0 would never let anything pass.
    #[error("a burst is at least 1; to block everything set the limit to 0")]
    ZeroBurst,
    /// A burst for an algorithm without a bucket.
    #[error("{} has no burst; {} have", .0.name(), those(Algorithm::has_burst))]
    NoBurst(Algorithm),
    /// Sub-windows for an algorithm other than `sliding_window`.
    #[error("{} has no sub_windows; sliding_window has", .0.name())]
    NoSubWindows(Algorithm),
    /// The number of sub-windows is not 1 to [`MAX_SUB_WINDOWS`].
    #[error("sub_windows is 1 to 64")]
    SubWindowsOutOfRange,
    /// `strict` for an algorithm other than `sliding_window`.
    #[error("`strict` requires sliding_window, not {}", .0.name())]
    NoStrict(Algorithm),
    /// `strict` with sub-windows, whose error is not bounded in that way.
    #[error(
        "a sliding_window cannot be strict with sub_windows, which let up to twice the limit pass"
    )]
    StrictWithSubWindows,
    /// A sliding window without sub-windows is too short for its ticks.
    #[error(
        "a sliding_window is at least 8 ms; for a shorter one use gcra, token_bucket or sub_windows"
    )]
    WindowTooShort,
    /// The window is too short to be cut into this many parts of whole microseconds.
    #[error(
        "the window is too short for {sub_windows} sub-windows; use a longer window or at most {most}"
    )]
    SubWindowsTooShort {
        /// The requested number.
        sub_windows: u32,
        /// The most sub-windows that this window allows within 0.1 % of the rate; 0 if none.
        most: u32,
    },
    /// The quota is above [`MAX_LOG`]: a log keeps every hit.
    #[error(
        "a sliding_log holds at most 10000 hits; use sliding_window, with strict: true if need be"
    )]
    LogTooLong,
    /// The quota is above [`MAX_PERMITS`]: the state lists every permit.
    #[error("a concurrency limit is at most 100000 permits")]
    TooManyPermits,
    /// A calendar window for an algorithm other than `fixed_window`.
    #[error("`calendar` needs fixed_window, not {}", .0.name())]
    NoCalendar(Algorithm),
    /// `post_paid` for an algorithm whose hits cannot be charged afterwards.
    #[error("{} cannot be post_paid; {} can", .0.name(), those(Algorithm::can_be_post_paid))]
    NoPostPaid(Algorithm),
    /// `post_paid` with sub-windows, of which one would carry its debt into the next window.
    #[error("a sliding_window cannot be post_paid with sub_windows; leave `sub_windows` out")]
    PostPaidWithSubWindows,
    /// A debt of a limit that is not post-paid.
    #[error("`max_debt` needs `post_paid: true`")]
    DebtWithoutPostPaid,
    /// A debt for an algorithm without a bucket.
    #[error(
        "{} has no max_debt, as no debt outlives its window; {} have", .0.name(), those(Algorithm::has_debt)
    )]
    NoDebt(Algorithm),
    /// The burst and the debt together take longer to refill than can be counted.
    #[error("the debt of this bucket would take too long to refill; set `max_debt` to at most {0}")]
    DebtTooLarge(u64),
    /// The bucket's arithmetic would lose more than 0.1 % of the rate, or overflow 2^53.
    #[error(
        "this rate cannot be kept within 0.1 % in whole microseconds; use sliding_window, or a smaller limit or burst"
    )]
    RateOutOfRange,
}

/// The names of the algorithms of which `is` is true: `a, b and c`.
fn those(is: impl Fn(Algorithm) -> bool) -> String {
    let names = Algorithm::ALL.into_iter().filter(|it| is(*it));
    let names: Vec<&str> = names.map(Algorithm::name).collect();
    match &names[..] {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_asks_for_a_bucket() {
        assert_eq!(Algorithm::by_burst(Some(1)), Algorithm::TokenBucket);
        assert_eq!(Algorithm::by_burst(None), Algorithm::SlidingWindow);
    }

    #[test]
    fn each_predicate_is_of_its_algorithms() {
        let those = |is: fn(Algorithm) -> bool| -> Vec<&str> {
            let all = Algorithm::ALL.into_iter().filter(|it| is(*it));
            all.map(Algorithm::name).collect()
        };
        let buckets = ["token_bucket", "gcra", "leaky_bucket"];
        assert_eq!(those(Algorithm::has_burst), buckets);
        assert_eq!(those(Algorithm::has_fixed_windows), ["fixed_window"]);
        assert_eq!(those(Algorithm::has_sub_windows), ["sliding_window"]);
        assert_eq!(those(Algorithm::holds_permits), ["concurrency"]);
        assert_eq!(those(Algorithm::has_turns), ["leaky_bucket"]);
        assert_eq!(those(Algorithm::lists_hits), ["sliding_log"]);
        let told = super::those(Algorithm::can_be_post_paid);
        assert_eq!(
            told,
            "fixed_window, sliding_window, sliding_log, token_bucket and gcra"
        );
        assert_eq!(super::those(Algorithm::has_debt), "token_bucket and gcra");
    }
}
