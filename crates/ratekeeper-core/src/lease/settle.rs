//! The store's answer to a node's call: pure functions on a counter and its leases.

use super::escrow::{charge, is_of_past_window};
use super::{Escrow, LeaseEntry, Terms};
use crate::{Ask, Micros, Moment, State, fixed_window};

/// The fewest hits that are worth a lease.
pub const LEAST: u64 = 4;

/// A node's call: what it has spent, and what it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseReport {
    /// The random name of the process.
    pub node: u64,
    /// The call's number, from one counter of the process.
    pub number: u64,
    /// The number of the first call of this session with the counter: an entry of an earlier one is charged in full.
    pub since: u64,
    /// Hits that the session has spent.
    pub spent: u64,
    /// The node holds nothing any more: what it has not spent is freed.
    pub is_final: bool,
    /// Hits that it wants to hold; 0 ends the lease.
    pub target: u64,
}

/// The lease that a node has after its call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holding {
    /// True if all of the amount is new: hits that were held before were charged in full, or there were none.
    pub is_fresh: bool,
    /// Hits that it may spend; 0 if it has no lease.
    pub amount: u64,
    /// For how long, from the store's time on.
    pub usable: Micros,
}

/// The answer to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// A later call was carried out already: nothing was done.
    Old,
    /// The lease that the node has now.
    Holds(Holding),
}

impl Terms {
    /// Takes in a node's report, and holds hits for it as far as there is room: at most a part of the capacity, and half
    /// of what would then be left.
    pub fn settle(
        &self,
        state: &mut State,
        escrow: &mut Escrow,
        report: &LeaseReport,
        at: &Moment,
    ) -> Settled {
        let limit = self.limit();
        escrow.expire(limit, state, Some(report.node), at);
        let own = escrow.take(report.node);
        let (mut is_fresh, mut kept) = (true, None);
        if let Some(entry) = own {
            if report.number <= entry.number {
                escrow.put(entry);
                return Settled::Old;
            }
            if is_of_past_window(limit, state, entry.end, at) {
                // What it spent counted there.
            } else if entry.number < report.since {
                charge(limit, state, entry.amount, at);
            } else {
                let spent = report.spent.saturating_sub(entry.spent).min(entry.amount);
                charge(limit, state, spent, at);
                let left = if report.is_final {
                    0
                } else {
                    entry.amount - spent
                };
                (is_fresh, kept) = (false, Some((left, entry.end)));
            }
        }
        let (left, end) = kept.unwrap_or((0, at.now));
        let more = self.more(state, escrow, left, report.target, at);
        let (amount, end) = match more {
            Some(more) => (left + more, self.end(state, at)),
            None if left > 0 && end > at.now => (left, end),
            None => {
                // It may have been spent since the call was made.
                charge(limit, state, left, at);
                (0, at.now)
            }
        };
        if amount > 0 {
            escrow.put(LeaseEntry {
                node: report.node,
                number: report.number,
                spent: report.spent,
                amount,
                end,
            });
        }
        Settled::Holds(Holding {
            is_fresh,
            amount,
            usable: end.since(at.now),
        })
    }

    /// Hits to hold beside those `left`; [`None`] if there is to be no new lease.
    fn more(
        &self,
        state: &State,
        escrow: &Escrow,
        left: u64,
        target: u64,
        at: &Moment,
    ) -> Option<u64> {
        let look = self.limit().test(state.as_ref(), Ask::hits(0), at);
        let signed = |hits: u64| i64::try_from(hits).unwrap_or(i64::MAX);
        let held = signed(escrow.held().saturating_add(left));
        let want = signed(target.min(self.amount_max())) - signed(left);
        let half = signed(look.remaining)
            .saturating_sub(held.saturating_mul(2))
            .div_euclid(2);
        let more = want.min(half);
        let is_worth = signed(left).saturating_add(more) >= signed(LEAST) && more >= want.min(1);
        (target > 0 && !escrow.is_full() && is_worth).then(|| u64::try_from(more).unwrap_or(0))
    }

    /// The end of a lease that begins now.
    fn end(&self, state: &State, at: &Moment) -> crate::Timestamp {
        let end = at.now.after(self.ttl());
        match state {
            State::Words(words) if self.limit().has_fixed_windows() => {
                end.min(fixed_window::current_end(self.limit(), words, at))
            }
            State::Words(_) | State::Heap(_) => end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Limit, LimitSpec, Timestamp};

    const START: u64 = 1_700_000_000_000_000;

    fn at(millis: u64) -> Moment {
        Moment::at(Timestamp::from_micros(START + millis * 1_000))
    }

    struct Counter {
        terms: Terms,
        state: State,
        escrow: Escrow,
    }

    impl Counter {
        fn new(algorithm: Algorithm, quota: u64) -> Self {
            let spec = LimitSpec::new(algorithm, quota, Micros::from_secs(100));
            let limit = Limit::try_new(spec).expect("a valid limit");
            let terms = Terms::try_new(&limit, Micros::from_millis(100));
            Self {
                terms: terms.expect("it can be leased"),
                state: State::new(limit.shape()),
                escrow: Escrow::default(),
            }
        }

        fn settle(&mut self, report: LeaseReport, millis: u64) -> Settled {
            let Self {
                terms,
                state,
                escrow,
            } = self;
            terms.settle(state, escrow, &report, &at(millis))
        }

        fn holds(&mut self, report: LeaseReport, millis: u64) -> (bool, u64, u64) {
            match self.settle(report, millis) {
                Settled::Holds(it) => (it.is_fresh, it.amount, it.usable.as_millis_ceil()),
                Settled::Old => panic!("{report:?} is no old call"),
            }
        }

        fn left(&self, millis: u64) -> u64 {
            let look = Ask::hits(0);
            let limit = self.terms.limit();
            self.escrow
                .test(limit, self.state.as_ref(), look, &at(millis))
                .remaining
        }
    }

    fn report(node: u64, number: u64, spent: u64, target: u64) -> LeaseReport {
        LeaseReport {
            node,
            number,
            since: 1,
            spent,
            is_final: false,
            target,
        }
    }

    const ALL: [Algorithm; 4] = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::TokenBucket,
        Algorithm::Gcra,
    ];

