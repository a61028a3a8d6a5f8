//! A store of one counter that carries out grants, returns and exact requests.

use std::collections::BTreeMap;

use ratekeeper_core::lease::{Grant, Place, Terms, share};
use ratekeeper_core::{Arithmetic, Ask, Limit, Moment, Spill, State, Timestamp};

use crate::plan::{Guard, Plan};

/// A request to the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Grant {
        id: u128,
        want: u64,
        version: usize,
    },
    Return {
        id: u128,
        granted_at: Timestamp,
        place: Place,
        left: u64,
        version: usize,
    },
    Exact {
        hits: u64,
        version: usize,
    },
}

/// The store's answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Granted(u128, Grant),
    Returned(u128),
    Admitted(u64),
    Denied,
}

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) state: State,
    grants: BTreeMap<u128, Grant>,
    /// Until when each is remembered.
    returns: BTreeMap<u128, Timestamp>,
    /// Room that was seen by grants that are not atomic.
    seen: BTreeMap<u128, u64>,
    /// All hits that were charged less all that were given back.
    pub(crate) recorded: u64,
}

impl Store {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            state: State::new(plan.limits[0].shape()),
            grants: BTreeMap::new(),
            returns: BTreeMap::new(),
            seen: BTreeMap::new(),
            recorded: 0,
        }
    }

    /// The first half of a grant that is not atomic.
    pub(crate) fn look(&mut self, plan: &Plan, request: &Request, at: &Moment) {
        if let Request::Grant { id, version, .. } = *request {
            let limit = plan.terms[version].limit();
            let room = limit.test(self.state.as_ref(), Ask::hits(0), at).remaining;
            self.seen.insert(id, room);
        }
    }

    pub(crate) fn carry_out(
        &mut self,
        plan: &Plan,
        request: &Request,
        nodes: u64,
        at: &Moment,
    ) -> Answer {
        match *request {
            Request::Exact { hits, version } => {
                let limit = self.limit(plan, version);
                let answer = limit.test(self.state.as_ref(), Ask::hits(hits as i64), at);
                if !answer.fits() {
                    return Answer::Denied;
                }
                self.charge(&limit, hits as i64, at);
                Answer::Admitted(hits)
            }
            Request::Grant { id, want, version } => {
                if let Some(grant) = self
                    .grants
                    .get(&id)
                    .filter(|_| plan.has(Guard::IdempotentGrant))
                {
                    return Answer::Granted(id, *grant);
                }
                let grant = self.grant(plan, id, want, version, nodes, at);
                self.recorded += grant.hits;
                self.grants.insert(id, grant);
                Answer::Granted(id, grant)
            }
            Request::Return {
                id,
                granted_at,
                place,
                left,
                version,
            } => {
                let known = self.returns.get(&id).is_some_and(|until| at.now < *until);
                if !known || !plan.has(Guard::SingleReturn) {
                    let terms = &plan.terms[version];
                    let given = self.give_back(plan, terms, (granted_at, place), left, at);
                    self.recorded -= given.min(self.recorded);
                    let until = match plan.has(Guard::Until) {
                        true => granted_at.after(terms.limit().window()),
                        false => at.now.after(terms.ttl()),
                    };
                    self.returns.insert(id, until);
                }
                Answer::Returned(id)
            }
        }
    }

    fn limit(&self, plan: &Plan, version: usize) -> Limit {
        match plan.has(Guard::SmallerBurst) && plan.has(Guard::Lead) {
            true => *plan.terms[version].limit(),
            false => plan.limits[version],
        }
    }

    fn grant(
        &mut self,
        plan: &Plan,
        id: u128,
        want: u64,
        version: usize,
        nodes: u64,
        at: &Moment,
    ) -> Grant {
        let terms = &plan.terms[version];
        let limit = self.limit(plan, version);
        if limit == *terms.limit() && plan.has(Guard::AtomicGrant) {
            return terms.grant(&mut self.state, want, nodes, at);
        }
        // By hand, and without a guard: what was seen some time ago, or another limit.
        let outcome = limit.test(self.state.as_ref(), Ask::hits(0), at);
        let room = self.seen.remove(&id).unwrap_or(outcome.remaining);
        let hits = share(room, want, nodes);
        let mut scratch = self.state.clone();
        let grant = terms.grant(&mut scratch, 0, nodes, at);
        self.charge(&limit, hits as i64, at);
        self.recorded -= hits;
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
        plan: &Plan,
        terms: &Terms,
        granted: (Timestamp, Place),
        left: u64,
        at: &Moment,
    ) -> u64 {
        let limit = terms.limit();
        let newest_first = match limit.arithmetic() {
            Arithmetic::EqualCount(_) => !plan.has(Guard::OldestReturn),
            Arithmetic::SlidingWindow(_) => !plan.has(Guard::OwnPart),
            Arithmetic::TokenBucket(_) | Arithmetic::Gcra(_) => !plan.has(Guard::Burn),
            _ => false,
        };
        if !newest_first {
            return terms.give_back(&mut self.state, granted, left, at);
        }
        self.charge(limit, -(left as i64), at);
        self.recorded += left;
        left
    }

    fn charge(&mut self, limit: &Limit, hits: i64, at: &Moment) {
        if limit.charge(self.state.as_mut(), hits, at) == Err(Spill) {
            if let State::Words(words) = &self.state {
                self.state = State::Heap(limit.spill(words));
            }
            limit
                .charge(self.state.as_mut(), hits, at)
                .expect("a heap never spills");
        }
        self.recorded = self.recorded.saturating_add_signed(hits);
    }
}
