//! `retry_after` is exact: denied at every tick before it, allowed at it, and `Never` exactly if no
//! wait helps. Concurrency can only hint.

use ratekeeper_core::{Ask, Limit, Micros, Moment, State, Timestamp, Verdict};
use ratekeeper_testkit::model::history::History;

fn verdict(limit: &Limit, state: &State, hits: i64, now: Timestamp) -> Verdict {
    let at = Moment::at(now);
    limit.test(state.as_ref(), Ask::hits(hits), &at).verdict
}

/// Ticks before `wait`: both ends, nearby edges of sub-windows, and some in between.
pub(crate) fn ticks_before(wait: Micros) -> impl Iterator<Item = Micros> {
    let wait = wait.get();
    let ends = (0..8).chain(wait.saturating_sub(8)..wait);
    let between = (1..16).map(move |part| (u128::from(wait) * part / 16) as u64);
    let ticks = ends.chain(between);
    ticks.filter(move |tick| *tick < wait).map(Micros::new)
}

pub(crate) fn assert_wait(limit: &Limit, state: &State, hits: i64, now: Timestamp, wait: Micros) {
    for tick in ticks_before(wait) {
        let early = verdict(limit, state, hits, now.after(tick));
        assert_eq!(early, Verdict::Later, "{tick:?} of {wait:?}");
    }
    let then = verdict(limit, state, hits, now.after(wait));
    assert_eq!(then, Verdict::Fits, "after {wait:?}");
}

fn check(history: &History) {
    check_limit(history, &history.limit());
}

fn check_without_delay(history: &History) {
    check_limit(history, &history.limit().without_delay());
}

fn check_with_some_delay(history: &History) {
    let limit = history.limit();
    let most = Micros::new(limit.window().get() / 3);
    check_limit(history, &limit.with_delay_max(most));
}

fn check_limit(history: &History, limit: &Limit) {
    let mut state = State::new(limit.shape());
    history.play(|now, hits| {
        let outcome = limit.step(&mut state, hits, &Moment::at(now));
        match outcome.verdict {
            Verdict::Later => assert_wait(limit, &state, hits, now, outcome.retry_after),
            Verdict::Never => assert_eq!(outcome.retry_after, Micros::ZERO),
            Verdict::Fits => {}
        }
        let never = hits > 0 && hits.unsigned_abs() > limit.capacity();
        assert_eq!(outcome.verdict == Verdict::Never, never);
        let peek = limit.test(state.as_ref(), Ask::hits(0), &Moment::at(now));
        if limit.capacity() > 0 {
            assert_wait(limit, &state, 1, now, peek.retry_after);
        } else {
            assert_eq!(peek.retry_after, Micros::MAX);
        }
        outcome
    });
}

histories_hold! { check }

histories_hold! { check_without_delay: leaky_bucket_that_refuses LeakyBucket }

histories_hold! { check_with_some_delay: leaky_bucket_that_waits_for_so_long LeakyBucket }