    #[test]
    fn what_is_held_is_charged_as_it_is_spent_and_the_rest_is_freed() {
        for algorithm in ALL {
            let mut counter = Counter::new(algorithm, 1_600);
            assert_eq!(counter.holds(report(1, 1, 0, 50), 0), (true, 50, 100));
            assert_eq!(counter.left(0), 1_550, "{algorithm:?}");
            assert_eq!(counter.holds(report(1, 2, 30, 50), 0), (false, 50, 100));
            assert_eq!(counter.left(0), 1_520);
            let close = LeaseReport {
                is_final: true,
                ..report(1, 3, 42, 0)
            };
            assert_eq!(counter.holds(close, 0), (false, 0, 0));
            assert!(counter.escrow.is_empty());
            assert_eq!(counter.left(0), 1_558, "{algorithm:?}");
        }
    }

    #[test]
    fn a_lease_takes_a_sixteenth_at_most_and_half_of_what_would_be_left() {
        let mut counter = Counter::new(Algorithm::FixedWindow, 160);
        assert_eq!(counter.holds(report(1, 1, 0, 50), 0).1, 10);
        charge(counter.terms.limit(), &mut counter.state, 130, &at(0));
        // 30 are left, of which 10 are held: (30 - 20) / 2.
        assert_eq!(counter.holds(report(2, 1, 0, 50), 0).1, 5);
        assert_eq!(counter.holds(report(3, 1, 0, 50), 0).1, 0);
        assert_eq!(counter.escrow.entries().len(), 2);
    }

    #[test]
    fn an_older_call_changes_nothing_and_an_earlier_session_is_charged_in_full() {
        let mut counter = Counter::new(Algorithm::Gcra, 1_600);
        counter.holds(report(1, 5, 0, 50), 0);
        let before = counter.escrow.clone();
        assert_eq!(counter.settle(report(1, 5, 9, 60), 0), Settled::Old);
        assert_eq!(counter.settle(report(1, 4, 9, 60), 0), Settled::Old);
        assert_eq!(counter.escrow, before);
        let restarted = LeaseReport {
            since: 6,
            ..report(1, 6, 0, 20)
        };
        assert_eq!(counter.holds(restarted, 0), (true, 20, 100));
        assert_eq!(counter.left(0), 1_600 - 50 - 20);
    }

    #[test]
    fn a_lost_report_is_contained_in_the_next_and_a_lost_session_is_charged_at_its_end() {
        let mut counter = Counter::new(Algorithm::FixedWindow, 1_600);
        counter.holds(report(1, 1, 0, 50), 0);
        counter.holds(report(1, 3, 45, 50), 50);
        assert_eq!(counter.left(50), 1_600 - 45 - 50);
        counter
            .escrow
            .expire(counter.terms.limit(), &mut counter.state, None, &at(150));
        assert!(counter.escrow.is_empty());
        assert_eq!(counter.left(150), 1_600 - 95);
    }

    #[test]
    fn a_close_before_any_grant_is_harmless() {
        let mut counter = Counter::new(Algorithm::TokenBucket, 1_600);
        let close = LeaseReport {
            is_final: true,
            ..report(1, 7, 99, 0)
        };
        assert_eq!(counter.holds(close, 0), (true, 0, 0));
        assert_eq!(counter.left(0), 1_600);
    }

    #[test]
    fn a_lease_ends_with_its_window_and_the_next_window_starts_empty() {
        let mut counter = Counter::new(Algorithm::FixedWindow, 1_600);
        // The start is the beginning of a window of 100 s.
        assert_eq!(counter.holds(report(1, 1, 0, 50), 99_960), (true, 50, 40));
        assert_eq!(
            counter.holds(report(1, 2, 50, 50), 100_010),
            (true, 50, 100)
        );
        assert_eq!(counter.left(100_010), 1_550);
    }

    #[test]
    fn what_was_not_renewed_in_time_is_charged() {
        let mut counter = Counter::new(Algorithm::FixedWindow, 1_600);
        counter.holds(report(1, 1, 0, 50), 0);
        charge(counter.terms.limit(), &mut counter.state, 1_550, &at(0));
        // It comes when the lease is over, and there is no room: the 40 may have been spent meanwhile.
        assert_eq!(counter.holds(report(1, 2, 10, 50), 100), (false, 0, 0));
        assert_eq!(counter.left(100), 0);
    }

    #[test]
    fn further_nodes_count_exactly() {
        let mut counter = Counter::new(Algorithm::FixedWindow, 1_000_000);
        for node in 0..64 {
            assert_eq!(counter.holds(report(node, 1, 0, 50), 0).1, 50);
        }
        assert_eq!(counter.holds(report(64, 1, 0, 50), 0).1, 0);
        assert_eq!(counter.holds(report(5, 2, 10, 50), 0).1, 50);
    }
}
