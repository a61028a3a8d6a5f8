//! One run: nodes, a store, a network between them, and what is checked at every step.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use ratekeeper_core::lease::{Facts, Grant, Taken};
use ratekeeper_core::{Arithmetic, Ask, Limit, Micros, Moment, Spill, State, Timestamp};

use crate::node::{Node, Taking};
use crate::plan::{Guard, Plan};
use crate::random::Random;
use crate::store::{Answer, Request, Store};

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
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
    Ask(usize, Request),
    CarryOut(usize, Request),
    /// A node gets an answer.
    Tell(usize, Answer),
    StepBack,
}

/// A lease, as it really went.
#[derive(Debug)]
struct Lease {
    granted_at: Timestamp,
    /// Until when it may be spent, by the store's clock.
    until: Timestamp,
    granted: u64,
    spent: u64,
    /// Hits that were left when it was closed, once it was.
    left: Option<u64>,
}

pub(crate) struct World {
    plan: Plan,
    random: Random,
    now: u64,
    start: u64,
    store_offset: u64,
    store: Store,
    nodes: Vec<Node>,
    /// Of each node; what a crash ends is not told to the next.
    lives: Vec<u64>,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    held: Vec<Option<(Event, u64)>>,
    leases: BTreeMap<u128, Lease>,
    /// Admissions, by the store's clock.
    pub(crate) admitted: Vec<(Timestamp, u64)>,
    /// The same by real time.
    really: Vec<(u64, u64)>,
    pub(crate) by_lease: u64,
    pub(crate) returned: u64,
}

/// A promise that was broken.
pub(crate) type Broken = String;

impl World {
    pub(crate) fn new(plan: Plan, mut random: Random) -> Self {
        let start = 1_700_000_000_000_000 + random.within(0, 10_000_000);
        let nodes = (0..plan.nodes).map(|_| Node::new(&mut random, start));
        let mut world = Self {
            nodes: nodes.collect(),
            lives: vec![0; plan.nodes],
            store: Store::new(&plan),
            store_offset: random.within(0, 5_000_000),
            now: start,
            start,
            plan,
            random,
            events: BinaryHeap::new(),
            held: Vec::new(),
            leases: BTreeMap::new(),
            admitted: Vec::new(),
            really: Vec::new(),
            by_lease: 0,
            returned: 0,
        };
        world.schedule();
        world
    }

    fn schedule(&mut self) {
        let (from, to) = (self.start, self.start + self.plan.span);
        match self.random.happens(300) {
            true => self.schedule_bursts(),
            false => self.schedule_traffic(),
        }
        for node in 0..self.plan.nodes {
            let first = from + self.random.within(0, 10_000);
            self.at(first, Event::Sweep(node));
            if self.plan.limits.len() > 1 {
                let change = self.random.within(from, to);
                self.at(change, Event::Change(node));
            }
        }
        if self.plan.step_back > 0 {
            let step = self.random.within(from, to);
            self.at(step, Event::StepBack);
        }
    }

    /// Bursts and pauses; most of it at one node.
    fn schedule_traffic(&mut self) {
        let focus = self.random.within(0, self.plan.nodes as u64) as usize;
        let gap = 2 * self.plan.span / self.plan.requests;
        let mut at = self.start;
        for _ in 0..self.plan.requests {
            at += match self.random.happens(300) {
                true => self.random.within(0, 3 * gap + 1),
                false => self.random.within(0, gap / 8 + 1),
            };
            let node = match self.random.happens(700) {
                true => focus,
                false => self.random.within(0, self.plan.nodes as u64) as usize,
            };
            let hits = self.random.pick(&[1, 1, 1, 2, 3]);
            if at < self.start + self.plan.span {
                self.at(at, Event::Check(node, hits));
            }
        }
    }

