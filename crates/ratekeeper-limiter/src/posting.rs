//! Posting what is owed to the store: by the checks that it answers, and once a second.
//! Charges for requests that were denied here are [given back](returns) likewise.
//!
//! No task waits for the answers. They are looked at when the next check is answered, so that a
//! limiter needs no runtime of its own.

mod returns;

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_store::{Charge, Post, Step, StepOutcome, Store, StoreError, Verdicts};

use crate::Limiter;
use crate::fallback::{Debt, Fate, Passed};
use crate::purpose::is_reserve;
use returns::Return;

/// The most posts under way.
const POSTS_MAX: usize = 256;

/// The most late answers that are waited for, and charges that are given back; hits beyond count as unknown.
const LATE_MAX: usize = 1 << 14;

/// The least time between two rounds.
const ROUND: Micros = Micros::from_millis(1);

/// The time after which a post that failed is sent again.
const AGAIN: Micros = Micros::from_millis(100);

/// The posts under way.
#[derive(Debug, Default)]
pub(crate) struct Posting(Mutex<Round>);

#[derive(Default)]
struct Round {
    sent: Vec<Sent>,
    late: Vec<Late>,
    /// Charges being given back.
    returns: Vec<Return>,
    /// The time of the last round, by the limiter's clock.
    at: Timestamp,
}

/// A post that was sent, or is to be sent again. Times are by the boot clock.
struct Sent {
    debt: Debt,
    id: u128,
    first: Micros,
    /// [`None`] after it failed.
    ticket: Option<Ticket>,
    /// The time at which it is sent again.
    again: Micros,
    /// True if it may have been carried out.
    is_unknown: bool,
}

/// A request that the failure modes answered, whose own answer may still come.
struct Late {
    ticket: Ticket,
    steps: Box<[Step]>,
    /// The hits of each step that passed.
    owed: Box<[i64]>,
    /// True if the request was allowed.
    allowed: bool,
    passed: Passed,
}

/// The answer to a post.
type Ticket = Pin<Box<dyn Future<Output = Result<Verdicts, StoreError>> + Send>>;

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sent")
            .field("debt", &self.debt)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Round")
            .field("sent", &self.sent)
            .field("late", &self.late.len())
            .finish_non_exhaustive()
    }
}

/// The hits of `step` that the store has charged: of a reservation, what it did not cut; none for what is given back.
fn charged(verdicts: &Verdicts, number: usize, step: &Step) -> i64 {
    let outcome = verdicts.outcomes.get(number);
    let passes = verdicts.allowed && outcome.is_some_and(StepOutcome::fits);
    if !passes && step.charge != Charge::Always {
        return 0;
    }
    match outcome {
        Some(outcome) if is_reserve(step) => step.hits.saturating_sub_unsigned(outcome.cut()),
        _ => step.hits.max(0),
    }
}

impl<S: Store> Limiter<S> {
    /// Posts what is owed to the store, which has just answered a check of that time, and looks at the
    /// answers to earlier posts.
    #[cold]
    pub(crate) fn post_owed(&self, now: Timestamp) {
        // One caller is enough.
        let Some(mut round) = self.posting().0.try_lock() else {
            return;
        };
        if now < round.at.after(ROUND) {
            return;
        }
        round.at = now;
        let boot = self.clock().boot();
        let sent = std::mem::take(&mut round.sent);
        let kept = sent.into_iter().filter_map(|sent| self.follow(sent, boot));
        let mut kept: Vec<_> = kept.collect();
        let room = POSTS_MAX.saturating_sub(kept.len());
        let taken = self.fallback().map(|it| it.owed().take(room));
        for debt in taken.into_iter().flatten() {
            let sent = Sent {
                debt,
                id: self.new_id(),
                first: boot,
                ticket: None,
                again: boot,
                is_unknown: false,
            };
            kept.extend(self.follow(sent, boot));
        }
        round.sent = kept;
        self.hear_late(&mut round, boot);
        self.give_back_charges(&mut round, boot);
        if round.sent.is_empty() && round.late.is_empty() && round.returns.is_empty() {
            self.fallback().iter().for_each(|it| it.owed().rest());
        }
    }

    /// Posts what is owed to the store, as [`Self::maintain`] does. Returns true while anything is owed: a node that
    /// stops calls it again and again, for a moment, in which a store that is away may come back.
    #[must_use]
    pub fn flush_owed(&self) -> bool {
        let Some(fallback) = self.fallback() else {
            return false;
        };
        if fallback.owed().owes() && self.store().away().is_none() {
            self.post_owed(self.clock().now());
        }
        fallback.owed().owes()
    }

