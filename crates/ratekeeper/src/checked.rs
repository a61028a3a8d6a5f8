//! The answer of a limiter.

use std::time::Duration;

/// The answer to a check: may it pass, what is left, and when to come back.
///
/// With several limits it tells the state of the most restrictive one: of those that deny, the one with the longest
/// wait, else the one with the least remaining.
///
/// ```
/// use ratekeeper::{Limit, RateLimiter};
///
/// let limiter = RateLimiter::keyed(Limit::per_minute(2))?;
/// let first = limiter.check("ada");
/// assert!(first.allowed);
/// assert_eq!((first.limit, first.remaining), (2, 1));
///
/// limiter.check("ada");
/// let denied = limiter.check("ada");
/// assert!(!denied.allowed);
/// assert!(denied.retry_after.is_some_and(|wait| wait.as_secs() <= 60));
/// # Ok::<(), ratekeeper::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Checked {
    /// True if the request may pass. If it may not, it took nothing.
    pub allowed: bool,
    /// Hits that a window holds, or a larger burst.
    pub limit: u64,
    /// Hits left, at most `limit`.
    pub remaining: u64,
    /// Time until there is more than `remaining`; zero if nothing is missing. The same as `retry_after` if that is
    /// there.
    pub reset_after: Duration,
    /// Time until the full limit is available again.
    pub full_after: Duration,
    /// Time until the same hits would pass, never zero. None if they passed, or never will.
    pub retry_after: Option<Duration>,
    /// The place of this limit among those of the limiter, counted from 0.
    pub index: usize,
    /// True if the limit could not be counted: the memory was full, or Redis did not answer in time.
    pub degraded: bool,
}

impl Checked {
    /// Returns true if the request costs more than the limit can ever hold, so that no wait helps.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::keyed(Limit::per_minute(2))?;
    /// assert!(limiter.check_n("ada", 3).is_never());
    /// assert!(limiter.check_n("ada", 2).allowed);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    #[must_use]
    pub const fn is_never(&self) -> bool {
        !self.allowed && self.retry_after.is_none()
    }

    /// Turns a denial into an error, for `?`.
    ///
    /// ```
    /// use ratekeeper::{Denied, Limit, RateLimiter};
    ///
    /// fn send(limiter: &RateLimiter) -> Result<(), Denied> {
    ///     limiter.check("ada").ok()?;
    ///     Ok(())
    /// }
    ///
    /// let limiter = RateLimiter::keyed(Limit::per_minute(1))?;
    /// assert!(send(&limiter).is_ok());
    /// assert!(send(&limiter).is_err());
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Denied`] unless the request may pass.
    pub const fn ok(self) -> Result<Self, Denied> {
        match self.allowed {
            true => Ok(self),
            false => Err(Denied(self)),
        }
    }
}

/// A denial as an error.
///
/// ```
/// use ratekeeper::{Limit, RateLimiter};
///
/// let limiter = RateLimiter::keyed(Limit::per_minute(2))?;
/// let denied = limiter.check_n("ada", 3).ok().unwrap_err();
/// assert_eq!(denied.to_string(), "the request costs more than its limit of 2");
/// assert!(denied.0.is_never());
/// # Ok::<(), ratekeeper::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", sentence(.0))]
pub struct Denied(
    /// The answer that denies.
    pub Checked,
);

fn sentence(checked: &Checked) -> String {
    match checked.retry_after {
        Some(wait) => format!("over the limit of {}; retry after {wait:?}", checked.limit),
        None => format!("the request costs more than its limit of {}", checked.limit),
    }
}

/// The reason why waiting ended without a turn. Nothing was taken.
///
/// ```
/// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
/// use ratekeeper::{Limit, RateLimiter, WaitError};
///
/// # fn ready<F: Future>(future: F) -> F::Output {
/// #     match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
/// #         Poll::Ready(output) => output,
/// #         Poll::Pending => panic!("it waits"),
/// #     }
/// # }
/// let limiter = RateLimiter::keyed(Limit::per_minute(2))?;
/// let answer = ready(limiter.until_allowed_n("ada", 3));
/// assert_eq!(answer, Err(WaitError::Never { limit: 2 }));
/// # Ok::<(), ratekeeper::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The request costs more than the limit can ever hold.
    #[error("the request costs more than its limit of {limit}")]
    Never {
        /// The limit.
        limit: u64,
    },
    /// The turn would come later than [`wait_max`](crate::RateLimiterBuilder::wait_max) allows.
    #[error("the turn would come only after {wait:?}")]
    TooLong {
        /// The time until the request would fit, if that is known: not for one that stands in line behind others.
        wait: Duration,
    },
    /// [`waiting_max`](crate::RateLimiterBuilder::waiting_max) others wait already.
    #[error("too many requests wait already")]
    Crowded,
    /// The system has no thread left for the timer.
    #[error("no thread for the timer")]
    NoTimer,
}
