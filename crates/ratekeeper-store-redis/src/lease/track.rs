//! The counters that are leased here, or may be worth it.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use ratekeeper_core::lease::{Demand, Session, Terms};
use ratekeeper_core::{Bounds, Micros};
use ratekeeper_store::{CounterKey, LoanCounter, OtherLeases, Step};

/// Parts with a lock of their own.
const PARTS: usize = 64;

/// Counters that each part tracks; together 65,536.
const TRACKED_MAX: usize = 1_024;

/// A counter that was not asked for in this time is forgotten when there is no room for another.
const IDLE: Micros = Micros::from_secs(1);

/// The limit of a counter as it is leased, and its window's edges if they follow a calendar.
pub(super) type Leasing = (Terms, Option<Bounds>);

#[derive(Debug)]
pub(super) struct Tracks {
    parts: Box<[Mutex<Shard>]>,
}

/// The counters that share a lock.
pub(super) type Shard = HashMap<CounterKey, Track>;

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
            let open = part.iter().filter(|(_, track)| track.slot.is_some());
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

/// The track of the counter of `step`; [`None`] if there is no room for another.
pub(super) fn track<'a>(
    part: &'a mut Shard,
    step: &Step,
    limit: u64,
    now: Micros,
) -> Option<&'a mut Track> {
    if part.len() >= TRACKED_MAX && !part.contains_key(&step.key) {
        part.retain(|_, track| {
            let is_idle = now.get().saturating_sub(track.last.get()) > IDLE.get();
            !is_idle || track.slot.is_some() || track.session.is_asking()
        });
        if part.len() >= TRACKED_MAX {
            return None;
        }
    }
    let track = part
        .entry(step.key)
        .or_insert_with(|| Track::new(step, limit, now));
    (track.limit, track.leasing, track.last) = (limit, leasing(step), now);
    track.lent = lent(step);
    Some(track)
}

fn lent(step: &Step) -> Option<(LoanCounter, u64)> {
    (step.terms > 0).then(|| (LoanCounter::of(step), step.terms))
}

fn leasing(step: &Step) -> Leasing {
    (Terms::from_parts(step.limit, step.lease), step.calendar)
}
