//! The leases of a node: a fixed number of slots.

use super::slot::{Credit, Slot, Unspent};
use super::{CREDIT_MAX, Facts};
use crate::Micros;

/// Slots that a counter can have its leases in.
const WAYS: usize = 4;

/// The leases that a node holds. Spending takes no lock and allocates nothing.
#[derive(Debug)]
pub struct Slots {
    sets: Box<[[Slot; WAYS]]>,
}

/// Hits that were taken from a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    set: usize,
    way: usize,
    credit: Credit,
}

impl Taken {
    /// The number of the lease's slot, below [`Slots::len`].
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.set * WAYS + self.way
    }

    /// Hits that the lease held right after.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.credit.left
    }
}

impl Slots {
    /// Room for about so many leases, at least four.
    #[must_use]
    pub fn new(leases: usize) -> Self {
        let sets = leases.div_ceil(WAYS).max(1);
        let set = || std::array::from_fn(|_| Slot::default());
        Self {
            sets: std::iter::repeat_with(set).take(sets).collect(),
        }
    }

    /// The number of slots.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there are always some")]
    pub const fn len(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Takes `hits` from a lease on `key` under `limit` that holds at `now`, the node's boot time that
    /// the check has read. A counter may have two leases for a while; the hits come from one.
    ///
    /// # Errors
    /// The most that a lease holds, where none has enough; 0 if there is none.
    pub fn spend(&self, key: (u64, u64), limit: u64, hits: u64, now: Micros) -> Result<Taken, u64> {
        let set = self.set_of(key);
        let is_meant = |facts: &Facts| facts.key == key && facts.limit == limit;
        let mut most = 0;
        for (way, slot) in self.sets[set].iter().enumerate() {
            match slot.spend(is_meant, hits, now) {
                Ok(credit) => return Ok(Taken { set, way, credit }),
                Err(Unspent::Short(left)) => most = most.max(left),
                Err(Unspent::Other | Unspent::Expired) => {}
            }
        }
        Err(most)
    }

    /// Puts hits back that were taken and not admitted: their lease still stands.
    ///
    /// # Errors
    /// The number of hits, if the lease has called the store since, or is over: they stay spent.
    pub fn put_back(&self, taken: Taken) -> Result<(), u64> {
        let slot = &self.sets[taken.set][taken.way];
        slot.put_back(taken.credit).map_err(|credit| credit.hits)
    }

    /// Holds a lease; the number of its slot, or [`None`] if there is no room. If so, its hits are to be freed.
    pub fn open(&self, facts: &Facts, credit: u64) -> Option<usize> {
        let set = self.set_of(facts.key);
        let mut slots = self.sets[set].iter();
        let way = slots.position(|slot| credit <= CREDIT_MAX && slot.open(facts, credit))?;
        Some(set * WAYS + way)
    }

    /// The lease in the slot of this number, below [`Self::len`].
    #[must_use]
    pub fn slot(&self, number: usize) -> &Slot {
        &self.sets[number / WAYS][number % WAYS]
    }

    /// The leases of `key`, and hits that each holds.
    pub fn of(&self, key: (u64, u64)) -> impl Iterator<Item = (Facts, u64)> {
        let set = self.sets[self.set_of(key)].iter();
        set.filter_map(Slot::look)
            .filter(move |(facts, _)| facts.key == key)
    }

    #[allow(clippy::cast_possible_truncation, reason = "a remainder of a usize")]
    fn set_of(&self, key: (u64, u64)) -> usize {
        (key.1 % self.sets.len() as u64) as usize
    }
}

#[cfg(all(test, not(ratekeeper_loom)))]
mod tests {
    use super::*;

    fn facts(key: u64, limit: u64, deadline: u64) -> Facts {
        Facts {
            key: (7, key),
            limit,
            from: Micros::new(20),
            deadline: Micros::new(deadline),
        }
    }

    #[test]
    fn only_the_same_limit_is_spent_and_only_before_the_deadline() {
        let slots = Slots::new(8);
        let (key, now) = ((7, 1), Micros::new(40));
        assert!(slots.open(&facts(1, 3, 50), 10).is_some());
        assert_eq!(slots.spend(key, 4, 1, now), Err(0));
        assert_eq!(slots.spend(key, 3, 1, Micros::new(19)), Err(0));
        assert_eq!(slots.spend((8, 1), 3, 1, now), Err(0));
        assert_eq!(slots.spend(key, 3, 11, now), Err(10));
        let taken = slots.spend(key, 3, 4, now).expect("there are ten");
        assert_eq!(slots.spend(key, 3, 1, Micros::new(50)), Err(0));
        assert_eq!(slots.put_back(taken), Ok(()));
        assert_eq!(slots.of(key).collect::<Vec<_>>(), [(facts(1, 3, 50), 10)]);
        assert!(slots.spend(key, 3, 10, Micros::new(49)).is_ok());
    }

    #[test]
    fn what_is_put_back_after_a_call_stays_spent() {
        let slots = Slots::new(1);
        let (key, now) = ((7, 1), Micros::new(20));
        let slot = slots.open(&facts(1, 3, 50), 10).expect("there is room");
        let slot = slots.slot(slot);
        let taken = slots.spend(key, 3, 4, now).expect("there are ten");
        assert_eq!(slot.begin_call(false), Some(6));
        assert_eq!(slots.put_back(taken), Err(4));
        let taken = slots.spend(key, 3, 1, now).expect("there are six");
        assert!(slot.refill(&facts(1, 3, 90), |left| left + 20));
        assert_eq!(slots.put_back(taken), Err(1));
        assert_eq!(slots.of(key).collect::<Vec<_>>(), [(facts(1, 3, 90), 25)]);
        assert_eq!(slot.begin_call(true), Some(25));
        assert_eq!(slots.spend(key, 3, 1, now), Err(0));
        assert_eq!(slot.close(), Some(0));
        assert_eq!((slot.close(), slot.begin_call(true)), (None, None));
    }

    #[test]
    fn the_table_is_bounded() {
        let slots = Slots::new(4);
        let open = |key| slots.open(&facts(key, 0, 9), 1);
        let opened: Vec<usize> = (0..4).filter_map(open).collect();
        assert_eq!((opened.len(), open(4)), (4, None));
        slots.slot(opened[2]).close();
        assert_eq!(open(4), Some(opened[2]));
    }
}
