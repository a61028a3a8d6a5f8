//! Refunds by example; `definition.rs` compares all of them with the model.

use ratekeeper_core::{Algorithm, Ask, Limit, LimitSpec, Micros, Moment, State, Timestamp};

const SECOND: u64 = 1_000_000;

struct Counter {
    limit: Limit,
    state: State,
}

impl Counter {
    /// `quota` hits in ten seconds.
    fn new(algorithm: Algorithm, quota: u64, sub_windows: Option<u32>) -> Self {
        let spec = LimitSpec::new(algorithm, quota, Micros::from_secs(10));
        let limit = Limit::try_new(LimitSpec {
            sub_windows,
            ..spec
        })
        .expect("a valid limit");
        let state = State::new(limit.shape());
        Self { limit, state }
    }

    /// Takes a step this many microseconds after a round time; returns the remaining hits.
    fn step(&mut self, micros: u64, hits: i64) -> u64 {
        let now = Timestamp::from_micros(1_000_000 * SECOND + micros);
        self.limit
            .step(&mut self.state, hits, &Moment::at(now))
            .remaining
    }
}

#[test]
fn never_leave_more_than_the_capacity() {
    for algorithm in Algorithm::ALL {
        let mut counter = Counter::new(algorithm, 5, None);
        assert_eq!(counter.step(0, -3), 5);
        counter.step(0, 1);
        let left = counter.step(0, i64::MIN);
        let kept = if algorithm == Algorithm::Concurrency {
            4
        } else {
            5
        };
        assert_eq!(left, kept, "{algorithm:?}");
        assert_eq!(counter.step(0, 2), kept - 2, "{algorithm:?}");
    }
}

#[test]
fn reach_the_current_window_only() {
    let mut fixed = Counter::new(Algorithm::FixedWindow, 5, None);
    fixed.step(0, 4);
    assert_eq!(fixed.step(10 * SECOND - 1, -1), 2);
    assert_eq!(fixed.step(10 * SECOND, 4), 1);
    assert_eq!(fixed.step(10 * SECOND, -9), 5);
}

#[test]
fn leave_the_part_that_a_sliding_window_carries_over() {
    let mut sliding = Counter::new(Algorithm::SlidingWindow, 10, Some(1));
    sliding.step(0, 6);
    sliding.step(10 * SECOND, 4);
    // A quarter of the way in, 4.5 of the 6 still count; those are not given back.
    assert_eq!(sliding.step(12 * SECOND + SECOND / 2, -9), 5);
}

#[test]
fn take_the_newest_of_a_log() {
    let mut log = Counter::new(Algorithm::SlidingLog, 3, None);
    log.step(0, 1);
    log.step(SECOND, 1);
    log.step(2 * SECOND, 1);
    assert_eq!(log.step(2 * SECOND, -2), 2);
    // The first hit remains, and leaves ten seconds after its time.
    assert_eq!(log.step(10 * SECOND - 1, 0), 2);
    assert_eq!(log.step(10 * SECOND, 0), 3);
}

#[test]
fn free_the_tail_of_a_leaky_bucket() {
    let mut leaky = Counter::new(Algorithm::LeakyBucket, 5, None);
    leaky.step(0, 3);
    leaky.step(0, -1);
    let now = Timestamp::from_micros(1_000_000 * SECOND);
    let next = leaky
        .limit
        .test(leaky.state.as_ref(), Ask::hits(1), &Moment::at(now));
    assert_eq!(next.delay, Micros::from_secs(4));
}

#[test]
fn do_not_fill_a_bucket_beyond_full() {
    for algorithm in [
        Algorithm::TokenBucket,
        Algorithm::Gcra,
        Algorithm::LeakyBucket,
    ] {
        let mut bucket = Counter::new(algorithm, 5, None);
        bucket.step(0, 1);
        // Half a token has refilled by itself; the refund of a whole one adds only the rest.
        assert_eq!(bucket.step(SECOND, -1), 5);
        assert_eq!(bucket.step(SECOND, 5), 0);
        assert_eq!(bucket.step(3 * SECOND - 1, 0), 0);
        assert_eq!(bucket.step(3 * SECOND, 0), 1);
    }
}
