//! Giving back what the store charged, by an answer that came late, for a request that was denied here.
//!
//! It is sent until the store has carried it out, which it does once. If that cannot be known within a minute, the hits are
//! counted as stranded, and stay charged until their window ends.

use std::task::{Context, Poll, Waker};

use ratekeeper_core::{Micros, Mode, Timestamp};
use ratekeeper_store::{
    Answer, Charge, Execution, Extra, HashKey, Once, Post, Request, Step, Store, StoreError, Until,
    Verdicts,
};

use super::{AGAIN, LATE_MAX, Late, POSTS_MAX, Round, Ticket, charged};
use crate::Limiter;

/// A charge to be given back. Times are by the boot clock, unless it says otherwise.
pub(super) struct Return {
    /// The refunds.
    steps: Box<[Step]>,
    /// The time of the charge by the store's clock.
    taken_at: Timestamp,
    /// The time of the request by the limiter's clock.
    asked_at: Timestamp,
    named_by: HashKey,
    id: u128,
    first: Micros,
    /// [`None`] unless it is under way.
    ticket: Option<Ticket>,
    /// The time at which it is sent, or sent again.
    again: Micros,
}

/// The time for which the store knows a return again: as long again as it is repeated, since the last repeat may be under way
/// for a while.
const REMEMBERED: Micros = Micros::new(2 * Post::REPEATED.get());

/// Returns true if the hits of `step` are charged only if its request is allowed.
fn is_conditional(step: &Step) -> bool {
    step.charge == Charge::IfAllowed && step.hits > 0
}

impl<S: Store> Limiter<S> {
    /// Counts the hits of a request that was denied, and that the store has perhaps carried out, as its failure `why` says.
    pub(crate) fn strand(&self, steps: &[Step], why: StoreError) {
        if why.may_be_executed() {
            // A permit ends with its timeout.
            let is_permit = |step: &&Step| step.limit.algorithm().holds_permits();
            let steps = steps.iter().filter(|step| is_conditional(step));
            let steps = steps.filter(|step| !is_permit(step));
            steps.for_each(|step| self.store().strand(step));
        }
    }

    /// Puts what the store charged for `late`, which was denied here, among the `returns`.
    pub(super) fn return_charge(
        &self,
        returns: &mut Vec<Return>,
        late: &Late,
        verdicts: &Verdicts,
        boot: Micros,
    ) {
        let taken = late.steps.iter().enumerate();
        let taken = taken.filter(|(_, step)| is_conditional(step));
        // What the store cut off a reservation, it did not take.
        let taken = taken.map(|(number, step)| Step {
            hits: charged(verdicts, number, step),
            ..*step
        });
        let has_room = returns.len() < LATE_MAX;
        // Others may have turns behind one of a leaky bucket.
        let is_returned = |step: &Step| has_room && !step.limit.algorithm().has_turns();
        let (steps, stay): (Vec<Step>, Vec<Step>) =
            taken.filter(|step| step.hits > 0).partition(is_returned);
        stay.iter().for_each(|step| self.store().strand(step));
        if steps.is_empty() {
            return;
        }
        let refund = |step: &Step| Step {
            hits: -step.hits,
            ..*step
        };
        returns.push(Return {
            steps: steps.iter().map(refund).collect(),
            taken_at: verdicts.at,
            asked_at: late.passed.now,
            named_by: late.passed.named_by,
            id: self.new_id(),
            first: boot,
            ticket: None,
            again: boot,
        });
    }

    /// Sends what is to be given back, and looks at the answers.
    pub(super) fn give_back_charges(&self, round: &mut Round, boot: Micros) {
        let mut under_way = 0;
        round.returns.retain_mut(|back| {
            let stays = self.follow_return(back, boot, under_way < POSTS_MAX);
            under_way += usize::from(stays && back.ticket.is_some());
            stays
        });
    }

    /// Reads the answer, or sends the return if it is time for that and there is room. Returns false once it is settled.
    fn follow_return(&self, back: &mut Return, boot: Micros, has_room: bool) -> bool {
        if let Some(ticket) = &mut back.ticket {
            let mut context = Context::from_waker(Waker::noop());
            match ticket.as_mut().poll(&mut context) {
                Poll::Pending => return true,
                Poll::Ready(Ok(verdicts)) => {
                    if !matches!(verdicts.execution, Execution::Now | Execution::Before) {
                        self.strand_return(back);
                    }
                    return false;
                }
                Poll::Ready(Err(_)) => {
                    back.ticket = None;
                    back.again = Micros::new(boot.get().saturating_add(AGAIN.get()));
                }
            }
        }
        if boot.get().saturating_sub(back.first.get()) >= Post::REPEATED.get() {
            self.strand_return(back);
            return false;
        }
        if boot < back.again || !has_room {
            return true;
        }
        back.ticket = self.send_return(back);
        back.ticket.is_some()
    }

    /// Sends it. [`None`] if the store has decided at once.
    fn send_return(&self, back: &Return) -> Option<Ticket> {
        let extra = Extra {
            taken_at: Some(back.taken_at),
            once: Some(Once {
                id: back.id,
                until: Until::After(REMEMBERED),
                // The id is of nothing else.
                content: 0,
            }),
            ..Extra::default()
        };
        let request = Request {
            extra: Some(&extra),
            named_by: Some(back.named_by),
            ..Request::new(&back.steps, Mode::default(), back.asked_at)
        };
        match self.store().decide(&request) {
            Answer::Decided(_) => None,
            Answer::Pending(ticket) => Some(Box::pin(ticket)),
        }
    }

    fn strand_return(&self, back: &Return) {
        back.steps.iter().for_each(|step| self.store().strand(step));
    }
}
