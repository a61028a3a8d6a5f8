//! One step of any limit: dispatches to the algorithms.

use crate::limit::Kind;
use crate::{
    Ask, Heap, Limit, Moment, Outcome, Shape, Spill, State, StateMut, StateRef, Timestamp, Words,
    concurrency, equal_count, fixed_window, leaky_bucket, post_paid, sliding_log, sub_windows,
    token_bucket,
};

impl Limit {
    /// The initial form of this limit's counters.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match &self.kind {
            Kind::SlidingLog | Kind::Concurrency => Shape::Heap,
            Kind::EqualCount(cut) if !cut.fits_words() => Shape::Heap,
            Kind::SubWindows(sub) if !sub.fits_words() => Shape::Heap,
            Kind::EqualCount(_) | Kind::SubWindows(_) => Shape::Words,
            Kind::FixedWindow | Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..) => {
                Shape::Words
            }
            Kind::PostPaid(_) => self.prepaid().shape(),
        }
    }

    /// The counter's answer to `ask`; does not change the counter.
    ///
    /// The state must have been charged under a limit of the same algorithm, window and
    /// sub-windows; quota, burst and rate may have changed since.
    #[must_use]
    pub fn test(&self, state: StateRef<'_>, ask: Ask, at: &Moment) -> Outcome {
        match (&self.kind, state) {
            (Kind::FixedWindow, StateRef::Words(words)) => fixed_window::test(self, words, ask, at),
            (Kind::EqualCount(cut), state) => equal_count::test(cut, state, ask, at.now),
            (Kind::SubWindows(sub), state) => sub_windows::test(self, sub, state, ask, at.now),
            (Kind::SlidingLog, StateRef::Heap(heap)) => sliding_log::test(self, heap, ask, at.now),
            (Kind::TokenBucket(rate) | Kind::Gcra(rate), StateRef::Words(words)) => {
                token_bucket::test(*rate, words, ask, at.now)
            }
            (Kind::LeakyBucket(rate, most), StateRef::Words(words)) => {
                leaky_bucket::test(*rate, *most, words, ask, at.now)
            }
            (Kind::Concurrency, StateRef::Heap(heap)) => concurrency::test(self, heap, ask, at.now),
            (Kind::SlidingLog | Kind::Concurrency, StateRef::Words(_)) => {
                self.test(StateRef::Heap(&[]), ask, at)
            }
            (
                Kind::FixedWindow | Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..),
                StateRef::Heap(_),
            ) => self.test(StateRef::Words(&[0; 4]), ask, at),
            (Kind::PostPaid(_), state) => post_paid::test(self, state, ask, at),
        }
    }

    /// Takes `hits` from the counter even if they do not fit, or gives them back if negative. Hits
    /// that do not fit (a store charges them where the rule requires it) fill a bucket, a log or
    /// the permits and no more; a window counts all of them, up to 2^53 - 1. A post-paid bucket goes
    /// below zero, by its [`max_debt`](Self::max_debt) at most. Giving back leaves at most an unused
    /// counter.
    ///
    /// 0 hits change nothing but a counter written by a clock that has gone back far
    /// ([`Self::is_ahead`]): stores charge them to every counter that denied, after which the reported
    /// wait is exact.
    ///
    /// # Errors
    /// [`Spill`] if a count outgrew the counter's [`Words`]; nothing was changed.
    pub fn charge(&self, state: StateMut<'_>, hits: i64, at: &Moment) -> Result<(), Spill> {
        match (&self.kind, state) {
            (Kind::FixedWindow, StateMut::Words(words)) => {
                fixed_window::charge(self, words, hits, at);
            }
            (Kind::EqualCount(cut), state) => {
                return equal_count::charge(cut, state, hits, at.now);
            }
            (Kind::SubWindows(sub), state) => {
                return sub_windows::charge(sub, state, hits, at.now);
            }
            (Kind::SlidingLog, StateMut::Heap(heap)) => {
                sliding_log::charge(self, heap, hits, at.now);
            }
            (Kind::TokenBucket(rate) | Kind::Gcra(rate), StateMut::Words(words)) => {
                token_bucket::charge(*rate, rate.burst(), words, hits, at.now);
            }
            (Kind::LeakyBucket(rate, most), StateMut::Words(words)) => {
                leaky_bucket::charge(*rate, *most, words, hits, at.now);
            }
            (Kind::Concurrency, StateMut::Heap(heap)) => {
                concurrency::charge(self, heap, hits, at.now);
            }
            (Kind::SlidingLog | Kind::Concurrency, StateMut::Words(_)) => return Err(Spill),
            // A heap in place of words cannot come from this limit: start afresh.
            (
                Kind::FixedWindow | Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..),
                StateMut::Heap(heap),
            ) => heap.clear(),
            (Kind::PostPaid(kind), state) => {
                return post_paid::charge(self, kind, state, hits, at);
            }
        }
        Ok(())
    }

    /// Returns true if hits taken at `taken_at` can still be given back at `at`: for a fixed window
    /// if it is the same window, for a sliding one and a log if they are younger than the window,
    /// for a bucket always, since it never gets fuller than full. Permits are released instead.
    #[must_use]
    pub fn still_counts(&self, taken_at: Timestamp, at: &Moment) -> bool {
        match &self.kind {
            Kind::FixedWindow => fixed_window::is_same(self, taken_at, at),
            Kind::EqualCount(_) | Kind::SubWindows(_) | Kind::SlidingLog => {
                // Hits from a time before the clock went back have moved since.
                at.now.since(taken_at) < self.window() && taken_at.since(at.now) <= self.window()
            }
            Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..) => true,
            Kind::Concurrency => false,
            Kind::PostPaid(_) => self.prepaid().still_counts(taken_at, at),
        }
    }

    /// Returns true if the counter is ahead of the clock by more than time can explain: it was
    /// charged by a clock that has since gone back by more than the window (a bucket's time to
    /// fill, a permit's timeout). Such a counter answers as of the clock, and the next charge, even
    /// of 0 hits, stores it so.
    #[must_use]
    pub fn is_ahead(&self, state: StateRef<'_>, now: Timestamp) -> bool {
        match (&self.kind, state) {
            (Kind::FixedWindow, StateRef::Words(words)) => fixed_window::is_ahead(self, words, now),
            (Kind::EqualCount(cut), state) => equal_count::is_ahead(cut, state, now),
            (Kind::SubWindows(sub), state) => sub.is_state_ahead(state, now),
            (Kind::SlidingLog, StateRef::Heap(heap)) => {
                sliding_log::ahead(self, heap, now).is_some()
            }
            (Kind::TokenBucket(rate) | Kind::Gcra(rate), StateRef::Words(words)) => {
                token_bucket::is_ahead(*rate, words, now)
            }
            (Kind::LeakyBucket(rate, _), StateRef::Words(words)) => {
                leaky_bucket::is_ahead(*rate, words, now)
            }
            (Kind::Concurrency, StateRef::Heap(heap)) => concurrency::is_ahead(self, heap, now),
            (Kind::SlidingLog | Kind::Concurrency, StateRef::Words(_))
            | (
                Kind::FixedWindow | Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..),
                StateRef::Heap(_),
            ) => false,
            (Kind::PostPaid(_), state) => self.prepaid().is_ahead(state, now),
        }
    }

    /// The [`Heap`] form of `words`, for a counter that outgrew them.
    #[must_use]
    pub fn spill(&self, words: &Words) -> Heap {
        match &self.kind {
            Kind::EqualCount(_) => equal_count::spill(words),
            Kind::SubWindows(sub) => sub.spill(words),
            Kind::FixedWindow
            | Kind::TokenBucket(_)
            | Kind::Gcra(_)
            | Kind::LeakyBucket(..)
            | Kind::SlidingLog
            | Kind::Concurrency => Heap::new(),
            Kind::PostPaid(_) => self.prepaid().spill(words),
        }
    }

    /// The most words that a charge of `hits` may add to a [`Heap`].
    #[inline]
    #[must_use]
    pub fn words_per_charge(&self, hits: i64) -> usize {
        match &self.kind {
            // An id of two words and a deadline for each permit.
            Kind::Concurrency => {
                let permits = self.quota().min(hits.unsigned_abs());
                usize::try_from(permits)
                    .unwrap_or(usize::MAX / 64)
                    .saturating_mul(3)
            }
            Kind::EqualCount(_) | Kind::SubWindows(_) => self.heap_words(),
            Kind::SlidingLog => 4,
            Kind::FixedWindow | Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..) => 4,
            Kind::PostPaid(_) => self.prepaid().words_per_charge(hits),
        }
    }

    /// The most words that a counter's [`Heap`] takes; 0 if it always fits [`Words`].
    #[must_use]
    pub fn heap_words_max(&self) -> u64 {
        match &self.kind {
            // A sum and an index, then a time and a count for each hit.
            Kind::SlidingLog => 2 + 2 * self.quota(),
            Kind::Concurrency => 3 * self.quota(),
            Kind::EqualCount(_) | Kind::SubWindows(_) => match self.shape() {
                Shape::Heap => self.heap_words() as u64,
                Shape::Words => 0,
            },
            Kind::FixedWindow | Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..) => 0,
            Kind::PostPaid(_) => self.prepaid().heap_words_max(),
        }
    }

    /// The time from which the counter behaves as an unused one, whatever happens, and may be
    /// forgotten. Never further from the last charge than the window (plus a sub-window or tick for
    /// a sliding one; for a bucket, its time to fill).
    #[must_use]
    pub fn expires_at(&self, state: StateRef<'_>, at: &Moment) -> Timestamp {
        match (&self.kind, state) {
            (Kind::FixedWindow, StateRef::Words(words)) => {
                fixed_window::expires_at(self, words, at)
            }
            (Kind::EqualCount(cut), state) => equal_count::expires_at(cut, state),
            (Kind::SubWindows(sub), state) => sub.expires_at(state),
            (Kind::SlidingLog, StateRef::Heap(heap)) => sliding_log::expires_at(self, heap),
            (Kind::TokenBucket(rate) | Kind::Gcra(rate), StateRef::Words(words)) => {
                token_bucket::expires_at(*rate, words)
            }
            (Kind::LeakyBucket(..), StateRef::Words(words)) => leaky_bucket::expires_at(words),
            (Kind::Concurrency, StateRef::Heap(heap)) => concurrency::expires_at(heap),
            (Kind::SlidingLog | Kind::Concurrency, StateRef::Words(_))
            | (
                Kind::FixedWindow | Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..),
                StateRef::Heap(_),
            ) => Timestamp::EPOCH,
            (Kind::PostPaid(_), state) => self.prepaid().expires_at(state, at),
        }
    }

    /// Tests an owned counter and, if the hits fit or are paid afterwards, charges it.
    pub fn step(&self, state: &mut State, hits: i64, at: &Moment) -> Outcome {
        let outcome = self.test(state.as_ref(), Ask::hits(hits), at);
        let is_charged = outcome.fits() || self.is_post_paid();
        self.charge_owned(state, if is_charged { hits } else { 0 }, at);
        outcome
    }

    /// Charges an owned counter, which gets a heap if it outgrows its words.
    pub(crate) fn charge_owned(&self, state: &mut State, hits: i64, at: &Moment) {
        if self.charge(state.as_mut(), hits, at) == Err(Spill) {
            if let State::Words(words) = state {
                *state = State::Heap(self.spill(words));
            }
            // A heap never spills again.
            let _ = self.charge(state.as_mut(), hits, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, LimitSpec, Micros};

    fn limit(algorithm: Algorithm, quota: u64, sub_windows: Option<u32>) -> Limit {
        Limit::try_new(LimitSpec {
            sub_windows,
            ..LimitSpec::new(algorithm, quota, Micros::from_secs(10))
        })
        .expect("a valid limit")
    }

    #[test]
    fn hits_of_a_sliding_window_count_for_as_long_as_it_is() {
        let at = |micros| Moment::at(Timestamp::from_micros(micros));
        let taken_at = Timestamp::from_micros(100_000_000);
        let counts = [
            (89_999_999, false),
            (90_000_000, true),
            (100_000_000, true),
            (109_999_999, true),
            (110_000_000, false),
        ];
        for algorithm in [Algorithm::SlidingLog, Algorithm::SlidingWindow] {
            let limit = limit(algorithm, 10, None);
            for (now, expected) in counts {
                let so = limit.still_counts(taken_at, &at(now));
                assert_eq!(so, expected, "{algorithm:?} at {now}");
            }
        }
        let bucket = limit(Algorithm::TokenBucket, 10, None);
        assert!(bucket.still_counts(taken_at, &at(900_000_000)));
        let permits = limit(Algorithm::Concurrency, 10, None);
        assert!(!permits.still_counts(taken_at, &at(100_000_000)));
    }

    #[test]
    fn counters_begin_in_words_where_they_fit() {
        for (sub_windows, shape) in [(2, Shape::Words), (64, Shape::Heap)] {
            let limit = limit(Algorithm::SlidingWindow, 10, Some(sub_windows));
            assert_eq!(limit.shape(), shape, "{sub_windows}");
        }
    }

    #[test]
    fn a_heap_takes_what_its_limit_may_count() {
        let log = limit(Algorithm::SlidingLog, 10, None);
        assert_eq!((log.words_per_charge(3), log.heap_words_max()), (4, 22));
        let permits = limit(Algorithm::Concurrency, 5, None);
        assert_eq!(permits.words_per_charge(3), 9);
        assert_eq!(permits.words_per_charge(9), 15);
        assert_eq!(permits.heap_words_max(), 15);
        let window = limit(Algorithm::FixedWindow, 10, None);
        assert_eq!(
            (window.words_per_charge(3), window.heap_words_max()),
            (4, 0)
        );
        let few = limit(Algorithm::SlidingWindow, 10, Some(2));
        assert_eq!(few.heap_words_max(), 0);
        let many = limit(Algorithm::SlidingWindow, 10, Some(64));
        assert_eq!(many.words_per_charge(1) as u64, many.heap_words_max());
        assert!(many.heap_words_max() > 8);
    }
}
