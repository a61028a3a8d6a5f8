//! The shares of a counter, and its loans with each region, at one look.

use super::{LoanTerms, TimedLoans, WindowLoans};
use crate::{Micros, Timestamp};

/// The shares of one counter, and its loans with each region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoanStanding {
    /// The share that the region owns.
    pub owns: u64,
    /// The share that it enforces now.
    pub now: u64,
    /// The share that it enforces in the next window, as far as is known; of logs and buckets, the same as now.
    pub next: u64,
    /// The loans with each region, in the order of their names. Those with regions that have left come last.
    pub peers: Vec<PeerStanding>,
}

/// The loans with one region.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PeerStanding {
    /// The hits lent to it now.
    pub lent: u64,
    /// The hits lent to it in the next window.
    pub lent_next: u64,
    /// The hits held of it now.
    pub held: u64,
    /// The hits held of it in the next window.
    pub held_next: u64,
    /// The time until what is held of it ends.
    pub left: Micros,
    /// True if what is held of it is to be renewed: half of a loan's time has passed.
    pub renews: bool,
}

impl LoanStanding {
    /// Returns true if hits are lent to another region, or held of one.
    #[must_use]
    pub fn has_loans(&self) -> bool {
        let hits = |it: &PeerStanding| it.lent | it.lent_next | it.held | it.held_next;
        self.peers.iter().any(|peer| hits(peer) > 0)
    }
}

impl WindowLoans {
    /// Its standing in `window`, which ends in `left`.
    #[must_use]
    pub fn standing(&self, window: u64, left: Micros, terms: &LoanTerms) -> LoanStanding {
        let next = window + 1;
        let peers = self.peers.iter().map(|loan| {
            let held_next = loan.held.at(next);
            let windows = loan.held.last.saturating_sub(window);
            let later = if held_next > 0 { windows } else { 0 };
            let later = terms.window.get().saturating_mul(later);
            PeerStanding {
                lent: loan.lent.at(window),
                lent_next: loan.lent.at(next),
                held: loan.held.at(window),
                held_next,
                left: Micros::new(left.get().saturating_add(later)),
                renews: held_next > 0 && windows <= terms.windows() / 2,
            }
        });
        LoanStanding {
            owns: self.owns,
            now: self.share(window),
            next: self.share(next),
            peers: peers.collect(),
        }
    }
}

impl TimedLoans {
    /// Its standing at `now`, once loans that are [over](Self::over) were dropped.
    #[must_use]
    pub fn standing(&self, now: Timestamp, terms: &LoanTerms) -> LoanStanding {
        let peers = self.peers.iter().map(|loan| {
            let (held, lent) = (loan.held.amount, loan.lent.amount);
            let left = loan.held.until.since(now);
            PeerStanding {
                lent,
                lent_next: lent,
                held,
                held_next: held,
                left,
                renews: held > 0 && left.get() < terms.time.get() / 2,
            }
        });
        let share = self.share();
        LoanStanding {
            owns: self.owns,
            now: share,
            next: share,
            peers: peers.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TimedHeld, WindowHeld};
    use super::*;

    const TERMS: LoanTerms = LoanTerms {
        window: Micros::from_secs(60),
        time: Micros::from_secs(600),
        margin: Micros::from_secs(60),
    };

    #[test]
    fn loans_of_windows_are_renewed_from_their_half_to_their_end() {
        let mut loans = WindowLoans::new(100, 2);
        loans.peers[1].held = WindowHeld {
            first: 40,
            now: 30,
            next: 50,
            last: 50,
        };
        let standing = |window| loans.standing(window, Micros::from_secs(20), &TERMS);
        let renews: Vec<_> = (39..53)
            .filter(|window| standing(*window).peers[1].renews)
            .collect();
        assert_eq!(renews, [45, 46, 47, 48, 49]);
        let told = standing(40);
        assert_eq!((told.owns, told.now, told.next), (100, 130, 150));
        let peer = told.peers[1];
        assert_eq!((peer.held, peer.held_next), (30, 50));
        assert_eq!(peer.left, Micros::from_secs(20 + 10 * 60));
        // The last window is there, and no later one.
        let last = standing(50);
        assert_eq!((last.now, last.next), (150, 100));
        assert_eq!(last.peers[1].left, Micros::from_secs(20));
        assert!(last.has_loans());
        assert!(!standing(51).has_loans());
    }

    /// One that lasts for a window more is asked for anew instead, since it would be renewed all the time.
    #[test]
    fn loans_shorter_than_their_window_are_not_renewed() {
        let mut loans = WindowLoans::new(100, 2);
        loans.peers[1].held = WindowHeld {
            first: 40,
            now: 50,
            next: 50,
            last: 41,
        };
        let hour = LoanTerms {
            window: Micros::from_secs(3_600),
            ..TERMS
        };
        for window in 39..43 {
            let standing = loans.standing(window, Micros::ZERO, &hour);
            assert!(!standing.peers[1].renews, "{window}");
        }
    }

    #[test]
    fn loans_for_a_time_are_renewed_once_half_of_it_is_over() {
        let mut loans = TimedLoans::new(100, 2);
        loans.peers[0].lent.amount = 20;
        loans.peers[1].held = TimedHeld {
            amount: 50,
            until: Timestamp::from_secs(1_600),
            tail: 0,
            generation: 1,
        };
        let standing = |second| loans.standing(Timestamp::from_secs(second), &TERMS);
        let renews = [1_000, 1_300, 1_301].map(|second| standing(second).peers[1].renews);
        assert_eq!(renews, [false, false, true]);
        let told = standing(1_000);
        assert_eq!((told.owns, told.now, told.next), (100, 130, 130));
        assert_eq!((told.peers[0].lent, told.peers[0].lent_next), (20, 20));
        assert!(!told.peers[0].renews);
        assert_eq!(told.peers[1].left, Micros::from_secs(600));
    }
}
