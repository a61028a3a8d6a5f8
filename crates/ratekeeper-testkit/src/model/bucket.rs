//! The bucket, replayed from the beginning for every answer.

use ratekeeper_core::{Algorithm, LimitSpec, Micros, Timestamp};

/// `token_bucket`, `gcra` and `leaky_bucket`: at most `burst` tokens, refilled continuously with
/// `quota` tokens a window. The deficit is counted in exact fractions of a token.
#[derive(Clone, Debug)]
pub struct Bucket {
    burst: u64,
    /// The most tokens that forced hits leave missing: the burst, and the debt of a post-paid bucket.
    most: u64,
    /// Fractions of a token added per microsecond.
    inflow: u128,
    /// Fractions in a whole token.
    token: u128,
    /// True if a take waits for its turn.
    queues: bool,
    charges: Vec<Charge>,
}

#[derive(Clone, Copy, Debug)]
struct Charge {
    at: u64,
    hits: i64,
    /// The most that could be missing at that time: forced hits beyond it are not owed.
    most: u64,
}

impl Bucket {
    pub(crate) fn new(spec: LimitSpec) -> Self {
        Self {
            burst: burst(spec),
            most: most(spec),
            inflow: u128::from(spec.quota),
            token: u128::from(spec.window.get()),
            queues: spec.algorithm == Algorithm::LeakyBucket,
            charges: Vec::new(),
        }
    }

    /// The same with a refill slower by 0.1 %: T longer by a thousandth.
    pub(crate) fn slowest(spec: LimitSpec) -> Self {
        let exact = Self::new(spec);
        Self {
            inflow: exact.inflow * 1_000,
            token: exact.token * 1_001,
            ..exact
        }
    }

    pub(crate) fn change_burst(&mut self, spec: LimitSpec) {
        self.burst = burst(spec);
        self.most = most(spec);
    }

    pub(crate) fn burst(&self) -> u64 {
        self.burst
    }

    /// The deficit at `now` in fractions of a token, zero for a full bucket. It is above the burst if
    /// that was larger when the hits were taken.
    fn missing(&self, now: Timestamp) -> u128 {
        let mut missing = 0_u128;
        let mut last = 0;
        for charge in &self.charges {
            missing = missing.saturating_sub(u128::from(charge.at - last) * self.inflow);
            last = charge.at;
            let hits = u128::from(charge.hits.unsigned_abs()) * self.token;
            missing = if charge.hits < 0 {
                missing.saturating_sub(hits)
            } else {
                let full = u128::from(charge.most) * self.token;
                missing.max((missing + hits).min(full))
            };
        }
        let since = now.as_micros().saturating_sub(last);
        missing.saturating_sub(u128::from(since) * self.inflow)
    }

    pub(crate) fn room(&self, now: Timestamp) -> u64 {
        let full = u128::from(self.burst) * self.token;
        let there = full.saturating_sub(self.missing(now));
        u64::try_from(there / self.token).unwrap_or(u64::MAX)
    }

    /// Returns true if more is missing than the burst.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.missing(now) > u128::from(self.burst) * self.token
    }

    /// The part of `hits` that a charge leaves out, as more than the most would be missing.
    pub(crate) fn cut(&self, hits: i64, now: Timestamp) -> u64 {
        let missing = self.missing(now).div_ceil(self.token);
        let most = u128::from(self.most).max(missing);
        let wanted = missing + u128::from(u64::try_from(hits).unwrap_or(0));
        u64::try_from(wanted.saturating_sub(most)).unwrap_or(u64::MAX)
    }

    pub(crate) fn charge(&mut self, hits: i64, now: Timestamp) {
        let last = self.charges.last().map_or(0, |charge| charge.at);
        self.charges.push(Charge {
            at: now.as_micros().max(last),
            hits,
            most: self.most,
        });
    }

    /// Time until the bucket is full, possibly beyond the end of time.
    pub(crate) fn full_after(&self, now: Timestamp) -> Micros {
        self.inflow_of(self.missing(now))
    }

    /// Time until the queue has drained.
    pub(crate) fn delay(&self, now: Timestamp) -> Micros {
        if self.queues {
            self.full_after(now)
        } else {
            Micros::ZERO
        }
    }

    fn inflow_of(&self, missing: u128) -> Micros {
        if missing == 0 {
            return Micros::ZERO;
        }
        Micros::new(u64::try_from(missing.div_ceil(self.inflow)).unwrap_or(u64::MAX))
    }
}

/// The most tokens that can be missing.
fn most(spec: LimitSpec) -> u64 {
    let burst = burst(spec);
    match spec.post_paid {
        true => burst + spec.max_debt.unwrap_or(10 * burst),
        false => burst,
    }
}

/// The burst; 0 if the quota is 0, which lets nothing pass.
fn burst(spec: LimitSpec) -> u64 {
    match spec.quota {
        0 => 0,
        quota => spec.burst.unwrap_or(quota),
    }
}
