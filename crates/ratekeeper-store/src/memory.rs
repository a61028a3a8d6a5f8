//! Counters in the memory of this process.
//!
//! There are 64 shards, each a lock with a table of counters. A table grows with its counters, a
//! few hundred slots at a time, so that memory is touched only as needed; its address space, and
//! with it the most memory that it can take, is reserved when the store is made. A counter takes 57
//! bytes, key included, whatever its descriptor; a table at its largest can be nine tenths full
//! before anything is evicted. Then a new counter without room replaces an expired one, else the
//! one with the largest share of its limit left, never one that denies.
//!
//! States that outgrow 32 bytes are kept beside the table, in 3/16 of the same limit. Such a
//! counter takes another 80 bytes and 8 for each word of capacity: two words for each moment in a
//! `sliding_log`, three for each permit of `concurrency`, six for a `sliding_window` with a limit
//! above 1,048,513, and k + 2 for one with k sub-windows if k > 12 or more hits fall into one than
//! its share of the 32 bytes can count (65,535 for k = 12).
//!
//! The last 1/16 of the limit is for records of idempotent requests: 224 bytes each, and 40 for
//! each step.
//!
//! The shard follows from a counter's identity, not from its subject: rules often have a single
//! subject (`generic_key: api`, then an address), and all their counters would share one shard's
//! memory and lock. A request with several steps locks the shards of all of them, in ascending
//! order.

mod by_rule;
mod census;
mod config;
mod eviction;
mod heap;
mod load;
mod meta;
mod once;
mod plan;
mod save;
mod shard;
mod state_file;
mod stats;
mod sweep;
mod table;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicUsize;

use parking_lot::{Mutex, MutexGuard};
use ratekeeper_core::{Mode, Timestamp, combine};
use smallvec::SmallVec;

pub use config::{MemoryConfig, MemoryError};
pub use load::{LoadedState, StateFileError};
pub use save::Saved;
pub use stats::{MemoryStats, Refusing};

use crate::{Answer, Execution, Extra, Never, Request, Step, StepOutcome, Store, Verdicts};
use heap::Budget;
use once::Records;
use plan::{Context, Plan};
use shard::Shard;
use table::Probe;

/// Many more than there are cores, few enough for their locks to stay cached.
const MEMORY_SHARDS: usize = 64;

/// A lock with its data, alone on its cache lines (processors fetch them in pairs).
#[repr(align(128))]
#[derive(Debug)]
struct Cell(Mutex<Shard>);

/// Counters in the memory of this process.
///
/// ```
/// use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
/// use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
/// use ratekeeper_store::{CounterKey, Request, Step};
///
/// let store = MemoryStore::new(MemoryConfig::default())?;
/// let one_a_second = LimitSpec::new(Algorithm::Gcra, 1, Micros::from_secs(1));
/// let limit = Limit::try_new(one_a_second).expect("a valid limit");
/// let step = Step::new(CounterKey { subject: 1, identity: 2 }, limit);
/// let steps = [step];
/// let request = Request::new(&steps, Mode::default(), Timestamp::from_secs(1));
/// assert!(store.decide_now(&request).allowed);
/// assert!(!store.decide_now(&request).allowed);
/// # Ok::<(), ratekeeper_store::memory::MemoryError>(())
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[Cell]>,
    budget: Budget,
    /// Records of idempotent requests.
    records: Records,
    buckets_per_shard: usize,
    /// The bucket at which the next sweep begins, counted through all shards.
    sweep_from: AtomicUsize,
    /// The rule closest to its maximum of counters in the last sweep.
    refusing: Mutex<Option<Refusing>>,
}

impl MemoryStore {
    /// Creates an empty store of the configured size. The memory is reserved but not touched: it is
    /// used page by page, as counters come.
    ///
    /// # Errors
    /// [`MemoryError`] if the sizes are invalid, or the system does not have that much memory.
    pub fn new(config: MemoryConfig) -> Result<Self, MemoryError> {
        let sizes = config.sizes()?;
        let shard = || Shard::new(sizes.buckets, config.max_share_percent);
        Ok(Self {
            shards: (0..MEMORY_SHARDS)
                .map(|_| Cell(Mutex::new(shard())))
                .collect(),
            budget: Budget::new(sizes.heap_bytes),
            records: Records::new(sizes.once_bytes),
            buckets_per_shard: sizes.buckets,
            sweep_from: AtomicUsize::new(0),
            refusing: Mutex::new(None),
        })
    }

