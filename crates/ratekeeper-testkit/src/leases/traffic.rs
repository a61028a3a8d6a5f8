//! The requests of a run, and what happens to its nodes.

use super::store::LeaseStore;
use super::world::{Event, World};

impl<S: LeaseStore> World<S> {
    pub(super) fn schedule(&mut self) {
        let (from, to) = (self.start, self.start + self.plan.span);
        match self.random.happens(300) {
            true => self.schedule_bursts(),
            false => self.schedule_traffic(),
        }
        for node in 0..self.plan.nodes {
            let first = from + self.random.between(0, 10_000);
            self.at(first, Event::Sweep(node));
            if self.plan.limits.len() > 1 {
                let change = self.random.between(from, to);
                self.at(change, Event::Change(node));
            }
        }
        if self.plan.step_back > 0 {
            let step = self.random.between(from, to);
            self.at(step, Event::StepBack);
        }
        if self.plan.step_forward > 0 {
            let step = self.random.between(from, to);
            self.at(step, Event::StepForward);
        }
        for _ in 0..self.plan.failovers {
            let failover = self.random.between(from, to);
            self.at(failover, Event::FailOver);
        }
        for _ in 0..self.plan.posts {
            let node = self.random.between(0, self.plan.nodes as u64) as usize;
            let owed = self.random.between(from, to);
            self.at(owed, Event::Owe(node));
        }
    }

    /// Bursts and pauses; most of it at one node.
    fn schedule_traffic(&mut self) {
        let focus = self.random.between(0, self.plan.nodes as u64) as usize;
        let gap = 2 * self.plan.span / self.plan.requests;
        let mut at = self.start;
        for _ in 0..self.plan.requests {
            at += match self.random.happens(300) {
                true => self.random.between(0, 3 * gap + 1),
                false => self.random.between(0, gap / 8 + 1),
            };
            let node = match self.random.happens(700) {
                true => focus,
                false => self.random.between(0, self.plan.nodes as u64) as usize,
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
            let early = self.random.between(0, ttl / 3);
            for burst in [begin + ttl - early, begin + window + early] {
                for number in 0..most {
                    let node = self.random.between(0, self.plan.nodes as u64) as usize;
                    self.at(burst + number * 4_000 / most, Event::Check(node, 1));
                }
            }
        }
    }
}
