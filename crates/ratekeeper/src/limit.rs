//! Limits as values.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use ratekeeper_core::{Algorithm, LimitError, LimitSpec, Micros};

/// The longest window of a [`Limit`]: 366 days.
///
/// ```
/// use ratekeeper::{Limit, WINDOW_MAX};
///
/// assert!(Limit::new(1, WINDOW_MAX).validate().is_ok());
/// assert!(Limit::new(1, WINDOW_MAX * 2).validate().is_err());
/// ```
pub const WINDOW_MAX: Duration = Duration::from_secs(366 * 86_400);

/// The most characters of the name of a [`Limit`].
const NAME_CHARS_MAX: usize = 64;

/// The number of hits that may pass in a time.
///
/// `Limit::per_second(5)` means five in a second. It is a plain value: it is checked when a
/// [`RateLimiter`](crate::RateLimiter) is made of it, or by [`Limit::validate`].
///
/// ```
/// use ratekeeper::Limit;
/// use std::time::Duration;
///
/// // Never more than five in any minute.
/// const LOGINS: Limit = Limit::per_minute(5);
/// // A bucket of ten, into which five a minute flow back.
/// const CALLS: Limit = Limit::per_minute(5).burst(10);
/// let exports = Limit::new(3, Duration::from_secs(90)).named("exports");
///
/// assert!(LOGINS.validate().is_ok() && CALLS.validate().is_ok() && exports.validate().is_ok());
/// assert!(Limit::per_second(0).validate().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(try_from = "WrittenLimit", into = "WrittenLimit")
)]
pub struct Limit {
    hits: u64,
    window: Duration,
    burst: Option<u64>,
    algorithm: Option<Algorithm>,
    strict: bool,
    name: Option<Cow<'static, str>>,
}

impl Limit {
    /// At most `hits` in any span as long as `window`. Up to 23 hits that is exact; of more, at most a sixteenth
    /// too many can pass in an unlucky window, unless the limit is [`strict`](Self::strict).
    ///
    /// ```
    /// # use ratekeeper::Limit;
    /// # use std::time::Duration;
    /// let limit = Limit::new(100, Duration::from_secs(10));
    /// assert_eq!(limit.to_string(), "100/10s");
    /// ```
    #[must_use]
    pub const fn new(hits: u64, window: Duration) -> Self {
        Self {
            hits,
            window,
            burst: None,
            algorithm: None,
            strict: false,
            name: None,
        }
    }

    /// At most `hits` in a second, as in [`Limit::new`].
    ///
    /// ```
    /// # use ratekeeper::Limit;
    /// assert_eq!(Limit::per_second(5).to_string(), "5/1s");
    /// ```
    #[must_use]
    pub const fn per_second(hits: u64) -> Self {
        Self::new(hits, Duration::from_secs(1))
    }

    /// At most `hits` in a minute, as in [`Limit::new`].
    ///
    /// ```
    /// # use ratekeeper::Limit;
    /// assert_eq!(Limit::per_minute(5).to_string(), "5/1m");
    /// ```
    #[must_use]
    pub const fn per_minute(hits: u64) -> Self {
        Self::new(hits, Duration::from_secs(60))
    }

    /// At most `hits` in an hour, as in [`Limit::new`].
    ///
    /// ```
    /// # use ratekeeper::Limit;
    /// assert_eq!(Limit::per_hour(5).to_string(), "5/1h");
    /// ```
    #[must_use]
    pub const fn per_hour(hits: u64) -> Self {
        Self::new(hits, Duration::from_secs(3_600))
    }

    /// At most `hits` in 24 hours, as in [`Limit::new`].
    ///
    /// ```
    /// # use ratekeeper::Limit;
    /// assert_eq!(Limit::per_day(5).to_string(), "5/1d");
    /// ```
    #[must_use]
    pub const fn per_day(hits: u64) -> Self {
        Self::new(hits, Duration::from_secs(86_400))
    }

    /// Lets up to `hits` pass at once after idle time, and the limit's rate on average: a token bucket, unless
    /// another [`algorithm`](Self::algorithm) is set.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed(Limit::per_minute(5).burst(10))?;
    /// assert_eq!(limiter.check("ada").remaining, 9);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    #[must_use]
    pub const fn burst(mut self, hits: u64) -> Self {
        self.burst = Some(hits);
        self
    }

