//! The answer of one limit.

use crate::Micros;

/// The decision of one limit; a denial tells if waiting helps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The hits fit.
    Fits,
    /// They do not fit now, but would after [`Outcome::retry_after`], without other requests.
    Later,
    /// They exceed what the limit can ever hold: no wait helps.
    Never,
}

/// The answer of one limit to one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The decision.
    pub verdict: Verdict,
    /// Hits left: after this take if it fits, otherwise unchanged. Never above the capacity.
    pub remaining: u64,
    /// Time until more is left: the shortest wait after which a peek for `remaining` + 1 hits
    /// passes, without other requests. For a fixed window that is its end, for all others the
    /// moment at which the next hit comes back. Equal to `retry_after` for [`Verdict::Later`], zero
    /// if the limit is unused. Concurrency: a hint if no permit is left, else zero.
    pub reset_after: Micros,
    /// Time until the limit is unused: the shortest wait after which nothing counted so far still
    /// counts; zero if nothing does, and for concurrency.
    pub full_after: Micros,
    /// [`Verdict::Later`]: the shortest wait after which the same hits would fit, never zero: at
    /// every tick before it they are denied, at it they pass (concurrency: a hint). A peek (0
    /// hits): the wait until one hit would pass, zero if it would now, [`Micros::MAX`] if never.
    /// Zero otherwise.
    pub retry_after: Micros,
    /// Time to delay the request before it proceeds: `leaky_bucket` only.
    pub delay: Micros,
    /// Hits that a charge leaves out: those beyond the largest debt of a post-paid bucket, and those that a
    /// [reserving](crate::Limit::reserving) window has no room for. Zero for all others.
    pub cut: u64,
}

impl Outcome {
    /// Returns true if the hits fit.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.verdict == Verdict::Fits
    }

    /// The answer to a look where more is used than the limit holds, which is `capacity`: 0 hits do
    /// not fit either.
    #[cold]
    pub(crate) const fn overdrawn(self, capacity: u64) -> Self {
        let (verdict, retry_after) = match capacity {
            0 => (Verdict::Never, Micros::ZERO),
            _ => (Verdict::Later, self.reset_after),
        };
        Self {
            verdict,
            retry_after,
            ..self
        }
    }
}
