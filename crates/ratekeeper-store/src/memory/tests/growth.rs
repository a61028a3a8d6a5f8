//! A growing table answers like one that was large from the start.

#![allow(
    clippy::cast_possible_truncation,
    reason = "figures of tests are small"
)]

use proptest::prelude::*;
use ratekeeper_core::{Algorithm, Limit, Mode, Timestamp};

use super::{decide, keys, limit, step};
use crate::memory::{MemoryConfig, MemoryStore};
use crate::{Charge, CounterKey, Request, RuleSlot, Step};

/// Four segments of some 1,300 slots in each shard.
const CONFIG: MemoryConfig = MemoryConfig {
    memory_limit: 24 << 20,
    max_share_percent: 100,
};

fn grown() -> MemoryStore {
    let store = MemoryStore::new(CONFIG).unwrap();
    for cell in &store.shards {
        let table = &mut cell.0.lock().table;
        table.grow_fully();
        assert_eq!(table.buckets(), table.buckets_max());
    }
    store
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    key: usize,
    algorithm: usize,
    hits: i64,
    always: bool,
}

fn asked(keys: usize) -> impl Strategy<Value = Asked> {
    let hits = prop_oneof![8 => Just(1_i64), 2 => 0..4_i64, 1 => -2..0_i64];
    (0..keys, 0..3_usize, hits, prop::bool::weighted(0.1)).prop_map(
        |(key, algorithm, hits, always)| Asked {
            key,
            algorithm,
            hits,
            always,
        },
    )
}

fn steps(asked: &[Asked], keys: &[CounterKey], limits: &[Limit; 3]) -> Vec<Step> {
    let step = |asked: &Asked| {
        let CounterKey { subject, identity } = keys[asked.key];
        let number = asked.algorithm;
        Step {
            key: CounterKey {
                // Each algorithm has its own counter, mostly in another shard.
                subject: subject + number as u64,
                identity,
            },
            hits: asked.hits,
            charge: if asked.always {
                Charge::Always
            } else {
                Charge::IfAllowed
            },
            rule: RuleSlot(number as u16),
            ..step(&limits[number], identity)
        }
    };
    asked.iter().map(step).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn growing_changes_no_answer(
        requests in prop::collection::vec(
            (prop::collection::vec(asked(4_000), 1..5), 0..3_u64),
            4_000..6_000,
        ),
    ) {
        // In the first shard only, so that few of them make it grow.
        let keys: Vec<_> = keys(0).take(4_000).collect();
        let limits = [
            limit(Algorithm::FixedWindow, 3, 3_600),
            limit(Algorithm::SlidingLog, 3, 600),
            limit(Algorithm::TokenBucket, 3, 60),
        ];
        let (growing, large) = (MemoryStore::new(CONFIG).unwrap(), grown());
        let least = growing.stats().table_bytes;
        let mut secs = 10_000;
        for (asked, pause) in &requests {
            secs += pause;
            let steps = steps(asked, &keys, &limits);
            let request = Request::new(&steps, Mode::default(), Timestamp::from_secs(secs));
            prop_assert_eq!(growing.decide_now(&request), large.decide_now(&request));
        }
        let (growing, large) = (growing.stats(), large.stats());
        prop_assert!(growing.table_bytes > least && growing.table_bytes < large.table_bytes);
        prop_assert_eq!(growing.evicted_live, 0);
        prop_assert_eq!(large.evicted_live, 0);
    }
}

/// A name as good as a hash, as a limiter's are.
fn hashed(number: u64) -> u64 {
    siphasher::sip::SipHasher13::new().hash(&number.to_le_bytes())
}

#[test]
fn a_store_takes_memory_as_counters_come() {
    for steps_per_request in [1, 2] {
        let store = MemoryStore::new(MemoryConfig::default()).unwrap();
        let ten = limit(Algorithm::Gcra, 10, 3_600);
        let least = store.stats().table_bytes;
        assert!(least < 8 << 20, "{least}");
        let steps: Vec<_> = (0..200_000)
            .map(|identity| step(&ten, hashed(identity)))
            .collect();
        for steps in steps.chunks(steps_per_request) {
            assert!(decide(&store, steps, 1_000).allowed);
        }
        let stats = store.stats();
        let each = stats.table_bytes / stats.counters;
        assert!(
            stats.counters == 200_000 && (57..160).contains(&each),
            "{stats:?}"
        );
    }
}

#[test]
fn expired_counters_make_room_before_the_table_grows() {
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    let short = limit(Algorithm::FixedWindow, 10, 1);
    let least = store.stats().table_bytes;
    for identity in 0..400_000 {
        let now = Timestamp::from_micros(1_000_000_000 + identity * 100);
        let steps = [step(&short, hashed(identity))];
        assert!(
            store
                .decide_now(&Request::new(&steps, Mode::default(), now))
                .allowed
        );
    }
    // Ten thousand live counters, and no sweeping.
    let stats = store.stats();
    assert_eq!(stats.table_bytes, least, "{stats:?}");
    assert!(
        stats.evicted_expired > 250_000 && stats.evicted_live == 0,
        "{stats:?}"
    );
}
