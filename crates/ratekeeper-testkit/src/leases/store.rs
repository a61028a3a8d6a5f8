//! A store of one counter that carries out grants, returns, posts and exact requests.

use std::collections::BTreeMap;

use ratekeeper_core::lease::{Grant, Place, Terms, share};
use ratekeeper_core::{Arithmetic, Ask, Limit, Moment, Spill, State, Timestamp};

use super::plan::{LeaseGuard, LeasePlan};

/// A request to the store.
#[derive(Clone, Copy, Debug)]
pub enum LeaseRequest {
    /// Takes hits in advance.
    Grant {
        /// The grant's id.
        id: u128,
        /// The most hits.
        want: u64,
        /// The number of the limit.
        version: usize,
    },
    /// Gives back what was not spent.
    Return {
        /// The grant's id.
        id: u128,
        /// The time of the grant.
        granted_at: Timestamp,
        /// The place of its hits.
        place: Place,
        /// The hits.
        left: u64,
        /// The number of the limit.
        version: usize,
    },
    /// Admits hits, or does not.
    Exact {
        /// The hits.
        hits: u64,
        /// The number of the limit.
        version: usize,
    },
    /// Charges hits that were admitted without the store.
    Post {
        /// The post's id.
        id: u128,
        /// The hits.
        hits: u64,
    },
}

/// The store's answer.
#[derive(Clone, Copy, Debug)]
pub enum LeaseAnswer {
    /// To a grant.
    Granted(u128, Grant),
    /// To a return.
    Returned(u128),
    /// To an exact request whose hits are admitted.
    Admitted(u64),
    /// To one whose hits are not.
    Denied,
    /// To a post: the hits that were charged, those of the first time if it is a repeat.
    Posted(u128, u64),
}

/// A store of one counter, and of the replica that may take its place.
pub trait LeaseStore {
    /// Carries `request` out at that time of the store's clock, for one of so many `nodes`.
    fn carry_out(
        &mut self,
        plan: &LeasePlan,
        request: &LeaseRequest,
        nodes: u64,
        at: &Moment,
    ) -> LeaseAnswer;

    /// All hits that were charged, less all that were given back.
    fn recorded(&self) -> u64;

    /// Hits in the current fixed window, and its start; [`None`] if that is not known.
    fn window(&self) -> Option<(u64, u64)> {
        None
    }

    /// Looks up the room for a grant that is not atomic.
    fn look(&mut self, plan: &LeasePlan, request: &LeaseRequest, at: &Moment) {
        let _ = (plan, request, at);
    }

    /// Brings the replica up to date.
    fn replicate(&mut self) {}

    /// Goes on as the replica.
    fn fail_over(&mut self) {}
}

/// The store that core's rules make.
#[derive(Debug)]
pub struct ModelStore {
    facts: Facts,
    replica: Facts,
    /// Room that was seen by grants that are not atomic.
    seen: BTreeMap<u128, u64>,
}

/// All that a store knows.
#[derive(Clone, Debug)]
struct Facts {
    state: State,
    grants: BTreeMap<u128, Grant>,
    /// Until when each is remembered.
    returns: BTreeMap<u128, Timestamp>,
    /// The hits that each charged.
    posts: BTreeMap<u128, u64>,
    recorded: u64,
}

impl ModelStore {
    /// Makes an empty one.
    #[must_use]
    pub fn new(plan: &LeasePlan) -> Self {
        let facts = Facts {
            state: State::new(plan.limits[0].shape()),
            grants: BTreeMap::new(),
            returns: BTreeMap::new(),
            posts: BTreeMap::new(),
            recorded: 0,
        };
        Self {
            replica: facts.clone(),
            facts,
            seen: BTreeMap::new(),
        }
    }

    fn post(&mut self, plan: &LeasePlan, (id, hits): (u128, u64), at: &Moment) -> u64 {
        let known = self.facts.posts.get(&id);
        if let Some(charged) = known.filter(|_| plan.has(LeaseGuard::SinglePost)) {
            return *charged;
        }
        let limit = self.limit(plan, 0);
        let look = limit.test(self.facts.state.as_ref(), Ask::hits(0), at);
        let charged = hits.min(look.remaining);
        if charged > 0 {
            self.charge(&limit, charged as i64, at);
        }
        self.facts.posts.insert(id, charged);
        charged
    }

    fn give_back_once(
        &mut self,
        plan: &LeasePlan,
        (id, granted, left, version): (u128, (Timestamp, Place), u64, usize),
        at: &Moment,
    ) {
        let known = self.facts.returns.get(&id);
        let is_known = known.is_some_and(|until| at.now < *until);
        if is_known && plan.has(LeaseGuard::SingleReturn) {
            return;
        }
        let terms = &plan.terms[version];
        let given = self.give_back(plan, terms, granted, left, at);
        self.facts.recorded -= given.min(self.facts.recorded);
        let until = match plan.has(LeaseGuard::Until) {
            true => granted.0.after(terms.limit().window()),
            false => at.now.after(terms.ttl()),
        };
        self.facts.returns.insert(id, until);
    }

