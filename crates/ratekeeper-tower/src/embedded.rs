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

use crate::permit::{Permit, release};
use crate::question::Question;
use crate::{Admission, Asked, Enforcer, Terms, Verdict};

impl<S: Store> Enforcer for Arc<Limiter<S>> {
    type Permit = Permit<S>;
    type Asking = Asking<S>;

    fn with_rules<T>(&self, read: impl FnOnce(&RuleSet) -> T) -> T {
        read(self.snapshot().rules())
    }

    fn ask(&self, check: &Check<'_>, terms: Terms) -> Asked<Permit<S>, Asking<S>> {
        let now = self.clock().now();
        match self.begin_admission(check, now) {
            Admitting::Decided(admitted) => {
                Asked::Decided(admission(self, check, admitted, terms, now))
            }
            Admitting::Asked(admission, ticket) => Asked::Pending(Asking {
                unsettled: Unsettled {
                    limiter: Arc::clone(self),
                    admission: Some(admission),
                },
                question: Question::of(check),
                terms,
                now,
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
        terms: Terms,
        now: Timestamp,
        #[pin]
        ticket: S::Ticket,
    }
}

impl<S: Store> Future for Asking<S> {
    type Output = Admission<Permit<S>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let asking = self.project();
        let answer = ready!(asking.ticket.poll(cx));
        let begun = asking.unsettled.admission.take();
        let begun = begun.expect("a future is not polled after it was ready");
        let limiter = &asking.unsettled.limiter;
        Poll::Ready(asking.question.with(|check| {
            let admitted = limiter.conclude_admission(check, begun, answer);
            admission(limiter, check, admitted, *asking.terms, *asking.now)
        }))
    }
}

/// A decision that nobody has heard yet. Dropped before, it gives back what may have been taken.
#[derive(Debug)]
struct Unsettled<S: Store> {
    limiter: Arc<Limiter<S>>,
    admission: Option<ratekeeper_limiter::Admission>,
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

fn admission<S: Store>(
    limiter: &Arc<Limiter<S>>,
    check: &Check<'_>,
    admitted: Admitted,
    terms: Terms,
    now: Timestamp,
) -> Admission<Permit<S>> {
    let Admitted {
        decision,
        policies,
        slots,
    } = admitted;
    let mut standing = Standing::new(&policies, &decision, now);
    let delay = span(decision.delay());
    if decision.allowed() && delay > terms.wait_max {
        standing.deny_for(delay - terms.wait_max);
    }
    let verdict = match standing.allowed {
        true => Verdict::Pass {
            delay,
            permit: slots.map(|slots| Permit::new(Arc::clone(limiter), slots)),
        },
        false => {
            // Held already where the wait is what denies, and where the store did not say.
            slots.iter().for_each(|slots| release(limiter, slots));
            let scope = scope(&decision, check.domain, check.descriptors);
            Verdict::Deny(Box::new(Denial::of(&standing, scope)))
        }
    };
    Admission {
        headers: terms.headers.lines(&standing),
        degraded: standing.degraded,
        verdict,
    }
}

const fn span(micros: Micros) -> Duration {
    Duration::from_micros(micros.get())
}
