//! One step of any limit: the dispatch over the algorithms.

use crate::limit::Kind;
use crate::{
    Heap, Limit, Micros, Outcome, Shape, Spill, State, StateMut, StateRef, Timestamp, Verdict,
    Words, concurrency, equal_count, fixed_window, gcra, leaky_bucket, sliding_log, sliding_window,
    token_bucket,
};

/// The edges of the calendar window around some time, and the end of the one after it,
/// so that the store's own clock can choose between the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Where the window begins.
    pub start: Timestamp,
    /// Where it ends and the next one begins.
    pub end: Timestamp,
    /// Where the next one ends.
    pub next_end: Timestamp,
}

/// When a step is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// The window's edges, where they follow a calendar.
    pub calendar: Option<Bounds>,
}

impl Moment {
    /// A moment outside of any calendar.
    #[must_use]
    pub const fn at(now: Timestamp) -> Self {
        Self {
            now,
            calendar: None,
        }
    }
}

/// What a counter is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Hits that earlier steps of the same request take from the same counter: those that fitted,
    /// and those that are counted whether they fit or not. The answer is as if they had been charged, but for two things that concern the
    /// request as a whole: it is [`Verdict::Never`] if all of its hits exceed the capacity
    /// together, and `retry_after` is the wait until all of them fit at once.
    pub taken: u64,
    /// Hits of this step: 0 looks only, negative gives back.
    pub hits: i64,
}

impl Ask {
    /// The hits of a step that has the counter to itself.
    #[must_use]
    pub const fn hits(hits: i64) -> Self {
        Self { taken: 0, hits }
    }

    /// All that must fit at once: earlier takes and this one, or what a refund leaves of them.
    pub(crate) fn wanted(self) -> u64 {
        self.taken.saturating_add_signed(self.hits)
    }

    /// What is given back of earlier requests' hits; 0 for a take. The newest hits come back
    /// first, and those are the takes of this request.
    pub(crate) fn refund(self) -> u64 {
        if self.hits < 0 {
            self.hits.unsigned_abs().saturating_sub(self.taken)
        } else {
            0
        }
    }

    /// What this request has taken of `room` after this step: without its hits if they do not
    /// fit.
    pub(crate) fn spent(self, room: u64) -> u64 {
        let wanted = self.wanted();
        if wanted <= room {
            wanted
        } else {
            self.taken.min(room)
        }
    }

    /// What is asked of a counter to which nothing has been charged yet: hits that must
    /// fit, or one if the ask only looks.
    pub(crate) fn probe(self) -> u64 {
        if self.hits == 0 {
            self.taken.saturating_add(1)
        } else {
            self.wanted()
        }
    }
}

/// What an algorithm found, from which every outcome is built in the same way.
pub(crate) struct Finding {
    /// The most the limit could ever hold.
    pub(crate) capacity: u64,
    /// Hits left before this ask.
    pub(crate) room: u64,
    /// Until all is back, once this ask has taken what it takes. Any value where nothing is
    /// missing.
    pub(crate) full_after: Micros,
}

impl Finding {
    /// The answer. `wait` says how long until so many hits fit, of which more are asked than
    /// there is room for, and no more than the capacity. `more` says how long until one hit more
    /// fits than is left once so many of the room are spent; it is asked only where something
    /// is missing.
    #[inline]
    pub(crate) fn outcome(
        self,
        ask: Ask,
        wait: impl FnOnce(u64) -> Micros,
        more: impl FnOnce(u64) -> Micros,
    ) -> Outcome {
        let wanted = ask.wanted();
        let mut outcome = Outcome {
            verdict: Verdict::Fits,
            remaining: 0,
            reset_after: Micros::ZERO,
            full_after: self.full_after,
            retry_after: Micros::ZERO,
            delay: Micros::ZERO,
        };
        if wanted <= self.room && ask.hits > 0 {
            outcome.remaining = self.room - wanted;
            outcome.reset_after = more(wanted);
            return outcome;
        }
        let spent = ask.spent(self.room);
        outcome.remaining = self.room - spent;
        let is_full = outcome.remaining == self.capacity;
        if is_full {
            outcome.full_after = Micros::ZERO;
        }
        let probe = ask.probe();
        if ask.hits > 0 && probe > self.capacity {
            outcome.verdict = Verdict::Never;
        } else if ask.hits > 0 {
            outcome.verdict = Verdict::Later;
            outcome.retry_after = wait(probe);
            outcome.reset_after = outcome.retry_after;
            return outcome;
        } else if ask.hits == 0 && probe > self.capacity {
            outcome.retry_after = Micros::MAX;
        } else if ask.hits == 0 && probe > self.room {
            outcome.retry_after = wait(probe);
        }
        if !is_full {
            outcome.reset_after = more(spent);
        }
        outcome
    }
}

