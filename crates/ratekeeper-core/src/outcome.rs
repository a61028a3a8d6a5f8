//! What one limit answers.

use crate::Micros;

/// Whether the hits fit, and if not, whether waiting would help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The hits fit.
    Fits,
    /// They do not fit now; they would after [`Outcome::retry_after`], if nobody else came first.
    Later,
    /// They exceed what the limit could ever hold: no wait helps.
    Never,
}

/// What one limit answers to one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Whether the hits fit.
    pub verdict: Verdict,
    /// Hits left: after this take if it fits, as it stands otherwise. Never above the capacity.
    pub remaining: u64,
    /// When there is more: the smallest wait after which a peek for `remaining` + 1 hits passes,
    /// if nobody else came first. For a fixed window that is its end, for all others the moment
    /// at which the next hit comes back. Equal to `retry_after` for [`Verdict::Later`], zero
    /// where nothing is missing. Concurrency: a hint if no permit is left, else zero.
    pub reset_after: Micros,
    /// When all is back: the smallest wait after which nothing that was counted counts any
    /// more; zero where nothing is missing, and for concurrency.
    pub full_after: Micros,
    /// [`Verdict::Later`]: the smallest wait after which the same hits would fit, never zero:
    /// at every tick before it they are denied, at it they pass (concurrency: a hint). A peek (0 hits): when one hit would pass, zero if now,
    /// [`Micros::MAX`] if never. Zero otherwise.
    pub retry_after: Micros,
    /// How long to hold the request before it goes on: `leaky_bucket` only.
    pub delay: Micros,
}

impl Outcome {
    /// Whether the hits fit.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.verdict == Verdict::Fits
    }
}
