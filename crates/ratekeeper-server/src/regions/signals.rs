//! The signals of loans and links for operators: metrics, and the faults of `/readyz`.

use std::fmt;
use std::sync::atomic::Ordering;

use ratekeeper_rules::RegionMode;
use ratekeeper_store::boot_time;

use super::taken::COUNTERS_MAX;
use super::{PeerRegion, RegionLoans};
use crate::admin_json::{RegionFigures, RegionPeer};
use crate::figures::families::Families;
use crate::figures::monitored::Monitored;

impl RegionLoans {
    /// The other regions, with their places among all.
    pub(super) fn others(&self) -> impl Iterator<Item = (usize, &PeerRegion)> {
        let all = self.peers.iter().enumerate();
        all.filter(|(place, _)| *place != self.regions.own_place())
    }

    /// The hits of a window that this region owns, one counter of each limit.
    fn owned(&self) -> u64 {
        let lent = self.lent.lock();
        let lent = lent.limits.values().filter(|limit| limit.counted.is_none());
        lent.map(|limit| limit.owns.quota()).sum()
    }

    /// All of it for the admin API; [`None`] if no limit is lent.
    pub(crate) fn figures(&self) -> Option<RegionFigures> {
        if self.lent.lock().limits.is_empty() {
            return None;
        }
        let (amounts, counters) = {
            let counters = self.counters.lock();
            (
                counters.amounts(),
                counters.len() + self.totals.lock().len(),
            )
        };
        let peers = self.others().map(|(place, peer)| {
            let ((link, since_seconds), (answered, refused)) =
                (peer.link_state(), peer.asks_of_it());
            let round_trip = peer.round_trip();
            RegionPeer {
                region: peer.name().into(),
                link: link.to_owned(),
                since_seconds,
                fault: peer.fault(),
                round_trip_us: round_trip.and_then(|it| u64::try_from(it.as_micros()).ok()),
                lent: amounts[place].0,
                borrowed: amounts[place].1,
                asks: peer.sent(),
                answered,
                refused,
                posts: peer.posted(),
                links: peer.links() as u64,
            }
        });
        Some(RegionFigures {
            region: self.regions.own().name.clone(),
            weights_version: self.regions.version(),
            owned: self.owned(),
            counters: counters as u64,
            peers: peers.collect(),
        })
    }

    /// A fault if rules are to be lent, and nothing keeps their loans.
    fn kept_shares(&self) -> Option<String> {
        let snapshot = self.limiter.snapshot();
        let rules = snapshot.rules().rules().iter();
        let mut moving = rules.filter(|rule| {
            let share = rule.share.as_ref();
            share.is_some_and(|share| share.is_lent || share.counted.is_some())
        });
        moving.next().map(|rule| {
            let mode = rule.regions.map_or("bounded", RegionMode::name);
            format!(
                "{}: `regions: {mode}` needs counters in Redis; until then each node enforces its region's share by itself",
                rule.id
            )
        })
    }

    /// A fault for each region of which this node has no room for another counter.
    fn without_room(&self) -> Vec<String> {
        let now = boot_time();
        let (taken, lent_to) = (self.taken.lock(), self.lent_to.lock());
        let full = self.others().flat_map(|(place, peer)| {
            let lent = lent_to.is_full(place, now).then(|| {
                format!(
                    "region {} has borrowed hits of {COUNTERS_MAX} counters, the most that this node lends it: asks for others are \
                     refused until loans end",
                    peer.name()
                )
            });
            let posted = taken.is_full(place, now).then(|| {
                format!(
                    "region {} has posted totals of {COUNTERS_MAX} counters, the most that this node keeps: what it admits of \
                     others is not known here until windows end",
                    peer.name()
                )
            });
            [lent, posted].into_iter().flatten()
        });
        full.collect()
    }

    fn encode_loans(&self, families: &mut Families<'_>) -> fmt::Result {
        families.gauge(
            "ratelimit_region_owned_hits",
            "Hits of a window that this region owns of the limits that regions lend each other, one counter of each",
            self.owned(),
        )?;
        let amounts = self.counters.lock().amounts();
        let of = |pick: fn(&(u64, u64)) -> u64| {
            let amounts = &amounts;
            let others = self.others();
            others.map(move |(place, peer)| ([("peer", peer.name())], pick(&amounts[place])))
        };
        families.gauges(
            "ratelimit_region_lent_hits",
            "Hits of this window that are lent to another region, of the counters that this node looks after",
            of(|amounts| amounts.0),
        )?;
        families.gauges(
            "ratelimit_region_borrowed_hits",
            "Hits of this window that are borrowed from another region, of the counters that this node looks after",
            of(|amounts| amounts.1),
        )?;
        families.counters(
            "ratelimit_region_asks",
            "Asks that this node has sent to another region",
            self.others()
                .map(|(_, peer)| ([("peer", peer.name())], peer.sent())),
        )?;
        let asked = self.others().flat_map(|(_, peer)| {
            let (answered, refused) = peer.asks_of_it();
            let results = [("answered", answered), ("refused", refused)];
            results.map(|(result, count)| ([("peer", peer.name()), ("result", result)], count))
        });
        families.counters(
            "ratelimit_region_asked",
            "Asks of another region that this node was sent, by what came of them",
            asked,
        )
    }

