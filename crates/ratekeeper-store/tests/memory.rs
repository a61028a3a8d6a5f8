//! The memory store passes the conformance suite.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{CounterKey, MemoryConfig, MemoryStore, Request, Step, StepOutcome, Store};

ratekeeper_testkit::conformance!(|| MemoryStore::new(MemoryConfig::default()).unwrap());

/// A node's own counters are never leased: a step that asks for it is counted exactly, also while its limit changes.
#[test]
fn a_leased_limit_that_changes_admits_exactly_the_new_one() {
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    let algorithms = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::TokenBucket,
        Algorithm::Gcra,
    ];
    let now = Timestamp::from_secs(1_789_000_123);
    for (number, algorithm) in (0..).zip(algorithms) {
        for (subject, quotas) in [(1, [20, 60]), (2, [60, 20])] {
            let key = CounterKey {
                subject,
                identity: number,
            };
            let [before, after] = quotas.map(|quota| {
                let spec = LimitSpec::new(algorithm, quota, Micros::from_secs(3_600));
                Step {
                    lease: Micros::from_millis(100),
                    ..Step::new(key, Limit::try_new(spec).unwrap())
                }
            });
            let takes = |step: Step| {
                let verdicts = store.decide_now(&Request::new(&[step], Mode::default(), now));
                assert!(matches!(verdicts.outcomes[0], StepOutcome::Counted(_)));
                verdicts.allowed
            };
            let mut by_turns = [before, after].into_iter().cycle().take(10);
            assert!(by_turns.all(takes));
            let more = (0..100).filter(|_| takes(after)).count() as u64;
            assert_eq!(10 + more, quotas[1], "{algorithm:?} {quotas:?}");
            assert!(store.held(&after).is_none());
        }
    }
}
