//! The leases that are held: how they are spent, renewed and closed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper_core::lease::{Facts, Holding, LEAST, LeaseAnswer, Slots as Credits, Taken};
use ratekeeper_core::{Limit, Micros, Outcome};
use ratekeeper_store::{CounterKey, LeaseGauges, LeasedHits, Step, boot_time};
use tokio::sync::Notify;

use super::book::{Book, Counts};
use super::calls::Job;
use super::track::{Track, Tracks};
use crate::background::Background;
use crate::config::RedisConfig;
use crate::replicas::Allowance;
use crate::script::{LeaseCall, SettledCounter};
use crate::script_context::ScriptContext;
use crate::side_sender::SideSender;
use crate::topology::Topology;

/// Leases that a node holds at most.
const LEASES_MAX: usize = 32_768;

/// The longest wait for answers when the node stops, and for the leases that end meanwhile.
const FAREWELL: Duration = Duration::from_millis(500);

/// The shortest time between two checks of a lease.
const CHECKED_AFTER: Micros = Micros::new(500);

#[derive(Debug)]
pub(crate) struct Shared {
    credits: Credits,
    /// The answers to callers, by the number of the lease's slot.
    book: Book,
    tracks: Tracks,
    sender: SideSender<Self>,
    pub(super) context: Arc<ScriptContext>,
    /// The random name of this process among the leases of a counter; [`None`] if the system has no random numbers: then
    /// nothing is leased.
    node: Option<u64>,
    /// The number of the last call.
    calls: AtomicU64,
    /// The leases to look after, and when; the next one first.
    checks: Mutex<BinaryHeap<Reverse<(Micros, CounterKey)>>>,
    /// Notified when there is an earlier check.
    sooner: Notify,
    /// The longest round trip of late, in microseconds.
    trip: AtomicU64,
    is_closed: AtomicBool,
    counts: Counts,
}

impl Shared {
    pub(super) fn new(
        topology: Arc<Topology>,
        config: Arc<RedisConfig>,
        context: Arc<ScriptContext>,
        home: &Background,
    ) -> Arc<Self> {
        let credits = Credits::new(LEASES_MAX);
        Arc::new_cyclic(|this| Self {
            book: Book::new(credits.len()),
            credits,
            tracks: Tracks::default(),
            sender: SideSender::new(topology, config, home.clone(), this.clone()),
            context,
            node: random_name(),
            calls: AtomicU64::new(0),
            checks: Mutex::default(),
            sooner: Notify::new(),
            trip: AtomicU64::new(1_000),
            is_closed: AtomicBool::new(false),
            counts: Counts::default(),
        })
    }

    /// Takes the hits of `step`, with the answer to tell. Where they are missing, a lease is asked for.
    #[inline]
    pub(super) fn spend(&self, step: &Step, now: Micros) -> Option<(Taken, Outcome)> {
        let (key, hits) = (name(step.key), step.hits.unsigned_abs());
        let limit = fingerprint(&step.limit, step.lease);
        let Ok(taken) = self.credits.spend(key, limit, hits, now) else {
            self.missed(step, limit, hits, now);
            return None;
        };
        let entry = self.book.entry(taken.slot());
        if entry.is_to_renew(taken.left(), hits) {
            self.renew(step.key, now);
        }
        Some((taken, entry.outcome(taken.left(), now)))
    }

    /// Puts hits back that were taken for a request that was not admitted.
    pub(super) fn put_back(&self, taken: Taken) {
        // Where the store was called since, they are reported as spent.
        let _ = self.credits.put_back(taken);
    }

    /// Asks for a lease on the counter of `step`, whose `hits` no credit covers: if it is asked for often enough, and no
    /// call is on its way. What is left of the lease before is freed.
    #[cold]
    fn missed(&self, step: &Step, limit: u64, hits: u64, now: Micros) {
        let mut part = self.tracks.part(step.key);
        let Some(track) = part.track(step, limit, now) else {
            return;
        };
        track.demand.record(hits, now, track.ttl());
        if track.session.is_asking() || now < track.empty_until || self.covers(track, hits, now) {
            return;
        }
        let is_too_large = hits > track.leasing.0.amount_max();
        let target = self.target(step.key, track, now);
        if track.slot.is_none() && (target == 0 || is_too_large) {
            return;
        }
        let is_spendable = track.slot.is_some() && now < track.session.deadline();
        if is_too_large && is_spendable {
            return;
        }
        if let Some(job) = self.call(step.key, track, true, target) {
            drop(part);
            self.send(job);
        }
    }

