//! A clock that goes back does bounded harm. Nothing panics, no more is left than the capacity,
//! waits stay exact and never exceed two windows, and no more passes than in the time that went by
//! (the sum of the steps forward) plus one window for each step back.

use crate::waiting::assert_wait;
use proptest::prelude::*;
use ratekeeper_core::{Algorithm, Limit, Moment, State, Timestamp, Verdict};
use ratekeeper_testkit::model::history::{Gap, Hits, gaps, specs, starts, takes};

/// The movement of the clock before a step.
#[derive(Clone, Copy, Debug)]
enum Clock {
    Forward(Gap),
    Back(Gap),
}

fn clocks() -> impl Strategy<Value = Clock> {
    prop_oneof![3 => gaps().prop_map(Clock::Forward), 1 => gaps().prop_map(Clock::Back)]
}

/// Admitted hits with the elapsed time.
struct Passed {
    gone_by: u64,
    /// The number of times that the clock has gone back.
    steps_back: u64,
    hits: u64,
}

/// The most that may pass in `span` microseconds, in hits times microseconds of the window.
fn allowed(limit: &Limit, span: u64) -> u128 {
    let window = u128::from(limit.window().get());
    let quota = u128::from(limit.quota());
    match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
            u128::from(limit.capacity()) * window + quota * u128::from(span)
        }
        Algorithm::SlidingLog if u128::from(span) < window => quota * window,
        // Up to twice the limit across an edge, and then once a window.
        _ => (quota * (u128::from(span) / window + 2)) * window,
    }
}

fn assert_passed(limit: &Limit, passed: &[Passed]) {
    for (first, from) in passed.iter().enumerate() {
        let mut hits = 0_u128;
        for to in passed.iter().skip(first) {
            hits += u128::from(to.hits);
            let steps_back = u128::from(to.steps_back - from.steps_back);
            let window = u128::from(limit.window().get());
            let allowed = allowed(limit, to.gone_by - from.gone_by)
                + steps_back * u128::from(limit.capacity()) * window;
            let hits = hits * u128::from(limit.window().get());
            assert!(hits <= allowed, "{} passed", hits);
        }
    }
}

/// The longest reported wait, whatever the clock did: two windows, for a sliding one plus the
/// sub-window that fades out; for a bucket, its time to fill.
fn longest_wait(limit: &Limit) -> u64 {
    let window = limit.window().get();
    match limit.algorithm() {
        Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
            2 * limit.span(limit.capacity()).get()
        }
        Algorithm::SlidingWindow => {
            let sub = window.div_ceil(u64::from(limit.sub_windows().max(1)));
            sub * (2 * u64::from(limit.sub_windows().max(1)) + 1)
        }
        _ => 2 * window,
    }
}

fn check(limit: &Limit, start: Timestamp, moves: &[(Clock, Hits)]) {
    let mut state = State::new(limit.shape());
    let (mut now, mut gone_by, mut steps_back, mut last) = (start, 0, 0, None);
    let mut passed = Vec::new();
    let end = limit.window().get().saturating_mul(8);
    let bucket = limit.capacity() / limit.quota().max(1);
    for (clock, hits) in moves {
        let before = now;
        now = match clock {
            Clock::Forward(gap) => gap.after(now, limit, last.as_ref()),
            Clock::Back(gap) => gap.before(now, limit, last.as_ref()),
        };
        gone_by += now.since(before).get();
        steps_back += u64::from(now < before);
        // Far from the end of time, which answers may not reach.
        let far = u128::from(now.as_micros()) + u128::from(end) * u128::from(bucket + 1);
        if far > 1 << 53 {
            return;
        }
        let hits = hits.number(limit, last.as_ref());
        let outcome = limit.step(&mut state, hits, &Moment::at(now));
        assert!(outcome.remaining <= limit.capacity());
        match outcome.verdict {
            Verdict::Fits => passed.push(Passed {
                gone_by,
                steps_back,
                hits: hits.unsigned_abs(),
            }),
            Verdict::Later if limit.algorithm() != Algorithm::Concurrency => {
                let wait = outcome.retry_after.get();
                assert!(wait <= longest_wait(limit), "{wait} us of {limit:?}");
                assert_wait(limit, &state, hits.max(1), now, outcome.retry_after);
            }
            Verdict::Later | Verdict::Never => {}
        }
        last = Some(outcome);
    }
    if limit.algorithm() != Algorithm::Concurrency {
        assert_passed(limit, &passed);
    }
}

proptest! {
    #[test]
    fn is_harmless(
        spec in prop::sample::select(&Algorithm::ALL[..]).prop_flat_map(specs),
        start in starts(),
        moves in prop::collection::vec((clocks(), takes()), 1..40),
    ) {
        let limit = Limit::try_new(spec).expect("the strategy draws only valid limits");
        check(&limit, start, &moves);
    }
}

/// Permits taken by a clock that was an hour ahead expire a timeout after the first denial.
#[test]
fn permits_end_as_if_they_were_taken_now() {
    let timeout = ratekeeper_core::Micros::from_secs(10);
    let spec = ratekeeper_core::LimitSpec::new(Algorithm::Concurrency, 1, timeout);
    let limit = Limit::try_new(spec).expect("a valid limit");
    let mut state = State::new(limit.shape());
    let at = |secs: u64| Moment::at(Timestamp::from_secs(1_000_000 + secs));
    assert!(limit.step(&mut state, 1, &at(3_600)).fits());
    assert!(!limit.step(&mut state, 1, &at(0)).fits());
    assert!(!limit.step(&mut state, 1, &at(9)).fits());
    assert!(limit.step(&mut state, 1, &at(10)).fits());
}
