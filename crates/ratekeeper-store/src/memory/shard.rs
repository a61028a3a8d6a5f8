//! One shard: a table, its out-of-line states, and the rules for whose turn it is to go
//! when there is no room. Everything here happens under the shard's lock.

use ratekeeper_core::{
    Algorithm, Ask, Limit, Mode, Moment, Outcome, Shape, Spill, StateMut, StateRef, Timestamp,
};

use super::heap::{Budget, OVERHEAD_BYTES, Slab, bytes_of};
use super::meta::Meta;
use super::stats::Tally;
use super::table::{Place, Probe, SLOTS, Table};
use crate::{Charge, RuleSlot, Step, StepOutcome};

/// The rule of a counter that was loaded and not asked for since: rules are numbered anew
/// with every start.
pub(super) const NO_RULE: RuleSlot = RuleSlot(u16::MAX);

/// Counters of windows at least this long outlive a restart.
const DURABLE_MICROS: u64 = 60_000_000;

/// The largest count that every inline state holds.
const INLINE_COUNT: u64 = u16::MAX as u64;

/// Where a step's counter lies, or would.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spot {
    /// There is none, and the step makes none.
    Absent,
    /// It exists.
    Found(Place),
    /// It is made there if the step is charged.
    New(Place),
}

/// What is to become of one step: its answer, and what the charge will need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) probe: Probe,
    pub(super) shard: usize,
    pub(super) spot: Spot,
    pub(super) outcome: StepOutcome,
    pub(super) rule: RuleSlot,
    /// Heap bytes taken from the budget for it.
    pub(super) reserved: usize,
    /// Heap bytes that the doomed counters will leave it.
    pub(super) inherited: usize,
}

impl Plan {
    /// A plan that knows where its counter lies and nothing else yet.
    pub(super) fn located(probe: Probe, spot: Spot, step: &Step<'_>) -> Self {
        Self {
            probe,
            shard: probe.shard_bits(),
            spot,
            outcome: StepOutcome::Full(step.full_mode),
            rule: step.rule,
            reserved: 0,
            inherited: 0,
        }
    }

