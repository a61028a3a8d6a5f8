//! Requests of which a part was taken from leases.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ratekeeper_core::lease::Taken;
use ratekeeper_core::{Mode, Outcome};
use ratekeeper_store::{
    Answer, Charge, Execution, Request, Step, StepOutcome, StoreError, StoreSlot, Verdicts,
    boot_time,
};
use smallvec::SmallVec;

use crate::reply::Deciding;
use crate::{Decided, StoreReply, Stores, StoresTicket};

/// The part of a request that was taken from leases; put back unless the request is admitted.
#[derive(Debug)]
pub(crate) struct Leased {
    stores: Stores,
    /// For each step what was taken for it.
    spent: SmallVec<[Option<Spent>; 2]>,
}

#[derive(Debug)]
struct Spent {
    store: StoreSlot,
    taken: Taken,
    outcome: Outcome,
}

/// A request of which stores decide the rest.
#[derive(Debug)]
pub(crate) struct Rest {
    leased: Leased,
    ticket: StoresTicket,
}

/// Requests that may spend leases: plain ones, whose hits are charged if they are allowed.
fn is_spendable(request: &Request<'_>) -> bool {
    let is_plain = |(index, step): (usize, &Step)| {
        step.hits > 0
            && step.charge == Charge::IfAllowed
            && !step.quota_mode
            && request.steps[..index].iter().all(|it| it.key != step.key)
    };
    request.extra.is_none()
        && request.mode == Mode::default()
        && request.steps.iter().enumerate().all(is_plain)
}

impl Leased {
    /// Takes what it can of `request` from leases; [`None`] if that is nothing.
    pub(crate) fn take(stores: &Stores, request: &Request<'_>) -> Option<Self> {
        if !is_spendable(request) {
            return None;
        }
        // The time that dates what is admitted.
        let now = boot_time();
        let spent = request.steps.iter().map(|step| {
            let store = stores.leasing(step)?;
            let (taken, outcome) = store.spend(step, request.named_by, now)?;
            Some(Spent {
                store: step.store,
                taken,
                outcome,
            })
        });
        let spent: SmallVec<_> = spent.collect();
        spent.iter().any(Option::is_some).then(|| Self {
            stores: stores.clone(),
            spent,
        })
    }

    /// Decides `request` with what was taken; `ask` decides steps that were not.
    pub(crate) fn decide(
        mut self,
        request: &Request<'_>,
        ask: impl FnOnce(&Request<'_>) -> Answer<StoresTicket>,
    ) -> Answer<StoresTicket> {
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
            Answer::Pending(ticket) => {
                let rest = Rest {
                    leased: self,
                    ticket,
                };
                Answer::Pending(StoresTicket::one(StoreReply::leased(rest)))
            }
        }
    }

    /// The answer if every step was taken.
    fn admitted(&mut self, request: &Request<'_>) -> Verdicts {
        let outcomes = std::mem::take(&mut self.spent);
        let outcomes = outcomes.into_iter().flatten();
        Verdicts {
            allowed: true,
            outcomes: outcomes
                .map(|spent| StepOutcome::Leased(spent.outcome))
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
            Some(spent) => StepOutcome::Leased(spent.outcome),
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
        for spent in self.spent.drain(..).flatten() {
            self.stores.put_back(spent.store, spent.taken);
        }
    }
}

/// No caller was told that it is admitted.
impl Drop for Leased {
    fn drop(&mut self) {
        self.put_back();
    }
}

impl Deciding for Rest {}

impl Future for Rest {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        let this = &mut *self;
        let answer = ready!(Pin::new(&mut this.ticket).poll(cx));
        Poll::Ready(match answer {
            Ok(verdicts) => Ok(this.leased.joined(verdicts)),
            Err(error) => {
                this.leased.put_back();
                Err(error)
            }
        })
    }
}
