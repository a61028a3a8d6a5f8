//! A node's account with a counter: what it holds, what it has spent, and its call on the way.

use super::terms::DRIFT_PPM;
use super::{Holding, LeaseReport};
use crate::Micros;

/// A node's account with one counter, from the first call until the store has no entry of it. The credit itself
/// lies in a [`Slot`](super::Slot), where it is spent without a lock.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Session {
    /// The number of its first call; 0 before that.
    since: u64,
    /// Hits that were put into the slot, less what was taken out of it again unspent.
    received: u64,
    /// Until when the credit may be spent, by the boot clock.
    deadline: Micros,
    out: Option<Out>,
}

/// The call on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Out {
    number: u64,
    /// The time before it was sent, by the boot clock.
    sent: Micros,
    /// The credit, and the hits spent, when it was made.
    credit: u64,
    spent: u64,
}

/// The meaning of an answer for the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseAnswer {
    /// It came too late, or is none to the call on its way: the credit stays as it is, until its deadline.
    Nothing,
    /// There is no lease any more.
    Ended,
    /// The slot gets [`Session::refill`] and this deadline.
    Refilled(Micros),
}

impl Session {
    /// Returns true while a call is on its way: there is one at a time.
    #[must_use]
    pub const fn is_asking(&self) -> bool {
        self.out.is_some()
    }

    /// Returns true if the call of this number is on its way.
    #[must_use]
    pub fn awaits(&self, number: u64) -> bool {
        self.out.is_some_and(|out| out.number == number)
    }

    /// Until when the credit may be spent, by the boot clock.
    #[must_use]
    pub const fn deadline(&self) -> Micros {
        self.deadline
    }

    /// Hits that were spent, with `credit` in the slot.
    #[must_use]
    pub const fn spent(&self, credit: u64) -> u64 {
        self.received.saturating_sub(credit)
    }

    /// Makes the call of this number at `now` of the boot clock. `credit` is what the slot held in the swap that
    /// raised its generation; that swap emptied it if the call is final.
    #[must_use]
    pub fn call(
        &mut self,
        (node, number): (u64, u64),
        (credit, is_final): (u64, bool),
        target: u64,
        now: Micros,
    ) -> LeaseReport {
        if self.since == 0 {
            (self.since, self.received) = (number, credit);
        }
        let spent = self.spent(credit);
        if is_final {
            self.received = spent;
        }
        self.out = Some(Out {
            number,
            sent: now,
            credit: if is_final { 0 } else { credit },
            spent,
        });
        LeaseReport {
            node,
            number,
            since: self.since,
            spent,
            is_final,
            target,
        }
    }

    /// Takes in the answer to the call of this number at `now` of the boot clock.
    #[must_use]
    pub fn answered(&self, number: u64, holding: &Holding, now: Micros) -> LeaseAnswer {
        let Some(out) = self.out.filter(|out| out.number == number) else {
            return LeaseAnswer::Nothing;
        };
        let until = deadline(out.sent, holding.usable);
        if holding.amount == 0 {
            LeaseAnswer::Ended
        } else if now >= until {
            LeaseAnswer::Nothing
        } else if holding.is_fresh {
            LeaseAnswer::Refilled(until)
        } else {
            LeaseAnswer::Refilled(until.max(self.deadline))
        }
    }

    /// The credit that the slot gets by the answer to the call on its way, instead of `credit`, which it holds at the
    /// time of the swap.
    #[must_use]
    pub fn refill(&mut self, holding: &Holding, until: Micros, credit: u64) -> u64 {
        let Some(out) = self.out.take() else {
            return credit;
        };
        // Spent since the call was made: the amount contains it, unless that is all new. Then what was held before is
        // charged in full, and its hits are not reported.
        let since = match holding.is_fresh {
            true => 0,
            false => out.credit.saturating_sub(credit),
        };
        let refilled = holding.amount.saturating_sub(since);
        self.received = out.spent + since + refilled;
        self.deadline = until;
        refilled
    }