    /// Hits it takes from its counter if the request is allowed.
    pub(super) fn takes(&self, step: &Step<'_>) -> u64 {
        match self.outcome {
            StepOutcome::Counted(outcome) if outcome.fits() => {
                u64::try_from(step.hits).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Heap bytes that are there for its charge.
    fn heap_bytes(&self, cx: &Context<'_>) -> usize {
        self.reserved + if cx.executed { self.inherited } else { 0 }
    }
}

/// The part of a request that its steps share, as one shard sees it.
pub(super) struct Context<'a> {
    pub(super) now: Timestamp,
    pub(super) budget: &'a Budget,
    /// The plans of the request's other steps, whose counters are not to be evicted.
    pub(super) others: &'a [Plan],
    /// Whether anything is charged, and so the doomed counters are gone. Not known, and
    /// false, while steps are tested.
    pub(super) executed: bool,
}

impl Context<'_> {
    fn moment(&self, step: &Step<'_>) -> Moment {
        Moment {
            now: self.now,
            calendar: step.calendar,
        }
    }

    /// Whether another step of the request has a claim on that place.
    fn is_claimed(&self, shard: usize, place: Place) -> bool {
        let claims = |plan: &Plan| match plan.spot {
            Spot::Found(claimed) | Spot::New(claimed) => plan.shard == shard && claimed == place,
            Spot::Absent => false,
        };
        self.others.iter().any(claims)
    }
}

/// A shard's counters.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) table: Table,
    pub(super) heaps: Slab,
    /// The latest time seen.
    pub(super) now: Timestamp,
    pub(super) tally: Tally,
    /// Where to look next for something to evict or to reclaim.
    pub(super) hand: usize,
    /// Counters of each rule, by slot.
    rules: Vec<u32>,
    /// The most counters of one rule.
    rule_most: usize,
    /// Counters that must go if the request at hand is charged.
    doomed: Vec<Place>,
    /// Heap bytes of theirs that are promised already.
    promised: usize,
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
            rules: Vec::new(),
            rule_most,
            doomed: Vec::new(),
            promised: 0,
        }
    }

    /// Decides a request of one step whose counter exists, lies in line and belongs to its
    /// rule already: what nearly all requests are. None if anything is unusual, and nothing
    /// was changed.
    #[inline]
    pub(super) fn decide_inline(
        &mut self,
        step: &Step<'_>,
        mode: Mode,
        probe: Probe,
    ) -> Option<(bool, Outcome)> {
        let limit = step.limit;
        let place = self.table.find(probe)?;
        let (word, words) = self.table.entry_mut(place);
        let meta = Meta::from_word(*word);
        if meta.is_heap() || meta.rule() != step.rule || limit.shape() == Shape::Heap {
            return None;
        }
        let at = Moment {
            now: self.now,
            calendar: step.calendar,
        };
        let outcome = limit.test(StateRef::Words(words), Ask::hits(step.hits), &at);
        let fits = outcome.fits();
        let allowed = step.decides_alone(fits, mode);
        let hits = step.charged(fits, allowed);
        if hits != 0 || !fits {
            limit.charge(StateMut::Words(words), hits, &at).ok()?;
            let expires_at = limit.expires_at(StateRef::Words(words), &at);
            *word = meta.settled(&outcome, limit.capacity(), expires_at).word();
        }
        Some((allowed, outcome))
    }

    /// Where the step's counter lies, if it exists.
    #[inline]
    pub(super) fn locate(&self, probe: Probe) -> Spot {
        self.table.find(probe).map_or(Spot::Absent, Spot::Found)
    }

    /// Tests the step and finds the room that its charge will need. Changes nothing that
    /// anybody could see.
    #[inline]
    pub(super) fn test(&mut self, cx: &Context<'_>, step: &Step<'_>, taken: u64, plan: &mut Plan) {
        let ask = Ask {
            taken,
            hits: step.hits,
        };
        let at = cx.moment(step);
        let outcome = match plan.spot {
            Spot::Found(place) => step.limit.test(self.state(place), ask, &at),
            Spot::New(_) | Spot::Absent => step.limit.test(fresh(step.limit), ask, &at),
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

    /// Finds a place and heap bytes for the charge, as far as it needs them.
    #[inline]
    fn make_room(
        &mut self,
        cx: &Context<'_>,
        step: &Step<'_>,
        outcome: &Outcome,
        plan: &mut Plan,
    ) -> bool {
        if plan.spot == Spot::Absent {
            match self.place_for(cx, plan) {
                Some(place) => plan.spot = Spot::New(place),
                None => return false,
            }
        }
        match self.heap_bytes_for(cx, step, outcome, plan.spot) {
            0 => true,
            bytes => self.reserve(cx, bytes, plan),
        }
    }

    /// The most heap bytes that the charge adds.
    #[inline]
    fn heap_bytes_for(
        &self,
        cx: &Context<'_>,
        step: &Step<'_>,
        outcome: &Outcome,
        spot: Spot,
    ) -> usize {
        let limit = step.limit;
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
        let more = words_per_charge(limit, step.hits).saturating_sub(match limit.algorithm() {
            Algorithm::SlidingWindow => len,
            _ => 0,
        });
        // Permits are copied into a new vector, everything else grows where it is; a vector
        // grows to twice what it was, or to what is needed.
        if len + more <= capacity && limit.algorithm() != Algorithm::Concurrency {
            return 0;
        }
        let most = 2 * (len + more) + 4;
        let new = if heap.is_none() { OVERHEAD_BYTES } else { 0 };
        new + most.saturating_sub(capacity) * size_of::<u64>()
    }

    /// Whether the charge outgrows a state that lies in line. Only counts beyond what every
    /// inline state holds can, so that almost nobody pays for the trial.
    #[inline]
    fn spills(&self, cx: &Context<'_>, step: &Step<'_>, outcome: &Outcome, spot: Spot) -> bool {
        let limit = step.limit;
        let used = limit.capacity().saturating_sub(outcome.remaining);
        if limit.algorithm() != Algorithm::SlidingWindow
            || used.saturating_add_signed(step.hits) <= INLINE_COUNT
        {
            return false;
        }
        let mut trial = match spot {
            Spot::Found(place) => *self.table.state(place),
            Spot::New(_) | Spot::Absent => [0; 4],
        };
        let at = cx.moment(step);
        limit.charge(StateMut::Words(&mut trial), step.hits, &at) == Err(Spill)
    }

    #[inline]
    fn state(&self, place: Place) -> StateRef<'_> {
        let words = self.table.state(place);
        if self.table.meta(place).is_heap() {
            StateRef::Heap(self.heaps.get(words[0]))
        } else {
            StateRef::Words(words)
        }
    }

    /// Charges the step as its plan and the request's answer say.
    #[inline]
    pub(super) fn charge(&mut self, cx: &Context<'_>, step: &Step<'_>, plan: &Plan, allowed: bool) {
        let StepOutcome::Counted(outcome) = &plan.outcome else {
            return;
        };
        let hits = step.charged(outcome.fits(), allowed);
        let place = match plan.spot {
            // What refused is charged nothing, which settles a bucket whose limit was lowered.
            Spot::Found(place) if hits != 0 || !outcome.fits() => place,
            Spot::New(place) if hits > 0 => {
                self.create(place, plan, step);
                place
            }
            // Given back to what an earlier step of the request has taken.
            Spot::New(place) if hits < 0 && self.table.holds(place, plan.probe.key) => place,
            _ => return cx.budget.release(plan.heap_bytes(cx)),
        };
        let at = cx.moment(step);
        let expires_at = self.charge_at(cx, step, plan, place, hits, &at);
        let meta = self.relabel(place, step.rule);
        let meta = meta.settled(outcome, step.limit.capacity(), expires_at);
        self.table.set_meta(place, meta);
    }

    /// Charges the counter at `place`; when it expires.
    #[inline]
    fn charge_at(
        &mut self,
        cx: &Context<'_>,
        step: &Step<'_>,
        plan: &Plan,
        place: Place,
        hits: i64,
        at: &Moment,
    ) -> Timestamp {
        let limit = step.limit;
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
        place: Place,
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
        let mut after = 0;
        let mut expires_at = Timestamp::EPOCH;
        if let Some(heap) = self.heaps.get_full_mut(index) {
            // A heap never spills again.
            let _ = limit.charge(StateMut::Heap(heap), hits, at);
            after = bytes_of(heap);
            expires_at = limit.expires_at(StateRef::Heap(heap), at);
        }
        cx.budget.settle(before, plan.heap_bytes(cx), after);
        expires_at
    }

    /// Makes the plan's counter, unless an earlier step of the request has.
    fn create(&mut self, place: Place, plan: &Plan, step: &Step<'_>) {
        if self.table.holds(place, plan.probe.key) {
            return;
        }
        let durable = step.limit.window().get() >= DURABLE_MICROS;
        self.adopt(place, plan.probe, Meta::new(step.rule, durable));
    }

    /// Puts a counter at a free place, its state all zero.
    pub(super) fn adopt(&mut self, place: Place, probe: Probe, meta: Meta) {
        self.table.insert(place, probe, meta);
        self.count_rule(meta.rule(), 1);
    }

    /// The counter's meta, moved to `rule` if rules have been renumbered.
    #[inline]
    fn relabel(&mut self, place: Place, rule: RuleSlot) -> Meta {
        let meta = self.table.meta(place);
        if meta.rule() == rule {
            return meta;
        }
        self.count_rule(meta.rule(), -1);
        self.count_rule(rule, 1);
        meta.with_rule(rule)
    }

    fn count_rule(&mut self, rule: RuleSlot, change: i32) {
        let index = usize::from(rule.0);
        if self.rules.len() <= index {
            self.rules.resize((index + 1).next_power_of_two(), 0);
        }
        self.rules[index] = self.rules[index].saturating_add_signed(change);
    }

    /// Forgets the counter; the heap bytes that it cost, which stay taken.
    fn forget(&mut self, place: Place) -> usize {
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

    /// Forgets an expired counter.
    pub(super) fn reclaim(&mut self, budget: &Budget, place: Place) {
        budget.release(self.forget(place));
        self.tally.evicted_expired += 1;
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, budget: &Budget) {
        for index in 0..self.table.buckets() {
            for slot in 0..SLOTS {
                if let Some(place) = self.table.used_at(index, slot) {
                    budget.release(self.forget(place));
                }
            }
        }
    }
}

/// Making room.
impl Shard {
    /// Lets go of what had to go for the request at hand, if it is to be charged.
    #[inline]
    pub(super) fn execute(&mut self, budget: &Budget, charged: bool) {
        if !self.doomed.is_empty() {
            self.execute_doomed(budget, charged);
        }
    }

    #[cold]
    fn execute_doomed(&mut self, budget: &Budget, charged: bool) {
        let promised = std::mem::take(&mut self.promised);
        if !charged {
            self.doomed.clear();
            return;
        }
        let mut freed = 0;
        while let Some(place) = self.doomed.pop() {
            if self.table.meta(place).is_expired(self.now) {
                self.tally.evicted_expired += 1;
            } else {
                self.tally.evicted_live += 1;
            }
            freed += self.forget(place);
        }
        budget.release(freed.saturating_sub(promised));
    }

    /// A free place for a new counter, or one whose counter is doomed for it: an expired one,
    /// else the one with the largest share left, never one that refuses.
    fn place_for(&mut self, cx: &Context<'_>, plan: &Plan) -> Option<Place> {
        if self.is_rule_full(cx, plan) {
            return self.place_within_rule(cx, plan);
        }
        match self.table.free_place(plan.probe) {
            Some(place) if !self.is_taken(cx, plan.shard, place) => return Some(place),
            _ => {}
        }
        let mut best: Option<(Rank, Place)> = None;
        for (place, meta) in self.table.window(plan.probe) {
            if self.is_taken(cx, plan.shard, place) {
                continue;
            }
            let Some(meta) = meta else { return Some(place) };
            let rank = Rank::of(meta, cx.now);
            if rank == Rank::EXPIRED {
                best = Some((rank, place));
                break;
            }
            best = best.max(Some((rank, place)));
        }
        let (rank, place) = best?;
        rank.may_go().then(|| self.doom(place))
    }

    /// The same for a rule that holds all it may: one of its own counters goes.
    fn place_within_rule(&mut self, cx: &Context<'_>, plan: &Plan) -> Option<Place> {
        let mut free = None;
        let mut best: Option<(Rank, Place)> = None;
        for (place, meta) in self.table.window(plan.probe) {
            if self.is_taken(cx, plan.shard, place) {
                continue;
            }
            match meta {
                None => free = free.or(Some(place)),
                Some(meta) if meta.rule() == plan.rule => {
                    best = best.max(Some((Rank::of(meta, cx.now), place)));
                }
                Some(_) => {}
            }
        }
        if let Some((rank, place)) = best
            && rank.may_go()
        {
            return Some(self.doom(place));
        }
        let free = free?;
        let victim = self.search(cx, plan.shard, |_, meta| meta.rule() == plan.rule)?;
        self.doom(victim);
        Some(free)
    }

    /// Whether the rule holds, with what this request is about to add, all it may.
    fn is_rule_full(&self, cx: &Context<'_>, plan: &Plan) -> bool {
        if plan.rule == NO_RULE {
            return false;
        }
        let held = self
            .rules
            .get(usize::from(plan.rule.0))
            .map_or(0, |n| *n as usize);
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
            self.doom(victim);
            let heap = self.heaps.get_full(self.table.state(victim)[0]);
            freed += heap.map_or(0, bytes_of);
            if freed >= bytes {
                self.promised += bytes;
                plan.inherited = bytes;
                return true;
            }
        }
        false
    }

    /// Of the counters in the next few buckets that `wanted` names, the first that has
    /// expired, else the one with the largest share left, never one that refuses.
    fn search(
        &mut self,
        cx: &Context<'_>,
        shard: usize,
        wanted: impl Fn(Place, Meta) -> bool,
    ) -> Option<Place> {
        let mut best: Option<(Rank, Place)> = None;
        for _ in 0..SEARCHED.min(self.table.buckets()) {
            self.hand = (self.hand + 1) % self.table.buckets();
            for (place, meta) in self.table.places(self.hand) {
                let Some(meta) = meta else { continue };
                if !wanted(place, meta) || self.is_taken(cx, shard, place) {
                    continue;
                }
                best = best.max(Some((Rank::of(meta, cx.now), place)));
            }
            if best.is_some_and(|(rank, _)| rank == Rank::EXPIRED) {
                break;
            }
        }
        best.filter(|(rank, _)| rank.may_go())
            .map(|(_, place)| place)
    }

    fn doom(&mut self, place: Place) -> Place {
        self.doomed.push(place);
        place
    }

    /// Whether that place is spoken for: by another step, or by a victim's successor.
    fn is_taken(&self, cx: &Context<'_>, shard: usize, place: Place) -> bool {
        self.doomed.contains(&place) || cx.is_claimed(shard, place)
    }
}

/// Buckets looked at for something to evict outside of a key's own window.
const SEARCHED: usize = 64;

/// Counters evicted at most for the heap bytes of another.
const VICTIMS: usize = 8;

/// In which order counters go: the largest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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

    /// Whether the counter may go at all: one that refuses may not.
    const fn may_go(self) -> bool {
        self.0 > 0
    }
}

/// Words that a charge of `hits` may add to a heap state.
fn words_per_charge(limit: &Limit, hits: i64) -> usize {
    match limit.algorithm() {
        Algorithm::Concurrency => {
            let permits = limit.quota().min(hits.unsigned_abs());
            usize::try_from(permits)
                .unwrap_or(usize::MAX / 64)
                .saturating_mul(3)
        }
        Algorithm::SlidingWindow => limit.sub_windows() as usize + 2,
        _ => 4,
    }
}

#[inline]
fn fresh(limit: &Limit) -> StateRef<'static> {
    match limit.shape() {
        Shape::Words => StateRef::Words(&[0; 4]),
        Shape::Heap => StateRef::Heap(&[]),
    }
}
