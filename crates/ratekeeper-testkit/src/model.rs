//! The reference model: a second implementation of every algorithm, slow and obvious.
//!
//! A model keeps its hits as a list of timestamps and answers by counting them, in integers and
//! fractions, never in floating point. It has no closed form for a wait: it bisects for the first
//! moment at which the definition lets the hits pass. The steps of `ratekeeper-core` and every
//! store are tested against it.
//!
//! If an algorithm keeps its definition exactly, every field of an answer must be equal. The
//! buckets round the time of one hit up by at most 0.1 %: their answers lie between [`Model::new`],
//! the definition, and [`Model::slowest`], the same with a rate lower by 0.1 %.

mod bucket;
mod groups;
pub mod history;
mod log;
mod permits;
mod timeline;
mod windows;

pub use bucket::Bucket;
pub use groups::EqualCount;
pub use log::SlidingLog;
pub use permits::Permits;
pub use windows::{FixedWindow, SubWindows};

use ratekeeper_core::{
    Algorithm, Ask, LimitSpec, MAX_COUNT, Micros, Outcome, Timestamp, Verdict, concurrency,
};

/// The model of one counter with one limit.
#[derive(Clone, Debug)]
pub enum Model {
    /// `fixed_window`, also with calendar edges.
    FixedWindow(FixedWindow),
    /// `sliding_window` without sub-windows.
    EqualCount(EqualCount),
    /// `sliding_window` with any number of sub-windows.
    SubWindows(SubWindows),
    /// `sliding_log`.
    SlidingLog(SlidingLog),
    /// `token_bucket`, `gcra` and `leaky_bucket`: three views of one bucket.
    Bucket(Bucket),
    /// `concurrency`.
    Permits(Permits),
    /// `post_paid`: hits are charged in full, and answered as a look just before.
    PostPaid(Box<Self>),
}

impl Model {
    /// A fresh counter that follows the definition of `spec`'s algorithm. `Limit::try_new` must
    /// accept `spec`, which has no calendar.
    #[must_use]
    pub fn new(spec: LimitSpec) -> Self {
        if spec.post_paid {
            return Self::PostPaid(Box::new(Self::kept(spec)));
        }
        Self::kept(spec)
    }

