//! One run: nodes, a store, a network between them, and what is checked at every step.

mod acts;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use ratekeeper_core::lease::Taken;
use ratekeeper_core::{Moment, Timestamp};

use super::LeaseTotals;
use super::node::Node;
use super::plan::LeasePlan;
use super::store::{LeaseAnswer, LeaseRequest, LeaseStore};
use crate::random::Random;

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A request comes to a node.
    Check(usize, u64),
    /// It goes on, after it had read its clock at that time.
    Spend(usize, u64, u64),
    /// Hits that were taken are put back, since another limit of the request denied it.
    PutBack(usize, u64, Taken, u128),
    /// A node asks for a lease in advance.
    Refill(usize),
    /// Leases that are over are closed, and what was not answered is sent again.
    Sweep(usize),
    Crash(usize),
    Pause(usize),
    Change(usize),
    /// The store gets a message, and the second half of one that is not atomic.
    Ask(usize, LeaseRequest),
    CarryOut(usize, LeaseRequest),
    /// A node gets an answer.
    Tell(usize, LeaseAnswer),
    StepBack,
    StepForward,
    /// The replica takes over.
    FailOver,
    /// A node has admitted hits without the store, and posts them.
    Owe(usize),
}

/// A lease, as it really went.
#[derive(Debug)]
pub(super) struct Lease {
    granted_at: Timestamp,
    /// Until when it may be spent, by the store's clock.
    until: Timestamp,
    pub(super) granted: u64,
    pub(super) spent: u64,
    /// Hits that were left when it was closed, once it was.
    pub(super) left: Option<u64>,
    /// True if the store's clock has gone forward since it was granted: by that clock it is spent too late.
    pub(super) is_outrun: bool,
    /// Hits that were taken, and will be put back.
    pub(super) taken: u64,
}

pub(crate) struct World<S> {
    pub(super) plan: LeasePlan,
    pub(super) random: Random,
    pub(super) now: u64,
    pub(super) start: u64,
    pub(super) store_offset: u64,
    pub(super) store: S,
    nodes: Vec<Node>,
    /// Of each node; what a crash ends is not told to the next.
    lives: Vec<u64>,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    held: Vec<Option<(Event, u64)>>,
    pub(super) leases: BTreeMap<u128, Lease>,
    /// The hits that each post charged.
    pub(super) posts: BTreeMap<u128, u64>,
    /// Admissions, by the store's clock.
    pub(super) admitted: Vec<(Timestamp, u64)>,
    /// The same by real time.
    pub(super) really: Vec<(u64, u64)>,
    pub(super) by_lease: u64,
    pub(super) returned: u64,
    /// Hits that leases held when the store's clock went forward, and those of them that were spent afterwards.
    pub(super) outrun: u64,
    pub(super) outrun_spent: u64,
}

/// A promise that was broken.
pub(super) type Broken = String;

impl<S: LeaseStore> World<S> {
    pub(crate) fn new(plan: LeasePlan, mut random: Random, store: S) -> Self {
        let start = 1_700_000_000_000_000 + random.between(0, 10_000_000);
        let nodes = (0..plan.nodes).map(|_| Node::new(&mut random, start));
        let mut world = Self {
            nodes: nodes.collect(),
            lives: vec![0; plan.nodes],
            store,
            store_offset: random.between(0, 5_000_000),
            now: start,
            start,
            plan,
            random,
            events: BinaryHeap::new(),
            held: Vec::new(),
            leases: BTreeMap::new(),
            posts: BTreeMap::new(),
            admitted: Vec::new(),
            really: Vec::new(),
            by_lease: 0,
            returned: 0,
            outrun: 0,
            outrun_spent: 0,
        };
        world.schedule();
        world
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        let number = self.held.len();
        let life = self.node_of(&event).map_or(0, |node| self.lives[node]);
        self.held.push(Some((event, life)));
        self.events
            .push(Reverse((time.max(self.now), number as u64, number)));
    }