    /// Waits in the background for the answer to a request that the failure modes have answered meanwhile:
    /// `owed` says how many hits of each step passed.
    pub(crate) fn expect_late(
        &self,
        ticket: S::Ticket,
        steps: &[Step],
        owed: Box<[i64]>,
        allowed: bool,
        passed: Passed,
    ) {
        let late = Late {
            ticket: Box::pin(ticket),
            steps: steps.into(),
            owed,
            allowed,
            passed,
        };
        let mut round = self.posting().0.lock();
        if round.late.len() >= LATE_MAX {
            return self.add_unknown(&late, StoreError::Lost);
        }
        round.late.push(late);
        self.fallback()
            .iter()
            .for_each(|it| it.owed().await_answers());
    }

    /// Settles what late answers say: what Redis charged is not owed, and given back if it was denied here.
    fn hear_late(&self, round: &mut Round, boot: Micros) {
        let mut context = Context::from_waker(Waker::noop());
        let late = std::mem::take(&mut round.late);
        for mut late in late {
            match late.ticket.as_mut().poll(&mut context) {
                Poll::Pending => round.late.push(late),
                Poll::Ready(Err(error)) => self.add_unknown(&late, error),
                Poll::Ready(Ok(verdicts)) => {
                    self.add_owed(&late, Some(&verdicts), StoreError::Unavailable);
                    if verdicts.allowed && !late.allowed {
                        self.return_charge(&mut round.returns, &late, &verdicts, boot);
                    }
                }
            }
        }
    }

    /// Settles a request whose answer does not come, for that reason.
    fn add_unknown(&self, late: &Late, why: StoreError) {
        self.add_owed(late, None, why);
        if !late.allowed {
            self.strand(&late.steps, why);
        }
    }

    /// Owes the hits that passed and that the store has not charged, as far as is known.
    fn add_owed(&self, late: &Late, decided: Option<&Verdicts>, fault: StoreError) {
        let Some(fallback) = self.fallback() else {
            return;
        };
        for (number, step) in late.steps.iter().enumerate() {
            let charged = decided.map_or(0, |verdicts| charged(verdicts, number, step));
            let step = Step {
                hits: late.owed[number].saturating_sub(charged),
                ..*step
            };
            fallback.owed().add(&step, None, fault, &late.passed);
        }
    }

    /// Reads the answer to a post, or sends it, if it is time for that. [`None`] once it is settled.
    fn follow(&self, mut sent: Sent, boot: Micros) -> Option<Sent> {
        if let Some(ticket) = &mut sent.ticket {
            let mut context = Context::from_waker(Waker::noop());
            match ticket.as_mut().poll(&mut context) {
                Poll::Pending => return Some(sent),
                Poll::Ready(Ok(_)) => return self.settle_post(&sent, Fate::Posted),
                Poll::Ready(Err(StoreError::Corrupt)) => {
                    return self.settle_post(&sent, Fate::Dropped);
                }
                Poll::Ready(Err(error)) => {
                    sent.is_unknown |= error.may_be_executed();
                    sent.ticket = None;
                    sent.again = Micros::new(boot.get().saturating_add(AGAIN.get()));
                }
            }
        }
        if boot < sent.again {
            return Some(sent);
        }
        let is_late = boot.get().saturating_sub(sent.first.get()) >= Post::REPEATED.get();
        let is_expired = sent.debt.is_over(boot);
        let is_named = sent.debt.rename(&self.load().namer);
        if is_late || is_expired || !is_named {
            let settled = match (sent.is_unknown, is_expired) {
                (true, _) => Fate::Unknown,
                (false, true) => Fate::Expired,
                (false, false) => Fate::Dropped,
            };
            return self.settle_post(&sent, settled);
        }
        let age = boot.get().saturating_sub(sent.debt.latest.get());
        let post = Post {
            id: sent.id,
            step: sent.debt.step,
            age: Micros::new(age),
            named_by: Some(sent.debt.named_by),
        };
        match self.store().post(&post) {
            // It always answers, and should not have failed.
            None => self.settle_post(&sent, Fate::Dropped),
            Some(ticket) => {
                sent.ticket = Some(Box::pin(ticket));
                Some(sent)
            }
        }
    }

    fn settle_post(&self, sent: &Sent, fate: Fate) -> Option<Sent> {
        if let Some(fallback) = self.fallback() {
            fallback.owed().settle(&sent.debt, fate);
        }
        None
    }
}

#[cfg(test)]
mod tests;
