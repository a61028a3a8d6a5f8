//! The limiter in this process.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_http::answer::{Denial, Standing, scope};
use ratekeeper_limiter::{Admitted, Admitting, Check, Limiter};
use ratekeeper_rules::RuleSet;
use ratekeeper_store::Store;

use crate::permit::{Permit, release, send};
use crate::question::Question;
use crate::queued::{Queued, Told};
use crate::{Admission, Asked, Enforcer, Terms, Turn, Verdict};

type AskedLimiter<S> = Asked<Permit<S>, Box<Queued<S>>, Asking<S>>;

impl<S: Store> Enforcer for Arc<Limiter<S>> {
    type Permit = Permit<S>;
    type Queued = Box<Queued<S>>;
    type Asking = Asking<S>;

    fn with_rules<T>(&self, read: impl FnOnce(&RuleSet) -> T) -> T {
        read(self.snapshot().rules())
    }

    fn ask(&self, check: &Check<'_>, terms: Terms) -> AskedLimiter<S> {
        let now = self.clock().now();
        let stage = Stage {
            terms,
            now,
            before: None,
        };
        match self.begin_admission(check, now) {
            Admitting::Decided(admitted) => Asked::Decided(stage.conclude(self, check, admitted)),
            Admitting::Asked(admission, ticket) => Asked::Pending(Asking {
                limiter: Arc::clone(self),
                pending: Some(Pending {
                    ticket,
                    admission,
                    question: Question::of(check),
                    stage,
                }),
            }),
        }
    }

    fn at_turn(&self, mut queued: Box<Queued<S>>) -> AskedLimiter<S> {
        let Some((question, terms)) = queued.take_permits() else {
            return Asked::Decided(queued.pass(None));
        };
        let now = self.clock().now();
        let begun = question.with(|check| self.begin_permits(check, now));
        let stage = Stage {
            terms,
            now,
            before: Some(queued),
        };
        match begun {
            Admitting::Decided(admitted) => {
                let conclude = |check: &Check<'_>| stage.conclude(self, check, admitted);
                Asked::Decided(question.with(conclude))
            }
            Admitting::Asked(admission, ticket) => Asked::Pending(Asking {
                limiter: Arc::clone(self),
                pending: Some(Pending {
                    ticket,
                    admission,
                    question,
                    stage,
                }),
            }),
        }
    }
}

/// A decision that a store was asked for. Dropped before it is heard, it gives back what it may have taken: permits at
/// once, and a turn that it was to wait for, with all that was taken beside it, when the store has answered. What only
/// windows count stays counted.
pub struct Asking<S: Store> {
    limiter: Arc<Limiter<S>>,
    pending: Option<Pending<S>>,
}

struct Pending<S: Store> {
    ticket: S::Ticket,
    admission: ratekeeper_limiter::Admission,
    question: Question,
    stage: Stage<S>,
}

impl<S: Store> Future for Asking<S> {
    type Output = Admission<Permit<S>, Box<Queued<S>>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const ONCE: &str = "a future is not polled after it was ready";
        let Self { limiter, pending } = self.get_mut();
        let ticket = &mut pending.as_mut().expect(ONCE).ticket;
        let answer = ready!(Pin::new(ticket).poll(cx));
        let Pending {
            admission,
            question,
            stage,
            ..
        } = pending.take().expect(ONCE);
        Poll::Ready(question.with(|check| {
            let admitted = limiter.conclude_admission(check, admission, answer);
            stage.conclude(limiter, check, admitted)
        }))
    }
}

impl<S: Store> Drop for Asking<S> {
    fn drop(&mut self) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        if let Some(slots) = pending.admission.slots() {
            release(&self.limiter, slots);
        } else if pending.admission.may_wait() {
            send(Some(pending.give_back(Arc::clone(&self.limiter))));
        }
    }
}

impl<S: Store> fmt::Debug for Asking<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").finish_non_exhaustive()
    }
}

impl<S: Store> Pending<S> {
    /// Gives back the turn that the store has given by now, if it has.
    async fn give_back(self, limiter: Arc<Limiter<S>>) {
        let Ok(verdicts) = self.ticket.await else {
            return;
        };
        let admission = self.admission;
        let admitted = self
            .question
            .with(|check| limiter.conclude_admission(check, admission, Ok(verdicts)));
        if let Some(queued) = admitted.queued {
            send(limiter.give_back(queued.receipt));
        }
    }
}

/// What a decision is made on, besides the limits.
#[derive(Debug)]
struct Stage<S: Store> {
    terms: Terms,
    now: Timestamp,
    /// What the request has of its rates, where its permits are asked for.
    before: Option<Box<Queued<S>>>,
}

impl<S: Store> Stage<S> {
    fn conclude(
        self,
        limiter: &Arc<Limiter<S>>,
        check: &Check<'_>,
        admitted: Admitted,
    ) -> Admission<Permit<S>, Box<Queued<S>>> {
        let Self { terms, now, before } = self;
        let Admitted {
            decision,
            policies,
            slots,
            queued,
        } = admitted;
        let mut standing = Standing::new(&policies, &decision, now);
        let delay = span(decision.delay());
        if decision.allowed() && delay > terms.wait_max {
            standing.deny_for(delay - terms.wait_max);
        }
        let told = Told::new(&standing, terms);
        if !standing.allowed {
            // Held already where the wait is what denies, and where the store did not say.
            slots.iter().for_each(|slots| release(limiter, slots));
            if let Some(queued) = queued {
                send(limiter.give_back(queued.receipt));
            }
            let scope = scope(&decision, check.domain, check.descriptors);
            return told.admission(Verdict::Deny(Box::new(Denial::of(&standing, scope))));
        }
        let permit = slots.map(|slots| Permit::new(Arc::clone(limiter), slots));
        match (queued, before) {
            (None, None) => told.admission(Verdict::Pass(permit)),
            (None, Some(mut before)) => {
                before.tell(told);
                before.pass(permit)
            }
            (Some(queued), _) => {
                let turn = queued.turn.map(|turn| Turn {
                    after: span(turn.after),
                    bucket: Some(turn.counter),
                    span: span(turn.span),
                });
                let permits = queued.wants_permits.then(|| (Question::of(check), terms));
                let queued = Queued::new(Arc::clone(limiter), queued.receipt, told, permits);
                Admission::waiting(turn.unwrap_or_default(), Box::new(queued))
            }
        }
    }
}

const fn span(micros: Micros) -> Duration {
    Duration::from_micros(micros.get())
}