    /// Decides at once, as [`Store::decide`] does.
    #[inline]
    pub fn decide_now(&self, request: &Request<'_>) -> Verdicts {
        match (request.steps, request.extra) {
            ([step], None) => self.decide_one(step, request),
            (steps, None) => self.decide_all(steps, request),
            (_, Some(extra)) => self.decide_extra(request, extra),
        }
    }

    /// Decides `step` by itself as of `at`, a time that may be over, and charges it as of then:
    /// for what became known late. No other counter's time goes back; a counter that was charged
    /// after `at` is decided as its algorithm does when a clock went back.
    pub fn decide_as_of(&self, step: &Step, at: Timestamp) -> StepOutcome {
        let probe = Probe::new(step.key);
        let shard = &mut *self.shards[probe.shard_bits()].0.lock();
        let (_, outcome) = self.decide_at(shard, at, step, Mode::default(), probe);
        outcome
    }

    /// Decides a request with options.
    #[inline(never)]
    fn decide_extra(&self, request: &Request<'_>, extra: &Extra) -> Verdicts {
        let decide = || self.decide_all(request.steps, request);
        match (extra.once, extra.forgets) {
            (Some(once), _) => self.records.decide(once, request, decide),
            (None, Some(id)) => self.records.undo(id, decide),
            (None, None) => decide(),
        }
    }

    /// Decides a request of one step: one lock, one search.
    #[inline]
    fn decide_one(&self, step: &Step, request: &Request<'_>) -> Verdicts {
        let probe = Probe::new(step.key);
        let shard = &mut *self.shards[probe.shard_bits()].0.lock();
        shard.now = shard.now.max(request.now);
        let (allowed, outcome) = match shard.decide_in_place(step, request.mode, probe) {
            Some((allowed, outcome)) => (allowed, StepOutcome::Counted(outcome)),
            None => self.decide_unusual(shard, step, request.mode, probe),
        };
        Verdicts::one(allowed, outcome, shard.now)
    }

    /// Decides one step whose counter is new, or grows.
    #[inline(never)]
    fn decide_unusual(
        &self,
        shard: &mut Shard,
        step: &Step,
        mode: Mode,
        probe: Probe,
    ) -> (bool, StepOutcome) {
        self.decide_at(shard, shard.now, step, mode, probe)
    }

    /// Decides one step as of `now`.
    fn decide_at(
        &self,
        shard: &mut Shard,
        now: Timestamp,
        step: &Step,
        mode: Mode,
        probe: Probe,
    ) -> (bool, StepOutcome) {
        let mut cx = Context {
            now,
            budget: &self.budget,
            others: &[],
            allowed: false,
            permit: None,
        };
        let mut plan = Plan::located(probe, shard.locate(probe), step);
        shard.test(&cx, step, 0, &mut plan);
        let allowed = combine([step.vote(plan.outcome.fits())], mode);
        cx.allowed = allowed;
        shard.execute(&self.budget, allowed);
        shard.charge(&cx, step, &plan, allowed);
        shard.grow(&self.budget);
        (allowed, plan.outcome)
    }

    /// Decides any number of steps. Their shards are locked in ascending order, so that requests
    /// never deadlock.
    #[inline(never)]
    fn decide_all(&self, steps: &[Step], request: &Request<'_>) -> Verdicts {
        let mut locked = Locked::new(&self.shards, steps);
        let now = locked.advance(request.now);
        let extra = request.extra.copied().unwrap_or_default();
        let current: SmallVec<[Step; 4]>;
        let steps = match extra.taken_at {
            Some(taken_at) => {
                current = steps.iter().map(|step| step.as_of(taken_at, now)).collect();
                &current
            }
            None => steps,
        };
        let mut plans: SmallVec<[Plan; 8]> = steps
            .iter()
            .map(|step| {
                let probe = Probe::new(step.key);
                let spot = locked.shard(probe.shard_bits()).locate(probe);
                Plan::located(probe, spot, step)
            })
            .collect();
        let repeated = repeats(steps);
        for (index, step) in steps.iter().enumerate() {
            let mut plan = plans[index];
            if let Some(before) = repeated[index] {
                let earlier = &plans[before];
                plan.spot = earlier.spot;
                plan.taken = earlier.taken.saturating_add(earlier.takes(&steps[before]));
            }
            let taken = plan.taken;
            let cx = Context {
                now,
                budget: &self.budget,
                others: &plans,
                allowed: false,
                permit: extra.permit,
            };
            locked.shard(plan.shard).test(&cx, step, taken, &mut plan);
            plans[index] = plan;
        }
        let votes = steps
            .iter()
            .zip(&plans)
            .map(|(step, plan)| step.vote(plan.outcome.fits()));
        let allowed = combine(votes, request.mode);
        locked.execute(&self.budget, allowed);
        let cx = Context {
            now,
            budget: &self.budget,
            others: &[],
            allowed,
            permit: extra.permit,
        };
        for (step, plan) in steps.iter().zip(&plans) {
            locked.shard(plan.shard).charge(&cx, step, plan, allowed);
        }
        locked.grow(&self.budget);
        Verdicts {
            allowed,
            outcomes: plans.iter().map(|plan| plan.outcome).collect(),
            at: now,
            execution: Execution::Now,
        }
    }