    /// Takes the most out of leases: one is asked for, it is spent just before its end with all
    /// that the limit lets pass then, and a window later all is asked for again.
    fn schedule_bursts(&mut self) {
        let window = self.plan.limits[0].window().get();
        let ttl = self.plan.terms[0].ttl().get();
        let most = self.plan.limits[0].capacity() + 10;
        for begin in [window / 2, 5 * window / 2] {
            let begin = self.start + begin;
            for node in 0..self.plan.nodes {
                self.at(begin, Event::Refill(node));
            }
            let early = self.random.within(0, ttl / 3);
            for burst in [begin + ttl - early, begin + window + early] {
                for number in 0..most {
                    let node = self.random.within(0, self.plan.nodes as u64) as usize;
                    self.at(burst + number * 4_000 / most, Event::Check(node, 1));
                }
            }
        }
    }

    fn at(&mut self, time: u64, event: Event) {
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
            Event::Change(_) | Event::Ask(..) | Event::CarryOut(..) | Event::StepBack => None,
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
            Event::Check(node, hits) => {
                let read = self.now;
                if self.random.happens(self.plan.slow) {
                    let late = self.now + self.random.within(0, 40_000);
                    self.at(late, Event::Spend(node, hits, read));
                    return Ok(());
                }
                self.spend(node, hits, read)
            }
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
                self.nodes[node].paused_until = self.now + self.random.within(1_000, 400_000);
                Ok(())
            }
            Event::Change(node) => {
                self.nodes[node].version = 1;
                self.close(node, true)
            }
            Event::Ask(node, request) => {
                if matches!(request, Request::Grant { .. }) && !self.plan.has(Guard::AtomicGrant) {
                    let at = self.moment();
                    self.store.look(&self.plan, &request, &at);
                    let later = self.now + self.random.within(0, 5_000);
                    self.at(later, Event::CarryOut(node, request));
                    return Ok(());
                }
                self.carry_out(node, request)
            }
            Event::CarryOut(node, request) => self.carry_out(node, request),
            Event::Tell(node, answer) => self.tell(node, answer),
            Event::StepBack => {
                self.store_offset = self.store_offset.saturating_sub(self.plan.step_back);
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

    fn send(&mut self, node: usize, request: Request) {
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
        match self.random.within(0, 100) {
            0 => self.random.within(0, 2 * self.plan.span / 4),
            1..=10 => self.random.within(1_000, 100_000),
            _ => self.random.within(100, 3_000),
        }
    }

    fn spend(&mut self, node: usize, hits: u64, read: u64) -> Result<(), Broken> {
        let boot = self.nodes[node].boot(read);
        let Some((id, taken)) = self.nodes[node].spend(hits, boot) else {
            let version = self.nodes[node].version;
            if let Some(request) = self.nodes[node].ask(&mut self.random, self.now) {
                self.send(node, request);
            }
            self.send(node, Request::Exact { hits, version });
            return Ok(());
        };
        if let (Some(id), Some(taken)) = (id, taken)
            && self.random.happens(100)
        {
            let later = self.now + self.random.within(0, 150_000);
            let lease = self.leases.get_mut(&id).expect("it was granted");
            lease.spent += hits;
            self.at(later, Event::PutBack(node, hits, taken, id));
            return Ok(());
        }
        self.by_lease += hits;
        let date = self.store_time(read);
        self.admitted.push((date, hits));
        self.really.push((read, hits));
        match id.and_then(|id| self.leases.get_mut(&id)) {
            Some(lease) => {
                lease.spent += hits;
                // The end alone: a clock that goes back dates it before its grant.
                match date >= lease.until {
                    true => Err(format!("spent at {date:?}, after {:?}", lease.until)),
                    false => Ok(()),
                }
            }
            None => Ok(()),
        }
    }

    fn put_back(&mut self, node: usize, hits: u64, taken: Taken, id: u128) {
        match self.nodes[node].slots.put_back(taken) {
            Ok(()) => {
                let lease = self.leases.get_mut(&id).expect("it was granted");
                lease.spent -= hits;
            }
            // Burned.
            Err(_) if self.plan.has(Guard::Generation) => {}
            Err(hits) => self.nodes[node].loose += hits,
        }
    }

    fn sweep(&mut self, node: usize) -> Result<(), Broken> {
        let is_idle = self.random.happens(30);
        self.close(node, is_idle)?;
        let mut again: Vec<Request> = self.nodes[node].returns.values().copied().collect();
        again.extend(self.nodes[node].pending.map(|pending| pending.request));
        for request in again {
            if self.random.happens(300) {
                self.send(node, request);
            }
        }
        if self.random.happens(self.plan.crashes) {
            self.at(self.now, Event::Crash(node));
        }
        if self.random.happens(self.plan.pauses) {
            self.at(self.now, Event::Pause(node));
        }
        let next = self.now + self.random.within(5_000, 40_000);
        if next < self.start + self.plan.span + self.plan.span / 2 {
            self.at(next, Event::Sweep(node));
        }
        Ok(())
    }

    /// Closes leases that are over, or all of them.
    fn close(&mut self, node: usize, all: bool) -> Result<(), Broken> {
        let Self { nodes, now, .. } = self;
        let boot = nodes[node].boot(*now);
        let version = nodes[node].version as u64;
        let mut closed = Vec::new();
        let is_over = |facts: &Facts, left: u64| {
            all || left == 0 || boot >= facts.deadline || facts.limit != version
        };
        nodes[node].slots.close(is_over, |lease| closed.push(lease));
        for lease in closed {
            let (facts, left) = (lease.facts, lease.left);
            let known = self.leases.get_mut(&facts.id).expect("it was granted");
            if known.left.replace(left).is_some() && self.plan.has(Guard::OneAnswer) {
                return Err(format!("lease {:x} was closed twice", facts.id));
            }
            if known.spent + left != known.granted && self.plan.has(Guard::OneAnswer) {
                return Err(format!(
                    "{} of {} left the word",
                    known.spent + left,
                    known.granted
                ));
            }
            let usable = Micros::new(known.until.since(known.granted_at).get());
            self.nodes[node].learn(&facts, left, usable, usable);
            if let Some(request) = self.nodes[node].give_back(&facts, left) {
                self.send(node, request);
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, node: usize, request: Request) -> Result<(), Broken> {
        let at = self.moment();
        let before = self.store.recorded;
        let nodes = self.plan.nodes as u64;
        let answer = self.store.carry_out(&self.plan, &request, nodes, &at);
        self.returned += before.saturating_sub(self.store.recorded);
        match answer {
            Answer::Admitted(hits) => {
                self.admitted.push((at.now, hits));
                self.really.push((self.now, hits));
            }
            Answer::Granted(id, grant) => self.know(id, &grant),
            Answer::Returned(_) | Answer::Denied => {}
        }
        for _ in 0..self.copies() {
            let then = self.now + self.latency();
            self.at(then, Event::Tell(node, answer));
        }
        self.check_recorded(&at)
    }

    fn know(&mut self, id: u128, grant: &Grant) {
        self.leases.entry(id).or_insert_with(|| Lease {
            granted_at: grant.at,
            until: grant.at.after(grant.usable),
            granted: grant.hits,
            spent: 0,
            left: None,
        });
    }

    fn tell(&mut self, node: usize, answer: Answer) -> Result<(), Broken> {
        match answer {
            Answer::Granted(id, grant) => {
                match self.nodes[node].take(&self.plan, id, &grant, self.now) {
                    Taking::Unwanted(facts) => {
                        self.leases.get_mut(&id).expect("it was granted").left = Some(grant.hits);
                        if let Some(request) = self.nodes[node].give_back(&facts, grant.hits) {
                            self.send(node, request);
                        }
                    }
                    Taking::Held | Taking::Ignored => {}
                }
            }
            Answer::Returned(id) => {
                self.nodes[node].returns.remove(&id);
            }
            Answer::Admitted(_) | Answer::Denied => {}
        }
        Ok(())
    }

    /// In the window that is, no less is recorded than was admitted.
    fn check_recorded(&self, at: &Moment) -> Result<(), Broken> {
        if self.plan.step_back > 0 {
            return Ok(());
        }
        let [limit] = self.plan.limits[..] else {
            return Ok(());
        };
        let Arithmetic::FixedWindow = limit.arithmetic() else {
            return Ok(());
        };
        let State::Words([recorded, start, ..]) = self.store.state else {
            return Ok(());
        };
        let in_window = |date: Timestamp| {
            date.as_micros() >= start && date.as_micros() < start + limit.window().get()
        };
        let admitted = self.admitted.iter().filter(|(date, _)| in_window(*date));
        let admitted: u64 = admitted.map(|(_, hits)| hits).sum();
        if admitted > recorded {
            return Err(format!(
                "{admitted} admitted, {recorded} recorded at {:?}",
                at.now
            ));
        }
        Ok(())
    }

    /// Every hit of the store is accounted for: admitted, granted or given back.
    fn check_ledger(&self) -> Result<(), Broken> {
        let granted: u64 = self.leases.values().map(|lease| lease.granted).sum();
        let admitted: u64 = self.admitted.iter().map(|(_, hits)| hits).sum();
        let charged = self.store.recorded + self.returned;
        let known = granted + admitted - self.by_lease;
        if charged != known {
            return Err(format!("{charged} charged, {known} granted and admitted"));
        }
        Ok(())
    }

    /// Holds what was admitted to the limits.
    pub(crate) fn check(&mut self) -> Result<(), Broken> {
        self.check_ledger()?;
        if self.plan.step_back > 0 {
            return self.check_after_a_step();
        }
        self.admitted.sort_unstable();
        let largest = |limit: &&Limit| (limit.quota(), limit.capacity());
        let limit = self
            .plan
            .limits
            .iter()
            .max_by_key(largest)
            .expect("there is a limit");
        match limit.arithmetic() {
            Arithmetic::EqualCount(_) => self.check_windows(limit),
            _ => self.check_steps(limit),
        }
    }

    /// No window has more than an equal-count log lets pass; each change of the limit may leave hits of
    /// two groups out.
    fn check_windows(&self, limit: &Limit) -> Result<(), Broken> {
        let mut most = limit.most_in_any_window().unwrap_or(0);
        if self.plan.limits.len() > 1 {
            let groups = self
                .plan
                .limits
                .iter()
                .map(|limit| limit.most_in_any_window().unwrap_or(0) - limit.quota() + 1);
            most += groups.sum::<u64>();
        }
        let (mut oldest, mut sum) = (0, 0);
        for (date, hits) in &self.admitted {
            sum += hits;
            while self.admitted[oldest].0.after(limit.window()) <= *date {
                sum -= self.admitted[oldest].1;
                oldest += 1;
            }
            if sum > most {
                return Err(format!("{sum} of {most} in the window before {date:?}"));
            }
        }
        Ok(())
    }

    /// A clock that goes back once lets no more pass in a span as long as the window than twice what it
    /// does otherwise, and the hits that the step finds already admitted by the time it goes back to.
    fn check_after_a_step(&self) -> Result<(), Broken> {
        let limit = &self.plan.limits[0];
        let most = 2 * limit.most_in_any_window().unwrap_or(0);
        let mut dated = self.really.clone();
        dated.sort_unstable();
        let (mut oldest, mut sum) = (0, 0);
        for (time, hits) in &dated {
            sum += hits;
            while dated[oldest].0 + limit.window().get() <= *time {
                sum -= dated[oldest].1;
                oldest += 1;
            }
            if sum > most {
                return Err(format!("{sum} of {most} in the window before {time}"));
            }
        }
        Ok(())
    }

    /// Each hit that was admitted fits a counter that has seen all that were admitted before.
    fn check_steps(&self, limit: &Limit) -> Result<(), Broken> {
        let mut state = State::new(limit.shape());
        for (date, hits) in &self.admitted {
            let at = Moment::at(*date);
            let answer = limit.test(state.as_ref(), Ask::hits(*hits as i64), &at);
            if !answer.fits() {
                return Err(format!("{hits} at {date:?} do not fit: {answer:?}"));
            }
            if limit.charge(state.as_mut(), *hits as i64, &at) == Err(Spill) {
                if let State::Words(words) = &state {
                    state = State::Heap(limit.spill(words));
                }
                limit
                    .charge(state.as_mut(), *hits as i64, &at)
                    .expect("a heap never spills");
            }
        }
        Ok(())
    }
}