    /// A fresh counter as hits are kept in it, in advance or afterwards.
    fn kept(spec: LimitSpec) -> Self {
        match spec.algorithm {
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::new(spec)),
            Algorithm::SlidingWindow if spec.sub_windows.is_none() => {
                Self::EqualCount(EqualCount::new(spec))
            }
            Algorithm::SlidingWindow => Self::SubWindows(SubWindows::new(spec)),
            Algorithm::SlidingLog => Self::SlidingLog(SlidingLog::new(spec)),
            Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
                Self::Bucket(Bucket::new(spec))
            }
            Algorithm::Concurrency => Self::Permits(Permits::new(spec)),
        }
    }

    /// The largest effect of rounding: a bucket that refills slower by 0.1 %. For every other
    /// algorithm this is the same as [`Model::new`].
    #[must_use]
    pub fn slowest(spec: LimitSpec) -> Self {
        let bucket = || Self::Bucket(Bucket::slowest(spec));
        if spec.post_paid && spec.algorithm.has_burst() {
            Self::PostPaid(Box::new(bucket()))
        } else if spec.algorithm.has_burst() {
            bucket()
        } else {
            Self::new(spec)
        }
    }

    /// A fixed window with given edges: each window begins at one of the sorted `edges` and ends at
    /// the next.
    #[must_use]
    pub fn with_edges(spec: LimitSpec, edges: Vec<Timestamp>) -> Self {
        Self::FixedWindow(FixedWindow::with_edges(spec, edges))
    }

    /// Changes the limit to another one of the same algorithm and window, and keeps the usage. For
    /// a bucket only the burst may change: the definition does not cover a change of rate.
    pub fn change(&mut self, spec: LimitSpec) {
        match self {
            Self::FixedWindow(model) => model.quota = spec.quota,
            Self::EqualCount(model) => model.change(spec),
            Self::SubWindows(model) => model.quota = spec.quota,
            Self::SlidingLog(model) => model.quota = spec.quota,
            Self::Bucket(model) => model.change_burst(spec),
            Self::Permits(model) => model.quota = spec.quota,
            Self::PostPaid(model) => model.change(spec),
        }
    }

    /// The most that the limit can hold.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self {
            Self::FixedWindow(model) => model.quota,
            Self::EqualCount(model) => model.most,
            Self::SubWindows(model) => model.quota,
            Self::SlidingLog(model) => model.quota,
            Self::Bucket(model) => model.burst(),
            Self::Permits(model) => model.quota,
            Self::PostPaid(model) => model.capacity(),
        }
    }

    /// The number of hits by which the production step may exceed the definition once `hits` are
    /// taken: only a sliding window's doubles are inexact, see [`SubWindows::tolerance`].
    #[must_use]
    pub fn tolerance(&self, hits: i64, now: Timestamp) -> u64 {
        let mut after = self.clone();
        after.charge(hits.max(0), now);
        match (self, &after) {
            (Self::SubWindows(before), Self::SubWindows(after)) => {
                before.tolerance(now).max(after.tolerance(now))
            }
            _ => 0,
        }
    }

    /// The most hits that pass at `now`.
    #[must_use]
    pub fn room(&self, now: Timestamp) -> u64 {
        match self {
            Self::FixedWindow(model) => model.room(now),
            Self::EqualCount(model) => model.room(now),
            Self::SubWindows(model) => model.room(now),
            Self::SlidingLog(model) => model.room(now),
            Self::Bucket(model) => model.room(now),
            Self::Permits(model) => model.room(now),
            Self::PostPaid(model) => model.room(now),
        }
    }

    /// Takes `hits`, even if they do not fit, or gives them back if negative.
    pub fn charge(&mut self, hits: i64, now: Timestamp) {
        match self {
            Self::FixedWindow(model) => model.charge(hits, now),
            Self::EqualCount(model) => model.charge(hits, now),
            Self::SubWindows(model) => model.charge(hits, now),
            Self::SlidingLog(model) => model.charge(hits, now),
            Self::Bucket(model) => model.charge(hits, now),
            Self::Permits(model) => model.charge(hits, now),
            Self::PostPaid(model) => model.charge(hits, now),
        }
    }

    /// Time until more is left than at `now`; zero if the limit is unused.
    fn reset_after(&self, now: Timestamp) -> Micros {
        match self.room(now) {
            room if room == self.capacity() => Micros::ZERO,
            room if room > 0 && matches!(self, Self::Permits(_)) => Micros::ZERO,
            room => self.wait(room + 1, now),
        }
    }

    /// Time until the limit is unused; zero for permits, whose release cannot be predicted.
    fn full_after(&self, now: Timestamp) -> Micros {
        match self {
            Self::Permits(_) => Micros::ZERO,
            Self::Bucket(bucket) => bucket.full_after(now),
            Self::PostPaid(model) => model.full_after(now),
            _ => self.wait(self.capacity(), now),
        }
    }

    /// The counter's answer, derived by charging a copy and looking at it.
    #[must_use]
    pub fn answer(&self, ask: Ask, now: Timestamp) -> Outcome {
        let mut after = self.clone();
        after.charge(i64::try_from(ask.taken).unwrap_or(i64::MAX), now);
        if let Self::PostPaid(_) = self {
            return after.pay(ask.hits, now);
        }
        let hits = u64::try_from(ask.hits).unwrap_or(0);
        let together = ask.taken.saturating_add(hits);
        let is_over = match self {
            // A peek at a window that has counted more than its limit.
            Self::FixedWindow(_) => match &after {
                Self::FixedWindow(after) => ask.hits == 0 && after.is_over(now),
                _ => false,
            },
            // And at any other counter of which more is used than a lowered limit holds.
            Self::Bucket(bucket) => ask.hits == 0 && bucket.is_over(now),
            Self::EqualCount(model) => ask.hits == 0 && model.used(now) > model.most.into(),
            Self::SubWindows(model) => ask.hits == 0 && model.used(now) > model.quota.into(),
            Self::SlidingLog(model) => ask.hits == 0 && model.used(now) > model.quota.into(),
            Self::Permits(_) | Self::PostPaid(_) => false,
        };
        let verdict = if is_over && self.capacity() > 0 {
            Verdict::Later
        } else if is_over {
            Verdict::Never
        } else if ask.hits <= 0 || hits <= after.room(now) {
            Verdict::Fits
        } else if together > self.capacity() {
            Verdict::Never
        } else {
            Verdict::Later
        };
        if verdict == Verdict::Fits {
            after.charge(ask.hits, now);
        }
        let retry_after = match verdict {
            Verdict::Later if ask.hits == 0 => self.wait(1, now),
            Verdict::Later => self.wait(together, now),
            Verdict::Fits if ask.hits == 0 => self.wait(together.saturating_add(1), now),
            Verdict::Fits | Verdict::Never => Micros::ZERO,
        };
        let reset_after = match verdict {
            Verdict::Later => retry_after,
            Verdict::Fits | Verdict::Never => after.reset_after(now),
        };
        let delay = match self {
            Self::Bucket(bucket) if verdict == Verdict::Fits && ask.hits > 0 => bucket.delay(now),
            _ => Micros::ZERO,
        };
        Outcome {
            verdict,
            remaining: after.room(now),
            reset_after,
            full_after: after.full_after(now),
            retry_after,
            delay,
            cut: 0,
        }
    }

    /// The answer to `hits` of a post-paid limit, to which they are charged in any case.
    fn pay(mut self, hits: i64, now: Timestamp) -> Outcome {
        let was_left = self.room(now) > 0;
        let cut = match &self {
            Self::PostPaid(model) => model.cut(hits, now),
            _ => 0,
        };
        self.charge(hits, now);
        let verdict = match was_left || hits < 0 {
            true => Verdict::Fits,
            false if self.capacity() == 0 => Verdict::Never,
            false => Verdict::Later,
        };
        let retry_after = match verdict {
            Verdict::Later => self.wait(1, now),
            Verdict::Fits | Verdict::Never => Micros::ZERO,
        };
        Outcome {
            verdict,
            remaining: self.room(now),
            reset_after: self.reset_after(now),
            full_after: self.full_after(now),
            retry_after,
            delay: Micros::ZERO,
            cut,
        }
    }

    /// The part of forced `hits` that is not charged: a bucket is no further below zero than it may be.
    fn cut(&self, hits: i64, now: Timestamp) -> u64 {
        match self {
            Self::Bucket(bucket) => bucket.cut(hits, now),
            _ => 0,
        }
    }

    /// The shortest wait after which `hits` would pass without other requests; [`Micros::MAX`] if
    /// none helps. Room only grows in the meantime, so bisection finds it.
    fn wait(&self, hits: u64, now: Timestamp) -> Micros {
        let fits = |wait: u64| hits <= self.room(now.after(Micros::new(wait)));
        if hits > self.capacity() {
            return Micros::MAX;
        }
        if fits(0) {
            return Micros::ZERO;
        }
        if let Self::Permits(_) = self {
            return concurrency::RETRY_HINT;
        }
        let end = MAX_COUNT - now.as_micros();
        let mut high = 1;
        while high < end && !fits(high) {
            high = end.min(high * 4);
        }
        let mut low = high / 4;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Micros::new(high)
    }
}
