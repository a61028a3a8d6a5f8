//! The requests of a run, and what happens to its nodes.

use super::store::LeaseStore;
use super::world::{Event, World};

impl<S: LeaseStore> World<S> {
    pub(super) fn schedule(&mut self) {
        let (from, to) = (self.start, self.start + self.plan.span);
        match self.random.between(0, 5) {
            _ if self.plan.reports_late => self.schedule_late_reports(),
            0 => self.schedule_edges(),
            1 => self.schedule_flood(),
            2 => self.schedule_late_reports(),
            _ => self.schedule_traffic(),
        }
        for node in 0..self.plan.nodes {
            let first = from + self.random.between(0, 10_000);
            self.at(first, Event::Check(node));
            if self.plan.terms.len() > 1 {
                let change = self.random.between(from, to);
                self.at(change, Event::Change(node));
            }
        }
        if self.plan.step_back + self.plan.step_forward > 0 {
            let step = self.random.between(from, to);
            self.at(step, Event::Step);
        }
        for _ in 0..self.plan.failovers {
            let failover = self.random.between(from, to);
            self.at(failover, Event::FailOver);
        }
        for _ in 0..self.plan.posts {
            let owed = self.random.between(from, to);
            self.at(owed, Event::Owe);
        }
    }

    fn node(&mut self) -> usize {
        self.random.between(0, self.plan.nodes as u64) as usize
    }

    /// Bursts and pauses; most of it at one node.
    fn schedule_traffic(&mut self) {
        let focus = self.node();
        let gap = 2 * self.plan.span / self.plan.requests;
        let mut at = self.start;
        for _ in 0..self.plan.requests {
            at += match self.random.happens(300) {
                true => self.random.between(0, 3 * gap + 1),
                false => self.random.between(0, gap / 8 + 1),
            };
            let node = match self.random.happens(700) {
                true => focus,
                false => self.node(),
            };
            let hits = self.random.pick(&[1, 1, 1, 2, 3]);
            if at < self.start + self.plan.span {
                self.at(at, Event::Request(node, hits));
            }
        }
    }

    /// All of it at once, at all nodes.
    fn schedule_flood(&mut self) {
        let gap = (self.plan.span / self.plan.requests).clamp(20, 500);
        for number in 0..self.plan.requests {
            let node = self.node();
            self.at(self.start + number * gap, Event::Request(node, 1));
        }
    }

    /// Leases that are spent shortly before their end, and reported; right after that, all that the limit lets pass.
    fn schedule_late_reports(&mut self) {
        let terms = self.plan.terms[0];
        let (window, ttl) = (terms.limit().window().get(), terms.ttl().get());
        for begin in [window / 2, 5 * window / 2] {
            let begin = self.start + begin;
            // Alone, so near the end that the next check reports, and few enough that none is counted exactly: that would move
            // the counter's own time to that of the report.
            let (part, spared) = match self.plan.reports_late {
                true => (10, 2),
                false => (3, 0),
            };
            let late = begin + ttl - self.random.between(0, ttl / part);
            for node in 0..self.plan.nodes {
                for number in 0..5 {
                    self.at(begin + 200 * number, Event::Request(node, 1));
                }
                for number in 0..terms.amount_max().saturating_sub(spared) {
                    self.at(late + number, Event::Request(node, 1));
                }
                self.at(late + 1_000, Event::Check(node));
            }
            for number in 0..terms.limit().capacity() + 10 {
                let node = self.node();
                self.at(late + 5_000 + number, Event::Request(node, 1));
            }
        }
    }

    /// Takes the most out of leases: they are asked for, spent just before their end with all that the limit lets pass
    /// then, and a window later all is asked for again.
    fn schedule_edges(&mut self) {
        let terms = self.plan.terms[0];
        let (window, ttl) = (terms.limit().window().get(), terms.ttl().get());
        let most = terms.limit().capacity() + 10;
        for begin in [window / 2, 5 * window / 2] {
            let begin = self.start + begin;
            for node in 0..self.plan.nodes {
                for number in 0..5 {
                    self.at(begin + 1_000 * number, Event::Request(node, 1));
                }
            }
            let early = self.random.between(0, ttl / 3);
            for burst in [begin + ttl - early, begin + window + early] {
                for number in 0..most {
                    let node = self.node();
                    self.at(burst + number * 4_000 / most, Event::Request(node, 1));
                }
            }
        }
    }
}
