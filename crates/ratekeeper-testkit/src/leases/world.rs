//! One run: nodes, a store, and a network between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ratekeeper_core::lease::{Settled, Taken};
use ratekeeper_core::{Moment, Timestamp};

use super::LeaseTotals;
use super::node::{LeaseJob, Node, Source};
use super::plan::{LeaseGuard, LeasePlan};
use super::store::LeaseStore;
use crate::random::Random;

/// The time within which an answer is waited for.
const PATIENCE: u64 = 10_000;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A request comes to a node.
    Request(usize, u64),
    /// It goes on in the same life, after it had read its clock at that time.
    Spend(usize, u64, u64, u64),
    /// Hits that were taken are put back, since another limit of the request denied it; unless the node has started over.
    PutBack(usize, u64, Taken),
    /// A node renews its lease, or closes it if nothing was spent since the credit was so much.
    Check(usize),
    Crash(usize),
    Change(usize),
    /// The store gets a request that is counted exactly, at a node and under that limit.
    Exact(usize, u64),
    /// The store gets a call of a node in that life.
    Call(usize, u64, LeaseJob),
    /// A node gets an answer, or has waited for too long.
    Answer(usize, u64, LeaseJob, Settled),
    Lost(usize, u64, u64),
    /// The store's clock is set.
    Step,
    /// The replica takes over.
    FailOver,
    /// A node has admitted hits without the store, and posts them.
    Owe,
    Post(u128, u64),
}

#[derive(Debug)]
pub(super) struct World<S> {
    pub(super) plan: LeasePlan,
    pub(super) random: Random,
    pub(super) start: u64,
    now: u64,
    store_offset: i64,
    store: S,
    nodes: Vec<Node>,
    /// The life of each node; what a crash ends is not told to the next.
    lives: Vec<u64>,
    /// The credit that each node had at its last check.
    credits: Vec<u64>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    held: Vec<Option<Event>>,
    /// Admissions, by the store's clock.
    pub(super) admitted: Vec<(Timestamp, u64)>,
    /// Hits that setting the store's clock lets pass in addition.
    pub(super) slack: u64,
    pub(super) totals: LeaseTotals,
}

impl<S: LeaseStore> World<S> {
    pub(super) fn new(plan: LeasePlan, mut random: Random, store: S) -> Self {
        let start = 1_700_000_000_000_000 + random.between(0, 10_000_000);
        let nodes = (0..plan.nodes).map(|_| Node::new(&mut random, start));
        let mut world = Self {
            nodes: nodes.collect(),
            lives: vec![0; plan.nodes],
            credits: vec![0; plan.nodes],
            store,
            store_offset: random.between(0, 5_000_000) as i64,
            now: start,
            start,
            plan,
            random,
            events: BinaryHeap::new(),
            held: Vec::new(),
            admitted: Vec::new(),
            slack: 0,
            totals: LeaseTotals::default(),
        };
        world.schedule();
        world
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        let number = self.held.len() as u64;
        self.held.push(Some(event));
        self.events.push(Reverse((time.max(self.now), number)));
    }

