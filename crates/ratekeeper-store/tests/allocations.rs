//! A decision about counters that lie in line allocates nothing.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{
    Charge, CounterKey, FullMode, MemoryConfig, MemoryStore, Request, RuleSlot, Step,
};

fn step(limit: &Limit, identity: u64) -> Step<'_> {
    Step {
        key: CounterKey {
            subject: identity % 3,
            identity,
        },
        limit,
        calendar: None,
        hits: 1,
        charge: Charge::IfAllowed,
        descriptor: 0,
        shadow: false,
        quota_mode: false,
        rule: RuleSlot(0),
        store: Default::default(),
        full_mode: FullMode::Allow,
    }
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
    let decide = |steps: &[Step<'_>]| store.decide_now(&Request::new(steps, Mode::default(), now));
    // Each shard counts its rules from the first counter on.
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
