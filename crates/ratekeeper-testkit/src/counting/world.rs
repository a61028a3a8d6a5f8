//! A world, played in steps of true time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::CountingTotals;
use super::judge::Judge;
use super::node::{RegionSide, Told, Total};
use super::plan::{CountingPlan, JITTER, START};
use crate::random::Random;

/// The step of time, in milliseconds.
pub(super) const STEP: u64 = 10;

/// The time between two looks.
pub(super) const LOOK: u64 = 100;

/// The time for which a message is gathered.
pub(super) const GATHERED: u64 = 10;

/// The time after which an idle link says something.
pub(super) const PING: u64 = 2_000;

/// The time by which a message that comes twice is late.
const LATE_MAX: u64 = 3_000;

/// The part of a window in which a burst comes.
const BURST: u64 = 50;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Said {
    Ping,
    Pong,
    Post(Total),
    /// A total that was told, that of the other region, and true if it was kept.
    Answer(Total, Total, bool),
}

/// A message, by when it comes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Message {
    at: u64,
    from: (usize, usize),
    to: (usize, usize),
    said: Said,
}

pub(super) struct World {
    plan: CountingPlan,
    random: Random,
    regions: Vec<RegionSide>,
    under_way: BinaryHeap<Reverse<Message>>,
    /// The times at which each link last said something, and at which that comes, by region, node and region.
    links: Vec<Vec<Vec<(u64, u64)>>>,
    judge: Judge,
    posts: u64,
}

impl World {
    pub(super) fn new(plan: CountingPlan, random: Random) -> Self {
        let count = plan.regions();
        Self {
            regions: (0..count).map(|at| RegionSide::new(at, &plan)).collect(),
            under_way: BinaryHeap::new(),
            links: vec![vec![vec![(0, 0); count]; plan.nodes]; count],
            judge: Judge::new(count),
            posts: 0,
            plan,
            random,
        }
    }

    pub(super) fn run(mut self) -> Result<CountingTotals, String> {
        let mut time = 0;
        while time < self.plan.end {
            while let Some(Reverse(message)) = self.under_way.peek().copied()
                && message.at <= time
            {
                self.under_way.pop();
                self.deliver(&message);
            }
            for (at, region) in self.regions.iter_mut().enumerate() {
                if self.plan.restarts(at, time, STEP) {
                    region.restart(&self.plan, time);
                }
            }
            if time % LOOK == 0 {
                self.look(time);
            }
            self.request(time);
            time += STEP;
        }
        let totals = self.judge.judged(&self.plan)?;
        Ok(CountingTotals {
            posts: self.posts,
            ..totals
        })
    }

    /// Callers ask in each region.
    fn request(&mut self, time: u64) {
        for at in 0..self.plan.regions() {
            let in_window = (START + time + self.plan.ahead[at]) % self.plan.window;
            let is_begun = in_window * BURST < self.plan.window;
            let rate = match (self.plan.bursts[at], is_begun) {
                _ if time >= self.plan.quiet[at] || !self.plan.is_there(at, time) => 0,
                (false, _) => self.plan.rates[at],
                (true, false) => 0,
                (true, true) => self.plan.rates[at] * BURST,
            };
            let mut due = rate * STEP / 1_000;
            loop {
                let is_one = self.random.happens(due.min(1_000));
                if is_one {
                    let node = self.random.below(self.plan.nodes as u64);
                    let node = usize::try_from(node).unwrap_or(0);
                    self.judge.asked(at, time);
                    match self.regions[at].take(&self.plan, node, time) {
                        Told::Yes(window) => self.judge.admitted(at, window, time),
                        Told::No(window, more) => self.judge.denied(&self.plan, at, window, more),
                    }
                }
                if due <= 1_000 {
                    break;
                }
                due -= 1_000;
            }
        }
    }

    /// Nodes post what is due, and say something on idle links.
    fn look(&mut self, time: u64) {
        for at in 0..self.plan.regions() {
            for node in 0..self.plan.nodes {
                let others = (0..self.plan.regions()).filter(|to| *to != at);
                let linked = others.filter(|to| self.plan.has_link(at, *to, time));
                let linked: Vec<usize> = linked.collect();
                let is_due = self.regions[at].nodes[node].due(&self.plan, &linked, time);
                if is_due {
                    let own = self.regions[at].own(&self.plan, time);
                    let of = &mut self.regions[at].nodes[node];
                    let to = of.looked(&self.plan, (own, &linked), time);
                    for to in to {
                        self.posts += 1;
                        self.say((at, node), to, Said::Post(own), time);
                    }
                }
                for to in linked {
                    if self.links[at][node][to].0 + PING <= time {
                        self.say((at, node), to, Said::Ping, time);
                    }
                }
            }
        }
    }

    /// Says something on a link, which leads to the first node of the other region.
    fn say(&mut self, from: (usize, usize), to: usize, said: Said, time: u64) {
        let way = GATHERED + self.way(from.0, to);
        let link = &mut self.links[from.0][from.1][to];
        // What is said on a link comes in its order.
        let at = link.1.max(time + way);
        *link = (time, at);
        self.send(from, (to, 0), said, (time, at));
    }

    fn way(&mut self, from: usize, to: usize) -> u64 {
        self.plan.ways[from][to] + self.random.below(JITTER)
    }

    fn send(&mut self, from: (usize, usize), to: (usize, usize), said: Said, at: (u64, u64)) {
        if self.plan.is_cut(from.0, to.0, at.0) {
            return;
        }
        let message = Message {
            at: at.1,
            from,
            to,
            said,
        };
        self.under_way.push(Reverse(message));
        if self.random.happens(self.plan.repeats) {
            let late = self.random.below(LATE_MAX);
            self.under_way.push(Reverse(Message {
                at: at.1 + late,
                ..message
            }));
        }
    }

    fn deliver(&mut self, message: &Message) {
        let (at, from, to) = (message.at, message.from, message.to);
        if self.plan.is_cut(from.0, to.0, at) {
            return;
        }
        self.regions[to.0].nodes[to.1].hear(from.0, at);
        let answer = match message.said {
            Said::Ping => Said::Pong,
            Said::Post(total) => {
                let (own, is_kept) = self.regions[to.0].keep(&self.plan, from.0, total, at);
                Said::Answer(total, own, is_kept)
            }
            Said::Answer(told, own, is_kept) => {
                if is_kept {
                    self.regions[to.0].nodes[to.1].known(from.0, told);
                }
                if own.1 > 0 {
                    self.regions[to.0].keep(&self.plan, from.0, own, at);
                }
                return;
            }
            Said::Pong => return,
        };
        let way = self.way(to.0, from.0);
        self.send(to, from, answer, (at, at + way));
    }
}