    /// Counts by `algorithm`. The default is [`Algorithm::SlidingWindow`], and [`Algorithm::TokenBucket`] with a
    /// [`burst`](Self::burst). [`Algorithm::Concurrency`] is refused, as nothing here gives permits back.
    ///
    /// ```
    /// use ratekeeper::{Algorithm, Limit};
    ///
    /// let calls = Limit::per_day(1_000).algorithm(Algorithm::FixedWindow);
    /// assert!(calls.validate().is_ok());
    /// ```
    #[must_use]
    pub const fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = Some(algorithm);
        self
    }

    /// Never lets more than the limit pass in any window, and denies some hits from 16/17 of it on. For sliding
    /// windows only.
    ///
    /// ```
    /// # use ratekeeper::Limit;
    /// assert!(Limit::per_day(10_000).strict().validate().is_ok());
    /// assert!(Limit::per_day(10_000).burst(20_000).strict().validate().is_err());
    /// ```
    #[must_use]
    pub const fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Sets the name that clients see in `RateLimit-Policy`: 1 to 64 printable ASCII characters. The default is the
    /// limit itself, such as `5/1m`.
    ///
    /// ```
    /// # use ratekeeper::Limit;
    /// let limit = Limit::per_minute(5).named("logins");
    /// assert_eq!(limit.name(), "logins");
    /// ```
    #[must_use]
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The name that clients see.
    ///
    /// ```
    /// # use ratekeeper::Limit;
    /// assert_eq!(Limit::per_minute(5).name(), "5/1m");
    /// ```
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        match &self.name {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(self.to_string()),
        }
    }

    /// The hits of a window.
    ///
    /// ```
    /// # use ratekeeper::Limit;
    /// assert_eq!(Limit::per_minute(5).burst(10).hits(), 5);
    /// ```
    #[must_use]
    pub const fn hits(&self) -> u64 {
        self.hits
    }

    /// The length of the window.
    ///
    /// ```
    /// # use ratekeeper::Limit;
    /// assert_eq!(Limit::per_minute(5).window().as_secs(), 60);
    /// ```
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// Checks the limit, as a limiter does when it is made.
    ///
    /// ```
    /// use ratekeeper::{InvalidLimit, Limit};
    ///
    /// assert_eq!(Limit::per_minute(0).validate(), Err(InvalidLimit::Zero));
    /// ```
    ///
    /// # Errors
    /// [`InvalidLimit`]
    pub fn validate(&self) -> Result<(), InvalidLimit> {
        self.compile().map(drop)
    }

    /// The limit as steps need it.
    pub(crate) fn compile(&self) -> Result<ratekeeper_core::Limit, InvalidLimit> {
        if self.hits == 0 {
            return Err(InvalidLimit::Zero);
        }
        if self.window > WINDOW_MAX {
            return Err(InvalidLimit::WindowTooLong);
        }
        let is_printable = |name: &str| name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if let Some(name) = &self.name
            && (name.is_empty() || name.len() > NAME_CHARS_MAX || !is_printable(name))
        {
            return Err(InvalidLimit::Name);
        }
        let algorithm = self
            .algorithm
            .unwrap_or_else(|| Algorithm::by_burst(self.burst));
        if algorithm.holds_permits() {
            return Err(InvalidLimit::Permits);
        }
        let spec = LimitSpec {
            burst: self.burst,
            strict: self.strict,
            ..LimitSpec::new(algorithm, self.hits, Micros::from(self.window))
        };
        let limit = ratekeeper_core::Limit::try_new(spec).map_err(InvalidLimit::Refused)?;
        // Callers wait only if they ask for it.
        Ok(limit.without_delay())
    }
}

/// Writes the hits and the window: `5/1m`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hits, notation(self.window))
    }
}

/// A limit is a list of one, so that limiters take one limit or several.
impl IntoIterator for Limit {
    type Item = Self;
    type IntoIter = std::iter::Once<Self>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self)
    }
}

/// The reason why a [`Limit`] is refused.
///
/// ```
/// use ratekeeper::{InvalidLimit, Limit};
///
/// let error = Limit::per_minute(0).validate();
/// assert_eq!(error, Err(InvalidLimit::Zero));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// Nothing would ever pass.
    #[error("a limit is at least 1 hit")]
    Zero,
    /// The window is longer than [`WINDOW_MAX`].
    #[error("a window is at most 366 days")]
    WindowTooLong,
    /// Concurrency limits need somebody who gives permits back, as the layer of rules does.
    #[error("a limit as a value cannot hold permits; concurrency limits are written as rules")]
    Permits,
    /// The name is empty, too long or not printable.
    #[error("the name of a limit has 1 to 64 printable ASCII characters")]
    Name,
    /// The algorithm cannot keep this limit.
    #[error(transparent)]
    Refused(#[from] LimitError),
    /// A written limit has a window that is no duration, such as `10s`, `250ms` or `1h30m`.
    #[error("`window` is no duration: {0}")]
    Window(#[from] ratekeeper_core::duration::DurationError),
    /// A written limit names an algorithm that does not exist.
    #[error("there is no algorithm '{0}'")]
    Algorithm(Box<str>),
}

/// Writes a duration as rules do: the largest unit that divides it.
pub(crate) fn notation(span: Duration) -> String {
    const UNITS: [(u128, &str); 6] = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "m"),
        (1_000_000, "s"),
        (1_000, "ms"),
        (1, "us"),
    ];
    let micros = span.as_micros();
    let divides = |(unit, _): &&(u128, &str)| micros >= *unit && micros.is_multiple_of(*unit);
    match UNITS.iter().find(divides) {
        Some((unit, name)) => format!("{}{name}", micros / unit),
        None => "0s".to_owned(),
    }
}

/// A limit as serde reads and writes it.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLimit {
    limit: u64,
    window: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    algorithm: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[cfg(feature = "serde")]
impl TryFrom<WrittenLimit> for Limit {
    type Error = InvalidLimit;

    fn try_from(written: WrittenLimit) -> Result<Self, InvalidLimit> {
        let window = ratekeeper_core::duration::parse_duration(&written.window)?;
        let known = |name: String| {
            Algorithm::from_name(&name).ok_or_else(|| InvalidLimit::Algorithm(name.into()))
        };
        let limit = Self {
            hits: written.limit,
            window: window.into(),
            burst: written.burst,
            algorithm: written.algorithm.map(known).transpose()?,
            strict: written.strict,
            name: written.name.map(Cow::Owned),
        };
        limit.validate()?;
        Ok(limit)
    }
}

#[cfg(feature = "serde")]
impl From<Limit> for WrittenLimit {
    fn from(limit: Limit) -> Self {
        Self {
            limit: limit.hits,
            window: notation(limit.window),
            burst: limit.burst,
            algorithm: limit.algorithm.map(|algorithm| algorithm.name().to_owned()),
            strict: limit.strict,
            name: limit.name.map(Cow::into_owned),
        }
    }
}
