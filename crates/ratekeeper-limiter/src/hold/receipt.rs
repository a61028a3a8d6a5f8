//! Requests that have a turn in a leaky bucket, and the receipts by which they give it back.

use ratekeeper_core::{Limit, Micros, Timestamp};
use ratekeeper_store::{Answer, CounterKey, Extra, RuleSlot, Step, Store};
use smallvec::SmallVec;

use super::DeferredPermits;
use crate::Limiter;
use crate::decision::Answered;
use crate::request::MAX_HITS;
use crate::token::HoldPart;

/// A request that was allowed, and may not go on yet.
#[derive(Debug)]
pub struct Queued {
    /// Its turn; None if it need not wait.
    pub turn: Option<BucketTurn>,
    /// Its concurrency limits. They have not been checked yet, since a request that waits is not in
    /// flight: they [are](Limiter::admit_deferred) once its turn has come.
    pub permits: Option<DeferredPermits>,
    /// The receipt for the hits it took.
    pub receipt: Receipt,
}

/// A turn in a leaky bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketTurn {
    /// The bucket's counter: those that wait for the same one leave one by one.
    pub counter: CounterKey,
    /// The rule that made the bucket.
    pub rule: RuleSlot,
    /// The time until it comes, counted from the decision.
    pub after: Micros,
    /// The time from this turn to the next.
    pub span: Micros,
}

impl BucketTurn {
    /// Sets `turn` to the one that `step` `answered`, if that is enforced and later.
    pub(super) fn put_later(turn: &mut Option<Self>, step: &Step, answered: &Answered) {
        let after = turn.map_or(Micros::ZERO, |turn| turn.after);
        if answered.delay > after && !step.shadow {
            *turn = Some(Self {
                counter: step.key,
                rule: step.rule,
                after: answered.delay,
                span: step.limit.span(step.hits.unsigned_abs()),
            });
        }
    }
}

/// The hits that an allowed request took of its rates, to be given back at most once.
#[derive(Debug)]
pub struct Receipt {
    /// The time of the decision by the store's clock.
    pub(crate) at: Timestamp,
    /// The time of the decision by the limiter's clock.
    pub(crate) heard: Timestamp,
    /// The parts taken.
    pub(crate) taken: SmallVec<[ReceiptPart; 2]>,
}

/// The hits that a request took of one rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReceiptPart {
    pub(crate) part: HoldPart,
    /// The interval of the synced counter that they were taken of; zero for the store's own, also if they were reserved of
    /// a limit that is synced otherwise.
    pub(crate) sync: Micros,
    /// The time after the decision by which the turn has passed; None unless it is a leaky bucket.
    pub(crate) ends_after: Option<Micros>,
}

impl Receipt {
    /// The limit by which to give back a turn that ends `ends_after` after it was taken: if the queue has
    /// become longer, nothing is given back. None if the turn has passed.
    fn tail(&self, limit: &Limit, ends_after: Micros, now: Timestamp) -> Option<Limit> {
        let left = ends_after.get().checked_sub(now.since(self.heard).get())?;
        // The next turn is a whole hit away, so the clocks may differ by half of one.
        let tolerance = limit.span(1).get() / 2;
        (left > 0).then(|| limit.with_delay_max(Micros::new(left + tolerance)))
    }

    /// Gives back what a request took if it does not go on: from windows what they still count, and
    /// a turn in a leaky bucket if no other turn is behind it. Done at once, unless there is a ticket
    /// to await; hits that cannot be given back stay taken.
    #[must_use = "a ticket that is dropped may never be sent"]
    pub fn give_back<S: Store>(self, limiter: &Limiter<S>) -> Option<S::Ticket> {
        let now = limiter.clock().now();
        let snapshot = limiter.load();
        let parts: SmallVec<[HoldPart; 2]> = self.taken.iter().map(|taken| taken.part).collect();
        let hits = |part: &HoldPart, _: &_| -i64::try_from(part.hits).unwrap_or(MAX_HITS);
        let mut steps = snapshot.settlement(&parts, now, hits);
        steps.retain(|step| {
            let taken = self.taken.iter().find(|taken| taken.part.key == step.key);
            // Only the counter that they were taken of can give them back.
            step.sync = taken.map_or(step.sync, |taken| taken.sync);
            if !step.limit.algorithm().has_turns() {
                return true;
            }
            let ends_after = taken.and_then(|taken| taken.ends_after);
            let tail = ends_after.and_then(|ends| self.tail(&step.limit, ends, now));
            if let Some(tail) = tail {
                step.limit = tail;
            }
            tail.is_some()
        });
        if steps.is_empty() {
            return None;
        }
        let extra = Extra {
            taken_at: Some(self.at),
            ..Extra::default()
        };
        match limiter.send_steps(&steps, &extra, now) {
            Answer::Decided(_) => None,
            Answer::Pending(ticket) => Some(ticket),
        }
    }
}
