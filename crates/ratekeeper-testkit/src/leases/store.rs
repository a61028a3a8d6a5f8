//! A store of one counter that carries out calls for leases, posts and exact requests.

use std::collections::BTreeMap;

use ratekeeper_core::lease::{Escrow, LeaseEntry, LeaseReport, Settled, Terms};
use ratekeeper_core::{Arithmetic, Ask, Limit, Micros, Moment, Spill, State, Timestamp};

use super::plan::{LeaseGuard, LeasePlan};

/// A store of one counter, and of the replica that may take its place.
pub trait LeaseStore {
    /// Carries out a node's call at that time of the store's clock.
    fn settle(
        &mut self,
        plan: &LeasePlan,
        terms: &Terms,
        report: &LeaseReport,
        at: &Moment,
    ) -> Settled;

    /// Takes hits if they fit.
    fn exact(&mut self, plan: &LeasePlan, limit: &Limit, hits: u64, at: &Moment) -> bool;

    /// Charges hits that were admitted without the store, as far as there is room and once for each id; how many.
    fn post(&mut self, plan: &LeasePlan, limit: &Limit, post: (u128, u64), at: &Moment) -> u64;

    /// Hits that are held in leases.
    fn held(&mut self) -> u64;

    /// Brings the replica up to date.
    fn replicate(&mut self) {}

    /// Goes on as the replica.
    fn fail_over(&mut self) {}
}

/// The store that core's rules make.
#[derive(Default, Debug)]
pub struct ModelStore {
    facts: Facts,
    replica: Facts,
}

/// All that a store knows.
#[derive(Clone, Default, Debug)]
struct Facts {
    /// The counter, its leases, and the time at which it is forgotten.
    counter: Option<(State, Escrow, Timestamp)>,
    /// The hits that each post charged.
    posts: BTreeMap<u128, u64>,
}

impl ModelStore {
    /// Reads the counter, with the leases that are over charged.
    fn open(
        &mut self,
        plan: &LeasePlan,
        limit: &Limit,
        but: Option<u64>,
        at: &Moment,
    ) -> (State, Escrow) {
        let kept = self.facts.counter.take();
        let kept = kept.filter(|(_, _, forgotten)| *forgotten > at.now);
        let (mut state, mut escrow) = match kept {
            Some((state, escrow, _)) => (state, escrow),
            None => (State::new(limit.shape()), Escrow::default()),
        };
        if !plan.has(LeaseGuard::ExpiryCharge) {
            let entries = escrow.entries_mut();
            entries.retain(|entry| entry.end > at.now || Some(entry.node) == but);
        }
        if !plan.has(LeaseGuard::Date) {
            for entry in escrow.entries_mut() {
                if entry.end <= at.now && Some(entry.node) != but {
                    entry.end = begun(&plan.terms[0], &state, entry);
                }
            }
        }
        escrow.expire(limit, &mut state, but, at);
        (state, escrow)
    }

    /// Writes the counter, which lives for as long as if all that is held were charged at the last end.
    fn write(
        &mut self,
        plan: &LeasePlan,
        limit: &Limit,
        (state, escrow): (State, Escrow),
        at: &Moment,
    ) {
        let mut last = state.clone();
        if let Some(end) = escrow.latest().filter(|_| plan.has(LeaseGuard::KeyLife)) {
            let date = match limit.arithmetic() {
                Arithmetic::FixedWindow => at.now,
                _ => end,
            };
            charge(limit, &mut last, escrow.held() as i64, &Moment::at(date));
        }
        let forgotten = limit.expires_at(last.as_ref(), at);
        let forgotten = forgotten.max(at.now.after(Micros::from_millis(1)));
        self.facts.counter = Some((state, escrow, forgotten));
    }

    /// The entries of other nodes, where what they hold is no matter.
    fn hide_others(plan: &LeasePlan, escrow: &mut Escrow, node: Option<u64>) -> Vec<LeaseEntry> {
        match plan.has(LeaseGuard::Room) {
            true => Vec::new(),
            false => {
                let entries = escrow.entries_mut();
                let hidden = entries.extract_if(.., |entry| Some(entry.node) != node);
                hidden.collect()
            }
        }
    }
}