    fn encode_totals(&self, families: &mut Families<'_>) -> fmt::Result {
        families.counters(
            "ratelimit_region_posts",
            "Totals of limits that regions count together that this node has posted to another region",
            self.others()
                .map(|(_, peer)| ([("peer", peer.name())], peer.posted())),
        )?;
        let posted = self.others().flat_map(|(_, peer)| {
            let (kept, refused) = peer.totals_of_it();
            let results = [("kept", kept), ("refused", refused)];
            results.map(|(result, count)| ([("peer", peer.name()), ("result", result)], count))
        });
        families.counters(
            "ratelimit_region_posted",
            "Totals of another region that were posted to this node, by what came of them",
            posted,
        )
    }

    fn encode_links(&self, families: &mut Families<'_>) -> fmt::Result {
        families.gauges(
            "ratelimit_region_reachable",
            "1 while this node has a link to the region, or else 0",
            self.others()
                .map(|(_, peer)| ([("peer", peer.name())], u64::from(peer.is_reachable()))),
        )?;
        families.gauges(
            "ratelimit_region_round_trip_seconds",
            "The last round trip on the link to the region; no series before there was one",
            self.others().filter_map(|(_, peer)| {
                let round_trip = peer.round_trip()?;
                Some(([("peer", peer.name())], round_trip.as_secs_f64()))
            }),
        )?;
        families.gauges(
            "ratelimit_region_links",
            "Links that nodes of the region have to this node",
            self.others()
                .map(|(_, peer)| ([("peer", peer.name())], peer.links() as u64)),
        )?;
        families.counter(
            "ratelimit_region_links_refused",
            "Links to this node that were refused: of no other region, of another one than the certificate's, with other weights, or too many",
            self.links_refused.load(Ordering::Relaxed),
        )
    }
}

impl Monitored for RegionLoans {
    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        if self.lent.lock().limits.is_empty() {
            return Ok(());
        }
        self.encode_loans(families)?;
        self.encode_totals(families)?;
        self.encode_links(families)
    }

    fn faults(&self) -> Vec<String> {
        self.renew_limits();
        if self.lent.lock().limits.is_empty() {
            return self.kept_shares().into_iter().collect();
        }
        let is_there = |place: usize| !self.regions.all()[place].is_retired;
        let others = self.others().filter(|(place, _)| is_there(*place));
        let faults = others.filter_map(|(_, peer)| peer.fault());
        faults
            .chain(self.counters.lock().fault(boot_time()))
            .chain(self.totals.lock().fault(boot_time()))
            .chain(self.without_room())
            .collect()
    }

    fn tasks(&self) -> Vec<(&'static str, u64)> {
        vec![(self.task.name(), self.task.failures())]
    }

    fn subject(&self) -> &'static str {
        "regions"
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ratekeeper_core::{Micros, Regions};
    use ratekeeper_limiter::{Limiter, LimiterOptions};
    use ratekeeper_rules::RuleSet;
    use ratekeeper_store::{CounterKey, MemoryConfig, MemoryStore};

    use super::*;
    use crate::regions::later;

    /// Its callers are held to its share from there on, and its metrics count refusals whose reason they do not tell.
    #[test]
    fn a_region_without_room_for_another_counter_is_told() {
        let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
        let limiter = Limiter::new(RuleSet::default(), store.into(), LimiterOptions::default());
        let all = ["eu", "us"].map(|name| (name.into(), 1));
        let regions = Regions::try_new("eu", 1, all).expect("valid regions");
        let loans = RegionLoans::new(Arc::new(limiter), Arc::new(regions));
        let us = loans
            .others()
            .map(|(place, _)| place)
            .next()
            .expect("it is there");
        let now = boot_time();
        for (told, taken) in [("borrowed", &loans.lent_to), ("posted", &loans.taken)] {
            let mut counters = (0..).map(|identity| CounterKey {
                subject: 1,
                identity,
            });
            let mut taken = taken.lock();
            for key in counters.by_ref().take(COUNTERS_MAX) {
                taken.took(us, key, later(now, Micros::from_secs(3_600)));
            }
            assert!(!taken.is_full(us, now));
            let another = counters.next().expect("there are more");
            assert!(!taken.has_room(us, another, now));
            drop(taken);
            let faults = loans.without_room();
            let of_us = faults.iter().filter(|fault| fault.starts_with("region us"));
            let of_us: Vec<_> = of_us.filter(|fault| fault.contains(told)).collect();
            assert_eq!(of_us.len(), 1, "{faults:?}");
        }
    }
}
