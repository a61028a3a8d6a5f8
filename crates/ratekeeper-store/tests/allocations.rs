//! Decisions about inline counters do not allocate.

use std::sync::Arc;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::across::{self, Partition, Partitions, Rest};
use ratekeeper_store::{
    Answer, CounterKey, MemoryConfig, MemoryStore, Never, Request, RuleSlot, Step, StoreSlot,
};

fn step(limit: &Limit, identity: u64) -> Step {
    Step::new(
        CounterKey {
            subject: identity % 3,
            identity,
        },
        *limit,
    )
}

#[test]
fn deciding_in_line_allocates_nothing() {
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    let limits = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::TokenBucket,
        Algorithm::Gcra,
    ]
    .map(|algorithm| {
        let spec = LimitSpec::new(algorithm, 100, Micros::from_secs(60));
        Limit::try_new(spec).unwrap()
    });
    let now = Timestamp::from_secs(1_000);
    let decide = |steps: &[Step]| store.decide_now(&Request::new(steps, Mode::default(), now));
    // Each shard counts its rules from its first counter on.
    (0..10_000).for_each(|identity| drop(decide(&[step(&limits[0], 1_000_000 + identity)])));

    let counted = allocation_counter::measure(|| {
        for identity in 0..1_000_u64 {
            let one = |limit: usize| step(&limits[limit], identity * 4 + limit as u64);
            // New and known, admitted and denied, alone and together.
            for _ in 0..3 {
                assert!(decide(&[one(0)]).allowed);
                assert!(decide(&[one(0), one(1), one(2), one(3)]).allowed);
            }
            assert!(!decide(&[Step { hits: 98, ..one(1) }]).allowed);
            assert!(!decide(&[one(2), Step { hits: 98, ..one(3) }]).allowed);
        }
    });
    assert_eq!(counted.count_total, 0);
}

/// Limits that come with requests have nearly the largest number.
#[test]
fn a_rule_with_a_large_number_costs_as_little_as_another() {
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    let spec = LimitSpec::new(Algorithm::FixedWindow, 100, Micros::from_secs(60));
    let limit = Limit::try_new(spec).unwrap();
    let now = Timestamp::from_secs(1_000);
    let counted = allocation_counter::measure(|| {
        for identity in 0..10_000 {
            let step = Step {
                rule: RuleSlot(u16::MAX - 1),
                ..step(&limit, identity)
            };
            assert!(
                store
                    .decide_now(&Request::new(&[step], Mode::default(), now))
                    .allowed
            );
        }
        store.sweep(now, usize::MAX);
    });
    assert!(counted.bytes_total < 1 << 20, "{counted:?}");
}

/// Two stores on one node.
#[derive(Clone)]
struct Two(Arc<[MemoryStore; 2]>);

impl Partitions for Two {
    type Ticket = Never;

    fn ask(&self, partition: Partition, request: &Request<'_>) -> Answer<Never> {
        Answer::Decided(self.0[usize::from(partition.store.0)].decide_now(request))
    }

    fn detach(&self, _: Rest<Self>) {}

    fn stranded(&self, _: Partition, hits: u64) {
        panic!("{hits} hits did not come back");
    }
}

#[test]
fn deciding_across_stores_of_this_node_allocates_nothing() {
    let store = || MemoryStore::new(MemoryConfig::default()).unwrap();
    let two = Two(Arc::new([store(), store()]));
    let spec = |quota| LimitSpec::new(Algorithm::FixedWindow, quota, Micros::from_secs(60));
    let [wide, none] = [1 << 40, 0].map(|quota| Limit::try_new(spec(quota)).unwrap());
    let now = Timestamp::from_secs(1_000);
    let is_allowed = |steps: &[Step]| {
        let request = Request::new(steps, Mode::default(), now);
        let partition =
            |step: &Step| Partition::from(StoreSlot(u8::from(step.key.identity % 2 == 1)));
        match across::decide(&two, &request, partition) {
            Answer::Decided(verdicts) => verdicts.allowed,
            Answer::Pending(_) => panic!("memory decides at once"),
        }
    };
    let ask = || {
        for identity in 0..1_000 {
            let counters = [0, 1, 2].map(|number| step(&wide, identity + number));
            assert!(is_allowed(&counters));
            // The first store's hits come back.
            let denied = [step(&wide, 2 * identity), step(&none, 2 * identity + 1)];
            assert!(!is_allowed(&denied));
        }
    };
    ask();
    assert_eq!(allocation_counter::measure(ask).count_total, 0);
}
