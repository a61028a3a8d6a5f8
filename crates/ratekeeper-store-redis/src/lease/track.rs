//! The counters that may be worth leasing: how often they are asked for, and how much.

use std::collections::HashMap;

use parking_lot::Mutex;
use ratekeeper_core::lease::{Closed, Demand, Ended, Terms};
use ratekeeper_core::{Bounds, Micros};
use ratekeeper_store::{CounterKey, Step};

use crate::script::LeaseCall;

/// Parts with a lock of their own.
const PARTS: usize = 64;

/// Counters that each part tracks; together 65,536.
const TRACKED_MAX: usize = 1_024;

/// Requests within a lease's time that make a counter worth leasing.
const WORTH: u64 = 2;

/// A counter that was not asked for in this time is forgotten when there is no room for another.
const IDLE: Micros = Micros::from_secs(1);

/// The limit of a counter as it is leased, and its window's edges if they follow a calendar.
pub(super) type Leasing = (Terms, Option<Bounds>);

#[derive(Debug)]
pub(super) struct Tracks {
    parts: Box<[Mutex<HashMap<CounterKey, Track>>]>,
}

#[derive(Clone, Copy, Debug)]
struct Track {
    /// The limit that it is asked for under, and the terms of the last lease.
    limit: u64,
    leasing: Option<Leasing>,
    /// The time that requests are counted from.
    since: Micros,
    /// The time at which it was last asked for.
    last: Micros,
    requests: u64,
    hits: u64,
    demand: Option<Demand>,
    /// A grant is on its way.
    is_pending: bool,
    /// The time before which there is nothing to grant.
    empty_until: Micros,
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
    /// The hits to ask for now; [`None`] if that is too early, or they were asked for already. `over` closes the
    /// counter's leases that are spent or over, if it comes to that.
    pub(super) fn want(
        &self,
        step: &Step,
        limit: u64,
        now: Micros,
        missed: Option<u64>,
        over: impl FnOnce() -> Vec<Closed>,
    ) -> Option<u64> {
        let mut part = self.part(step.key).lock();
        let track = track(&mut part, step.key, limit, now)?;
        track.last = now;
        if let Some(hits) = missed {
            let since = now.get().saturating_sub(track.since.get());
            if since > step.lease.get() {
                (track.since, track.requests, track.hits) = (now, 0, 0);
            }
            track.requests += 1;
            track.hits = track.hits.saturating_add(hits);
            if track.requests < WORTH {
                return None;
            }
        }
        if track.is_pending || now < track.empty_until {
            return None;
        }
        over().iter().for_each(|closed| track.learn(closed, now));
        let demand = track.demand.get_or_insert(Demand::of(track.hits * 2));
        let want = demand.want();
        track.is_pending = true;
        Some(want)
    }

    /// Notes that there was nothing to grant, and will be nothing for so long.
    pub(super) fn empty(&self, key: CounterKey, now: Micros, wait: Micros) {
        if let Some(track) = self.part(key).lock().get_mut(&key) {
            track.is_pending = false;
            track.empty_until = Micros::new(now.get().saturating_add(wait.get()));
        }
    }

    /// Notes that a lease was granted; the hits that were wanted.
    pub(super) fn granted(&self, key: CounterKey) -> u64 {
        let mut part = self.part(key).lock();
        part.get_mut(&key).map_or(1, |track| {
            track.is_pending = false;
            track.demand.map_or(1, Demand::want)
        })
    }

    /// Notes that no answer came.
    pub(super) fn failed(&self, key: CounterKey) {
        if let Some(track) = self.part(key).lock().get_mut(&key) {
            track.is_pending = false;
        }
    }

    /// Remembers the terms of the counter's lease.
    pub(super) fn remember(&self, key: CounterKey, lease_call: &LeaseCall) {
        if let Some(track) = self.part(key).lock().get_mut(&key) {
            track.leasing = Some((lease_call.terms, lease_call.calendar));
        }
    }

    /// The terms of the counter's leases under that limit, if they are remembered.
    pub(super) fn leasing(&self, key: CounterKey, limit: u64) -> Option<Leasing> {
        let part = self.part(key).lock();
        let track = part.get(&key).filter(|track| track.limit == limit);
        track.and_then(|track| track.leasing)
    }

    /// Learns from a lease that has ended.
    pub(super) fn learn(&self, closed: &Closed, now: Micros) {
        let key = counter(closed.facts.key);
        if let Some(track) = self.part(key).lock().get_mut(&key) {
            track.learn(closed, now);
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
    fn part(&self, key: CounterKey) -> &Mutex<HashMap<CounterKey, Track>> {
        &self.parts[(key.subject ^ key.identity) as usize % PARTS]
    }
}

impl Track {
    fn learn(&mut self, closed: &Closed, now: Micros) {
        let (facts, left) = (&closed.facts, closed.left);
        let Some(demand) = self.demand.filter(|_| facts.limit == self.limit) else {
            return;
        };
        if left == 0 && facts.granted < demand.want() {
            // The limit was near: that tells nothing about more.
            return;
        }
        let span = |end: Micros| Micros::new(end.get().saturating_sub(facts.from.get()));
        self.demand = Some(demand.after(Ended {
            granted: facts.granted,
            left,
            held: span(now),
            usable: span(facts.deadline),
        }));
    }
}

/// The track of a counter under that limit; [`None`] if there is no room for another.
fn track(
    part: &mut HashMap<CounterKey, Track>,
    key: CounterKey,
    limit: u64,
    now: Micros,
) -> Option<&mut Track> {
    if part.len() >= TRACKED_MAX && !part.contains_key(&key) {
        let is_idle = |track: &Track| now.get().saturating_sub(track.last.get()) > IDLE.get();
        part.retain(|_, track| !is_idle(track));
        if part.len() >= TRACKED_MAX {
            return None;
        }
    }
    let fresh = Track {
        limit,
        leasing: None,
        since: now,
        last: now,
        requests: 0,
        hits: 0,
        demand: None,
        is_pending: false,
        empty_until: Micros::ZERO,
    };
    let track = part.entry(key).or_insert(fresh);
    if track.limit != limit {
        *track = fresh;
    }
    Some(track)
}

pub(super) const fn counter((subject, identity): (u64, u64)) -> CounterKey {
    CounterKey { subject, identity }
}
