//! The answer of one limit.

use std::cmp::Reverse;

use ratekeeper_core::{Micros, Outcome, Verdict};
use ratekeeper_store::{Charge, Step, StepOutcome};

/// The wait before a retry that callers are told if nothing was counted.
const UNCOUNTED_RETRY: Micros = Micros::from_secs(1);

/// The answer of a limit, counted or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// The verdict on the hits.
    pub verdict: Verdict,
    /// Hits left.
    pub remaining: u64,
    /// The time until there is more than `remaining`, zero if nothing is missing. On a denial that
    /// waiting would end, it equals `retry_after`. See [`Outcome::reset_after`](ratekeeper_core::Outcome).
    pub reset_after: Micros,
    /// The time until the full capacity is back, zero if nothing is missing.
    pub full_after: Micros,
    /// The time until the same hits would fit: zero if they do, or never will.
    pub retry_after: Micros,
    /// The time to hold the request back; zero if it was denied.
    pub delay: Micros,
    /// False if the store had no room or no answer, and the failure mode answered instead.
    pub counted: bool,
    /// True if this node admitted it from a lease, without asking the store.
    pub leased: bool,
    /// Hits that were not charged: those of a post-paid bucket beyond its largest debt, and those that a reservation found no
    /// room for. Zero if nothing was charged at all.
    pub cut: u64,
}

impl Answered {
    /// The answer of `step`. A denied request took nothing, so hits that would have fitted remain.
    pub(crate) fn new(outcome: StepOutcome, step: &Step, request_allowed: bool) -> Self {
        match outcome {
            StepOutcome::Counted(found) => Self::counted(found, step, request_allowed),
            StepOutcome::OnThisNode(found) => Self {
                counted: false,
                ..Self::counted(found, step, request_allowed)
            },
            StepOutcome::Leased(found) => Self {
                leased: true,
                ..Self::counted(found, step, request_allowed)
            },
            // No step is left unanswered by now.
            StepOutcome::Full(_) | StepOutcome::Unanswered(_) => {
                Self::uncounted(outcome.fits(), step.limit.capacity())
            }
        }
    }

    #[inline]
    fn counted(found: Outcome, step: &Step, request_allowed: bool) -> Self {
        // A region may hold more than it owns, which is all that the step tells; then it is the store that knows the most.
        let most = match step.terms {
            0 => step.limit.capacity(),
            _ => u64::MAX,
        };
        let is_kept = !request_allowed && step.charge == Charge::IfAllowed && found.fits();
        let kept = match is_kept {
            // What it cut was not taken.
            true => u64::try_from(step.hits)
                .unwrap_or(0)
                .saturating_sub(found.cut),
            false => 0,
        };
        let remaining = found.remaining.saturating_add(kept).min(most);
        let missing = |wait: Micros| match remaining == most && found.fits() {
            true => Micros::ZERO,
            false => wait,
        };
        Self {
            verdict: found.verdict,
            remaining,
            reset_after: missing(found.reset_after),
            full_after: missing(found.full_after),
            retry_after: found.retry_after,
            delay: match request_allowed {
                true => found.delay,
                false => Micros::ZERO,
            },
            counted: true,
            leased: false,
            cut: match request_allowed || step.charge == Charge::Always {
                true => found.cut,
                false => 0,
            },
        }
    }

    /// The answer by a failure mode to hits on a limit that holds so many.
    const fn uncounted(fits: bool, capacity: u64) -> Self {
        let (verdict, remaining, wait) = match fits {
            true => (Verdict::Fits, capacity, Micros::ZERO),
            false => (Verdict::Later, 0, UNCOUNTED_RETRY),
        };
        Self {
            verdict,
            remaining,
            reset_after: wait,
            full_after: wait,
            retry_after: wait,
            delay: Micros::ZERO,
            counted: false,
            leased: false,
            cut: 0,
        }
    }

    /// Returns true if the hits fitted.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.verdict == Verdict::Fits
    }

    /// Sets every wait that is only a hint to `wait`.
    pub(crate) fn hint(&mut self, wait: Micros) {
        if self.verdict == Verdict::Later {
            self.retry_after = wait;
        }
        if !self.reset_after.is_zero() {
            self.reset_after = wait;
        }
    }

    /// Ranks by restrictiveness, the most restrictive first: denials by the longest wait, then
    /// allowances by the least remaining, and among equals by the longest wait for more.
    pub(crate) fn rank(&self) -> (u8, u64, Reverse<Micros>) {
        match self.verdict {
            Verdict::Never => (0, 0, Reverse(Micros::MAX)),
            Verdict::Later => (1, 0, Reverse(self.retry_after)),
            Verdict::Fits => (2, self.remaining, Reverse(self.reset_after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::{Algorithm, Limit, LimitSpec};
    use ratekeeper_store::CounterKey;

    #[test]
    fn a_region_that_has_borrowed_tells_what_it_holds_and_when_its_window_ends() {
        let spec = LimitSpec::new(Algorithm::FixedWindow, 100, Micros::from_secs(60));
        let limit = Limit::try_new(spec).expect("a valid limit");
        let key = CounterKey {
            subject: 1,
            identity: 2,
        };
        // Of 280 that it holds, 100 of them its own, 50 are counted.
        let found = Outcome {
            verdict: Verdict::Fits,
            remaining: 230,
            reset_after: Micros::from_secs(20),
            full_after: Micros::from_secs(20),
            retry_after: Micros::ZERO,
            delay: Micros::ZERO,
            cut: 0,
        };
        let told = |terms| {
            let step = Step {
                terms,
                ..Step::new(key, limit)
            };
            let told = Answered::new(StepOutcome::Counted(found), &step, true);
            (told.remaining, told.reset_after)
        };
        assert_eq!(told(7), (230, Micros::from_secs(20)));
        // Without loans the limit is the most, and then nothing was taken.
        assert_eq!(told(0), (100, Micros::ZERO));
    }

    #[test]
    fn a_hint_stands_for_waits_that_nobody_knows() {
        let hint = Micros::from_secs(7);
        for (fits, expected) in [(true, Micros::ZERO), (false, hint)] {
            let mut answered = Answered::uncounted(fits, 5);
            answered.hint(hint);
            let waits = (answered.retry_after, answered.reset_after);
            assert_eq!(waits, (expected, expected));
        }
    }
}
