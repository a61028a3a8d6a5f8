//! The places where a limiter can keep its counters.

use std::future::Future;

use crate::Checked;

/// The place of a limiter's counters: [`InMemory`](crate::InMemory), or `InRedis` with the feature `redis`.
///
/// ```
/// use ratekeeper::{Counters, RateLimiter};
///
/// /// Works for counters in any place.
/// async fn pace<C: Counters>(limiter: &RateLimiter<C>) -> bool {
///     limiter.until_allowed("vendor").await.is_ok()
/// }
/// ```
pub trait Counters: sealed::Sealed + Send + Sync + 'static {
    /// True if other processes use the counters too.
    #[doc(hidden)]
    const IS_SHARED: bool;

    /// The answer of a counter, now or later.
    #[doc(hidden)]
    type Answer: Future<Output = Checked> + Send + 'static;

    /// Asks the counters of `key`.
    #[doc(hidden)]
    fn ask(&self, key: &str, question: Question) -> Self::Answer;
}

/// A question to the counters of one key.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// May so many hits pass? If so, they are taken.
    Take(u64),
    /// Takes so many hits back.
    GiveBack(u64),
    /// Would one hit pass?
    Look,
}

impl Question {
    /// The hits of a step: no more than counters hold, which is more than any limit has.
    pub(crate) fn hits(self) -> i64 {
        let clamped = |hits: u64| i64::try_from(hits.min(ratekeeper_core::MAX_COUNT));
        match self {
            Self::Take(hits) => clamped(hits).unwrap_or(i64::MAX),
            Self::GiveBack(hits) => -clamped(hits).unwrap_or(i64::MAX),
            Self::Look => 0,
        }
    }
}

pub(crate) mod sealed {
    #[doc(hidden)]
    pub trait Sealed {}
}