    /// Returns true if the lease covers `hits`: a call was answered a moment ago.
    fn covers(&self, track: &Track, hits: u64, now: Micros) -> bool {
        let lease = track.slot.and_then(|slot| self.credits.slot(slot).look());
        lease.is_some_and(|(facts, left)| {
            facts.limit == track.limit && left >= hits && now < facts.deadline
        })
    }

    /// The hits to ask for; 0 if a lease is not worth a call, or cannot be had.
    fn target(&self, key: CounterKey, track: &mut Track, now: Micros) -> u64 {
        let target = match self.is_closed.load(Ordering::Relaxed) {
            true => 0,
            false => track.demand.target(now, track.ttl()),
        };
        if target == 0 {
            return 0;
        }
        let shard = self.sender.shard(key);
        // Where none is known, sending the call makes the topology look for one.
        match shard.map_or(Allowance::Any, |shard| shard.replicas.allowance(now)) {
            Allowance::Any => target,
            Allowance::One => target.min(LEAST),
            Allowance::Nothing(wait) => {
                track.empty_until = after(now, wait.min(track.ttl()));
                0
            }
        }
    }

    /// Asks for more hits and more time, while the lease is spent on.
    #[cold]
    fn renew(&self, key: CounterKey, now: Micros) {
        let mut part = self.tracks.part(key);
        let Some(track) = part.get_mut(key) else {
            return;
        };
        if track.slot.is_none() || track.session.is_asking() || track.is_draining {
            return;
        }
        self.record(track, now);
        let target = self.target(key, track, now);
        let job = match target {
            0 => None,
            target => self.call(key, track, false, target),
        };
        drop(part);
        if let Some(job) = job {
            self.send(job);
        }
    }

    /// Tells the demand of what was spent.
    fn record(&self, track: &mut Track, now: Micros) {
        let lease = track.slot.and_then(|slot| self.credits.slot(slot).look());
        if let Some((_, credit)) = lease {
            self.record_spent(track, track.session.spent(credit), now);
        }
    }

    fn record_spent(&self, track: &mut Track, spent: u64, now: Micros) {
        let more = spent.saturating_sub(track.recorded);
        if let Some((counter, terms)) = track.lent {
            self.context.loan_demands.record(counter, terms, more);
        }
        track.demand.record(more, now, track.ttl());
        track.recorded = spent;
        self.counts.spent(more);
    }

    /// Makes a call about the counter; a final one takes out what the lease holds.
    fn call(&self, key: CounterKey, track: &mut Track, is_final: bool, target: u64) -> Option<Job> {
        let node = self.node?;
        // Read before the call is sent: what comes after must not make the lease longer.
        let sent = boot_time();
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let credit = track
            .slot
            .and_then(|slot| self.credits.slot(slot).begin_call(is_final))
            .unwrap_or(0);
        let report = track
            .session
            .call((node, number), (credit, is_final), target, sent);
        self.record_spent(track, report.spent, sent);
        track.freed = if is_final { credit } else { 0 };
        let (terms, calendar) = track.leasing;
        Some(Job {
            lease_call: LeaseCall {
                key,
                terms,
                calendar,
                lent: track.lent.map(|(counter, _)| counter.whole),
                counted: track.lent.and_then(|(counter, _)| counter.counted),
                report,
            },
            limit: track.limit,
            sent,
            until: after(sent, track.ttl()),
        })
    }

    pub(super) fn send(&self, job: Job) {
        let left = self.sender.send([job]);
        left.iter().for_each(|job| self.unanswered(job));
    }

    /// Takes in the answer to a call.
    pub(super) fn settled(&self, job: &Job, holding: &Holding, told: &SettledCounter) {
        let (key, now) = (job.lease_call.key, boot_time());
        let trip = self.round_trip(now.get().saturating_sub(job.sent.get()));
        let mut part = self.tracks.part(key);
        let Some(track) = part.get_mut(key) else {
            return;
        };
        let report = &job.lease_call.report;
        if !track.session.awaits(report.number) {
            return;
        }
        track.others = told.others;
        self.counts.answered();
        self.counts.returned(std::mem::take(&mut track.freed));
        match track.session.answered(report.number, holding, now) {
            LeaseAnswer::Nothing => track.session.lost(),
            LeaseAnswer::Ended => {
                self.end(track);
                if report.target > 0 {
                    track.empty_until = after(now, Micros::new(track.ttl().get() / 4));
                }
                // Denials were of a fuller counter.
                self.context.denied.forget(key);
            }
            LeaseAnswer::Refilled(until) => {
                track.is_draining = !holding.is_fresh && until <= track.session.deadline();
                self.refill(key, track, (job.limit, holding, until), now);
                if let Some(slot) = track.slot {
                    let low = track.demand.within(Micros::new(trip * 2), now, track.ttl()) + 1;
                    let low = low.min(holding.amount / 2);
                    self.book.entry(slot).put(&told.look, low, now);
                }
            }
        }
        self.schedule(key, track, now);
    }

