//! A bucket whose rate is lowered while hits are missing: they come back at the new rate, and the counter lives on until they have.

use ratekeeper_core::{Algorithm, Micros, Timestamp};

use super::{decide, limit, step, store};
use crate::memory::MemoryStore;
use crate::{Step, StepOutcome, Verdicts};

fn taking(hits: i64, step: Step) -> Step {
    Step { hits, ..step }
}

/// A step of another counter, which passes.
fn other() -> Step {
    step(&limit(Algorithm::FixedWindow, 1_000, 3_600), 2)
}

/// The wait that the last step is told, in seconds.
fn wait(verdicts: &Verdicts) -> u64 {
    match verdicts.outcomes.last() {
        Some(StepOutcome::Counted(outcome)) => outcome.retry_after.get() / 1_000_000,
        other => panic!("{other:?}"),
    }
}

fn sweep(store: &MemoryStore, secs: u64) -> usize {
    store.sweep(Timestamp::from_secs(secs), usize::MAX)
}

#[test]
fn a_denial_under_a_slower_rate_lasts_for_as_long_as_it_tells() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::Gcra] {
        let (before, after) = (limit(algorithm, 100, 2), limit(algorithm, 2, 2));
        // By themselves, and beside another counter.
        for others in [&[][..], &[other()]] {
            let store = store();
            assert!(decide(&store, &[taking(100, step(&before, 1))], 1_000).allowed);
            let steps = [others, &[step(&after, 1)]].concat();
            let denied = decide(&store, &steps, 1_001);
            assert!(!denied.allowed);
            // What came back at the old rate counts by the new one: a second of it.
            assert_eq!(wait(&denied), 98);
            sweep(&store, 1_098);
            assert!(!decide(&store, &steps, 1_098).allowed, "{algorithm:?}");
            assert!(decide(&store, &steps, 1_099).allowed, "{algorithm:?}");
        }
    }
}

/// A look is told a wait as well.
#[test]
fn a_look_that_is_denied_keeps_the_counter_for_as_long() {
    let (before, after) = (
        limit(Algorithm::TokenBucket, 100, 2),
        limit(Algorithm::TokenBucket, 2, 2),
    );
    for others in [&[][..], &[other()]] {
        let store = store();
        assert!(decide(&store, &[taking(100, step(&before, 1))], 1_000).allowed);
        let steps = [others, &[taking(0, step(&after, 1))]].concat();
        assert!(!decide(&store, &steps, 1_001).allowed);
        assert_eq!(sweep(&store, 1_098), 0);
        assert_eq!(sweep(&store, 1_100), 1);
    }
}

/// The slowest of the limits that it is read by counts, whichever of them denies last.
#[test]
fn a_denial_under_a_faster_rate_shortens_nothing() {
    let [slow, fast] = [2, 100].map(|quota| {
        let mut spec =
            ratekeeper_core::LimitSpec::new(Algorithm::Gcra, quota, Micros::from_secs(2));
        spec.burst = Some(100);
        ratekeeper_core::Limit::try_new(spec).unwrap()
    });
    for others in [&[][..], &[other()]] {
        let store = store();
        assert!(decide(&store, &[taking(100, step(&slow, 1))], 1_000).allowed);
        let steps = [others, &[taking(100, step(&fast, 1))]].concat();
        assert!(!decide(&store, &steps, 1_001).allowed);
        assert_eq!(sweep(&store, 1_090), 0);
        assert!(!decide(&store, &[taking(100, step(&slow, 1))], 1_090).allowed);
    }
}