    fn limit(&self, plan: &LeasePlan, version: usize) -> Limit {
        match plan.has(LeaseGuard::SmallerBurst) && plan.has(LeaseGuard::Lead) {
            true => *plan.terms[version].limit(),
            false => plan.limits[version],
        }
    }

    fn grant(
        &mut self,
        plan: &LeasePlan,
        id: u128,
        want: u64,
        version: usize,
        nodes: u64,
        at: &Moment,
    ) -> Grant {
        let terms = &plan.terms[version];
        let limit = self.limit(plan, version);
        if limit == *terms.limit() && plan.has(LeaseGuard::AtomicGrant) {
            return terms.grant(&mut self.facts.state, want, nodes, at);
        }
        // By hand, and without a guard: what was seen some time ago, or another limit.
        let outcome = limit.test(self.facts.state.as_ref(), Ask::hits(0), at);
        let room = self.seen.remove(&id).unwrap_or(outcome.remaining);
        let hits = share(room, want, nodes);
        let mut scratch = self.facts.state.clone();
        let grant = terms.grant(&mut scratch, 0, nodes, at);
        self.charge(&limit, hits as i64, at);
        self.facts.recorded -= hits;
        let place = match grant.place {
            Place::Groups(_) => Place::Bucket,
            place => place,
        };
        Grant {
            hits,
            place,
            ..grant
        }
    }

    fn give_back(
        &mut self,
        plan: &LeasePlan,
        terms: &Terms,
        granted: (Timestamp, Place),
        left: u64,
        at: &Moment,
    ) -> u64 {
        let limit = terms.limit();
        let newest_first = match limit.arithmetic() {
            Arithmetic::EqualCount(_) => !plan.has(LeaseGuard::OldestReturn),
            Arithmetic::SlidingWindow(_) => !plan.has(LeaseGuard::OwnPart),
            Arithmetic::TokenBucket(_) => !plan.has(LeaseGuard::Burn),
            _ => false,
        };
        if !newest_first {
            return terms.give_back(&mut self.facts.state, granted, left, at);
        }
        self.charge(limit, -(left as i64), at);
        self.facts.recorded += left;
        left
    }

    fn charge(&mut self, limit: &Limit, hits: i64, at: &Moment) {
        if limit.charge(self.facts.state.as_mut(), hits, at) == Err(Spill) {
            if let State::Words(words) = &self.facts.state {
                self.facts.state = State::Heap(limit.spill(words));
            }
            limit
                .charge(self.facts.state.as_mut(), hits, at)
                .expect("a heap never spills");
        }
        self.facts.recorded = self.facts.recorded.saturating_add_signed(hits);
    }
}

impl LeaseStore for ModelStore {
    fn carry_out(
        &mut self,
        plan: &LeasePlan,
        request: &LeaseRequest,
        nodes: u64,
        at: &Moment,
    ) -> LeaseAnswer {
        match *request {
            LeaseRequest::Exact { hits, version } => {
                let limit = self.limit(plan, version);
                let answer = limit.test(self.facts.state.as_ref(), Ask::hits(hits as i64), at);
                if !answer.fits() {
                    return LeaseAnswer::Denied;
                }
                self.charge(&limit, hits as i64, at);
                LeaseAnswer::Admitted(hits)
            }
            LeaseRequest::Grant { id, want, version } => {
                let known = self.facts.grants.get(&id);
                if let Some(grant) = known.filter(|_| plan.has(LeaseGuard::IdempotentGrant)) {
                    return LeaseAnswer::Granted(id, *grant);
                }
                let grant = self.grant(plan, id, want, version, nodes, at);
                self.facts.recorded += grant.hits;
                self.facts.grants.insert(id, grant);
                LeaseAnswer::Granted(id, grant)
            }
            LeaseRequest::Return {
                id,
                granted_at,
                place,
                left,
                version,
            } => {
                self.give_back_once(plan, (id, (granted_at, place), left, version), at);
                LeaseAnswer::Returned(id)
            }
            LeaseRequest::Post { id, hits } => {
                LeaseAnswer::Posted(id, self.post(plan, (id, hits), at))
            }
        }
    }

    fn recorded(&self) -> u64 {
        self.facts.recorded
    }

    fn window(&self) -> Option<(u64, u64)> {
        match self.facts.state {
            State::Words([recorded, start, ..]) => Some((recorded, start)),
            State::Heap(_) => None,
        }
    }

    fn look(&mut self, plan: &LeasePlan, request: &LeaseRequest, at: &Moment) {
        if let LeaseRequest::Grant { id, version, .. } = *request {
            let limit = plan.terms[version].limit();
            let look = limit.test(self.facts.state.as_ref(), Ask::hits(0), at);
            self.seen.insert(id, look.remaining);
        }
    }

    fn replicate(&mut self) {
        self.replica = self.facts.clone();
    }

    fn fail_over(&mut self) {
        self.facts = self.replica.clone();
    }
}