    /// Puts what is held into the lease's slot.
    fn refill(
        &self,
        key: CounterKey,
        track: &mut Track,
        (limit, holding, until): (u64, &Holding, Micros),
        now: Micros,
    ) {
        let facts = Facts {
            key: name(key),
            limit,
            from: now,
            deadline: until,
        };
        let session = &mut track.session;
        let credits = match track.slot {
            Some(slot) => {
                let mut credits = (0, 0);
                self.credits.slot(slot).refill(&facts, |credit| {
                    credits = (credit, session.refill(holding, until, credit));
                    credits.1
                });
                credits
            }
            None => {
                track.slot = self.credits.open(&facts, holding.amount);
                if track.slot.is_none() {
                    // Without room it is freed by the next call, or charged at its end.
                    return session.lost();
                }
                self.counts.opened();
                (0, session.refill(holding, until, 0))
            }
        };
        match holding.is_fresh {
            // What the lease held before is charged in full.
            true => {
                self.counts.burned(credits.0);
                self.counts.refilled(0, credits.1);
                track.recorded = track.session.spent(credits.1);
            }
            false => self.counts.refilled(credits.0, credits.1),
        }
        self.counts.held(track.held, holding.amount);
        track.held = holding.amount;
        track.active = (now, credits.1);
    }

    /// Ends a lease of which the store has no entry any more.
    fn end(&self, track: &mut Track) {
        if let Some(slot) = track.slot.take() {
            let left = self.credits.slot(slot).close().unwrap_or(0);
            self.counts.burned(left);
            self.counts.closed();
        }
        self.counts.held(track.held, 0);
        (track.held, track.recorded, track.is_draining) = (0, 0, false);
        track.session.ended();
    }

    /// A lease that some replica may not have: a failover could forget it. It is not spent.
    pub(super) fn unreplicated(&self, job: &Job, hits: u64) {
        self.counts.burned(hits);
        self.unanswered(job);
    }

    /// A call whose answer did not come in time, or could not be read: the next one replaces it.
    pub(super) fn unanswered(&self, job: &Job) {
        let key = job.lease_call.key;
        let mut part = self.tracks.part(key);
        let Some(track) = part.get_mut(key) else {
            return;
        };
        if !track.session.awaits(job.lease_call.report.number) {
            return;
        }
        self.counts.burned(std::mem::take(&mut track.freed));
        track.session.lost();
        let now = boot_time();
        track.empty_until = after(now, Micros::new(track.ttl().get() / 8));
        self.schedule(key, track, now);
    }

    /// Looks after each lease in time, for ever.
    pub(super) async fn check_in_time(self: Arc<Self>) {
        loop {
            let now = boot_time();
            let mut due = Vec::new();
            let next = {
                let mut checks = self.checks.lock();
                while let Some(Reverse((at, key))) = checks.peek().copied() {
                    if at > now {
                        break;
                    }
                    checks.pop();
                    due.push(key);
                }
                checks.peek().map(|Reverse((next, _))| *next)
            };
            due.into_iter().for_each(|key| self.check(key));
            let wait = next.map_or(3_600_000_000, |next| {
                let left = next.get().saturating_sub(boot_time().get());
                left.max(CHECKED_AFTER.get())
            });
            tokio::select! {
                () = tokio::time::sleep(Duration::from_micros(wait)) => {}
                () = self.sooner.notified() => {}
            }
        }
    }