    /// Lets everything happen.
    pub(super) fn run(&mut self) {
        while let Some(Reverse((time, number))) = self.events.pop() {
            self.now = time;
            let Some(event) = self.held[number as usize].take() else {
                continue;
            };
            let paused = paused(&event).map_or(0, |node| self.nodes[node].paused_until);
            match paused > time {
                true => self.at(paused, event),
                false => self.happen(event),
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Request(node, hits) => self.request(node, hits),
            Event::Spend(node, life, hits, read) if self.lives[node] == life => {
                self.spend(node, hits, read);
            }
            Event::PutBack(node, life, taken) if self.lives[node] == life => {
                self.nodes[node].put_back(&self.plan, taken);
            }
            Event::Check(node) => self.check(node),
            Event::Crash(node) => self.crash(node),
            Event::Change(node) => self.nodes[node].version = self.plan.terms.len() - 1,
            Event::Exact(node, hits) => self.exact(node, hits),
            Event::Call(node, life, job) => self.settle(node, life, job),
            Event::Answer(node, life, job, settled) if self.lives[node] == life => match settled {
                Settled::Old => self.nodes[node].lost(job.report.number),
                Settled::Holds(holding) => {
                    self.nodes[node].answered(&self.plan, &job, &holding, self.now);
                }
            },
            Event::Lost(node, life, number) if self.lives[node] == life => {
                self.nodes[node].lost(number);
            }
            Event::Spend(..) | Event::PutBack(..) | Event::Answer(..) | Event::Lost(..) => {}
            Event::Step => self.step(),
            Event::FailOver => self.store.fail_over(),
            Event::Owe => self.owe(),
            Event::Post(id, hits) => {
                let (limit, at) = (*self.plan.terms[0].limit(), self.moment());
                self.store.post(&self.plan, &limit, (id, hits), &at);
                self.store.replicate();
            }
        }
    }

    /// A request comes; a slow one reads its clock now, and spends later.
    fn request(&mut self, node: usize, hits: u64) {
        let read = self.now;
        match self.random.happens(self.plan.slow) {
            true => {
                let late = self.now + self.random.between(0, 40_000);
                self.at(late, Event::Spend(node, self.lives[node], hits, read));
            }
            false => self.spend(node, hits, read),
        }
    }

    fn spend(&mut self, node: usize, hits: u64, read: u64) {
        let boot = self.nodes[node].boot(read);
        let Some(source) = self.nodes[node].spend(&self.plan, hits, boot) else {
            self.call(node, false);
            for _ in 0..self.copies() {
                let at = self.now + self.latency();
                self.at(at, Event::Exact(node, hits));
            }
            return;
        };
        if let Source::Lease(taken) = source
            && self.random.happens(self.plan.put_back)
        {
            let later = self.now + self.random.between(0, 150_000);
            self.at(later, Event::PutBack(node, self.lives[node], taken));
            return;
        }
        self.totals.from_leases += hits;
        self.admit(self.store_time(read), hits);
    }

    fn admit(&mut self, date: Timestamp, hits: u64) {
        self.totals.admitted += hits;
        self.admitted.push((date, hits));
    }

    /// Sends a call of the node, if it has something to say and none is on its way.
    fn call(&mut self, node: usize, is_close: bool) {
        let Some(job) = self.nodes[node].call(&self.plan, is_close, self.now) else {
            return;
        };
        let life = self.lives[node];
        for _ in 0..self.copies() {
            let at = self.now + self.latency();
            self.at(at, Event::Call(node, life, job));
        }
        let lost = self.now + PATIENCE;
        self.at(lost, Event::Lost(node, life, job.report.number));
        if is_close && self.random.happens(self.plan.evicted) {
            // Its place is needed, whatever the store answers.
            self.nodes[node].forget();
        }
    }

    fn settle(&mut self, node: usize, life: u64, job: LeaseJob) {
        let (terms, at) = (self.plan.terms[job.version], self.moment());
        let settled = self.store.settle(&self.plan, &terms, &job.report, &at);
        self.totals.calls += 1;
        if !self.replicate(&settled) {
            return;
        }
        for _ in 0..self.copies() {
            let at = self.now + self.latency();
            self.at(at, Event::Answer(node, life, job, settled));
        }
    }

    /// Lets the replica follow, or not; returns false if the answer is not to be used. What is counted exactly always
    /// reaches it: losing that is not a matter of leases.
    fn replicate(&mut self, settled: &Settled) -> bool {
        if self.plan.failovers == 0 {
            return true;
        }
        let is_replicated = self.random.happens(600);
        if is_replicated {
            self.store.replicate();
        }
        let holds = matches!(settled, Settled::Holds(holding) if holding.amount > 0);
        is_replicated || !holds || !self.plan.has(LeaseGuard::Replicated)
    }

    fn exact(&mut self, node: usize, hits: u64) {
        let limit = *self.plan.terms[self.nodes[node].version].limit();
        let at = self.moment();
        if self.store.exact(&self.plan, &limit, hits, &at) {
            self.admit(at.now, hits);
        }
        self.store.replicate();
    }

    fn check(&mut self, node: usize) {
        if let Some((deadline, credit)) = self.nodes[node].lease() {
            let ttl = self.plan.terms[0].ttl().get();
            let left = deadline
                .get()
                .saturating_sub(self.nodes[node].boot(self.now).get());
            let is_idle = credit == self.credits[node];
            if is_idle && self.random.happens(self.plan.closes) {
                self.call(node, true);
            } else if left < ttl / 4 || self.random.happens(300) {
                self.call(node, false);
            }
            self.credits[node] = credit;
        }
        if self.random.happens(self.plan.crashes) {
            self.at(self.now, Event::Crash(node));
        }
        if self.random.happens(self.plan.pauses) {
            self.nodes[node].paused_until = self.now + self.random.between(0, 300_000);
        }
        let next = self.now + self.random.between(2_000, 30_000);
        if next < self.start + self.plan.span + self.plan.span / 2 {
            self.at(next, Event::Check(node));
        }
    }

    fn crash(&mut self, node: usize) {
        let version = self.nodes[node].version;
        self.nodes[node] = Node::new(&mut self.random, self.now);
        self.nodes[node].version = version;
        self.nodes[node].paused_until = self.now + self.random.between(0, 200_000);
        self.lives[node] += 1;
    }

    /// Posts hits, several times. That they were admitted is the failure mode's doing.
    fn owe(&mut self) {
        let id = u128::from(self.random.bits()) << 64 | u128::from(self.random.bits());
        let hits = self.random.between(1, 20);
        for _ in 0..self.random.between(1, 4) {
            let at = self.now + self.latency();
            self.at(at, Event::Post(id, hits));
        }
    }

    /// Sets the store's clock. What leases hold then passes once more; after a step back, a window more.
    fn step(&mut self) {
        let limit = self.plan.largest();
        // Exact hits are dated by a clock that is read when they are answered: one of them may be dated otherwise.
        self.slack += self.store.held() + 3;
        self.store_offset += self.plan.step_forward as i64 - self.plan.step_back as i64;
        if self.plan.step_back > 0 {
            let (window, quota) = (limit.window().get(), limit.quota());
            let refilled = self.plan.step_back * quota / window + 1;
            self.slack += 2 * limit.capacity() + refilled;
        }
    }

    /// The store's clock at a time.
    fn store_time(&self, time: u64) -> Timestamp {
        let since = (time - self.start) as i64;
        let drift = since * self.plan.store_drift / 1_000_000;
        Timestamp::from_micros(time.saturating_add_signed(self.store_offset + drift))
    }

    fn moment(&self) -> Moment {
        Moment::at(self.store_time(self.now))
    }

    fn copies(&mut self) -> usize {
        match (
            self.random.happens(self.plan.lost),
            self.random.happens(self.plan.doubled),
        ) {
            (true, _) => 0,
            (false, false) => 1,
            (false, true) => 2,
        }
    }

    fn latency(&mut self) -> u64 {
        match self.random.between(0, 100) {
            0 => self.random.between(0, self.plan.span / 2),
            1..=10 => self.random.between(1_000, 100_000),
            _ => self.random.between(100, 3_000),
        }
    }
}

/// The node that cannot take part in an event while it is paused.
const fn paused(event: &Event) -> Option<usize> {
    match event {
        Event::Request(node, ..) | Event::Spend(node, ..) | Event::PutBack(node, ..) => Some(*node),
        Event::Check(node) | Event::Change(node) => Some(*node),
        Event::Answer(node, ..) | Event::Lost(node, ..) => Some(*node),
        Event::Crash(_) | Event::Exact(..) | Event::Call(..) => None,
        Event::Step | Event::FailOver | Event::Owe | Event::Post(..) => None,
    }
}
