//! The leases that are held, and their way from grant to return.

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ratekeeper_core::lease::{
    Closed, Facts, Grant, Place, Slots as Credits, Taken, Terms, deadline,
};
use ratekeeper_core::{Limit, Micros, Outcome};
use ratekeeper_store::{CounterKey, LeaseGauges, LeasedHits, Step, boot_time};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::book::{Book, Counts, Entry};
use super::sender::{Job, LeaseSender};
use super::track::{Leasing, Tracks, counter};
use crate::asking::Asking;
use crate::config::RedisConfig;
use crate::replicas::Allowance;
use crate::script::{LeaseAction, LeaseCall};
use crate::topology::Topology;

/// Leases that a node holds at most.
const LEASES_MAX: usize = 32_768;

/// The time for which Redis remembers a grant beyond the lease: long enough for its repeats.
const KEPT: Micros = Micros::from_secs(1);

/// The time after the lease within which what is left is given back. Redis remembers returns for as long.
const RETURNED_WITHIN: Micros = Micros::from_secs(2);

#[derive(Debug)]
pub(crate) struct Shared {
    credits: Credits,
    /// The answers to callers, by the number of the lease's slot.
    book: Book,
    tracks: Tracks,
    pub(super) sender: LeaseSender,
    pub(super) asking: Arc<Asking>,
    /// Deadlines of the leases held, with their counters; the next one first.
    closings: Mutex<BinaryHeap<std::cmp::Reverse<(Micros, CounterKey)>>>,
    /// Notified when there is an earlier deadline.
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
        asking: Arc<Asking>,
        home: &Handle,
    ) -> Arc<Self> {
        let credits = Credits::new(LEASES_MAX);
        Arc::new_cyclic(|this| Self {
            book: Book::new(credits.len()),
            credits,
            tracks: Tracks::default(),
            sender: LeaseSender::new(topology, config, home.clone(), this.clone()),
            asking,
            closings: Mutex::default(),
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
            self.ask(step, limit, now, Some(hits));
            return None;
        };
        let entry = self.book.entry(taken.slot());
        if entry.is_to_renew(taken.left(), hits, now) {
            self.ask(step, limit, now, None);
        }
        Some((taken, entry.outcome(taken.left(), now)))
    }

    /// Asks for a lease on the counter of `step`, unless one is on its way or it is too early. `missed` are hits that no
    /// lease had.
    #[cold]
    fn ask(&self, step: &Step, limit: u64, now: Micros, missed: Option<u64>) {
        if self.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let mut over = Vec::new();
        let want = self.tracks.want(step, limit, now, missed, || {
            // Those that are spent or over tell how much is wanted.
            let is_over = |facts: &Facts, left| left == 0 || now >= facts.deadline;
            self.credits
                .close_of(name(step.key), is_over, |closed| over.push(closed));
            over.clone()
        });
        over.iter().for_each(|closed| self.settle(closed));
        let Some(want) = want else { return };
        let want = match self.sender.allowance(step.key, now) {
            Allowance::Any => want,
            Allowance::One => 1,
            Allowance::Nothing(wait) => {
                return self.tracks.empty(step.key, now, wait.min(step.lease));
            }
        };
        let Some(id) = random_id() else {
            self.tracks.failed(step.key);
            return;
        };
        let lease_call = LeaseCall {
            key: step.key,
            terms: Terms::from_parts(step.limit, step.lease),
            calendar: step.calendar,
            id,
            action: LeaseAction::Grant {
                want,
                nodes: self.asking.nodes.seen().max(1),
                kept: Micros::new(step.lease.get().saturating_add(KEPT.get())),
            },
        };
        let until = Micros::new(now.get().saturating_add(step.lease.get()));
        let job = Job {
            lease_call,
            limit,
            // Read again: what came before must not make the lease longer.
            first_send: boot_time(),
            until,
        };
        if !self.sender.send(job) {
            self.tracks.failed(step.key);
        }
    }

    /// Takes in the answer to a grant.
    pub(super) fn granted(&self, job: &Job, grant: &Grant) {
        let (key, now) = (job.lease_call.key, boot_time());
        let ttl = job.lease_call.terms.ttl();
        self.counts.granted(grant.hits);
        if grant.hits == 0 {
            let wait = grant.outcome.retry_after.max(Micros::from_millis(1));
            self.tracks.empty(key, now, wait.min(ttl));
            return;
        }
        let trip = now.get().saturating_sub(job.first_send.get());
        let longest = self.trip.load(Ordering::Relaxed);
        let decayed = longest - longest / 32;
        self.trip.store(trip.max(decayed), Ordering::Relaxed);
        let facts = Facts {
            key: name(key),
            limit: job.limit,
            id: job.lease_call.id,
            from: now,
            deadline: deadline(job.first_send, grant.usable),
            granted_at: grant.at,
            granted: grant.hits,
            place: grant.place,
        };
        let want = self.tracks.granted(key);
        let is_held = now < facts.deadline && !self.is_closed.load(Ordering::Relaxed);
        let slot = match is_held {
            true => self.credits.open_slot(&facts, grant.hits),
            false => None,
        };
        let Some(slot) = slot else {
            let leasing = (job.lease_call.terms, job.lease_call.calendar);
            self.give_back(leasing, &facts, grant.hits);
            return;
        };
        let is_cut = grant.usable < ttl;
        let entry = Entry::new(
            &facts,
            &grant.outcome,
            want,
            (trip.max(decayed), is_cut, ttl),
        );
        self.book.put(slot, entry);
        self.tracks.remember(key, &job.lease_call);
        self.counts.opened(grant.hits);
        let closing = std::cmp::Reverse((facts.deadline, key));
        let mut closings = self.closings.lock();
        let is_sooner = closings.peek().is_none_or(|first| closing > *first);
        closings.push(closing);
        drop(closings);
        if is_sooner {
            self.sooner.notify_one();
        }
    }

    /// A grant that some replica may not have: a failover could undo its charge. Returning it could take back, from a
    /// server that never had it, what others have charged.
    pub(super) fn unreplicated(&self, job: &Job, hits: u64) {
        self.counts.granted(hits);
        self.counts.burned(hits);
        self.tracks.failed(job.lease_call.key);
    }

    /// A grant whose answer did not come in time, or could not be read: what it may have charged is burned.
    pub(super) fn lost(&self, job: &Job) {
        self.tracks.failed(job.lease_call.key);
    }

    /// Closes each lease at its deadline, for ever.
    pub(super) async fn close_in_time(self: Arc<Self>) {
        loop {
            let now = boot_time();
            let mut over = Vec::new();
            let next = {
                let mut closings = self.closings.lock();
                while let Some(std::cmp::Reverse((deadline, key))) = closings.peek().copied() {
                    if deadline > now {
                        break;
                    }
                    closings.pop();
                    over.push(key);
                }
                closings.peek().map(|std::cmp::Reverse((next, _))| *next)
            };
            for key in over {
                let mut closed = Vec::new();
                let is_over = |facts: &Facts, _| now >= facts.deadline;
                self.credits
                    .close_of(name(key), is_over, |it| closed.push(it));
                closed.iter().for_each(|it| self.ended(it, now));
            }
            let wait = next.map_or(3_600_000_000, |next| {
                next.get().saturating_sub(boot_time().get()).max(500)
            });
            tokio::select! {
                () = tokio::time::sleep(std::time::Duration::from_micros(wait)) => {}
                () = self.sooner.notified() => {}
            }
        }
    }

    /// Gives back everything that is held, and waits until Redis has answered. Nothing is leased from then on.
    pub(super) async fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        let mut over = Vec::new();
        self.credits.close(|_, _| true, |closed| over.push(closed));
        for closed in over {
            self.ended(&closed, boot_time());
        }
        self.sender.finish().await;
    }

    /// A lease that was closed: its counter's demand is learnt, and what is left given back.
    fn ended(&self, closed: &Closed, now: Micros) {
        self.tracks.learn(closed, now);
        self.settle(closed);
    }

    /// Counts what a closed lease was used for, and gives back what is left.
    fn settle(&self, closed: &Closed) {
        let Closed { facts, left } = closed;
        self.counts.closed(facts.granted, *left);
        if *left == 0 {
            return;
        }
        match self.tracks.leasing(counter(facts.key), facts.limit) {
            Some(leasing) => self.give_back(leasing, facts, *left),
            None => self.counts.burned(*left),
        }
    }

    /// Gives back `left` hits of a lease. Buckets get nothing back.
    fn give_back(&self, (terms, calendar): Leasing, facts: &Facts, left: u64) {
        if facts.place == Place::Bucket {
            self.counts.burned(left);
            return;
        }
        let within = terms.ttl().get().saturating_add(RETURNED_WITHIN.get());
        let within = terms.limit().window().min(Micros::new(within));
        let now = boot_time();
        let job = Job {
            lease_call: LeaseCall {
                key: counter(facts.key),
                terms,
                calendar,
                // Grants have even ids.
                id: facts.id | 1,
                action: LeaseAction::Return {
                    granted_at: facts.granted_at,
                    place: facts.place,
                    left,
                    until: facts.granted_at.after(within),
                },
            },
            limit: facts.limit,
            first_send: now,
            until: Micros::new(now.get().saturating_add(RETURNED_WITHIN.get())),
        };
        if !self.sender.send(job) {
            self.counts.burned(left);
        }
    }

    /// Takes in that `given` of `left` hits were given back.
    pub(super) fn returned(&self, job: &Job, left: u64, given: u64) {
        let given = given.min(left);
        self.counts.returned(given);
        self.counts.burned(left - given);
        // Denials were of a fuller counter.
        self.asking.denied.forget(job.lease_call.key);
    }

    /// Puts hits back that were taken for a request that was not admitted.
    pub(super) fn put_back(&self, taken: Taken) {
        // Where the lease is over, its hits are: they stay charged.
        if let Err(hits) = self.credits.put_back(taken) {
            self.counts.burned_late(hits);
        }
    }

    /// The leases held on a counter: their number, their hits, those left, and for how long at most.
    pub(crate) fn held(&self, key: CounterKey) -> LeasedHits {
        let now = boot_time();
        let mut held = LeasedHits::default();
        for (facts, left) in self.credits.of(name(key)) {
            if now < facts.deadline {
                held.leases += 1;
                held.granted += facts.granted;
                held.left += left;
                let until = Micros::new(facts.deadline.get() - now.get());
                held.until = held.until.max(until);
            }
        }
        held
    }

    /// The counts since the start, and what is held now.
    pub(crate) fn counts(&self) -> LeaseGauges {
        self.counts.read(self.asking.nodes.seen())
    }
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

/// A random id, even; [`None`] if the system has no random numbers.
fn random_id() -> Option<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(u128::from_le_bytes(bytes) & !1)
}
