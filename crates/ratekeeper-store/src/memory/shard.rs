//! One shard: a table, its out-of-line states, and the operations of requests on both. All of this
//! happens under the shard's lock.

use std::ops::Range;

use ratekeeper_core::{Ask, Limit, Mode, Moment, Outcome, Shape, StateMut, StateRef, Timestamp};

use super::by_rule::ByRule;
use super::eviction::Doomed;
use super::heap::{Budget, Slab, bytes_of};
use super::meta::Meta;
use super::plan::{Context, Plan, Spot};
use super::stats::Tally;
use super::table::{Position, Probe, SLOTS, Table};
use crate::{Charge, RuleSlot, Step, StepOutcome};

/// The rule of a counter that was loaded from a file of an earlier version, and not used since.
pub(super) const NO_RULE: RuleSlot = RuleSlot(u16::MAX);

/// A shard's counters.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) table: Table,
    pub(super) heaps: Slab,
    /// The latest time seen.
    pub(super) now: Timestamp,
    pub(super) tally: Tally,
    /// The position from which to search next for something to evict or to reclaim.
    pub(super) hand: usize,
    /// Counters of each rule.
    pub(super) rules: ByRule<u32>,
    /// The most counters of one rule.
    pub(super) rule_most: usize,
    /// Counters to remove if those steps of the current request are charged.
    pub(super) doomed: Vec<Doomed>,
}

impl Shard {
    pub(super) fn new(buckets: usize, max_share_percent: u8) -> Self {
        let table = Table::new(buckets);
        let rule_most = match max_share_percent {
            100.. => usize::MAX,
            percent => (table.capacity() * usize::from(percent) / 100).max(1),
        };
        Self {
            table,
            heaps: Slab::default(),
            now: Timestamp::EPOCH,
            tally: Tally::default(),
            hand: 0,
            rules: ByRule::default(),
            rule_most,
            doomed: Vec::new(),
        }
    }

    /// Decides a request of one step whose counter exists, belongs to its rule and cannot outgrow its
    /// place: nearly all requests. None if anything is unusual; nothing was changed then.
    #[inline]
    pub(super) fn decide_in_place(
        &mut self,
        step: &Step,
        mode: Mode,
        probe: Probe,
    ) -> Option<(bool, Outcome)> {
        let limit = &step.limit;
        let place = self.table.find(probe)?;
        let meta = self.table.meta(place);
        if meta.rule() != step.rule {
            return None;
        }
        let words = self.table.state_mut(place);
        let mut state = match (meta.is_heap(), limit.shape()) {
            (true, _) => StateMut::Heap(self.heaps.get_grown(words[0], limit)?),
            (false, Shape::Words) => StateMut::Words(words),
            (false, Shape::Heap) => return None,
        };
        let at = Moment {
            now: self.now,
            calendar: step.calendar,
        };
        let outcome = limit.test(state.as_ref(), Ask::hits(step.hits), &at);
        let fits = outcome.fits();
        let allowed = step.decides_alone(fits, mode);
        let hits = step.charged(fits && allowed);
        if hits != 0 {
            limit.charge(state.reborrow(), hits, &at).ok()?;
            let expires_at = limit.expires_at(state.as_ref(), &at);
            let meta = meta.settled(&outcome, limit.capacity(), expires_at);
            self.table.set_meta(place, meta);
        } else if !fits {
            limit.charge(state.reborrow(), 0, &at).ok()?;
            let expires_at = limit.expires_at(state.as_ref(), &at);
            self.table.set_meta(place, meta.denying(expires_at));
        }
        Some((allowed, outcome))
    }

    /// The position of the step's counter, if it exists.
    #[inline]
    pub(super) fn locate(&self, probe: Probe) -> Spot {
        self.table.find(probe).map_or(Spot::Absent, Spot::Found)
    }