    /// The store's present contents, and the history of its counters.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats {
            heap_bytes: self.budget.used() as u64,
            heap_bytes_max: self.budget.limit() as u64,
            refusing: *self.refusing.lock(),
            ..MemoryStats::default()
        };
        let (once_records, once_bytes) = self.records.used();
        stats.once_records = once_records as u64;
        stats.once_bytes = once_bytes as u64;
        stats.once_bytes_max = self.records.bytes_max() as u64;
        for cell in &self.shards {
            let shard = cell.0.lock();
            stats.counters += shard.table.used() as u64;
            stats.capacity += shard.table.capacity() as u64;
            stats.table_bytes += (shard.table.buckets() * table::BUCKET_BYTES) as u64;
            stats.table_bytes_max += (shard.table.buckets_max() * table::BUCKET_BYTES) as u64;
            stats.heap_counters += shard.heaps.used() as u64;
            stats.evicted_expired += shard.tally.evicted_expired;
            stats.evicted_live += shard.tally.evicted_live;
            stats.refused_full += shard.tally.refused_full;
        }
        stats
    }
}

/// For each step the one before it that asks for the same counter, if there is one.
fn repeats(steps: &[Step]) -> SmallVec<[Option<usize>; 8]> {
    /// Up to this many steps are compared with each other: sorting them would take longer.
    const COMPARED_MAX: usize = 16;
    let before = |index: usize| {
        steps[..index]
            .iter()
            .rposition(|step| step.key == steps[index].key)
    };
    if steps.len() <= COMPARED_MAX {
        return (0..steps.len()).map(before).collect();
    }
    let mut by_key: Vec<usize> = (0..steps.len()).collect();
    by_key.sort_by_key(|index| (steps[*index].key, *index));
    let mut repeated = SmallVec::from_elem(None, steps.len());
    for pair in by_key.windows(2) {
        if steps[pair[0]].key == steps[pair[1]].key {
            repeated[pair[1]] = Some(pair[0]);
        }
    }
    repeated
}

impl Store for MemoryStore {
    type Ticket = Never;

    #[inline]
    fn decide(&self, request: &Request<'_>) -> Answer<Never> {
        Answer::Decided(self.decide_now(request))
    }
}

/// The shards of one request, locked.
struct Locked<'a> {
    /// One bit for each shard that is locked.
    mask: u64,
    /// In ascending order.
    guards: SmallVec<[MutexGuard<'a, Shard>; 8]>,
}

impl<'a> Locked<'a> {
    fn new(shards: &'a [Cell], steps: &[Step]) -> Self {
        let mask = steps.iter().fold(0, |mask, step| {
            mask | 1 << Probe::new(step.key).shard_bits()
        });
        let mut left: u64 = mask;
        let ascending = std::iter::from_fn(|| {
            let index = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(index)
        });
        let guards = ascending.map(|index| shards[index].0.lock()).collect();
        Self { mask, guards }
    }

    /// The shard with that index, which some step needs.
    fn shard(&mut self, index: usize) -> &mut Shard {
        let before = self.mask & ((1 << index) - 1);
        &mut self.guards[before.count_ones() as usize]
    }

    /// Advances the time of every shard; returns the latest time that any of them has seen.
    fn advance(&mut self, now: Timestamp) -> Timestamp {
        let now = self
            .guards
            .iter()
            .fold(now, |now, shard| now.max(shard.now));
        for shard in &mut self.guards {
            shard.now = now;
        }
        now
    }

    fn execute(&mut self, budget: &Budget, allowed: bool) {
        for shard in &mut self.guards {
            shard.execute(budget, allowed);
        }
    }

    fn grow(&mut self, budget: &Budget) {
        for shard in &mut self.guards {
            shard.grow(budget);
        }
    }
}
