//! The part of a limit that a region enforces while it holds a share of it, which moves between regions.
//!
//! ```text
//!  whole: 600 a minute, burst 120          share 200: 200 a minute, burst 40      share 500: 500 a minute, burst 100
//! ```
//!
//! A window and a log count on under another share, and only their limit is another. A bucket stores what is missing of
//! its capacity, so it is [resized](Limit::resize): its level stays, and tokens that go along leave it or come to it. A
//! share that becomes smaller by itself, as a loan is over, [lowers](Limit::lower) it: what is above the smaller capacity
//! is lost.

use crate::limit::Kind;
use crate::rate::Rate;
use crate::{Limit, LimitSpec, MAX_COUNT, StateMut, Timestamp, token_bucket};

/// The largest quota and burst of a bucket of which regions hold parts: all parts of it can be computed with doubles.
const LENT_BUCKET_MAX: u64 = 1 << 40;

/// The quota and the burst of a limit of which regions hold parts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Whole {
    /// The hits per window.
    pub quota: u64,
    /// The burst; the quota if the limit has no bucket.
    pub burst: u64,
}

impl Whole {
    /// Those of `limit`.
    #[must_use]
    pub const fn of(limit: &Limit) -> Self {
        let quota = limit.quota();
        let burst = match limit.algorithm().has_burst() {
            true => limit.capacity(),
            false => quota,
        };
        Self { quota, burst }
    }

    /// The burst of a region that holds `share` hits of the quota: the same part of it, rounded down, so that the bursts
    /// of all regions never sum to more.
    #[must_use]
    pub fn burst_of(self, share: u64) -> u64 {
        if self.burst == self.quota {
            return share;
        }
        let part = u128::from(self.burst) * u128::from(share);
        let part = part.checked_div(u128::from(self.quota)).unwrap_or(0);
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

impl Limit {
    /// The same limit while a region holds `share` hits of the `whole` one. A bucket of which it holds too little for a
    /// burst of one hit admits nothing.
    #[must_use]
    pub fn holding(&self, share: u64, whole: Whole) -> Self {
        let spec = self.spec();
        let burst = match spec.algorithm.has_burst() {
            true => Some(whole.burst_of(share)),
            false => None,
        };
        let quota = match burst {
            Some(0) => 0,
            _ => share.min(MAX_COUNT),
        };
        // Without a quota every limit that can be lent is valid, and admits nothing.
        let quotas = [quota, 0].into_iter();
        let mut held = quotas.map(|quota| {
            Self::try_new(LimitSpec {
                quota,
                burst: burst.filter(|_| quota > 0),
                ..spec
            })
        });
        held.find_map(Result::ok).unwrap_or(*self)
    }

    /// Returns true if every part of this limit can be computed exactly, by a script too: always but for a bucket that is
    /// very large, or fills very slowly.
    #[must_use]
    pub fn has_exact_parts(&self) -> bool {
        let Some(rate) = self.bucket() else {
            return true;
        };
        let (quota, burst) = (self.quota(), rate.burst());
        let is_exact = burst == quota || u128::from(burst) * u128::from(quota) < 1 << 53;
        quota.max(burst) <= LENT_BUCKET_MAX && is_exact && rate.full() < 1 << 51
    }

    /// The state under the share of `to`, after it was under that of `self`. The level of a bucket stays, but for `tokens`
    /// that leave it (below zero: that come to it), and what is above its capacity. Other states are the same under every
    /// share.
    pub fn resize(&self, to: &Self, state: StateMut<'_>, tokens: i64, now: Timestamp) {
        if let (Some(from), Some(to), StateMut::Words(words)) = (self.bucket(), to.bucket(), state)
        {
            token_bucket::resize((from, to), words, tokens, now);
        }
    }

    /// The state under the share of `to`, after that of `self` became smaller at `end`. A bucket that was charged since
    /// then is under it already.
    pub fn lower(&self, to: &Self, state: StateMut<'_>, end: Timestamp) {
        if let (Some(from), Some(to), StateMut::Words(words)) = (self.bucket(), to.bucket(), state)
        {
            token_bucket::lower(from.burst().saturating_sub(to.burst()), words, end);
        }
    }

    /// The rate of a token bucket.
    const fn bucket(&self) -> Option<Rate> {
        match self.kind {
            Kind::TokenBucket(rate) | Kind::Gcra(rate) => Some(rate),
            Kind::FixedWindow | Kind::EqualCount(_) | Kind::SubWindows(_) => None,
            Kind::SlidingLog | Kind::Concurrency => None,
            Kind::LeakyBucket(..) | Kind::PostPaid(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