/// The beginning of a lease, or the time of a bucket's last charge if that is later.
fn begun(terms: &Terms, state: &State, entry: &LeaseEntry) -> Timestamp {
    let begun = entry.end.as_micros() - terms.ttl().get();
    let last = match state {
        State::Words([_, _, _, at]) => *at,
        State::Heap(_) => 0,
    };
    Timestamp::from_micros(begun.max(last))
}

fn charge(limit: &Limit, state: &mut State, hits: i64, at: &Moment) {
    if limit.charge(state.as_mut(), hits, at) == Err(Spill) {
        if let State::Words(words) = &*state {
            *state = State::Heap(limit.spill(words));
        }
        let charged = limit.charge(state.as_mut(), hits, at);
        charged.expect("a heap never spills");
    }
}

impl LeaseStore for ModelStore {
    fn settle(
        &mut self,
        plan: &LeasePlan,
        terms: &Terms,
        report: &LeaseReport,
        at: &Moment,
    ) -> Settled {
        let limit = terms.limit();
        let (mut state, mut escrow) = self.open(plan, limit, Some(report.node), at);
        let mut report = *report;
        if !plan.has(LeaseGuard::Since) {
            report.since = 0;
        }
        report.is_final |= !plan.has(LeaseGuard::OpenWord);
        let entries = escrow.entries_mut().iter_mut();
        if let Some(own) = entries.into_iter().find(|entry| entry.node == report.node) {
            if !plan.has(LeaseGuard::Number) {
                own.number = own.number.min(report.number - 1);
            }
            if !plan.has(LeaseGuard::Date) && report.number > own.number {
                let spent = report.spent.saturating_sub(own.spent).min(own.amount);
                let date = begun(terms, &state, own);
                charge(limit, &mut state, spent as i64, &Moment::at(date));
                (own.spent, own.amount) = (report.spent.max(own.spent), own.amount - spent);
            }
        }
        let hidden = Self::hide_others(plan, &mut escrow, Some(report.node));
        let settled = terms.settle(&mut state, &mut escrow, &report, at);
        escrow.entries_mut().extend(hidden);
        self.write(plan, limit, (state, escrow), at);
        settled
    }

    fn exact(&mut self, plan: &LeasePlan, limit: &Limit, hits: u64, at: &Moment) -> bool {
        let (mut state, mut escrow) = self.open(plan, limit, None, at);
        let hidden = Self::hide_others(plan, &mut escrow, None);
        let answer = escrow.test(limit, state.as_ref(), Ask::hits(hits as i64), at);
        if answer.fits() {
            charge(limit, &mut state, hits as i64, at);
        }
        escrow.entries_mut().extend(hidden);
        self.write(plan, limit, (state, escrow), at);
        answer.fits()
    }

    fn post(&mut self, plan: &LeasePlan, limit: &Limit, post: (u128, u64), at: &Moment) -> u64 {
        let (id, hits) = post;
        if let Some(charged) = self.facts.posts.get(&id) {
            return *charged;
        }
        let (mut state, escrow) = self.open(plan, limit, None, at);
        let look = escrow.test(limit, state.as_ref(), Ask::hits(0), at);
        let charged = hits.min(look.remaining);
        if charged > 0 {
            charge(limit, &mut state, charged as i64, at);
        }
        self.write(plan, limit, (state, escrow), at);
        self.facts.posts.insert(id, charged);
        charged
    }

    fn held(&mut self) -> u64 {
        let counter = self.facts.counter.as_ref();
        counter.map_or(0, |(_, escrow, _)| escrow.held())
    }

    fn replicate(&mut self) {
        self.replica = self.facts.clone();
    }

    fn fail_over(&mut self) {
        self.facts = self.replica.clone();
    }
}
