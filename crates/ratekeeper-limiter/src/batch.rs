//! Many checks at once: all are asked before any answer is waited for.

use ratekeeper_core::Timestamp;
use ratekeeper_store::{Answer, Store};

use crate::limiter::Limiter;
use crate::plan::{Context, Plan, overrides};
use crate::stats::Totals;
use crate::{Check, Decision};

/// A check that was begun; `D` is what is wanted of its decision.
#[allow(
    clippy::large_enum_variant,
    reason = "what is asked is handed over without allocating"
)]
#[derive(Debug)]
pub enum Begun<T, D = Decision> {
    /// The store decided at once.
    Decided(D),
    /// It was asked, and will answer.
    Asked(Asked<T>),
}

/// A check whose store was asked.
#[derive(Debug)]
pub struct Asked<T> {
    decision: Decision,
    ticket: T,
    now: Timestamp,
}

impl<T> Asked<T> {
    /// When it was asked, by the limiter's clock.
    #[must_use]
    pub const fn asked_at(&self) -> Timestamp {
        self.now
    }
}

impl<S: Store> Limiter<S> {
    /// Asks the store to decide `check` as of `now`, a time that [`Limiter::clock`] has just
    /// shown, and does not wait for it. Stores decide in the order in which they are asked.
    #[inline]
    pub fn begin(&self, check: &Check<'_>, now: Timestamp) -> Begun<S::Ticket> {
        let mut decision = Decision::begin(self.load());
        match self.decide_into(check, now, &mut decision) {
            None => Begun::Decided(decision),
            Some(ticket) => Begun::Asked(Asked {
                decision,
                ticket,
                now,
            }),
        }
    }

    /// As [`Self::begin`], but a decision that is there at once is shown to `answer`, which says
    /// what is wanted of it: a decision is large, and moving it costs as much as matching.
    #[inline]
    pub fn begin_with<D>(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        answer: impl FnOnce(&Decision) -> D,
    ) -> Begun<S::Ticket, D> {
        let mut decision = Decision::begin(self.load());
        match self.decide_into(check, now, &mut decision) {
            None => Begun::Decided(answer(&decision)),
            Some(ticket) => Begun::Asked(Asked {
                decision,
                ticket,
                now,
            }),
        }
    }

    /// Decides `check` into `decision`, or gives what is to be waited for.
    #[inline]
    fn decide_into(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        decision: &mut Decision,
    ) -> Option<S::Ticket> {
        let overrides = overrides(check, self.profile());
        let allowed = {
            let (snapshot, statuses) = decision.parts();
            let plan = Plan::new(self.context(snapshot, now), check, &overrides);
            // By reference: verdicts, too, are read where they lie.
            match self.ask(&plan, now, None) {
                Answer::Pending(ticket) => return Some(ticket),
                Answer::Decided(ref verdicts) => {
                    plan.fill(verdicts, statuses, |step, _, answered| {
                        self.note(step, &answered, now);
                    });
                    verdicts.allowed
                }
            }
        };
        decision.conclude(allowed);
        None
    }

    /// Waits for the store's answer to `check`, the same that was [begun](Self::begin).
    pub async fn finish(&self, check: &Check<'_>, asked: Asked<S::Ticket>) -> Decision {
        let Asked {
            mut decision,
            ticket,
            now,
        } = asked;
        let verdicts = ticket.await;
        let overrides = overrides(check, self.profile());
        // Matched once more rather than kept: by the same rules, and heard of already.
        let unheard = Totals::default();
        let (snapshot, statuses) = decision.parts();
        let context = Context {
            totals: &unheard,
            ..self.context(snapshot, now)
        };
        let plan = Plan::new(context, check, &overrides);
        let verdicts = self.heard(&plan, now, None, verdicts);
        plan.fill(&verdicts, statuses, |step, _, answered| {
            self.note(step, &answered, now);
        });
        drop(plan);
        decision.conclude(verdicts.allowed);
        decision
    }
}