    /// Tests the step and finds the room that its charge will need. Changes nothing visible.
    #[inline]
    pub(super) fn test(&mut self, cx: &Context<'_>, step: &Step, taken: u64, plan: &mut Plan) {
        let outcome = match plan.spot {
            Spot::Found(place) => cx.test(step, taken, self.state(place)),
            Spot::New(_) | Spot::Absent => cx.test(step, taken, fresh(&step.limit)),
        };
        plan.outcome = StepOutcome::Counted(outcome);
        let may_charge = step.hits > 0 && (outcome.fits() || step.charge == Charge::Always);
        let doomed_before = self.doomed.len();
        if may_charge && !self.make_room(cx, step, &outcome, plan) {
            self.doomed.truncate(doomed_before);
            plan.spot = Spot::Absent;
            plan.outcome = StepOutcome::Full(step.full_mode);
            self.tally.refused_full += 1;
        }
    }

    #[inline]
    fn state(&self, place: Position) -> StateRef<'_> {
        let words = self.table.state(place);
        if self.table.meta(place).is_heap() {
            StateRef::Heap(self.heaps.get(words[0]))
        } else {
            StateRef::Words(words)
        }
    }

    /// Charges the step according to its plan and the request's answer.
    #[inline]
    pub(super) fn charge(&mut self, cx: &Context<'_>, step: &Step, plan: &Plan, allowed: bool) {
        let StepOutcome::Counted(outcome) = &plan.outcome else {
            return;
        };
        let hits = step.charged(outcome.fits() && allowed);
        let place = match plan.spot {
            // A denied step is charged 0 hits, which moves a counter whose clock went back.
            Spot::Found(place) if hits != 0 || !outcome.fits() || cx.moves_permit(&step.limit) => {
                place
            }
            Spot::New(place) if hits > 0 => {
                self.create(place, plan, step);
                place
            }
            // Gives back to a counter that an earlier step of the request has created.
            Spot::New(place) if hits < 0 && self.table.is_at(place, plan.probe.key) => place,
            _ => return cx.budget.release(plan.heap_bytes(cx)),
        };
        let at = cx.moment(step);
        let expires_at = self.charge_at(cx, step, plan, place, hits, &at);
        let meta = self.relabel(place, step.rule);
        let meta = match hits == 0 && !cx.moves_permit(&step.limit) {
            true => meta.denying(expires_at),
            false => meta.settled(outcome, step.limit.capacity(), expires_at),
        };
        self.table.set_meta(place, meta);
    }

    /// Charges the counter at `place`; returns its expiry.
    #[inline]
    fn charge_at(
        &mut self,
        cx: &Context<'_>,
        step: &Step,
        plan: &Plan,
        place: Position,
        hits: i64,
        at: &Moment,
    ) -> Timestamp {
        let limit = &step.limit;
        if !self.table.meta(place).is_heap() && limit.shape() == Shape::Words {
            let words = self.table.state_mut(place);
            if limit.charge(StateMut::Words(words), hits, at).is_ok() {
                let expires_at = limit.expires_at(StateRef::Words(words), at);
                cx.budget.release(plan.heap_bytes(cx));
                return expires_at;
            }
        }
        self.charge_heap(cx, limit, plan, place, hits, at)
    }

    #[cold]
    fn charge_heap(
        &mut self,
        cx: &Context<'_>,
        limit: &Limit,
        plan: &Plan,
        place: Position,
        hits: i64,
        at: &Moment,
    ) -> Timestamp {
        let meta = self.table.meta(place);
        let words = self.table.state_mut(place);
        let mut before = 0;
        if meta.is_heap() {
            before = self.heaps.get_full(words[0]).map_or(0, bytes_of);
        } else {
            let index = self.heaps.insert(limit.spill(words));
            *words = [index, 0, 0, 0];
            self.table.set_meta(place, meta.on_heap(true));
        }
        let index = self.table.state(place)[0];
        let Some(heap) = self.heaps.get_full_mut(index) else {
            unreachable!("a state on the heap has a place there");
        };
        cx.charge(limit, heap, hits, at);
        if heap.is_empty() && limit.shape() == Shape::Words {
            return self.return_to_words(cx, limit, plan, place, hits, at);
        }
        cx.budget
            .settle(before, plan.heap_bytes(cx), bytes_of(heap));
        limit.expires_at(StateRef::Heap(heap), at)
    }

    /// Resets an out-of-line state that its limit cannot read, as a file may contain.
    fn return_to_words(
        &mut self,
        cx: &Context<'_>,
        limit: &Limit,
        plan: &Plan,
        place: Position,
        hits: i64,
        at: &Moment,
    ) -> Timestamp {
        let freed = self.heaps.remove(self.table.state(place)[0]);
        cx.budget.release(freed + plan.heap_bytes(cx));
        let meta = self.table.meta(place).on_heap(false);
        self.table.set_meta(place, meta);
        let words = self.table.state_mut(place);
        *words = [0; 4];
        // A charge that outgrows fresh words is not counted this once.
        let _ = limit.charge(StateMut::Words(words), hits, at);
        limit.expires_at(StateRef::Words(words), at)
    }

    /// Creates the plan's counter, unless an earlier step of the request has.
    fn create(&mut self, place: Position, plan: &Plan, step: &Step) {
        if self.table.is_at(place, plan.probe.key) {
            return;
        }
        self.adopt(place, plan.probe, Meta::new(step.rule, step.limit.window()));
    }

    /// Adds a counter at a free position, with its state all zero.
    pub(super) fn adopt(&mut self, place: Position, probe: Probe, meta: Meta) {
        self.table.insert(place, probe, meta);
        self.count_rule(meta.rule(), 1);
    }

    /// The counter's metadata, moved to `rule` if rules were renumbered.
    #[inline]
    fn relabel(&mut self, place: Position, rule: RuleSlot) -> Meta {
        let meta = self.table.meta(place);
        if meta.rule() == rule {
            return meta;
        }
        self.count_rule(meta.rule(), -1);
        self.count_rule(rule, 1);
        meta.with_rule(rule)
    }

    /// The part of its maximum of counters that a rule holds, in thousandths.
    pub(super) fn permille_of(&self, rule: RuleSlot) -> u64 {
        let most = self.rule_most.min(self.table.capacity()).max(1) as u64;
        (u64::from(self.rules.get(rule)) * 1_000 / most).min(1_000)
    }

    fn count_rule(&mut self, rule: RuleSlot, change: i32) {
        if rule == NO_RULE {
            return;
        }
        let held = self.rules.get_mut(rule);
        *held = held.saturating_add_signed(change);
    }

    /// Removes the counter; returns the heap bytes that it took, which stay reserved.
    pub(super) fn forget(&mut self, place: Position) -> usize {
        let meta = self.table.meta(place);
        let bytes = if meta.is_heap() {
            self.heaps.remove(self.table.state(place)[0])
        } else {
            0
        };
        self.count_rule(meta.rule(), -1);
        self.table.remove(place);
        bytes
    }

    /// Removes the expired counters of those buckets.
    pub(super) fn reclaim_expired(&mut self, budget: &Budget, buckets: Range<usize>) {
        for bucket in buckets {
            for slot in 0..SLOTS {
                let place = self.table.used_at(bucket, slot);
                if let Some(place) = place.filter(|at| self.table.meta(*at).is_expired(self.now)) {
                    budget.release(self.forget(place));
                    self.tally.evicted_expired += 1;
                }
            }
        }
    }

    /// Makes room for future counters if the current request has left little. Counters may move, so
    /// no plan may hold a position any more.
    #[inline]
    pub(super) fn grow(&mut self, budget: &Budget) {
        if let Some(segment) = self.table.take_crowded() {
            self.relieve(budget, segment);
        }
    }

    #[cold]
    fn relieve(&mut self, budget: &Budget, segment: usize) {
        self.reclaim_expired(budget, self.table.buckets_of(segment));
        if !self.table.is_dense(segment) {
            return;
        }
        for (meta, [word, ..]) in self.table.split(segment) {
            if meta.is_heap() {
                budget.release(self.heaps.remove(word));
            }
            self.count_rule(meta.rule(), -1);
            self.tally.evicted_live += 1;
        }
    }

    /// Removes the counters of those buckets; returns their number.
    pub(super) fn clear(&mut self, buckets: Range<usize>, budget: &Budget) -> u64 {
        let mut removed = 0;
        for bucket in buckets {
            for slot in 0..SLOTS {
                if let Some(place) = self.table.used_at(bucket, slot) {
                    budget.release(self.forget(place));
                    removed += 1;
                }
            }
        }
        removed
    }
}

#[inline]
fn fresh(limit: &Limit) -> StateRef<'static> {
    match limit.shape() {
        Shape::Words => StateRef::Words(&[0; 4]),
        Shape::Heap => StateRef::Heap(&[]),
    }
}