    /// Renews a lease whose deadline is near, and closes one that is not used.
    fn check(&self, key: CounterKey) {
        let now = boot_time();
        let mut part = self.tracks.part(key);
        let Some(track) = part.get_mut(key) else {
            return;
        };
        track.has_check = false;
        let Some(slot) = track.slot else {
            return;
        };
        if track.session.is_asking() {
            // Its answer, or the lack of one, brings the next check.
            return;
        }
        let deadline = track.session.deadline();
        if now > after(deadline, track.ttl()) {
            // No close was answered. The store has charged it in full.
            self.end(track);
            return;
        }
        let credit = self.credits.slot(slot).look().map_or(0, |(_, left)| left);
        if credit != track.active.1 {
            track.active = (now, credit);
        }
        let is_idle = now.get().saturating_sub(track.active.0.get()) >= track.idle(now).get();
        let margin = track.margin(self.trip());
        let is_near = after(now, margin) >= deadline;
        let mut job = None;
        if is_idle || is_near {
            self.record(track, now);
            let target = match is_idle || track.is_draining {
                true => 0,
                false => self.target(key, track, now),
            };
            job = self.call(key, track, target == 0 || now >= deadline, target);
        }
        self.schedule(key, track, now);
        drop(part);
        if let Some(job) = job {
            self.send(job);
        }
    }

    /// Sees to the next check of a lease.
    fn schedule(&self, key: CounterKey, track: &mut Track, now: Micros) {
        if track.slot.is_none() || track.has_check || track.session.is_asking() {
            return;
        }
        let idle = after(track.active.0, track.idle(now));
        let deadline = track.session.deadline().get();
        let near = Micros::new(deadline.saturating_sub(track.margin(self.trip()).get()));
        let soonest = after(now, CHECKED_AFTER).max(track.empty_until);
        let check = Reverse((idle.min(near).max(soonest), key));
        track.has_check = true;
        let mut checks = self.checks.lock();
        let is_sooner = checks.peek().is_none_or(|first| check > *first);
        checks.push(check);
        drop(checks);
        if is_sooner {
            self.sooner.notify_one();
        }
    }

    /// Frees everything that is held, and waits until Redis has answered. Nothing is leased from then on.
    pub(super) async fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        let all = async {
            loop {
                let leased = self.tracks.leased();
                if leased.is_empty() {
                    return;
                }
                leased.into_iter().for_each(|key| self.close_one(key));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL, all).await;
        let _ = tokio::time::timeout(FAREWELL, self.sender.finish()).await;
    }

    fn close_one(&self, key: CounterKey) {
        let mut part = self.tracks.part(key);
        let track = part.get_mut(key);
        let Some(track) = track.filter(|it| it.slot.is_some() && !it.session.is_asking()) else {
            return;
        };
        let job = self.call(key, track, true, 0);
        drop(part);
        if let Some(job) = job {
            self.send(job);
        }
    }

    /// The lease held on a counter: its hits, those left, and for how long at most.
    pub(crate) fn held(&self, key: CounterKey) -> LeasedHits {
        let now = boot_time();
        let (granted, others) = match self.tracks.part(key).get(key) {
            Some(track) => (track.held, track.others),
            None => Default::default(),
        };
        let mut held = LeasedHits {
            others,
            ..LeasedHits::default()
        };
        for (facts, left) in self.credits.of(name(key)) {
            if now < facts.deadline {
                held.leases += 1;
                held.granted += granted;
                held.left += left;
                let until = Micros::new(facts.deadline.get() - now.get());
                held.until = held.until.max(until);
            }
        }
        held
    }

    /// The counts since the start, and what is held now.
    pub(crate) fn counts(&self) -> LeaseGauges {
        self.counts.read(self.context.nodes.seen())
    }

    fn trip(&self) -> Micros {
        Micros::new(self.trip.load(Ordering::Relaxed))
    }

    /// Records a round trip; the longest of late.
    fn round_trip(&self, trip: u64) -> u64 {
        let longest = self.trip.load(Ordering::Relaxed);
        let trip = trip.max(longest - longest / 32);
        self.trip.store(trip, Ordering::Relaxed);
        trip
    }
}

pub(super) const fn after(at: Micros, span: Micros) -> Micros {
    Micros::new(at.get().saturating_add(span.get()))
}

const fn name(key: CounterKey) -> (u64, u64) {
    (key.subject, key.identity)
}

/// A number that tells the limits of a counter apart, with the time of its leases.
fn fingerprint(limit: &Limit, lease: Micros) -> u64 {
    let rest = u64::from(limit.sub_windows()) << 2
        | u64::from(limit.is_strict()) << 1
        | u64::from(limit.is_calendar());
    let words = [
        limit.quota(),
        limit.capacity(),
        limit.window().get(),
        lease.get(),
        limit.algorithm() as u64,
        rest,
    ];
    words.into_iter().fold(0, |folded: u64, word| {
        let mixed = (folded.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    })
}

/// A random number; [`None`] if the system has none.
fn random_name() -> Option<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}
