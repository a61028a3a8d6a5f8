//! Requests of which a part was taken from leases.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ratekeeper_core::Outcome;
use ratekeeper_core::lease::Taken;
use ratekeeper_store::{Answer, Execution, Request, Step, StepOutcome, StoreError, Verdicts};
use ratekeeper_stores::{Decided, StoreReply};
use smallvec::SmallVec;

use super::shared::Shared;

/// The part of a request that was taken from leases; put back unless the request is admitted.
#[derive(Debug)]
pub(crate) struct Leased {
    shared: Arc<Shared>,
    /// For each step what was taken for it.
    spent: SmallVec<[Option<(Taken, Outcome)>; 2]>,
}

/// A request of which Redis decides the rest.
#[derive(Debug)]
pub(crate) struct Rest {
    leased: Leased,
    ticket: StoreReply,
}

impl Leased {
    pub(super) fn new(shared: Arc<Shared>, spent: SmallVec<[Option<(Taken, Outcome)>; 2]>) -> Self {
        Self { shared, spent }
    }

    /// Returns true if nothing was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.spent.iter().all(Option::is_none)
    }

    /// Decides `request` with what was taken; `ask` decides steps that were not.
    pub(crate) fn decide(
        mut self,
        request: &Request<'_>,
        ask: impl FnOnce(&Request<'_>) -> Answer<StoreReply>,
    ) -> Answer<Rest> {
        if self.spent.iter().all(Option::is_some) {
            return Answer::Decided(self.admitted(request));
        }
        let steps = request.steps.iter().zip(&self.spent);
        let rest: SmallVec<[Step; 4]> = steps
            .filter(|(_, spent)| spent.is_none())
            .map(|(step, _)| *step)
            .collect();
        let answer = ask(&Request {
            steps: &rest,
            ..*request
        });
        match answer {
            Answer::Decided(verdicts) => Answer::Decided(self.joined(verdicts)),
            Answer::Pending(ticket) => Answer::Pending(Rest {
                leased: self,
                ticket,
            }),
        }
    }

    /// The answer if every step was taken.
    fn admitted(&mut self, request: &Request<'_>) -> Verdicts {
        let outcomes = std::mem::take(&mut self.spent);
        let outcomes = outcomes.into_iter().flatten();
        Verdicts {
            allowed: true,
            outcomes: outcomes
                .map(|(_, outcome)| StepOutcome::Leased(outcome))
                .collect(),
            at: request.now,
            execution: Execution::Now,
        }
    }

    /// The answer to the whole, given that to the rest.
    fn joined(&mut self, rest: Verdicts) -> Verdicts {
        let mut others = rest.outcomes.into_iter();
        let missing = StepOutcome::Unanswered(StoreError::Unavailable);
        let outcomes = self.spent.iter().map(|spent| match spent {
            Some((_, outcome)) => StepOutcome::Leased(*outcome),
            None => others.next().unwrap_or(missing),
        });
        let outcomes = outcomes.collect();
        if rest.allowed {
            self.spent.clear();
        } else {
            self.put_back();
        }
        Verdicts { outcomes, ..rest }
    }

    fn put_back(&mut self) {
        for (taken, _) in self.spent.drain(..).flatten() {
            self.shared.put_back(taken);
        }
    }
}

/// Nobody was told that it is admitted.
impl Drop for Leased {
    fn drop(&mut self) {
        self.put_back();
    }
}

impl Future for Rest {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        let this = &mut *self;
        let answer = std::task::ready!(Pin::new(&mut this.ticket).poll(cx));
        Poll::Ready(match answer {
            Ok(verdicts) => Ok(this.leased.joined(verdicts)),
            Err(error) => {
                this.leased.put_back();
                Err(error)
            }
        })
    }
}
