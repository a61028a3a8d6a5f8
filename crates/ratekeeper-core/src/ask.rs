//! The hits and the time of a step, and the findings that its outcome is built from.

use crate::{Micros, Outcome, Timestamp, Verdict};

/// The edges of the calendar window around a time, and the end of the next one, so that a store
/// with its own clock can choose between the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The start of the window.
    pub start: Timestamp,
    /// The end of the window and the start of the next.
    pub end: Timestamp,
    /// The end of the next window.
    pub next_end: Timestamp,
}

/// The time of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// The window's edges, if they follow a calendar.
    pub calendar: Option<Bounds>,
}

impl Moment {
    /// A moment for limits without a calendar.
    #[must_use]
    pub const fn at(now: Timestamp) -> Self {
        Self {
            now,
            calendar: None,
        }
    }
}

/// The hits to test on a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Hits that earlier steps of the same request take from the same counter: those that fitted,
    /// and those that count even if they do not fit. The answer is as if they had been charged,
    /// with two exceptions that concern the request as a whole: it is [`Verdict::Never`] if all of
    /// its hits together exceed the capacity, and `retry_after` is the wait until all of them fit
    /// at once.
    pub taken: u64,
    /// Hits of this step: 0 only looks, negative gives back.
    pub hits: i64,
}

impl Ask {
    /// The hits of a step that is the only one on its counter.
    #[must_use]
    pub const fn hits(hits: i64) -> Self {
        Self { taken: 0, hits }
    }

    /// The hits that must fit at once: earlier takes and this one, or what a refund leaves of them.
    pub(crate) fn wanted(self) -> u64 {
        self.taken.saturating_add_signed(self.hits)
    }

    /// The part given back of earlier requests' hits; 0 for a take. The newest hits come back
    /// first, and those are the takes of this request.
    pub(crate) fn refund(self) -> u64 {
        if self.hits < 0 {
            self.hits.unsigned_abs().saturating_sub(self.taken)
        } else {
            0
        }
    }

    /// The part of `room` that the request has taken after this step; this step's hits only if they
    /// fit.
    pub(crate) fn spent(self, room: u64) -> u64 {
        let wanted = self.wanted();
        if wanted <= room {
            wanted
        } else {
            self.taken.min(room)
        }
    }

    /// The hits that must fit on a counter before anything was charged; one for a peek.
    pub(crate) fn probe(self) -> u64 {
        if self.hits == 0 {
            self.taken.saturating_add(1)
        } else {
            self.wanted()
        }
    }
}

/// The findings of an algorithm, from which every outcome is built in the same way.
pub(crate) struct Finding {
    /// The most that the limit can ever hold.
    pub(crate) capacity: u64,
    /// Hits left before this ask.
    pub(crate) room: u64,
    /// Time until the limit is unused, after this ask has taken its hits. Any value if it is unused
    /// now.
    pub(crate) full_after: Micros,
}

impl Finding {
    /// Builds the answer. `wait` returns the time until this many hits fit, which are more than the
    /// room and no more than the capacity. `more` returns the time until one more hit fits than is
    /// left after this many of the room are spent; it is called only if the limit is not unused.
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
            cut: 0,
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