impl Limit {
    /// Where a counter of this limit starts.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match &self.kind {
            Kind::SlidingLog | Kind::Concurrency => Shape::Heap,
            Kind::EqualCount(cut) if !cut.fits_words() => Shape::Heap,
            Kind::SlidingWindow(sub) if !sub.fits_words() => Shape::Heap,
            _ => Shape::Words,
        }
    }

    /// What the counter answers to `ask`; it is not changed.
    ///
    /// The state must have been charged under a limit of the same algorithm, window and
    /// sub-windows; quota, burst and rate may have changed since.
    #[must_use]
    pub fn test(&self, state: StateRef<'_>, ask: Ask, at: &Moment) -> Outcome {
        match (&self.kind, state) {
            (Kind::FixedWindow, StateRef::Words(words)) => fixed_window::test(self, words, ask, at),
            (Kind::EqualCount(cut), state) => equal_count::test(cut, state, ask, at.now),
            (Kind::SlidingWindow(sub), state) => {
                sliding_window::test(self, sub, state, ask, at.now)
            }
            (Kind::SlidingLog, StateRef::Heap(heap)) => sliding_log::test(self, heap, ask, at.now),
            (Kind::TokenBucket(rate), StateRef::Words(words)) => {
                token_bucket::test(*rate, words, ask, at.now)
            }
            (Kind::Gcra(rate), StateRef::Words(words)) => gcra::test(*rate, words, ask, at.now),
            (Kind::LeakyBucket(rate, most), StateRef::Words(words)) => {
                leaky_bucket::test(*rate, *most, words, ask, at.now)
            }
            (Kind::Concurrency, StateRef::Heap(heap)) => concurrency::test(self, heap, ask, at.now),
            (_, StateRef::Words(_)) => self.test(StateRef::Heap(&[]), ask, at),
            (_, StateRef::Heap(_)) => self.test(StateRef::Words(&[0; 4]), ask, at),
        }
    }

    /// Takes `hits` from the counter, or gives them back if negative, whether they fit or not.
    /// What does not fit (a store counts it where the rule says so) fills a bucket, a log or
    /// the permits and no more; a window counts it all, as far as 2^53 - 1. What is given back
    /// leaves at most a counter that has counted nothing.
    ///
    /// 0 settles a bucket whose burst was lowered, and what was written by a clock that has gone
    /// back: stores charge it to every counter that refused, and the wait it was told is exact
    /// from then on.
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
            (Kind::SlidingWindow(sub), state) => {
                return sliding_window::charge(sub, state, hits, at.now);
            }
            (Kind::SlidingLog, StateMut::Heap(heap)) => {
                sliding_log::charge(self, heap, hits, at.now);
            }
            (Kind::TokenBucket(rate), StateMut::Words(words)) => {
                token_bucket::charge(*rate, words, hits, at.now);
            }
            (Kind::Gcra(rate), StateMut::Words(words)) => gcra::charge(*rate, words, hits, at.now),
            (Kind::LeakyBucket(rate, most), StateMut::Words(words)) => {
                leaky_bucket::charge(*rate, *most, words, hits, at.now);
            }
            (Kind::Concurrency, StateMut::Heap(heap)) => {
                concurrency::charge(self, heap, hits, at.now);
            }
            (_, StateMut::Words(_)) => return Err(Spill),
            // A heap where words belong cannot come from this limit: start it afresh.
            (_, StateMut::Heap(heap)) => heap.clear(),
        }
        Ok(())
    }

    /// Whether hits taken at `taken_at` may still be given back at `at`: in a fixed window if
    /// it is the same one, in a sliding one and in a log if they are younger than the window,
    /// in a bucket always, since it never gets fuller than full. Permits are released instead.
    #[must_use]
    pub fn still_counts(&self, taken_at: Timestamp, at: &Moment) -> bool {
        match &self.kind {
            Kind::FixedWindow => fixed_window::is_same(self, taken_at, at),
            Kind::EqualCount(_) | Kind::SlidingWindow(_) | Kind::SlidingLog => {
                // The hits of a time that the clock has gone back from have moved since.
                at.now.since(taken_at) < self.window() && taken_at.since(at.now) <= self.window()
            }
            Kind::TokenBucket(_) | Kind::Gcra(_) | Kind::LeakyBucket(..) => true,
            Kind::Concurrency => false,
        }
    }

    /// Whether the counter is further ahead of the clock than time steps: it was charged by a clock
    /// that has gone back since, by more than the window (a bucket's time to fill, a permit's
    /// timeout). Such a counter is answered as of the clock, and the next charge, one of 0 hits
    /// too, writes it so. Of `gcra` and `leaky_bucket`, which are held to their burst
    /// at every step, it is not known.
    #[must_use]
    pub fn is_ahead(&self, state: StateRef<'_>, now: Timestamp) -> bool {
        match (&self.kind, state) {
            (Kind::FixedWindow, StateRef::Words(words)) => fixed_window::is_ahead(self, words, now),
            (Kind::EqualCount(cut), state) => equal_count::is_ahead(cut, state, now),
            (Kind::SlidingWindow(sub), state) => sub.is_state_ahead(state, now),
            (Kind::SlidingLog, StateRef::Heap(heap)) => {
                sliding_log::ahead(self, heap, now).is_some()
            }
            (Kind::TokenBucket(rate), StateRef::Words(words)) => {
                token_bucket::is_ahead(*rate, words, now)
            }
            (Kind::Concurrency, StateRef::Heap(heap)) => concurrency::is_ahead(self, heap, now),
            _ => false,
        }
    }

    /// The [`Heap`] that holds what `words` hold, for a counter that outgrew them.
    #[must_use]
    pub fn spill(&self, words: &Words) -> Heap {
        match &self.kind {
            Kind::EqualCount(_) => equal_count::spill(words),
            Kind::SlidingWindow(sub) => sub.spill(words),
            _ => Heap::new(),
        }
    }

    /// When the counter will be as if nothing had been counted, and may be forgotten: from then
    /// on it answers as a fresh one, whatever comes. Never further away than its window (a
    /// sliding one's, and a sub-window or tick; a bucket's time to fill) after the last charge.
    #[must_use]
    pub fn expires_at(&self, state: StateRef<'_>, at: &Moment) -> Timestamp {
        match (&self.kind, state) {
            (Kind::FixedWindow, StateRef::Words(words)) => {
                fixed_window::expires_at(self, words, at)
            }
            (Kind::EqualCount(cut), state) => equal_count::expires_at(cut, state),
            (Kind::SlidingWindow(sub), state) => sub.expires_at(state),
            (Kind::SlidingLog, StateRef::Heap(heap)) => sliding_log::expires_at(self, heap),
            (Kind::TokenBucket(rate), StateRef::Words(words)) => {
                token_bucket::expires_at(*rate, words)
            }
            (Kind::Gcra(_) | Kind::LeakyBucket(..), StateRef::Words(words)) => {
                gcra::expires_at(words)
            }
            (Kind::Concurrency, StateRef::Heap(heap)) => concurrency::expires_at(heap),
            _ => Timestamp::EPOCH,
        }
    }

    /// Tests and, if the hits fit, charges a counter that has an owner.
    pub fn step(&self, state: &mut State, hits: i64, at: &Moment) -> Outcome {
        let outcome = self.test(state.as_ref(), Ask::hits(hits), at);
        let hits = if outcome.fits() { hits } else { 0 };
        if self.charge(state.as_mut(), hits, at) == Err(Spill) {
            if let State::Words(words) = state {
                *state = State::Heap(self.spill(words));
            }
            // A heap never spills again.
            let _ = self.charge(state.as_mut(), hits, at);
        }
        outcome
    }
}
