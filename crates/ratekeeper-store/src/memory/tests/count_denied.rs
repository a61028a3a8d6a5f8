//! A store without room, and denied requests of which a part is charged all the same.

use ratekeeper_core::Algorithm;

use super::{decide, limit, step};
use crate::memory::{MemoryConfig, MemoryStore};
use crate::{Charge, RuleSlot, Step, StepOutcome};

const COUNTERS: u64 = 40_000;

/// A step of ten an hour; one of the first [`COUNTERS`] has been charged once.
fn ten(identity: u64) -> Step {
    step(&limit(Algorithm::Gcra, 10, 3_600), identity)
}

/// A step that denies whatever comes, and counts it.
fn denying() -> Step {
    Step {
        charge: Charge::Always,
        ..step(&limit(Algorithm::FixedWindow, 0, 3_600), u64::MAX)
    }
}

/// A full store, in which the counter of [`denying`] is.
fn full() -> MemoryStore {
    let store = MemoryStore::new(MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        max_share_percent: 100,
    })
    .unwrap();
    assert!(!decide(&store, &[denying()], 1_000).allowed);
    for identity in 0..COUNTERS {
        decide(&store, &[ten(identity)], 1_000);
    }
    store
}

#[test]
fn a_counted_denial_evicts_nothing_for_the_counters_beside_it() {
    let store = full();
    let before = store.stats();
    for identity in COUNTERS..COUNTERS + 1_000 {
        let (new, denying) = (ten(identity), denying());
        for steps in [&[denying, new][..], &[new, denying], &[new, new, denying]] {
            assert!(!decide(&store, steps, 1_000).allowed);
        }
    }
    assert_eq!(store.stats(), before);
}

#[test]
fn what_a_denied_request_counts_makes_room_for_itself() {
    let store = full();
    let before = store.stats();
    for identity in COUNTERS..COUNTERS + 100 {
        let counted = Step {
            charge: Charge::Always,
            ..ten(identity)
        };
        // The counter is new to both, and only the second is charged.
        let steps = [ten(identity), denying(), counted];
        assert!(!decide(&store, &steps, 1_000).allowed);
        let look = Step {
            hits: 0,
            ..ten(identity)
        };
        let StepOutcome::Counted(outcome) = decide(&store, &[look], 1_000).outcomes[0] else {
            panic!("it is counted");
        };
        assert_eq!(outcome.remaining, 9);
    }
    let after = store.stats();
    assert_eq!(after.evicted_live, before.evicted_live + 100);
    assert_eq!(after.counters, before.counters);
}

/// Half of the table is others', and the rest is free: the counter that makes room is seldom at the new one's place.
#[test]
fn a_rule_at_its_share_makes_room_for_what_a_denied_request_counts() {
    let store = MemoryStore::new(MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        max_share_percent: 1,
    })
    .unwrap();
    let of_rule = |identity| Step {
        rule: RuleSlot(1),
        ..ten(identity)
    };
    assert!(!decide(&store, &[denying()], 1_000).allowed);
    for identity in 0..store.stats().capacity / 2 {
        decide(&store, &[ten(identity)], 1_000);
    }
    for identity in COUNTERS..2 * COUNTERS {
        decide(&store, &[of_rule(identity)], 1_000);
    }
    let before = store.stats();
    for identity in 2 * COUNTERS..2 * COUNTERS + 100 {
        let counted = Step {
            charge: Charge::Always,
            ..of_rule(identity)
        };
        let steps = [of_rule(identity), denying(), counted];
        assert!(!decide(&store, &steps, 1_000).allowed);
    }
    let after = store.stats();
    assert_eq!(after.counters, before.counters);
    assert_eq!(after.evicted_live, before.evicted_live + 100);
}
