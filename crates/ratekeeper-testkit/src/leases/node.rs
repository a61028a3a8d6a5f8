//! A node: what it holds, what it waits for, and its clock.

use std::collections::BTreeMap;

use ratekeeper_core::Micros;
use ratekeeper_core::lease::{Demand, Ended, Facts, Grant, Slots, Taken, deadline};

use super::plan::{LeaseGuard, LeasePlan};
use super::store::LeaseRequest;
use crate::random::Random;

pub(crate) const KEY: (u64, u64) = (1, 2);

/// A grant that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) request: LeaseRequest,
    pub(crate) id: u128,
    /// By the boot clock.
    pub(crate) first_send: Micros,
    pub(crate) version: usize,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) slots: Slots,
    demand: Demand,
    pub(crate) pending: Option<Pending>,
    /// Returns that were not acknowledged.
    pub(crate) returns: BTreeMap<u128, LeaseRequest>,
    /// The limit that it has.
    pub(crate) version: usize,
    /// The real time of its start, and its clock's drift in millionths.
    started: u64,
    drift: i64,
    pub(crate) paused_until: u64,
    /// Hits that were put back to a lease that is over, where nothing guards against it.
    pub(crate) loose: u64,
}

/// The outcome of an answer to a request for a grant.
pub(crate) enum Taking {
    Held,
    /// To be given back: the answer is late, or the limit has changed.
    Unwanted(Facts),
    Ignored,
}

impl Node {
    pub(crate) fn new(random: &mut Random, now: u64) -> Self {
        Self {
            slots: Slots::new(8),
            demand: Demand::of(random.pick(&[1, 5, 20, 200])),
            pending: None,
            returns: BTreeMap::new(),
            version: 0,
            started: now,
            drift: random.between(0, 1_001) as i64 - 500,
            paused_until: 0,
            loose: 0,
        }
    }

    pub(crate) fn boot(&self, now: u64) -> Micros {
        let since = now - self.started;
        let off = since as i64 * self.drift / 1_000_000;
        Micros::new(since.saturating_add_signed(off))
    }

    /// Asks for a grant, unless that is done already.
    pub(crate) fn ask(&mut self, random: &mut Random, now: u64) -> Option<LeaseRequest> {
        if self.pending.is_some() {
            return None;
        }
        let id = u128::from(random.bits()) << 64 | u128::from(random.bits());
        let (want, version) = (self.demand.want(), self.version);
        let request = LeaseRequest::Grant { id, want, version };
        self.pending = Some(Pending {
            request,
            id,
            first_send: self.boot(now),
            version,
        });
        Some(request)
    }

    /// Takes what was granted.
    pub(crate) fn take(&mut self, plan: &LeasePlan, id: u128, grant: &Grant, now: u64) -> Taking {
        let waited = self.pending.filter(|pending| pending.id == id);
        let Some(pending) = waited else {
            return Taking::Ignored;
        };
        if plan.has(LeaseGuard::OneAnswer) {
            self.pending = None;
        }
        if grant.hits == 0 {
            self.pending = None;
            return Taking::Ignored;
        }
        let from = match plan.has(LeaseGuard::SendTime) {
            true => pending.first_send,
            false => self.boot(now),
        };
        let usable = match plan.has(LeaseGuard::WindowEnd) {
            true => grant.usable,
            false => plan.terms[pending.version].ttl(),
        };
        let facts = Facts {
            from: match plan.has(LeaseGuard::NotBefore) {
                true => self.boot(now),
                false => Micros::ZERO,
            },
            key: KEY,
            limit: pending.version as u64,
            id,
            deadline: deadline(from, usable),
            granted_at: grant.at,
            granted: grant.hits,
            place: grant.place,
        };
        let is_late = self.boot(now) >= facts.deadline || self.version != pending.version;
        if is_late || !self.slots.open(&facts, grant.hits) {
            return Taking::Unwanted(facts);
        }
        Taking::Held
    }

    pub(crate) fn learn(&mut self, facts: &Facts, left: u64, held: Micros, usable: Micros) {
        let granted = facts.granted;
        self.demand = self.demand.after(Ended {
            granted,
            left,
            held,
            usable,
        });
    }

    pub(crate) fn give_back(&mut self, facts: &Facts, left: u64) -> Option<LeaseRequest> {
        let request = LeaseRequest::Return {
            id: facts.id,
            granted_at: facts.granted_at,
            place: facts.place,
            left,
            version: facts.limit as usize,
        };
        (left > 0).then(|| {
            self.returns.insert(facts.id, request);
            request
        })
    }

    /// Takes hits at the boot time that was read before; the id of the lease they are from.
    pub(crate) fn spend(
        &mut self,
        hits: u64,
        read: Micros,
    ) -> Option<(Option<u128>, Option<Taken>)> {
        if self.loose >= hits {
            self.loose -= hits;
            return Some((None, None));
        }
        let before: Vec<(Facts, u64)> = self.slots.of(KEY).collect();
        let taken = self
            .slots
            .spend(KEY, self.version as u64, hits, read)
            .ok()?;
        let after: Vec<(Facts, u64)> = self.slots.of(KEY).collect();
        let spent = before.iter().zip(&after).find(|(was, is)| was.1 != is.1);
        Some((spent.map(|((facts, _), _)| facts.id), Some(taken)))
    }
}
