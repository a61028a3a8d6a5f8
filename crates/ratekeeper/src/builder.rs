//! Making a limiter.

use std::time::Duration;

use ratekeeper_store::HashKey;
use ratekeeper_store::memory::MemoryConfig;

use crate::clock::Clock;
use crate::lines::Lines;
use crate::rate_limiter::Shared;
use crate::{Error, InMemory, Limit, ManualClock, RateLimiter};

/// The default for the most requests that wait at a time.
const WAITING_MAX: usize = 1_024;

/// The settings of a [`RateLimiter`] to be made.
///
/// ```
/// use ratekeeper::{Limit, RateLimiter};
///
/// let limiter = RateLimiter::builder(Limit::per_second(5)).memory_limit(1 << 20).build()?;
/// assert!(limiter.check("ada").allowed);
/// # Ok::<(), ratekeeper::Error>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct RateLimiterBuilder {
    limits: Box<[Limit]>,
    clock: Option<ManualClock>,
    memory_limit: usize,
    waiting_max: usize,
    wait_max: Option<Duration>,
    #[cfg(feature = "redis")]
    pub(crate) shared: crate::in_redis::SharedOptions,
}

impl RateLimiterBuilder {
    pub(crate) fn new(limits: impl IntoIterator<Item = Limit>) -> Self {
        Self {
            limits: limits.into_iter().collect(),
            clock: None,
            memory_limit: MemoryConfig::DEFAULT_LIMIT,
            waiting_max: WAITING_MAX,
            wait_max: None,
            #[cfg(feature = "redis")]
            shared: crate::in_redis::SharedOptions::default(),
        }
    }

    /// Goes by `clock` instead of the system's. Not for counters in Redis, which go by its clock.
    ///
    /// ```
    /// use ratekeeper::{Limit, ManualClock, RateLimiter};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = RateLimiter::builder(Limit::per_second(5)).clock(&clock).build()?;
    /// assert!(limiter.check("ada").allowed);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Bounds the memory for counters, 256 MiB by default and at least 1 MiB. It is used as keys come: three quarters
    /// of it at 57 bytes a counter. If it is full, expired counters go first, then those with the largest share left;
    /// if all others deny, new keys pass uncounted, and their answers are [`degraded`](crate::Checked::degraded).
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::builder(Limit::per_second(5)).memory_limit(16 << 20).build()?;
    /// assert!(limiter.check("ada").allowed);
    /// assert!(RateLimiter::builder(Limit::per_second(5)).memory_limit(1).build().is_err());
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    pub const fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Bounds the number of requests that wait for their turn, over all keys: 1,024 by default. One more is refused
    /// with [`WaitError::Crowded`](crate::WaitError::Crowded).
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::builder(Limit::per_second(5)).waiting_max(10).build()?;
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    pub const fn waiting_max(mut self, requests: usize) -> Self {
        self.waiting_max = requests;
        self
    }

    /// Bounds the time for which a request waits; by default it waits as long as its limit demands. One that would wait
    /// longer is refused at once with [`WaitError::TooLong`](crate::WaitError::TooLong); one behind others in line, when
    /// that time is over.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    /// use std::time::Duration;
    ///
    /// let limiter = RateLimiter::builder(Limit::per_second(5)).wait_max(Duration::from_secs(2)).build()?;
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    pub const fn wait_max(mut self, wait: Duration) -> Self {
        self.wait_max = Some(wait);
        self
    }

    /// Makes the limiter, with counters in memory.
    ///
    /// ```
    /// use ratekeeper::{Error, Limit, RateLimiter};
    ///
    /// assert!(RateLimiter::builder(Limit::per_second(5)).build().is_ok());
    /// assert!(matches!(RateLimiter::builder([]).build(), Err(Error::NoLimits)));
    /// ```
    ///
    /// # Errors
    /// As [`RateLimiter::keyed`], and [`Error::Memory`] for a memory limit that cannot be.
    pub fn build(self) -> Result<RateLimiter, Error> {
        let clock = match &self.clock {
            Some(clock) => Clock::Manual(clock.clone()),
            None => Clock::system(),
        };
        let counters = InMemory::new(&self.compiled()?, self.memory_limit, clock.clone())?;
        Ok(self.with(counters, clock))
    }

    #[cfg(feature = "redis")]
    pub(crate) const fn has_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// Bytes for counters.
    #[cfg(feature = "redis")]
    pub(crate) const fn memory(&self) -> usize {
        self.memory_limit
    }

    /// The limits as steps need them.
    pub(crate) fn compiled(&self) -> Result<Vec<ratekeeper_core::Limit>, Error> {
        if self.limits.is_empty() {
            return Err(Error::NoLimits);
        }
        let mut compiled: Vec<ratekeeper_core::Limit> = Vec::new();
        for (index, limit) in self.limits.iter().enumerate() {
            let made = limit.compile();
            let made = made.map_err(|reason| Error::Limit { index, reason })?;
            let same = |other: &ratekeeper_core::Limit| {
                (other.algorithm(), other.window()) == (made.algorithm(), made.window())
            };
            if let Some(other) = compiled.iter().position(same) {
                return Err(Error::Repeated { index, other });
            }
            compiled.push(made);
        }
        Ok(compiled)
    }

    pub(crate) fn with<C>(self, counters: C, clock: Clock) -> RateLimiter<C> {
        RateLimiter {
            shared: Shared {
                limits: self.limits,
                counters,
                clock,
                lines: Lines::new(self.waiting_max),
                wait_max: self.wait_max,
                hash_key: HashKey::random(),
            }
            .into(),
        }
    }
}
