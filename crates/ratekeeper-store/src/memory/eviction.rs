//! Eviction, for new counters and for growing states.
//!
//! Victims are chosen while a request is tested, and removed when the step that they make room for
//! is charged: a denied request evicts nothing, but for what is charged all the same.

use ratekeeper_core::{Algorithm, Outcome, Shape, Spill, StateMut, Timestamp};

use super::heap::{Budget, OVERHEAD_BYTES, bytes_of};
use super::meta::Meta;
use super::plan::{Context, Plan, Spot};
use super::shard::{NO_RULE, Shard};
use super::table::Position;
use crate::{Charge, Step};

/// The largest count that every inline state can hold.
const INLINE_COUNT: u64 = u16::MAX as u64;

/// A counter to remove if the step that it makes room for is charged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doomed {
    place: Position,
    /// The place of the new counter that it makes room for: its own, or a free one if it goes so that its rule keeps within its
    /// share. None if its heap bytes are wanted.
    heir: Option<Position>,
    /// The condition for charging that step.
    charge: Charge,
    /// Heap bytes of its victims that the step gets; told by the last of them.
    promised: usize,
}

/// Buckets outside a key's own window to search for a victim.
const SEARCHED: usize = 64;

/// The most counters evicted for the heap bytes of another.
const VICTIMS: usize = 8;

impl Shard {
    /// Finds a position and heap bytes for the charge, as far as it needs them.
    #[inline]
    pub(super) fn make_room(
        &mut self,
        cx: &Context<'_>,
        step: &Step,
        outcome: &Outcome,
        plan: &mut Plan,
    ) -> bool {
        match plan.spot {
            Spot::Absent => match self.place_for(cx, plan) {
                Some(place) => plan.spot = Spot::New(place),
                None => return false,
            },
            // An earlier step of the request has the same counter, and may not be charged.
            Spot::New(place) if plan.charge == Charge::Always => self.doom_always(place),
            Spot::New(_) | Spot::Found(_) => {}
        }
        match self.heap_bytes_for(cx, step, outcome, plan.spot) {
            0 => true,
            bytes => self.reserve(cx, bytes, plan),
        }
    }

    /// Removes the counters doomed for those steps of this request that are charged.
    #[inline]
    pub(super) fn execute(&mut self, budget: &Budget, allowed: bool) {
        if !self.doomed.is_empty() {
            self.execute_doomed(budget, allowed);
        }
    }

    #[cold]
    fn execute_doomed(&mut self, budget: &Budget, allowed: bool) {
        let (mut freed, mut promised) = (0, 0);
        while let Some(doomed) = self.doomed.pop() {
            if !allowed && doomed.charge == Charge::IfAllowed {
                continue;
            }
            let place = doomed.place;
            promised += doomed.promised;
            if self.table.meta(place).is_expired(self.now) {
                self.tally.evicted_expired += 1;
            } else {
                self.tally.evicted_live += 1;
            }
            freed += self.forget(place);
        }
        budget.release(freed.saturating_sub(promised));
    }

    /// A free position for a new counter, or one whose counter is doomed for it: an expired one,
    /// else the one with the largest share left, never one that denies.
    fn place_for(&mut self, cx: &Context<'_>, plan: &Plan) -> Option<Position> {
        if self.is_rule_full(cx, plan) {
            return self.place_within_rule(cx, plan);
        }
        match self.table.free_place(plan.probe) {
            Some(place) if !self.is_taken(cx, plan.shard, place) => return Some(place),
            _ => {}
        }
        let mut best = Best::default();
        // Internal iteration is much the faster form of this loop.
        let free = self.table.window(plan.probe).find_map(|(place, meta)| {
            let is_taken = || self.is_taken(cx, plan.shard, place);
            let Some(meta) = meta else {
                // The first free position is claimed, or it would have been found above.
                return (!is_taken()).then_some(Some(place));
            };
            best.consider(Rank::of(meta, cx.now), place, is_taken);
            (best.rank == Rank::EXPIRED).then_some(None)
        });
        if let Some(Some(free)) = free {
            return Some(free);
        }
        let place = best.place?;
        self.doom(place, Some(place), plan);
        Some(place)
    }

    /// The same for a rule at its maximum share: one of its own counters goes.
    fn place_within_rule(&mut self, cx: &Context<'_>, plan: &Plan) -> Option<Position> {
        let mut free = None;
        let mut best = Best::default();
        for (place, meta) in self.table.window(plan.probe) {
            let is_taken = || self.is_taken(cx, plan.shard, place);
            match meta {
                None if free.is_none() && !is_taken() => free = Some(place),
                Some(meta) if meta.rule() == plan.rule => {
                    best.consider(Rank::of(meta, cx.now), place, is_taken);
                }
                _ => {}
            }
        }
        if let Some(place) = best.place {
            self.doom(place, Some(place), plan);
            return Some(place);
        }
        let free = free?;
        let victim = self.search(cx, plan.shard, |_, meta| meta.rule() == plan.rule)?;
        self.doom(victim, Some(free), plan);
        Some(free)
    }

    /// Returns true if the rule, including this request, has reached its maximum share.
    fn is_rule_full(&self, cx: &Context<'_>, plan: &Plan) -> bool {
        if plan.rule == NO_RULE {
            return false;
        }
        let held = self.rules.get(plan.rule) as usize;
        let added = cx.others.iter().filter(|other| {
            matches!(other.spot, Spot::New(_))
                && other.shard == plan.shard
                && other.rule == plan.rule
        });
        held + added.count() >= self.rule_most
    }

