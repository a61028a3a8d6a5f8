//! The store's accounts are those of the counters in it, whatever is asked of it.

#![allow(
    clippy::cast_possible_truncation,
    reason = "figures of tests are small"
)]

use std::collections::BTreeMap;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};

use super::{decide, keys, limit};
use crate::memory::heap::bytes_of;
use crate::memory::shard::Shard;
use crate::memory::table::{Position, Probe};
use crate::memory::{MemoryConfig, MemoryStore};
use crate::{Charge, CounterKey, RuleSlot, Step, StepOutcome};

/// The shards of all counters here.
const SHARDS: usize = 2;

/// Counters in each of them: many more than there is room for.
const COUNTERS: usize = 300;

/// Requests to each store.
const REQUESTS: usize = 300;

/// Heap bytes that are left for them.
const HEAP_BYTES: usize = 12_000;

/// A step that is drawn.
#[derive(Clone, Copy, Debug)]
struct Asked {
    counter: usize,
    limit: usize,
    hits: i64,
    always: bool,
}

impl Asked {
    fn of(&self, key: CounterKey, limit: &Limit, rule: RuleSlot) -> Step {
        let each = if limit.quota() > 100 { 60_000 } else { 1 };
        let charge = match self.always {
            true => Charge::Always,
            false => Charge::IfAllowed,
        };
        Step {
            hits: self.hits * each,
            charge,
            rule,
            ..Step::new(key, *limit)
        }
    }
}

/// Numbers without a pattern.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ mixed >> 29) % bound) as usize
    }

    fn asked(&mut self) -> Asked {
        const HITS: [i64; 10] = [1, 1, 1, 1, 1, 1, 2, 4, 0, -1];
        // A few of them often.
        let counters = [20, SHARDS * COUNTERS][self.below(2)];
        Asked {
            counter: self.below(counters as u64),
            limit: self.below(5),
            hits: HITS[self.below(10)],
            always: self.below(10) == 0,
        }
    }
}

/// Limits of all shapes; a hit on the last one is 60,000.
fn limits() -> [Limit; 5] {
    let spec = LimitSpec {
        sub_windows: Some(12),
        ..LimitSpec::new(Algorithm::SlidingWindow, 200_000, Micros::from_secs(60))
    };
    [
        limit(Algorithm::FixedWindow, 3, 60),
        limit(Algorithm::SlidingLog, 4, 60),
        limit(Algorithm::TokenBucket, 3, 600),
        limit(Algorithm::Concurrency, 3, 60),
        Limit::try_new(spec).unwrap(),
    ]
}

fn counters(shard: &Shard) -> impl Iterator<Item = Position> + '_ {
    let places = (0..shard.table.buckets()).flat_map(|bucket| shard.table.places(bucket));
    places.filter_map(|(place, meta)| meta.map(|_| place))
}

/// Compares the accounts of the store with its counters; `reserved` heap bytes are not theirs.
pub(super) fn audit(store: &MemoryStore, reserved: usize) {
    let mut heap_bytes = reserved;
    for cell in &store.shards[..SHARDS] {
        let shard = cell.0.lock();
        let (mut rules, mut heaps) = (BTreeMap::new(), 0);
        for place in counters(&shard) {
            let meta = shard.table.meta(place);
            *rules.entry(meta.rule()).or_insert(0) += 1;
            if meta.is_heap() {
                heaps += 1;
                let heap = shard.heaps.get_full(shard.table.state(place)[0]);
                heap_bytes += heap.map_or(0, bytes_of);
            }
        }
        let used: u32 = rules.values().sum();
        assert_eq!(used as usize, shard.table.used());
        assert_eq!(heaps, shard.heaps.used());
        let counted = shard.rules.iter().filter(|(_, held)| *held > 0);
        assert_eq!(rules, counted.collect());
        assert!(rules.values().all(|held| *held as usize <= shard.rule_most));
        assert!(shard.doomed.is_empty());
    }
    assert_eq!(heap_bytes, store.budget.used());
}

fn is_there(store: &MemoryStore, key: CounterKey) -> bool {
    let probe = Probe::new(key);
    let shard = store.shards[probe.shard_bits()].0.lock();
    shard.table.find(probe).is_some()
}

/// Evicted live counters.
fn evicted(store: &MemoryStore) -> u64 {
    let shards = store.shards[..SHARDS].iter();
    shards.map(|cell| cell.0.lock().tally.evicted_live).sum()
}

/// Asks for anything of a small store, in which a rule may have that share. Counters of all limits come, or those of one
/// limit change to another if `changes` says so.
fn ask_for_anything(share: u8, rules: usize, changes: bool) {
    let config = MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        max_share_percent: share,
    };
    let store = MemoryStore::new(config).unwrap();
    let reserved = store.budget.limit() - HEAP_BYTES;
    assert!(store.budget.reserve(reserved));
    let names = (0..SHARDS).flat_map(|shard| keys(shard).take(COUNTERS));
    let (names, limits) = (names.collect::<Vec<_>>(), limits());
    let mut draws = Draws(rules as u64);
    let mut secs = 1_000;
    for _ in 0..REQUESTS {
        secs += [0, 0, 0, 1, 20][draws.below(5)];
        let asked: Vec<_> = (0..=draws.below(5)).map(|_| draws.asked()).collect();
        let steps = asked.iter().map(|asked| {
            let limit = if changes {
                asked.limit
            } else {
                asked.counter % 5
            };
            let rule = RuleSlot((asked.counter % rules) as u16);
            asked.of(names[asked.counter], &limits[limit], rule)
        });
        let steps: Vec<_> = steps.collect();
        let is_there = |step: &&Step| is_there(&store, step.key);
        let there: Vec<_> = steps.iter().filter(is_there).collect();
        let evicted_before = evicted(&store);
        let verdicts = decide(&store, &steps, secs);
        audit(&store, reserved);
        for (step, outcome) in steps.iter().zip(&verdicts.outcomes) {
            let is_counted = matches!(outcome, StepOutcome::Counted(_)) && step.hits > 0;
            let passes = verdicts.allowed && outcome.fits();
            assert!(is_there(&step) || !(is_counted && (passes || step.charge == Charge::Always)));
        }
        assert!(there.iter().all(is_there), "what a request asks for stays");
        let is_charged = verdicts.allowed || asked.iter().any(|asked| asked.always);
        assert!(is_charged || evicted(&store) == evicted_before);
        // What a denial finds in words, and its limit has on the heap, goes there without room as well.
        assert!(changes || store.budget.used() <= store.budget.limit());
    }
}

#[test]
fn the_accounts_are_right_whatever_is_asked() {
    for (share, rules) in [(1, 150), (2, 100), (10, 12), (25, 5), (100, 3)] {
        for changes in [false, true] {
            ask_for_anything(share, rules, changes);
        }
    }
}
