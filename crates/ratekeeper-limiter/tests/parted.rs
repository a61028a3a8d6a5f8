//! A limiter whose rules name stores, of which one may be away.

use std::future::{Future, Ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use ratekeeper_limiter::{Check, Decision, Fallback, FallbackConfig, Limiter, LimiterOptions};
use ratekeeper_rules::{Options, RuleSet, Source, load};
use ratekeeper_store::across::{self, Partition, Partitions, Rest};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store::{Answer, Request, Step, Store, StoreError, StoreSlot, Verdicts};

const RULES: &str = "
domain: d
evaluation: path
descriptors:
  - key: all
    rate_limit: { window: 10000d, limit: 40, algorithm: fixed_window }
    descriptors:
      - key: every
        rate_limit: { window: 10000d, limit: 1000, algorithm: fixed_window, count_denied: true }
        descriptors:
          - { key: own, store: other, rate_limit: { window: 10000d, limit: 9, algorithm: fixed_window } }
          - { key: free, store: other, on_store_failure: allow, rate_limit: { window: 10000d, limit: 9, algorithm: fixed_window } }
          - { key: strict, store: other, on_store_failure: deny, rate_limit: { window: 10000d, limit: 9, algorithm: fixed_window } }
";

#[derive(Clone, Debug)]
struct Parted(Arc<Stores>);

#[derive(Debug)]
struct Stores {
    both: [MemoryStore; 2],
    /// True if the second is away.
    is_away: AtomicBool,
    /// True if that is known before it is asked.
    is_known: bool,
}

const OTHER: StoreSlot = StoreSlot(1);

fn partition_of(step: &Step) -> Partition {
    step.store.into()
}

impl Store for Parted {
    type Ticket = across::Ticket<Self>;

    fn decide(&self, request: &Request<'_>) -> Answer<Self::Ticket> {
        across::decide(self, request, partition_of)
    }

    fn give_back(&self, request: &Request<'_>, taken: &Verdicts) {
        across::give_back(self, request, taken, partition_of);
    }

    fn slot(&self, name: &str) -> StoreSlot {
        StoreSlot(u8::from(name == "other"))
    }
}

impl Partitions for Parted {
    type Ticket = Ready<Result<Verdicts, StoreError>>;

    fn ask(&self, partition: Partition, request: &Request<'_>) -> Answer<Self::Ticket> {
        if partition.store == OTHER && self.0.is_away.load(Ordering::Relaxed) {
            return Answer::Pending(std::future::ready(Err(StoreError::Timeout)));
        }
        Answer::Decided(self.0.both[usize::from(partition.store.0)].decide_now(request))
    }

    fn away(&self, partition: Partition) -> Option<StoreError> {
        let is_away = partition.store == OTHER && self.0.is_away.load(Ordering::Relaxed);
        (is_away && self.0.is_known).then_some(StoreError::Unavailable)
    }

    fn detach(&self, rest: Rest<Self>) {
        now(rest);
    }

    /// Checks that only the partition that gives no answer strands hits: it is unknown what it has taken.
    fn stranded(&self, partition: Partition, hits: u64) {
        assert_eq!(
            partition.store, OTHER,
            "{hits} hits were lost of a store that is there"
        );
        assert!(self.0.is_away.load(Ordering::Relaxed));
    }
}

fn memory() -> MemoryConfig {
    MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    }
}

fn rules() -> RuleSet {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    match load(&[source], &Options::default()) {
        Ok(loaded) => loaded.rules,
        Err(refused) => panic!("{refused}"),
    }
}

fn limiter(is_known: bool) -> Limiter<Parted> {
    let store = || MemoryStore::new(memory()).expect("the least store");
    let stores = Stores {
        both: [store(), store()],
        is_away: AtomicBool::new(false),
        is_known,
    };
    let config = FallbackConfig {
        memory: memory(),
        local_factor: 1.0,
    };
    let fallback = Fallback::new(config).expect("the least store");
    Limiter::new(rules(), Parted(Arc::new(stores)), LimiterOptions::default())
        .with_fallback(fallback)
}

/// Resolves a future that never has to wait here.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("these stores answer at once"),
    }
}

const KEYS: [&str; 3] = ["own", "free", "strict"];

fn ask(limiter: &Limiter<Parted>, key: &str, hits: i64) -> Decision {
    let entries = ["all", "every", key].map(|key| (key, "v"));
    now(limiter.check(&Check::new("d").descriptor(entries).hits(hits)))
}

/// The hits that the stores have counted for each limit on the path to `key`.
fn used(limiter: &Limiter<Parted>, key: &str) -> [u64; 3] {
    let entries = ["all", "every", key].map(|key| (key, "v"));
    let explained = now(limiter.explain(&Check::new("d").descriptor(entries)));
    let nodes = &explained.descriptors[0].nodes;
    let left = |number: usize| nodes[number].limits[0].remaining.expect("it is counted");
    [40 - left(0), 1000 - left(1), 9 - left(2)]
}

proptest! {
    /// The available store counts each passed hit once, no matter what happens to the other, which
    /// counts the hits that passed while it was available.
    #[test]
    fn each_store_counts_what_passed_while_it_was_there(
        requests in prop::collection::vec((0..3_usize, 1..4_i64, prop::bool::weighted(0.5)), 1..40),
        is_known in any::<bool>(),
    ) {
        let limiter = limiter(is_known);
        let (mut passed, mut asked) = (0, 0);
        let mut passed_there = [0; 3];
        for (key, hits, is_away) in requests {
            limiter.store().0.is_away.store(is_away, Ordering::Relaxed);
            let decision = ask(&limiter, KEYS[key], hits);
            prop_assert_eq!(decision.is_degraded(), is_away);
            asked += hits.unsigned_abs();
            if decision.allowed() {
                passed += hits.unsigned_abs();
                passed_there[key] += if is_away { 0 } else { hits.unsigned_abs() };
            }
            if is_away && KEYS[key] == "strict" {
                prop_assert!(!decision.allowed());
            }
        }
        limiter.store().0.is_away.store(false, Ordering::Relaxed);
        for (key, there) in KEYS.iter().zip(passed_there) {
            prop_assert_eq!(used(&limiter, key), [passed, asked, there]);
        }
    }
}

#[test]
fn what_the_failure_mode_denies_is_not_taken_of_the_store_that_is_there() {
    for is_known in [false, true] {
        let limiter = limiter(is_known);
        limiter.store().0.is_away.store(true, Ordering::Relaxed);
        let allowed = |key| ask(&limiter, key, 1).allowed();
        let passed = |key| (0..50).filter(|_| allowed(key)).count();
        assert_eq!(
            [passed("strict"), passed("own"), passed("free")],
            [0, 9, 31]
        );
        limiter.store().0.is_away.store(false, Ordering::Relaxed);
        assert_eq!(used(&limiter, "own"), [40, 150, 0]);
    }
}
