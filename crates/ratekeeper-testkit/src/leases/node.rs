//! A node: its lease on the counter, its call on the way, and its clock.

use ratekeeper_core::Micros;
use ratekeeper_core::lease::{
    Demand, Facts, Holding, LeaseAnswer, LeaseReport, Session, Slots, Taken, Terms,
};

use super::plan::{LeaseGuard, LeasePlan};
use crate::random::Random;

pub(super) const KEY: (u64, u64) = (1, 2);

/// A call of a node, and the limit that it has then.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseJob {
    pub(super) report: LeaseReport,
    pub(super) version: usize,
}

#[derive(Debug)]
pub(super) struct Node {
    /// A random name of this process.
    name: u64,
    calls: u64,
    slots: Slots,
    slot: Option<usize>,
    session: Session,
    demand: Demand,
    recorded: u64,
    /// The credit when the last call was made.
    snapshot: u64,
    /// The limit that it has.
    pub(super) version: usize,
    /// The real time of its start, and its clock's drift in millionths.
    started: u64,
    drift: i64,
    pub(super) paused_until: u64,
    /// Hits that were put back after a call, where nothing guards against it.
    loose: u64,
}

/// The place that hits came from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Lease(Taken),
    Loose,
}

impl Node {
    pub(super) fn new(random: &mut Random, now: u64) -> Self {
        Self {
            name: random.bits(),
            calls: 0,
            slots: Slots::new(4),
            slot: None,
            session: Session::default(),
            demand: Demand::default(),
            recorded: 0,
            snapshot: 0,
            version: 0,
            started: now,
            drift: random.between(0, 1_001) as i64 - 500,
            paused_until: 0,
            loose: 0,
        }
    }

    pub(super) fn boot(&self, now: u64) -> Micros {
        let since = now - self.started;
        let off = since as i64 * self.drift / 1_000_000;
        Micros::new(since.saturating_add_signed(off))
    }

    /// Takes hits at the boot time that was read before.
    pub(super) fn spend(&mut self, plan: &LeasePlan, hits: u64, read: Micros) -> Option<Source> {
        if self.loose >= hits {
            self.loose -= hits;
            return Some(Source::Loose);
        }
        let limit = self.version as u64;
        let taken = self.slots.spend(KEY, limit, hits, read).ok();
        if taken.is_none() {
            self.demand.record(hits, read, plan.terms[0].ttl());
        }
        taken.map(Source::Lease)
    }

    pub(super) fn put_back(&mut self, plan: &LeasePlan, taken: Taken) {
        if let Err(hits) = self.slots.put_back(taken)
            && !plan.has(LeaseGuard::Generation)
        {
            self.loose += hits;
        }
    }

    /// Makes a call, unless one is on its way. Without credit, and after a change of the limit, it is final.
    pub(super) fn call(&mut self, plan: &LeasePlan, is_close: bool, now: u64) -> Option<LeaseJob> {
        if self.session.is_asking() {
            return None;
        }
        let (terms, now) = (&plan.terms[self.version], self.boot(now));
        let lease = self.slot.and_then(|slot| self.slots.slot(slot).look());
        let is_empty = |(facts, left): (Facts, u64)| {
            left == 0 || now >= facts.deadline || facts.limit != self.version as u64
        };
        let is_final = is_close || lease.is_none_or(is_empty);
        let target = match is_close {
            true => 0,
            false => self.target(plan, terms, now),
        };
        if target == 0 && lease.is_none() {
            return None;
        }
        self.calls += 1;
        let slot = self.slot.map(|slot| self.slots.slot(slot));
        let credit = slot.and_then(|slot| slot.begin_call(is_final)).unwrap_or(0);
        self.snapshot = if is_final { 0 } else { credit };
        let number = (self.name, self.calls);
        let report = self.session.call(number, (credit, is_final), target, now);
        let spent = report.spent.saturating_sub(self.recorded);
        self.demand.record(spent, now, terms.ttl());
        self.recorded = report.spent;
        Some(LeaseJob {
            report,
            version: self.version,
        })
    }

    fn target(&self, plan: &LeasePlan, terms: &Terms, now: Micros) -> u64 {
        let target = self.demand.target(now, terms.ttl());
        match plan.is_greedy && target > 0 {
            true => terms.amount_max(),
            false => target,
        }
    }

    /// Takes in the answer to a call.
    pub(super) fn answered(
        &mut self,
        plan: &LeasePlan,
        job: &LeaseJob,
        holding: &Holding,
        now: u64,
    ) {
        let (number, now) = (job.report.number, self.boot(now));
        if !self.session.awaits(number) {
            return;
        }
        match self.session.answered(number, holding, now) {
            LeaseAnswer::Nothing => self.session.lost(),
            LeaseAnswer::Ended => self.forget(),
            LeaseAnswer::Refilled(until) => {
                let until = match plan.has(LeaseGuard::Margin) {
                    true => until,
                    false => Micros::new(now.get() + holding.usable.get()),
                };
                self.refill(plan, job.version as u64, (holding, until), now);
            }
        }
    }

    fn refill(
        &mut self,
        plan: &LeasePlan,
        limit: u64,
        (holding, until): (&Holding, Micros),
        now: Micros,
    ) {
        let facts = Facts {
            key: KEY,
            limit,
            from: match plan.has(LeaseGuard::NotBefore) {
                true => now,
                false => Micros::ZERO,
            },
            deadline: until,
        };
        let (session, snapshot) = (&mut self.session, self.snapshot);
        let mut refill = |credit| match plan.has(LeaseGuard::Snapshot) {
            true => session.refill(holding, until, credit),
            false => session.refill(holding, until, snapshot),
        };
        match self.slot {
            Some(slot) => {
                self.slots.slot(slot).refill(&facts, refill);
            }
            None => self.slot = self.slots.open(&facts, refill(0)),
        }
    }

    /// Records that a call has no answer.
    pub(super) fn lost(&mut self, number: u64) {
        if self.session.awaits(number) {
            self.session.lost();
        }
    }

    /// Drops all that is known of the counter: the store has no lease of it any more, or the table needs the room.
    pub(super) fn forget(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.slots.slot(slot).close();
        }
        self.recorded = 0;
        self.session.ended();
    }

    /// The deadline of its lease and the credit, if it has one.
    pub(super) fn lease(&self) -> Option<(Micros, u64)> {
        let lease = self.slot.and_then(|slot| self.slots.slot(slot).look());
        lease.map(|(facts, left)| (facts.deadline, left))
    }
}
