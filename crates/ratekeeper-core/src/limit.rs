//! A limit as the steps need it.

use crate::Micros;
use crate::equal_count::{self, EqualCount};
use crate::post_paid::PostPaid;
use crate::rate::Rate;
use crate::spec::{Algorithm, LimitError, LimitSpec, MAX_LOG, MAX_PERMITS};
use crate::sub_windows::SubWindows;

/// A validated limit with the precomputed values of its steps.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limit {
    algorithm: Algorithm,
    quota: u64,
    window: Micros,
    calendar: bool,
    pub(crate) kind: Kind,
    /// The hits of a fixed window that other regions are taken to have used; see [`Self::beside`].
    pub(crate) elsewhere: u64,
}

/// The precomputed values of each algorithm.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
    FixedWindow,
    EqualCount(EqualCount),
    SubWindows(SubWindows),
    SlidingLog,
    TokenBucket(Rate),
    Gcra(Rate),
    /// With the longest delay that callers accept; `Micros::MAX` if they accept any.
    LeakyBucket(Rate, Micros),
    Concurrency,
    PostPaid(PostPaid),
}

impl Limit {
    /// Validates `spec`.
    ///
    /// # Errors
    /// The first rule of [`LimitError`] that `spec` breaks.
    pub fn try_new(spec: LimitSpec) -> Result<Self, LimitError> {
        spec.check()?;
        let LimitSpec {
            algorithm,
            quota,
            window,
            calendar,
            burst,
            sub_windows,
            strict,
            post_paid,
            max_debt,
        } = spec;
        let kind = match algorithm {
            Algorithm::FixedWindow => Kind::FixedWindow,
            Algorithm::SlidingWindow => match sub_windows {
                Some(count) => Kind::SubWindows(SubWindows::try_new(window, count)?),
                None => Kind::EqualCount(EqualCount::try_new(quota, window, strict)?),
            },
            Algorithm::SlidingLog if quota > MAX_LOG => return Err(LimitError::LogTooLong),
            Algorithm::SlidingLog => Kind::SlidingLog,
            Algorithm::TokenBucket => Kind::TokenBucket(Rate::try_new(quota, window, burst)?),
            Algorithm::Gcra => Kind::Gcra(Rate::try_new(quota, window, burst)?),
            Algorithm::LeakyBucket => {
                Kind::LeakyBucket(Rate::try_new(quota, window, burst)?, Micros::MAX)
            }
            Algorithm::Concurrency if quota > MAX_PERMITS => {
                return Err(LimitError::TooManyPermits);
            }
            Algorithm::Concurrency => Kind::Concurrency,
        };
        if post_paid && sub_windows.is_some() {
            return Err(LimitError::PostPaidWithSubWindows);
        }
        let kind = match post_paid {
            true => Kind::PostPaid(PostPaid::try_new(algorithm, kind, max_debt)?),
            false => kind,
        };
        Ok(Self {
            algorithm,
            quota,
            window,
            calendar,
            kind,
            elsewhere: 0,
        })
    }

    /// The same limit for callers that cannot wait: a leaky bucket refuses what it would
    /// delay, until its turn. Every other limit is unchanged, and so are the counters.
    #[must_use]
    pub const fn without_delay(self) -> Self {
        self.with_delay_max(Micros::ZERO)
    }

    /// The same limit for callers that accept a delay of at most `most`: a leaky bucket denies
    /// requests that it would delay for longer, and reserves no turn for them. Other limits and all
    /// counters are unchanged. Hits that are given back free nothing of a queue longer than `most`,
    /// unless that is zero.
    #[must_use]
    pub const fn with_delay_max(self, most: Micros) -> Self {
        let Kind::LeakyBucket(rate, _) = self.kind else {
            return self;
        };
        // No turn is further away than the length of a full queue.
        let is_bound = most.get() < rate.micros(rate.full()).get();
        let most = if is_bound { most } else { Micros::MAX };
        Self {
            kind: Kind::LeakyBucket(rate, most),
            ..self
        }
    }

    /// The same limit with other steps.
    pub(crate) const fn with_kind(&self, kind: Kind) -> Self {
        Self { kind, ..*self }
    }

    /// The longest delay of a leaky bucket that callers accept: `Micros::MAX` if they accept any,
    /// and for every other limit.
    #[must_use]
    pub const fn delay_max(&self) -> Micros {
        match self.kind {
            Kind::LeakyBucket(_, most) => most,
            Kind::FixedWindow
            | Kind::SlidingLog
            | Kind::Concurrency
            | Kind::EqualCount(_)
            | Kind::SubWindows(_) => Micros::MAX,
            Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::PostPaid(_) => Micros::MAX,
        }
    }

    /// The time in which `hits` refill, by which they move a leaky bucket's next turn, rounded up.
    /// Zero for limits without a bucket.
    #[must_use]
    pub fn span(&self, hits: u64) -> Micros {
        match self.kind {
            Kind::TokenBucket(rate) | Kind::Gcra(rate) | Kind::LeakyBucket(rate, _) => {
                rate.micros(rate.span(hits.min(rate.burst())))
            }
            Kind::FixedWindow
            | Kind::SlidingLog
            | Kind::Concurrency
            | Kind::EqualCount(_)
            | Kind::SubWindows(_) => Micros::ZERO,
            Kind::PostPaid(_) => self.prepaid().span(hits),
        }
    }

