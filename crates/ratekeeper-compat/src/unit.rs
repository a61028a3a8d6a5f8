//! The units of envoyproxy/ratelimit, with windows aligned to the epoch.

/// A unit of time, by its number in `RateLimitResponse.RateLimit.Unit`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Unit(i32);

/// Names by number; 0 is UNKNOWN.
const NAMES: [&str; 8] = [
    "UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK",
];

impl Unit {
    pub(crate) const MINUTE: Self = Self(2);
    pub(crate) const DAY: Self = Self(4);

    /// Every valid unit.
    pub(crate) const ALL: [Self; 7] = [
        Self(1),
        Self(2),
        Self(3),
        Self(4),
        Self(5),
        Self(6),
        Self(7),
    ];

    /// The unit with that number, unless it is UNKNOWN or invalid.
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        (1..=7).contains(&number).then_some(Self(number))
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let number = NAMES.iter().position(|known| *known == name)?;
        Self::from_number(i32::try_from(number).ok()?)
    }

    pub(crate) const fn number(self) -> i32 {
        self.0
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES[usize::try_from(self.0).unwrap_or(0)]
    }

    pub(crate) const fn seconds(self) -> u64 {
        match self.0 {
            1 => 1,
            2 => 60,
            3 => 3_600,
            4 => 86_400,
            5 => 30 * 86_400,
            6 => 365 * 86_400,
            _ => 7 * 86_400,
        }
    }

    /// The start of the window that contains `now`, in seconds since 1970.
    pub(crate) const fn window_start(self, now: u64) -> u64 {
        now - now % self.seconds()
    }

    /// Seconds from `now` until that window ends, 1 to [`Self::seconds`].
    pub(crate) const fn until_reset(self, now: u64) -> u64 {
        self.seconds() - now % self.seconds()
    }
}
