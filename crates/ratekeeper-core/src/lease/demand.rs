//! The size of the next lease.

use crate::Micros;

/// The hits that a counter is worth leasing on a node, learnt from how its leases ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    want: u64,
}

/// The end of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Hits that were granted, at least one.
    pub granted: u64,
    /// Hits of them that were not spent.
    pub left: u64,
    /// The time for which it was held.
    pub held: Micros,
    /// The time for which it could have been held.
    pub usable: Micros,
}

impl Demand {
    /// Of a counter that had `hits` within a lease's time.
    #[must_use]
    pub fn of(hits: u64) -> Self {
        Self { want: hits.max(1) }
    }

    /// Hits to ask for.
    #[must_use]
    pub const fn want(self) -> u64 {
        self.want
    }

    /// After a lease that ended so: what was spent in a whole lease's time; twice as much if it ran out
    /// early, half if over half of it is left. A grant that was less than was wanted tells nothing about
    /// demand above it.
    #[must_use]
    pub fn after(self, ended: Ended) -> Self {
        let Ended {
            granted,
            left,
            held,
            usable,
        } = ended;
        let want = if left == 0 && held < usable {
            self.want.saturating_mul(2)
        } else if left > granted / 2 {
            self.want / 2
        } else {
            self.want.max(granted - left)
        };
        Self {
            want: want.clamp(1, super::CREDIT_MAX),
        }
    }

    /// Returns true if the next lease is to be asked for already, with `left` hits of this one: they last for no longer
    /// than the answer takes.
    #[must_use]
    pub const fn is_low(self, left: u64, round_trip: Micros, ttl: Micros) -> bool {
        let spent = self.want as u128 * round_trip.get() as u128;
        left as u128 * ttl.get() as u128 <= spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_is_spent() {
        let usable = Micros::from_millis(100);
        let ended = |left, held| Ended {
            granted: 40,
            left,
            held: Micros::from_millis(held),
            usable,
        };
        let demand = Demand::of(40);
        assert_eq!(demand.after(ended(0, 60)).want(), 80);
        assert_eq!(demand.after(ended(21, 100)).want(), 20);
        assert_eq!(demand.after(ended(20, 100)).want(), 40);
        assert_eq!(Demand::of(1).after(ended(30, 100)).want(), 1);
        // 40 in 100 ms are 4 in the 10 ms that a round trip takes.
        assert!(demand.is_low(4, Micros::from_millis(10), usable));
        assert!(!demand.is_low(5, Micros::from_millis(10), usable));
    }
}