    fn node_of(&self, event: &Event) -> Option<usize> {
        match event {
            Event::Spend(node, ..) | Event::PutBack(node, ..) | Event::Tell(node, _) => Some(*node),
            Event::Check(..)
            | Event::Refill(_)
            | Event::Sweep(_)
            | Event::Crash(_)
            | Event::Pause(_) => None,
            Event::Change(_) | Event::Ask(..) | Event::CarryOut(..) => None,
            Event::StepBack | Event::StepForward | Event::FailOver | Event::Owe(_) => None,
        }
    }

    pub(crate) fn totals(&self) -> LeaseTotals {
        LeaseTotals {
            admitted: self.admitted.iter().map(|(_, hits)| hits).sum(),
            from_leases: self.by_lease,
            returned: self.returned,
        }
    }

    /// Lets everything happen, and then all be answered.
    pub(crate) fn run(&mut self) -> Result<(), Broken> {
        let end = self.start + 2 * self.plan.span;
        while let Some(Reverse((time, _, number))) = self.events.pop() {
            if time > end {
                break;
            }
            self.now = time;
            let Some((event, life)) = self.held[number].take() else {
                continue;
            };
            if self
                .node_of(&event)
                .is_some_and(|node| self.lives[node] != life)
            {
                continue;
            }
            self.happen(event)?;
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), Broken> {
        let paused = |node: usize| self.nodes[node].paused_until;
        let wait = match &event {
            Event::Check(node, _) | Event::Spend(node, ..) | Event::Sweep(node) => paused(*node),
            Event::PutBack(node, ..) | Event::Change(node) | Event::Tell(node, _) => paused(*node),
            _ => 0,
        };
        if wait > self.now {
            self.at(wait, event);
            return Ok(());
        }
        match event {
            Event::Check(node, hits) => self.arrive(node, hits),
            Event::Spend(node, hits, read) => self.spend(node, hits, read),
            Event::Refill(node) => {
                if let Some(request) = self.nodes[node].ask(&mut self.random, self.now) {
                    self.send(node, request);
                }
                Ok(())
            }
            Event::PutBack(node, hits, taken, id) => {
                self.put_back(node, hits, taken, id);
                Ok(())
            }
            Event::Sweep(node) => self.sweep(node),
            Event::Crash(node) => {
                self.lives[node] += 1;
                self.nodes[node] = Node::new(&mut self.random, self.now);
                Ok(())
            }
            Event::Pause(node) => {
                self.nodes[node].paused_until = self.now + self.random.between(1_000, 400_000);
                Ok(())
            }
            Event::Change(node) => {
                self.nodes[node].version = 1;
                self.close(node, true)
            }
            Event::Ask(node, request) => self.ask(node, request),
            Event::CarryOut(node, request) => self.carry_out(node, request),
            Event::Tell(node, answer) => self.tell(node, answer),
            Event::StepBack => {
                self.store_offset = self.store_offset.saturating_sub(self.plan.step_back);
                Ok(())
            }
            Event::StepForward => {
                self.step_forward();
                Ok(())
            }
            Event::FailOver => {
                self.store.fail_over();
                Ok(())
            }
            Event::Owe(node) => {
                self.owe(node);
                Ok(())
            }
        }
    }

    /// The store's clock at a time.
    fn store_time(&self, time: u64) -> Timestamp {
        let since = (time - self.start) as i64;
        let drift = since * self.plan.store_drift / 1_000_000;
        Timestamp::from_micros((time + self.store_offset).saturating_add_signed(drift))
    }

    fn moment(&self) -> Moment {
        Moment::at(self.store_time(self.now))
    }

    fn send(&mut self, node: usize, request: LeaseRequest) {
        for _ in 0..self.copies() {
            let at = self.now + self.latency();
            self.at(at, Event::Ask(node, request));
        }
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
            0 => self.random.between(0, 2 * self.plan.span / 4),
            1..=10 => self.random.between(1_000, 100_000),
            _ => self.random.between(100, 3_000),
        }
    }
}