    /// Takes `bytes` from the budget, or from counters that are doomed for them.
    #[cold]
    fn reserve(&mut self, cx: &Context<'_>, bytes: usize, plan: &mut Plan) -> bool {
        if cx.budget.reserve(bytes) {
            plan.reserved = bytes;
            return true;
        }
        let mut freed = 0;
        for _ in 0..VICTIMS {
            let Some(victim) = self.search(cx, plan.shard, |place, meta| {
                meta.is_heap() && plan.spot != Spot::Found(place)
            }) else {
                break;
            };
            self.doom(victim, None, plan);
            let heap = self.heaps.get_full(self.table.state(victim)[0]);
            freed += heap.map_or(0, bytes_of);
            if freed >= bytes {
                if let Some(last) = self.doomed.last_mut() {
                    last.promised = bytes;
                }
                plan.inherited = bytes;
                return true;
            }
        }
        false
    }

    /// Among the counters in the next few buckets that `wanted` selects: the first that has
    /// expired, else the one with the largest share left, never one that denies.
    fn search(
        &mut self,
        cx: &Context<'_>,
        shard: usize,
        wanted: impl Fn(Position, Meta) -> bool,
    ) -> Option<Position> {
        let mut best = Best::default();
        for _ in 0..SEARCHED.min(self.table.buckets()) {
            self.hand = (self.hand + 1) % self.table.buckets();
            for (place, meta) in self.table.places(self.hand) {
                let Some(meta) = meta.filter(|meta| wanted(place, *meta)) else {
                    continue;
                };
                best.consider(Rank::of(meta, cx.now), place, || {
                    self.is_taken(cx, shard, place)
                });
            }
            if best.rank == Rank::EXPIRED {
                break;
            }
        }
        best.place
    }

    fn doom(&mut self, place: Position, heir: Option<Position>, plan: &Plan) {
        self.doomed.push(Doomed {
            place,
            heir,
            charge: plan.charge,
            promised: 0,
        });
    }

    /// Has the counter that makes room for a new one at `place` go for another step, which is charged always.
    fn doom_always(&mut self, place: Position) {
        let mut doomed = self.doomed.iter_mut();
        if let Some(doomed) = doomed.find(|doomed| doomed.heir == Some(place)) {
            doomed.charge = Charge::Always;
        }
    }

    /// Returns true if that position is taken: by another step, or by a victim's successor.
    fn is_taken(&self, cx: &Context<'_>, shard: usize, place: Position) -> bool {
        self.doomed.iter().any(|doomed| doomed.place == place) || cx.is_claimed(shard, place)
    }
}

/// The order of eviction: the largest first; a counter that denies has rank 0 and is never evicted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct Rank(u16);

impl Rank {
    const EXPIRED: Self = Self(256);

    fn of(meta: Meta, now: Timestamp) -> Self {
        if meta.is_expired(now) {
            Self::EXPIRED
        } else {
            Self(u16::from(meta.share()))
        }
    }
}

/// The best victim found so far.
#[derive(Default)]
struct Best {
    /// 0 while there is none; no eligible counter has rank 0.
    rank: Rank,
    place: Option<Position>,
}

impl Best {
    /// Considers the counter at `place`: the first of the highest rank wins, unless it `is_taken`,
    /// which is checked last, because it costs more than comparing.
    fn consider(&mut self, rank: Rank, place: Position, is_taken: impl FnOnce() -> bool) {
        if rank > self.rank && !is_taken() {
            *self = Self {
                rank,
                place: Some(place),
            };
        }
    }
}

/// Heap bytes for charges.
impl Shard {
    /// The most heap bytes that the charge may add.
    #[inline]
    fn heap_bytes_for(
        &self,
        cx: &Context<'_>,
        step: &Step,
        outcome: &Outcome,
        spot: Spot,
    ) -> usize {
        let limit = &step.limit;
        let heap = match spot {
            Spot::Found(place) if self.table.meta(place).is_heap() => {
                let heap = self.heaps.get_full(self.table.state(place)[0]);
                heap.map(|heap| (heap.len(), heap.capacity()))
            }
            _ => None,
        };
        if heap.is_none() && limit.shape() == Shape::Words && !self.spills(cx, step, outcome, spot)
        {
            return 0;
        }
        let (len, capacity) = heap.unwrap_or((0, 0));
        let more = limit
            .words_per_charge(step.hits)
            .saturating_sub(match limit.heap_words() {
                0 => 0,
                // A sliding window has all of its words from the start.
                _ => len,
            });
        // A vector grows to twice its size, or to the size required. Permits expire and are taken
        // in one go, and may need the room for both.
        if len + more <= capacity && !limit.algorithm().holds_permits() {
            return 0;
        }
        let most = 2 * (len + more) + 4;
        let new = if heap.is_none() { OVERHEAD_BYTES } else { 0 };
        new + most.saturating_sub(capacity) * size_of::<u64>()
    }

    /// Returns true if the charge outgrows an inline state. Only counts beyond what every inline
    /// state holds can do that, so a trial charge is rarely needed.
    #[inline]
    fn spills(&self, cx: &Context<'_>, step: &Step, outcome: &Outcome, spot: Spot) -> bool {
        let limit = &step.limit;
        match limit.algorithm() {
            Algorithm::SlidingWindow => {}
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::Concurrency => {
                return false;
            }
            Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => return false,
        }
        // With nothing left the count may be anything if denied hits are counted too.
        let is_known = outcome.remaining > 0 || step.charge == Charge::IfAllowed;
        let used = limit.capacity().saturating_sub(outcome.remaining);
        if is_known && used.saturating_add_signed(step.hits) <= INLINE_COUNT {
            return false;
        }
        let mut trial = match spot {
            Spot::Found(place) => *self.table.state(place),
            Spot::New(_) | Spot::Absent => [0; 4],
        };
        let at = cx.moment(step);
        limit.charge(StateMut::Words(&mut trial), step.hits, &at) == Err(Spill)
    }
}
