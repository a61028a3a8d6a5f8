//! Known bugs of other rate limiters.

use ratekeeper_core::{
    Algorithm, Ask, Limit, LimitSpec, Micros, Moment, Outcome, State, Timestamp, Verdict,
};

const START: Timestamp = Timestamp::from_secs(1_000_000);

fn limit(algorithm: Algorithm, quota: u64) -> Limit {
    Limit::try_new(LimitSpec::new(algorithm, quota, Micros::from_secs(10))).expect("a valid limit")
}

fn step(limit: &Limit, state: &mut State, hits: i64, after: Micros) -> Outcome {
    limit.step(state, hits, &Moment::at(START.after(after)))
}

fn every_limit(quota: u64) -> impl Iterator<Item = Limit> {
    Algorithm::ALL
        .into_iter()
        .map(move |algorithm| limit(algorithm, quota))
}

/// throttlecrab clamped a stored arrival time to the wrong bound: 2B - 1 passed after an idle.
#[test]
fn an_idle_key_never_bursts_beyond_its_burst() {
    for limit in every_limit(10) {
        for idle in [
            9_999_999,
            10_000_000,
            10_000_001,
            19_999_999,
            20_000_001,
            86_400_000_000,
        ] {
            let mut state = State::new(limit.shape());
            for _ in 0..10 {
                assert!(step(&limit, &mut state, 1, Micros::ZERO).fits());
            }
            let idle = Micros::new(idle);
            let passed = (0..40)
                .filter(|_| step(&limit, &mut state, 1, idle).fits())
                .count();
            assert!(
                passed <= 10,
                "{passed} after {idle:?} by {:?}",
                limit.algorithm()
            );
        }
    }
}

/// A check of "count < limit" lets the last request take more than is left.
#[test]
fn a_cost_of_n_never_overshoots_by_n_minus_1() {
    for limit in every_limit(10) {
        let mut state = State::new(limit.shape());
        assert_eq!(step(&limit, &mut state, 8, Micros::ZERO).remaining, 2);
        let denied = step(&limit, &mut state, 3, Micros::ZERO);
        assert_eq!((denied.verdict, denied.remaining), (Verdict::Later, 2));
        assert_eq!(step(&limit, &mut state, 2, Micros::ZERO).remaining, 0);
    }
}

/// neon's window lets any n pass as the first request of a window.
#[test]
fn a_fresh_counter_compares_too() {
    for limit in every_limit(10) {
        let mut state = State::new(limit.shape());
        assert_eq!(
            step(&limit, &mut state, 11, Micros::ZERO).verdict,
            Verdict::Never
        );
        assert_eq!(
            step(&limit, &mut state, 10, Micros::ZERO).verdict,
            Verdict::Fits
        );
    }
}

/// Taking 0 hits for an absent number, which means 1, makes every peek a take.
#[test]
fn no_hits_are_not_one_hit() {
    for limit in every_limit(1) {
        let mut state = State::new(limit.shape());
        let peek = step(&limit, &mut state, 0, Micros::ZERO);
        assert_eq!((peek.remaining, peek.retry_after), (1, Micros::ZERO));
        assert_eq!(step(&limit, &mut state, 1, Micros::ZERO).remaining, 0);
        // At the limit a peek is still fine, and says when one hit would be.
        let peek = step(&limit, &mut state, 0, Micros::ZERO);
        assert_eq!((peek.verdict, peek.remaining), (Verdict::Fits, 0));
        assert!(!peek.retry_after.is_zero());
    }
}

/// "limit - count" wraps around once the limit is below the count.
#[test]
fn a_limit_lowered_below_usage_does_not_underflow() {
    for (before, after) in every_limit(10).zip(every_limit(3)) {
        let mut state = State::new(before.shape());
        step(&before, &mut state, 8, Micros::ZERO);
        let denied = step(&after, &mut state, 1, Micros::ZERO);
        assert_eq!((denied.verdict, denied.remaining), (Verdict::Later, 0));
        assert_eq!(
            step(&after, &mut state, 4, Micros::ZERO).verdict,
            Verdict::Never
        );
        let later = Micros::from_secs(40);
        assert!(step(&after, &mut state, 3, later).fits());
    }
}

/// A wait truncated to whole seconds says "now" for one of 900 ms.
#[test]
fn a_wait_is_never_zero_when_denied() {
    for limit in every_limit(10) {
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 10, Micros::new(9_999_999));
        for micros in [9_999_999, 10_000_000, 10_500_000] {
            let denied = step(&limit, &mut state, 10, Micros::new(micros));
            if denied.verdict == Verdict::Later {
                assert!(denied.retry_after.as_secs_ceil() > 0);
            }
        }
    }
}

/// A clock set back an hour shut some limiters for an hour, and opened others.
#[test]
fn a_clock_set_back_neither_opens_nor_shuts_a_bucket() {
    for algorithm in [
        Algorithm::TokenBucket,
        Algorithm::Gcra,
        Algorithm::LeakyBucket,
    ] {
        let limit = limit(algorithm, 10);
        let mut state = State::new(limit.shape());
        let hour = Micros::from_secs(3_600);
        step(&limit, &mut state, 10, hour);
        let denied = step(&limit, &mut state, 1, Micros::ZERO);
        assert_eq!((denied.verdict, denied.remaining), (Verdict::Later, 0));
        assert_eq!(denied.retry_after, Micros::from_secs(1));
        assert!(step(&limit, &mut state, 1, Micros::from_secs(1)).fits());
        assert!(!step(&limit, &mut state, 1, Micros::from_secs(1)).fits());
    }
}

/// A quota of 0 divided by, or taken for "no limit".
#[test]
fn a_limit_of_0_blocks_everything() {
    for limit in every_limit(0) {
        let mut state = State::new(limit.shape());
        assert_eq!(
            step(&limit, &mut state, 1, Micros::ZERO).verdict,
            Verdict::Never
        );
        let peek = limit.test(state.as_ref(), Ask::hits(0), &Moment::at(START));
        assert_eq!((peek.remaining, peek.retry_after), (0, Micros::MAX));
    }
}