    /// The longest time for which a hit counts: the window, with two hours for changes of clocks if it follows a calendar,
    /// or the time in which a bucket refills that is empty and as far in debt as it may be.
    #[must_use]
    pub fn counts_for(&self) -> Micros {
        /// No time zone's clocks go back by more.
        const CLOCKS_BACK: Micros = Micros::from_secs(2 * 3_600);
        let refilled = if let Kind::PostPaid(PostPaid::Bucket(rate, most)) = self.kind {
            rate.micros(rate.span(most))
        } else {
            self.span(self.capacity())
        };
        match self.calendar {
            true => Micros::new(self.window.get().saturating_add(CLOCKS_BACK.get())),
            false => self.window.max(refilled),
        }
    }

    /// The counting algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Hits per window, or concurrent permits.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        self.quota
    }

    /// The length of the window (concurrency: the permit's timeout).
    #[must_use]
    pub const fn window(&self) -> Micros {
        self.window
    }

    /// Returns true if each step brings the window's edges along.
    #[must_use]
    pub const fn is_calendar(&self) -> bool {
        self.calendar
    }

    /// The limit to report to callers: the quota, or the burst if that is larger, so that it is
    /// never less than the reported remaining hits.
    #[must_use]
    pub const fn ceiling(&self) -> u64 {
        let capacity = self.capacity();
        if capacity > self.quota {
            capacity
        } else {
            self.quota
        }
    }

    /// The most hits that can pass at once after idle time: the burst of a bucket, else the quota,
    /// for a strict sliding window up to 1/17 less. `remaining` never exceeds it, and more hits
    /// than this are [`Never`](crate::Verdict::Never).
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match self.kind {
            Kind::TokenBucket(rate) | Kind::Gcra(rate) | Kind::LeakyBucket(rate, _) => rate.burst(),
            Kind::EqualCount(cut) => cut.most(),
            Kind::FixedWindow | Kind::SlidingLog | Kind::Concurrency | Kind::SubWindows(_) => {
                self.quota
            }
            Kind::PostPaid(_) => self.prepaid().capacity(),
        }
    }

    /// The most hits that pass in any span as long as the window, for any traffic; for a leaky
    /// bucket, the hits that leave it. None for concurrency, which has no window. Post-paid: besides
    /// the cost of requests in flight when nothing was left.
    #[must_use]
    pub const fn most_in_any_window(&self) -> Option<u64> {
        Some(match self.kind {
            Kind::EqualCount(cut) => cut.most_in_any_window(),
            Kind::SlidingLog => self.quota,
            Kind::FixedWindow | Kind::SubWindows(_) => self.quota.saturating_mul(2),
            Kind::TokenBucket(rate) | Kind::Gcra(rate) | Kind::LeakyBucket(rate, _) => {
                rate.burst().saturating_add(self.quota)
            }
            Kind::Concurrency => return None,
            Kind::PostPaid(_) => return self.prepaid().most_in_any_window(),
        })
    }

    /// Returns true if hits are counted in windows that end for all of them at once.
    pub(crate) const fn has_fixed_windows(&self) -> bool {
        match self.kind {
            Kind::FixedWindow => true,
            Kind::EqualCount(_) | Kind::SubWindows(_) | Kind::SlidingLog => false,
            Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..) => false,
            Kind::Concurrency => false,
            Kind::PostPaid(_) => self.prepaid().has_fixed_windows(),
        }
    }

    /// Returns true if the counter keeps hardly more hits than the limit lets pass. Of those charged beyond it the newest
    /// stay, and are all that can be given back; other counters keep them all, until their window ends or as a debt.
    #[must_use]
    pub const fn forgets_excess(&self) -> bool {
        match self.kind {
            Kind::EqualCount(_) | Kind::SlidingLog => true,
            Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..) => true,
            Kind::Concurrency => true,
            Kind::FixedWindow | Kind::SubWindows(_) => false,
            Kind::PostPaid(PostPaid::Bucket(..)) => false,
            Kind::PostPaid(_) => self.prepaid().forgets_excess(),
        }
    }

    /// Returns true for a sliding window that denies rather than exceed its quota.
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        match self.kind {
            Kind::EqualCount(cut) => cut.is_strict(),
            Kind::FixedWindow | Kind::SlidingLog | Kind::Concurrency | Kind::SubWindows(_) => false,
            Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..) => false,
            Kind::PostPaid(_) => self.prepaid().is_strict(),
        }
    }

    /// Words of a sliding window's state on the heap; 0 for every other algorithm.
    #[must_use]
    pub const fn heap_words(&self) -> usize {
        match self.kind {
            Kind::EqualCount(_) => equal_count::HEAP_WORDS,
            Kind::SubWindows(sub) => sub.count() as usize + 2,
            Kind::FixedWindow | Kind::SlidingLog | Kind::Concurrency => 0,
            Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..) => 0,
            Kind::PostPaid(_) => self.prepaid().heap_words(),
        }
    }

    /// Sub-windows of a sliding window; 0 if it has none, and for every other algorithm.
    #[must_use]
    pub const fn sub_windows(&self) -> u32 {
        match self.cut() {
            Some(sub) => sub.count(),
            None => 0,
        }
    }

    /// The sub-windows that the window is cut into, if it is.
    pub(crate) const fn cut(&self) -> Option<SubWindows> {
        match self.kind {
            Kind::SubWindows(sub) => Some(sub),
            Kind::FixedWindow | Kind::SlidingLog | Kind::Concurrency | Kind::EqualCount(_) => None,
            Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..) => None,
            Kind::PostPaid(PostPaid::SubWindows(sub)) => Some(sub),
            Kind::PostPaid(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
