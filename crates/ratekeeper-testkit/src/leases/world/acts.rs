//! The acts of nodes and of the store.

use ratekeeper_core::Micros;
use ratekeeper_core::lease::{Facts, Grant, Taken};

use super::{Broken, Event, Lease, World};
use crate::leases::node::Taking;
use crate::leases::plan::LeaseGuard;
use crate::leases::store::{LeaseAnswer, LeaseRequest, LeaseStore};

impl<S: LeaseStore> World<S> {
    /// A request comes; a slow one reads its clock now, and spends later.
    pub(super) fn arrive(&mut self, node: usize, hits: u64) -> Result<(), Broken> {
        let read = self.now;
        if self.random.happens(self.plan.slow) {
            let late = self.now + self.random.between(0, 40_000);
            self.at(late, Event::Spend(node, hits, read));
            return Ok(());
        }
        self.spend(node, hits, read)
    }

    /// The store gets a message: of a grant that is not atomic it only looks at the counter yet.
    pub(super) fn ask(&mut self, node: usize, request: LeaseRequest) -> Result<(), Broken> {
        let is_grant = matches!(request, LeaseRequest::Grant { .. });
        if is_grant && !self.plan.has(LeaseGuard::AtomicGrant) {
            let at = self.moment();
            self.store.look(&self.plan, &request, &at);
            let later = self.now + self.random.between(0, 5_000);
            self.at(later, Event::CarryOut(node, request));
            return Ok(());
        }
        self.carry_out(node, request)
    }

    /// Posts hits, several times.
    pub(super) fn owe(&mut self, node: usize) {
        let id = u128::from(self.random.bits()) << 64 | u128::from(self.random.bits());
        let hits = self.random.between(1, 20);
        for _ in 0..self.random.between(1, 4) {
            self.send(node, LeaseRequest::Post { id, hits });
        }
    }

    pub(super) fn spend(&mut self, node: usize, hits: u64, read: u64) -> Result<(), Broken> {
        let boot = self.nodes[node].boot(read);
        let Some((id, taken)) = self.nodes[node].spend(hits, boot) else {
            let version = self.nodes[node].version;
            if let Some(request) = self.nodes[node].ask(&mut self.random, self.now) {
                self.send(node, request);
            }
            self.send(node, LeaseRequest::Exact { hits, version });
            return Ok(());
        };
        if let (Some(id), Some(taken)) = (id, taken)
            && self.random.happens(100)
        {
            let later = self.now + self.random.between(0, 150_000);
            let lease = self.leases.get_mut(&id).expect("it was granted");
            lease.spent += hits;
            lease.taken += hits;
            self.at(later, Event::PutBack(node, hits, taken, id));
            return Ok(());
        }
        if self.spend_outrun(id, hits) {
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

    pub(super) fn put_back(&mut self, node: usize, hits: u64, taken: Taken, id: u128) {
        let lease = self.leases.get_mut(&id).expect("it was granted");
        lease.taken -= hits;
        match self.nodes[node].slots.put_back(taken) {
            Ok(()) => lease.spent -= hits,
            // Burned.
            Err(_) if self.plan.has(LeaseGuard::Generation) => {}
            Err(hits) => self.nodes[node].loose += hits,
        }
    }

    pub(super) fn sweep(&mut self, node: usize) -> Result<(), Broken> {
        let is_idle = self.random.happens(30);
        self.close(node, is_idle)?;
        let mut again: Vec<LeaseRequest> = self.nodes[node].returns.values().copied().collect();
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
        let next = self.now + self.random.between(5_000, 40_000);
        if next < self.start + self.plan.span + self.plan.span / 2 {
            self.at(next, Event::Sweep(node));
        }
        Ok(())
    }

    /// Closes leases that are over, or all of them.
    pub(super) fn close(&mut self, node: usize, all: bool) -> Result<(), Broken> {
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
            if known.left.replace(left).is_some() && self.plan.has(LeaseGuard::OneAnswer) {
                return Err(format!("lease {:x} was closed twice", facts.id));
            }
            // Without these two a lease can be taken twice, or be another one than was charged.
            let is_one =
                self.plan.has(LeaseGuard::OneAnswer) && self.plan.has(LeaseGuard::Replicated);
            if known.spent + left != known.granted && is_one {
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

    pub(super) fn carry_out(&mut self, node: usize, request: LeaseRequest) -> Result<(), Broken> {
        let at = self.moment();
        let before = self.store.recorded();
        let nodes = self.plan.nodes as u64;
        let answer = self.store.carry_out(&self.plan, &request, nodes, &at);
        self.returned += before.saturating_sub(self.store.recorded());
        match answer {
            LeaseAnswer::Admitted(hits) => {
                self.admitted.push((at.now, hits));
                self.really.push((self.now, hits));
            }
            LeaseAnswer::Posted(id, charged) => {
                self.posts.entry(id).or_insert(charged);
            }
            LeaseAnswer::Granted(..) | LeaseAnswer::Returned(_) | LeaseAnswer::Denied => {}
        }
        if !self.replicate(&answer) {
            // The grant is burned.
            return self.check_recorded(&at);
        }
        if let LeaseAnswer::Granted(id, grant) = answer {
            self.know(id, &grant);
        }
        for _ in 0..self.copies() {
            let then = self.now + self.latency();
            self.at(then, Event::Tell(node, answer));
        }
        self.check_recorded(&at)
    }

    /// Lets the replica follow, or not; returns false if the answer is not to be used. What is decided exactly always
    /// reaches it: losing that is not a matter of leases.
    fn replicate(&mut self, answer: &LeaseAnswer) -> bool {
        if self.plan.failovers == 0 {
            return true;
        }
        let is_exact = matches!(answer, LeaseAnswer::Admitted(_));
        let is_replicated = is_exact || self.random.happens(600);
        if is_replicated {
            self.store.replicate();
        }
        let is_grant = matches!(answer, LeaseAnswer::Granted(..));
        is_replicated || !is_grant || !self.plan.has(LeaseGuard::Replicated)
    }

    fn know(&mut self, id: u128, grant: &Grant) {
        if grant.hits == 0 {
            return;
        }
        self.leases.entry(id).or_insert_with(|| Lease {
            granted_at: grant.at,
            until: grant.at.after(grant.usable),
            granted: grant.hits,
            spent: 0,
            left: None,
            is_outrun: false,
            taken: 0,
        });
    }

    pub(super) fn tell(&mut self, node: usize, answer: LeaseAnswer) -> Result<(), Broken> {
        match answer {
            LeaseAnswer::Granted(id, grant) => {
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
            LeaseAnswer::Returned(id) => {
                self.nodes[node].returns.remove(&id);
            }
            LeaseAnswer::Admitted(_) | LeaseAnswer::Denied | LeaseAnswer::Posted(..) => {}
        }
        Ok(())
    }
}
