//! The times at which a node heard other regions, for the counters that regions count together.

use parking_lot::Mutex;
use ratekeeper_core::region::counted::{Counted, Hearing, SilentRegion};
use ratekeeper_core::{Limit, Micros, Regions};

use std::sync::Arc;

/// The times at which this node heard each other region: shared by the links, which tell it, and the stores, which count
/// the shares of regions that are silent as used.
#[derive(Debug)]
pub struct HeardRegions {
    regions: Arc<Regions>,
    /// In the order of all regions; the own one is not used.
    hearing: Vec<Mutex<Hearing>>,
}

impl HeardRegions {
    /// Nothing was heard of any of `regions` yet, on a node that starts `now` by its boot clock.
    #[must_use]
    pub fn new(regions: Arc<Regions>, now: Micros) -> Self {
        let hearing = regions.all().iter().map(|_| Mutex::new(Hearing::new(now)));
        Self {
            hearing: hearing.collect(),
            regions,
        }
    }

    /// Records a whole message of the region at `place`.
    pub fn hear(&self, place: usize, now: Micros) {
        if let Some(hearing) = self.hearing.get(place) {
            hearing.lock().hear(now);
        }
    }

    /// True if the region at `place` is silent, and that makes a difference to limits that are counted so.
    #[must_use]
    pub fn is_silent(&self, place: usize, counted: &Counted, now: Micros) -> bool {
        let (after, hearing) = (counted.silent_after(), self.hearing.get(place));
        after
            .zip(hearing)
            .is_some_and(|(after, hearing)| hearing.lock().is_silent(after, now))
    }

    /// The regions that are silent, with their shares of `limit`; without those that have none.
    #[must_use]
    pub fn silent(&self, counted: &Counted, limit: &Limit, now: Micros) -> Vec<SilentRegion> {
        let own = self.regions.own_place();
        let places = (0..self.hearing.len()).filter(|place| *place != own);
        let silent = places.filter(|place| self.is_silent(*place, counted, now));
        let silent: Vec<usize> = silent.collect();
        if silent.is_empty() {
            return Vec::new();
        }
        let shares = self.regions.shares(limit.quota());
        let silent = silent.into_iter().map(|place| SilentRegion {
            region: self.regions.all()[place].id(),
            share: shares[place],
        });
        silent.filter(|region| region.share > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::region::counted::Silent;
    use ratekeeper_core::{Algorithm, LimitSpec, RegionId};

    use super::*;

    #[test]
    fn silent_regions_have_used_their_shares() {
        let all = [("ap", 1), ("eu", 2), ("us", 1), ("xx", 0)];
        let all = all.map(|(name, weight)| (name.into(), weight));
        let regions = Regions::try_new("eu", 1, all).expect("valid regions");
        let at = Micros::from_secs;
        let heard = HeardRegions::new(Arc::new(regions), at(100));
        let limit = LimitSpec::new(Algorithm::FixedWindow, 600, Micros::from_secs(60));
        let limit = Limit::try_new(limit).expect("a valid limit");
        let counted = Counted {
            interval: at(1),
            silent: Silent::Share,
        };
        let silent = |now| {
            let found = heard.silent(&counted, &limit, at(now));
            let found = found.iter().map(|it| (it.region, it.share));
            found.collect::<Vec<_>>()
        };
        let [ap, us] = ["ap", "us"].map(RegionId::of);
        assert_eq!(silent(100), [(ap, 150), (us, 150)]);
        heard.hear(0, at(101));
        heard.hear(2, at(101));
        heard.hear(9, at(101));
        assert_eq!(silent(104), []);
        heard.hear(2, at(104));
        assert_eq!(silent(105), [(ap, 150)]);
        assert!(heard.is_silent(0, &counted, at(105)) && !heard.is_silent(2, &counted, at(105)));
        let alone = Counted {
            silent: Silent::Alone,
            ..counted
        };
        assert_eq!(heard.silent(&alone, &limit, at(500)), []);
    }
}
