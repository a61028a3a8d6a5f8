//! The forms of limits to measure.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};

/// The largest limit that the default algorithm keeps exactly.
const EXACT_UP_TO: u64 = 23;

/// A way of counting that a rule can ask for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// `sliding_window` with default settings.
    Default,
    /// `sliding_window` with `strict: true`.
    Strict,
    /// `sliding_window` with this many `sub_windows`.
    SubWindows(u32),
    /// `sliding_log`, which all other forms approximate.
    SlidingLog,
    /// `fixed_window`.
    FixedWindow,
    /// `token_bucket` with a burst of the limit.
    TokenBucket,
    /// `gcra` with a burst of the limit.
    Gcra,
}

impl Form {
    /// All forms, in the order of tables.
    pub const ALL: [Self; 9] = [
        Self::Default,
        Self::Strict,
        Self::SubWindows(1),
        Self::SubWindows(12),
        Self::SubWindows(60),
        Self::SlidingLog,
        Self::FixedWindow,
        Self::TokenBucket,
        Self::Gcra,
    ];

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Default => "`sliding_window`".to_owned(),
            Self::Strict => "`strict`".to_owned(),
            Self::SubWindows(count) => format!("`sub_windows: {count}`"),
            Self::SlidingLog => "`sliding_log`".to_owned(),
            Self::FixedWindow => "`fixed_window`".to_owned(),
            Self::TokenBucket => "`token_bucket`".to_owned(),
            Self::Gcra => "`gcra`".to_owned(),
        }
    }

    /// A limit of this form; None if there is none, such as a log with more hits than a log can
    /// hold.
    #[must_use]
    pub fn limit(self, quota: u64, window: Micros) -> Option<Limit> {
        let algorithm = match self {
            Self::Default | Self::Strict | Self::SubWindows(_) => Algorithm::SlidingWindow,
            Self::SlidingLog => Algorithm::SlidingLog,
            Self::FixedWindow => Algorithm::FixedWindow,
            Self::TokenBucket => Algorithm::TokenBucket,
            Self::Gcra => Algorithm::Gcra,
        };
        let mut spec = LimitSpec::new(algorithm, quota, window);
        spec.strict = self == Self::Strict;
        if let Self::SubWindows(count) = self {
            spec.sub_windows = Some(count);
        }
        Limit::try_new(spec).ok()
    }

    /// The promised maximum of hits in any window; None if the form promises none.
    #[must_use]
    pub fn most_in_a_window(self, quota: u64) -> Option<u64> {
        match self {
            Self::Default if quota <= EXACT_UP_TO => Some(quota),
            Self::Default => Some(quota + (quota - 1).div_ceil(16) - 1),
            Self::Strict | Self::SlidingLog => Some(quota),
            _ => None,
        }
    }

    /// The time resolution of the form: hits count for up to two ticks longer than the window.
    #[must_use]
    pub fn tick(self, quota: u64, window: Micros) -> Micros {
        let window = window.get();
        let tick = match self {
            Self::Default | Self::Strict => {
                let bits = match quota {
                    0..=9 => 22,
                    10..=12 => 16,
                    18..=EXACT_UP_TO => 8,
                    _ => 11,
                };
                let least = window.div_ceil((1 << bits) - 3).max(32);
                let divides_a_second = |tick: &u64| 1_000_000_u64.is_multiple_of(*tick);
                (least..=1_000_000).find(divides_a_second).unwrap_or(least)
            }
            Self::SubWindows(count) => window.div_ceil(u64::from(count)),
            // A bucket rounds to whole microseconds per hit, at a cost of up to 0.1 % of its rate.
            Self::TokenBucket | Self::Gcra => window / 1_000,
            Self::SlidingLog | Self::FixedWindow => 0,
        };
        Micros::new(tick)
    }

    /// The most hits that a caller can request in a window and two ticks without any denial.
    #[must_use]
    pub fn never_denied_up_to(self, quota: u64) -> u64 {
        match self {
            Self::Strict if quota > EXACT_UP_TO => {
                u64::try_from(u128::from(quota) * 16 / 17).unwrap_or(quota)
            }
            _ => quota,
        }
    }
}