    /// Records that the call on its way has no answer that is of use: the next one replaces it.
    pub const fn lost(&mut self) {
        self.out = None;
    }

    /// Records that the store has no entry: the next call begins another session.
    pub fn ended(&mut self) {
        *self = Self::default();
    }
}

/// Until when by a node's boot time something may be spent that the store says is usable for so long,
/// if its call was sent at `sent`. Counted from before the store can have read its clock,
/// and shorter by what the two clocks may differ in rate.
#[must_use]
pub const fn deadline(sent: Micros, usable: Micros) -> Micros {
    // Whole seconds apart, so that nothing overflows.
    let (secs, rest) = (usable.get() / 1_000_000, usable.get() % 1_000_000);
    let drift = secs * 2 * DRIFT_PPM + (rest * 2 * DRIFT_PPM).div_ceil(1_000_000);
    let usable = usable.get() - drift;
    Micros::new(sent.get().saturating_add(usable))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: u64 = 9;

    fn holding(is_fresh: bool, amount: u64) -> Holding {
        Holding {
            is_fresh,
            amount,
            usable: Micros::from_millis(100),
        }
    }

    #[test]
    fn a_deadline_counts_from_the_send_and_is_short_by_twice_the_drift() {
        let deadline = |usable| deadline(Micros::new(50), Micros::new(usable)).get();
        assert_eq!(deadline(100_000), 50 + 99_900);
        assert_eq!(deadline(1), 50);
        assert_eq!(deadline(2_000_000), 50 + 2_000_000 - 2_000);
        assert_eq!(super::deadline(Micros::MAX, Micros::MAX), Micros::MAX);
    }

    #[test]
    fn what_is_spent_while_a_call_is_on_its_way_is_part_of_the_amount() {
        let mut session = Session::default();
        let now = Micros::new(1_000);
        let first = session.call((NODE, 7), (0, true), 50, now);
        assert_eq!((first.since, first.spent), (7, 0));
        let LeaseAnswer::Refilled(until) = session.answered(7, &holding(true, 50), now) else {
            panic!("it is in time");
        };
        assert_eq!(session.refill(&holding(true, 50), until, 0), 50);
        // 20 are spent, and 10 more while the call is on its way.
        let second = session.call((NODE, 8), (30, false), 50, now);
        assert_eq!((second.since, second.spent), (7, 20));
        assert_eq!(session.refill(&holding(false, 50), until, 20), 40);
        assert_eq!(session.spent(40), 30);
        // A close frees all that is left.
        let last = session.call((NODE, 9), (40, true), 0, now);
        assert_eq!((last.spent, last.is_final), (30, true));
        assert_eq!(
            session.answered(9, &holding(false, 0), now),
            LeaseAnswer::Ended
        );
    }

    #[test]
    fn what_was_charged_in_full_is_not_reported_again() {
        let mut session = Session::default();
        let now = Micros::new(1_000);
        let _ = session.call((NODE, 1), (0, true), 50, now);
        assert_eq!(session.refill(&holding(true, 50), now, 0), 50);
        let _ = session.call((NODE, 2), (50, false), 50, now);
        // 15 are spent of what has meanwhile been charged.
        assert_eq!(session.refill(&holding(true, 40), now, 35), 40);
        assert_eq!(session.spent(40), 0);
    }

    #[test]
    fn late_and_strange_answers_leave_the_credit_as_it_is() {
        let mut session = Session::default();
        let _ = session.call((NODE, 3), (0, true), 50, Micros::new(0));
        let late = Micros::new(99_900);
        assert_eq!(
            session.answered(3, &holding(true, 50), late),
            LeaseAnswer::Nothing
        );
        assert_eq!(
            session.answered(2, &holding(true, 50), Micros::new(9)),
            LeaseAnswer::Nothing
        );
        session.lost();
        assert!(!session.is_asking());
    }
}
