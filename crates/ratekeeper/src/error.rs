//! Errors of creating a limiter.

#[cfg(feature = "yaml")]
use ratekeeper_rules::{Diagnostics, ReadError};
use ratekeeper_store::memory::MemoryError;

use crate::InvalidLimit;

/// The reason why a limiter could not be created. A limiter that exists does not fail.
///
/// ```
/// use ratekeeper::{Error, Limit, RateLimiter};
///
/// let error = RateLimiter::keyed(Limit::per_second(0)).unwrap_err();
/// assert!(matches!(error, Error::Limit { index: 0, .. }));
/// assert_eq!(error.to_string(), "limit 0 is refused: a limit is at least 1 hit");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A limit is refused.
    #[error("limit {index} is refused: {reason}")]
    Limit {
        /// Its place, counted from 0.
        index: usize,
        /// The reason.
        reason: InvalidLimit,
    },
    /// Two limits have the same algorithm and window, so that the stricter one says it all.
    #[error("limits {other} and {index} have the same algorithm and window; keep the stricter one")]
    Repeated {
        /// The place of the second, counted from 0.
        index: usize,
        /// The place of the first.
        other: usize,
    },
    /// The list of limits is empty.
    #[error("a limiter needs at least one limit")]
    NoLimits,
    /// The store cannot be created.
    #[error("no room for the counters")]
    Memory(#[from] MemoryError),
    /// The rules cannot be read.
    #[cfg(feature = "yaml")]
    #[error("the rules cannot be read")]
    Read(#[from] ReadError),
    /// The rules are refused: every error with its position and a suggested fix.
    #[cfg(feature = "yaml")]
    #[error("the rules are refused:\n{0}")]
    Rules(Box<Diagnostics>),
    /// The URL does not name a Redis.
    #[cfg(feature = "redis")]
    #[error("the URL of Redis is refused")]
    RedisUrl(#[from] ratekeeper_store_redis::EndpointError),
    /// The server is there, and is no Redis that can keep counters: its own words.
    #[cfg(feature = "redis")]
    #[error("{0}")]
    NotRedis(Box<str>),
    /// The counters that this node uses while Redis is away cannot be created.
    #[cfg(feature = "redis")]
    #[error("no room for the counters of this node")]
    Fallback(#[from] ratekeeper_limiter::FallbackError),
    /// There is no tokio runtime to run connections in.
    #[cfg(feature = "redis")]
    #[error("counters in Redis need a tokio runtime; call this inside of one")]
    NoRuntime,
    /// Counters in Redis go by its clock, not by one that is moved by hand.
    #[cfg(feature = "redis")]
    #[error("counters in Redis go by its clock; leave `clock` out")]
    ClockWithRedis,
}

#[cfg(feature = "yaml")]
impl From<Diagnostics> for Error {
    fn from(problems: Diagnostics) -> Error {
        Error::Rules(Box::new(problems))
    }
}
