//! The counters of which this node has kept something for other regions, totals or loans: so many of each, or a region could
//! fill the store of another one.

use std::collections::HashMap;

use ratekeeper_core::Micros;
use ratekeeper_store::CounterKey;

use super::due::TOLD;
use super::later;

/// The most counters of a region whose windows, or loans, are not over.
pub(super) const COUNTERS_MAX: usize = 65_536;

/// The time between two searches for those that are over.
const SWEEP: Micros = Micros::from_secs(1);

/// The counters of which something was kept, of each region.
#[derive(Debug)]
pub(super) struct Taken {
    regions: Vec<OfRegion>,
}

#[derive(Default, Debug)]
struct OfRegion {
    /// The time at which the last window ends of which a total was kept, or at which the loan is over.
    ends: HashMap<CounterKey, Micros>,
    swept_at: Micros,
    /// The last time at which a counter found no room.
    left_out: Option<Micros>,
}

impl Taken {
    /// Nothing is kept yet, of so many regions.
    pub(super) fn new(count: usize) -> Self {
        let regions = std::iter::repeat_with(OfRegion::default);
        Self {
            regions: regions.take(count).collect(),
        }
    }

    /// True if something may be kept for the region at `place`. Those that are kept at the same time may exceed the bound by
    /// their number.
    pub(super) fn has_room(&mut self, place: usize, key: CounterKey, now: Micros) -> bool {
        let Some(of_it) = self.regions.get_mut(place) else {
            return false;
        };
        if of_it.ends.contains_key(&key) || of_it.ends.len() < COUNTERS_MAX {
            return true;
        }
        if now >= later(of_it.swept_at, SWEEP) {
            of_it.swept_at = now;
            of_it.ends.retain(|_, ends_at| now < *ends_at);
        }
        let has_room = of_it.ends.len() < COUNTERS_MAX;
        if !has_room {
            of_it.left_out = Some(now);
        }
        has_room
    }

    /// True if a counter of the region at `place` found no room of late.
    pub(super) fn is_full(&self, place: usize, now: Micros) -> bool {
        let left_out = self.regions.get(place).and_then(|it| it.left_out);
        left_out.is_some_and(|at| now < later(at, TOLD))
    }

    /// Records that something was kept until then.
    pub(super) fn took(&mut self, place: usize, key: CounterKey, ends_at: Micros) {
        if let Some(of_it) = self.regions.get_mut(place) {
            let end = of_it.ends.entry(key).or_insert(ends_at);
            *end = ends_at.max(*end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_room_for_so_many_counters_until_their_windows_end() {
        let mut taken = Taken::new(2);
        let at = Micros::from_secs;
        let key = |identity| CounterKey {
            subject: 1,
            identity,
        };
        let most = COUNTERS_MAX as u64;
        for identity in 0..most {
            assert!(taken.has_room(1, key(identity), at(10)));
            taken.took(1, key(identity), at(60));
        }
        taken.took(1, key(0), at(50));
        assert!(!taken.is_full(1, at(58)), "none was left out");
        assert!(!taken.has_room(1, key(most), at(59)));
        assert!(taken.is_full(1, at(118)) && !taken.is_full(0, at(59)));
        assert!(!taken.is_full(1, at(119)), "it is told of for a minute");
        assert!(taken.has_room(1, key(0), at(59)), "it is kept already");
        assert!(taken.has_room(0, key(most), at(59)), "another region");
        assert!(taken.has_room(1, key(most), at(60)));
        assert!(!taken.has_room(2, key(0), at(60)), "no region");
    }
}
