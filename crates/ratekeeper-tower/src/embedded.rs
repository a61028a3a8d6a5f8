//! The limiter in this process.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
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
                unsettled: Unsettled::new(self, admission),
                question: Question::of(check),
                stage: Some(stage),
                ticket,
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
                unsettled: Unsettled::new(self, admission),
                question,
                stage: Some(stage),
                ticket,
            }),
        }
    }
}

pin_project! {
    /// A decision that a store was asked for.
    #[derive(Debug)]
    pub struct Asking<S: Store> {
        unsettled: Unsettled<S>,
        question: Question,
        stage: Option<Stage<S>>,
        #[pin]
        ticket: S::Ticket,
    }
}

impl<S: Store> Future for Asking<S> {
    type Output = Admission<Permit<S>, Box<Queued<S>>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const ONCE: &str = "a future is not polled after it was ready";
        let asking = self.project();
        let answer = ready!(asking.ticket.poll(cx));
        let begun = asking.unsettled.admission.take().expect(ONCE);
        let stage = asking.stage.take().expect(ONCE);
        let limiter = &asking.unsettled.limiter;
        Poll::Ready(asking.question.with(|check| {
            let admitted = limiter.conclude_admission(check, begun, answer);
            stage.conclude(limiter, check, admitted)
        }))
    }
}

/// A decision that nobody has heard yet. Dropped before, it gives back what may have been taken.
#[derive(Debug)]
struct Unsettled<S: Store> {
    limiter: Arc<Limiter<S>>,
    admission: Option<ratekeeper_limiter::Admission>,
}

impl<S: Store> Unsettled<S> {
    fn new(limiter: &Arc<Limiter<S>>, admission: ratekeeper_limiter::Admission) -> Self {
        Self {
            limiter: Arc::clone(limiter),
            admission: Some(admission),
        }
    }
}

impl<S: Store> Drop for Unsettled<S> {
    fn drop(&mut self) {
        let slots = self
            .admission
            .as_ref()
            .and_then(|admission| admission.slots());
        if let Some(slots) = slots {
            release(&self.limiter, slots);
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
