//! The counters that are leased here, or may be worth it.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use ratekeeper_core::lease::{Demand, Session, Terms};
use ratekeeper_core::{Bounds, Micros};
use ratekeeper_store::{CounterKey, LoanCounter, OtherLeases, Step};

use super::shared::after;

/// Parts with a lock of their own.
const PARTS: usize = 64;

/// Counters that each part tracks; together 65,536.
const TRACKED_MAX: usize = 1_024;

/// A counter that was not asked for in this time is forgotten when there is no room for another.
const IDLE: Micros = Micros::from_secs(1);

/// The time between two looks for idle counters in a part: each is over all of its counters, and callers can ask for ever new
/// ones.
const SWEPT_EVERY: Micros = Micros::from_millis(125);

/// The limit of a counter as it is leased, and its window's edges if they follow a calendar.
pub(super) type Leasing = (Terms, Option<Bounds>);

#[derive(Debug)]
pub(super) struct Tracks {
    parts: Box<[Mutex<Shard>]>,
}

/// The counters that share a lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    tracks: HashMap<CounterKey, Track>,
    /// The time of the next look for idle counters.
    swept_next: Micros,
}

/// A counter, as this node leases it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Track {
    /// The fingerprint of the limit that it is asked for under.
    pub(super) limit: u64,
    pub(super) leasing: Leasing,
    /// The counter and its terms, if regions lend each other parts of the limit.
    pub(super) lent: Option<(LoanCounter, u64)>,
    pub(super) session: Session,
    pub(super) demand: Demand,
    /// The slot of its lease, if it has one.
    pub(super) slot: Option<usize>,
    /// Hits that the lease holds in the store.
    pub(super) held: u64,
    /// The leases of other nodes, as of the last answer.
    pub(super) others: OtherLeases,
    /// Hits spent in the session that `demand` knows of.
    pub(super) recorded: u64,
    /// Hits that a call on its way frees.
    pub(super) freed: u64,
    /// The time at which hits were last seen to be spent, and the credit then.
    pub(super) active: (Micros, u64),
    /// A renewal brought no more time: the lease ends with its window.
    pub(super) is_draining: bool,
    /// A check of the lease is due some time.
    pub(super) has_check: bool,
    /// The time before which there is nothing to grant.
    pub(super) empty_until: Micros,
    /// The time at which a request last found no credit.
    last: Micros,
}

impl Default for Tracks {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| Mutex::default());
        Self {
            parts: parts.collect(),
        }
    }
}

impl Tracks {
    /// The counters that share a lock with that of `key`.
    #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
    pub(super) fn part(&self, key: CounterKey) -> MutexGuard<'_, Shard> {
        self.parts[(key.subject ^ key.identity) as usize % PARTS].lock()
    }

    /// The counters that have a lease here.
    pub(super) fn leased(&self) -> Vec<CounterKey> {
        let mut leased = Vec::new();
        for part in &self.parts {
            let part = part.lock();
            let open = part.tracks.iter().filter(|(_, track)| track.slot.is_some());
            leased.extend(open.map(|(key, _)| *key));
        }
        leased
    }
}

impl Track {
    fn new(step: &Step, limit: u64, now: Micros) -> Self {
        Self {
            limit,
            leasing: leasing(step),
            lent: lent(step),
            session: Session::default(),
            demand: Demand::default(),
            slot: None,
            held: 0,
            others: OtherLeases::default(),
            recorded: 0,
            freed: 0,
            active: (now, 0),
            is_draining: false,
            has_check: false,
            empty_until: Micros::ZERO,
            last: now,
        }
    }

    /// The time of its leases.
    pub(super) const fn ttl(&self) -> Micros {
        self.leasing.0.ttl()
    }

    /// The time without a hit after which its lease is closed: a quarter of a lease, or two mean gaps.
    pub(super) fn idle(&self, now: Micros) -> Micros {
        let ttl = self.ttl();
        let hits = self.demand.within(ttl, now, ttl).max(1);
        Micros::new((ttl.get() / 4).max(ttl.get() * 2 / hits))
    }

    /// The time before its deadline at which a lease is renewed, or closed if it is not used.
    pub(super) fn margin(&self, trip: Micros) -> Micros {
        let ttl = self.ttl().get();
        Micros::new((trip.get() * 2).max(ttl / 10).min(ttl / 2))
    }
}

impl Shard {
    /// The track of the counter of `step`; [`None`] if there is no room for another.
    pub(super) fn track(&mut self, step: &Step, limit: u64, now: Micros) -> Option<&mut Track> {
        if self.tracks.len() >= TRACKED_MAX && !self.tracks.contains_key(&step.key) {
            self.sweep(now);
            if self.tracks.len() >= TRACKED_MAX {
                return None;
            }
        }
        let track = self.tracks.entry(step.key);
        let track = track.or_insert_with(|| Track::new(step, limit, now));
        (track.limit, track.leasing, track.last) = (limit, leasing(step), now);
        track.lent = lent(step);
        Some(track)
    }

    pub(super) fn get(&self, key: CounterKey) -> Option<&Track> {
        self.tracks.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: CounterKey) -> Option<&mut Track> {
        self.tracks.get_mut(&key)
    }

    /// Forgets idle counters, if the last time was not a moment ago.
    fn sweep(&mut self, now: Micros) {
        if now < self.swept_next {
            return;
        }
        self.swept_next = after(now, SWEPT_EVERY);
        self.tracks.retain(|_, track| {
            let is_idle = now.get().saturating_sub(track.last.get()) > IDLE.get();
            !is_idle || track.slot.is_some() || track.session.is_asking()
        });
    }
}

fn lent(step: &Step) -> Option<(LoanCounter, u64)> {
    (step.terms > 0).then(|| (LoanCounter::of(step), step.terms))
}

fn leasing(step: &Step) -> Leasing {
    (Terms::from_parts(step.limit, step.lease), step.calendar)
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Algorithm, Limit, LimitSpec};

    use super::*;

    fn step(key: u64) -> Step {
        let spec = LimitSpec::new(Algorithm::FixedWindow, 100, Micros::from_secs(60));
        let limit = Limit::try_new(spec).expect("a valid limit");
        let key = CounterKey {
            subject: 0,
            identity: key,
        };
        Step::new(key, limit)
    }

    /// A part with room for no more, whose counters were asked for at zero.
    fn full() -> Shard {
        let mut part = Shard::default();
        for key in 0..TRACKED_MAX as u64 {
            assert!(part.track(&step(key), 0, Micros::ZERO).is_some());
        }
        part
    }

    #[test]
    fn idle_counters_make_room_and_others_stay() {
        let mut part = full();
        let now = after(IDLE, Micros::new(1));
        part.get_mut(step(1).key).expect("tracked").slot = Some(7);
        assert!(part.track(&step(2), 0, now).is_some());
        assert!(part.track(&step(9_999), 0, now).is_some());
        let kept: Vec<u64> = (0..10_000)
            .filter(|key| part.get(step(*key).key).is_some())
            .collect();
        assert_eq!(kept, [1, 2, 9_999]);
    }

    #[test]
    fn ever_new_counters_are_not_looked_for_room_for_each_time() {
        let mut part = full();
        let early = Micros::new(IDLE.get() - 1);
        assert!(part.track(&step(9_999), 0, early).is_none());
        // All are idle by now; that is found at the next look.
        let next = after(early, SWEPT_EVERY);
        let before = Micros::new(next.get() - 1);
        assert!(part.track(&step(9_999), 0, before).is_none());
        assert!(part.track(&step(9_999), 0, next).is_some());
    }
}
