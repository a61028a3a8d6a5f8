//! Limits raised and lowered in use: usage is kept, and a change takes effect at once.

use crate::waiting::assert_wait;
use proptest::prelude::*;
use ratekeeper_core::{
    Algorithm, Ask, Limit, LimitSpec, MAX_COUNT, Micros, Moment, State, Verdict,
};
use ratekeeper_testkit::model::Model;
use ratekeeper_testkit::model::history::{History, histories, quotas};

/// The history's limit with another quota (and burst); None if there is no such limit.
fn changed(spec: LimitSpec, quota: u64) -> Option<LimitSpec> {
    let spec = match spec.algorithm.has_burst() {
        true => LimitSpec {
            burst: Some(quota.max(1)),
            ..spec
        },
        false => LimitSpec { quota, ..spec },
    };
    Limit::try_new(spec).is_ok().then_some(spec)
}

/// Plays a history whose limit changes before every third step, beside the model.
fn check(history: &History, quotas: &[u64]) {
    let mut spec = history.spec;
    let mut state = State::new(history.limit().shape());
    let mut model = Model::new(spec);
    let mut quotas = quotas.iter().cycle();
    let mut step = 0;
    history.play(|now, hits| {
        step += 1;
        if step % 3 == 0 {
            let next = quotas.next().and_then(|quota| changed(spec, *quota));
            spec = next.unwrap_or(spec);
            model.change(spec);
        }
        let limit = Limit::try_new(spec).expect("a valid limit");
        let expected = model.answer(Ask::hits(hits), now);
        let answer = limit.step(&mut state, hits, &Moment::at(now));
        // What is beyond the end of time is cut to it.
        let ends = expected.full_after.get().saturating_add(now.as_micros());
        if model.tolerance(hits, now) == 0 && ends <= MAX_COUNT {
            assert_eq!(answer, expected, "{hits} of {state:?}");
        }
        assert!(answer.remaining <= limit.capacity());
        let is_told = ends <= MAX_COUNT && spec.algorithm != Algorithm::Concurrency;
        if answer.verdict == Verdict::Later && is_told {
            assert_wait(&limit, &state, hits.max(1), now, answer.retry_after);
        }
        model.charge(if answer.fits() { hits } else { 0 }, now);
        answer
    });
}

/// A wait from which on a rate may be too fine to tell it: 2^60 of the finest units are 2^28 microseconds, a little above.
const FAR: Micros = Micros::from_secs(256);

/// Changes the rate: usage carries over in the algorithm's own form (a deficit of tokens, or a
/// time), so only the invariants are checked. Waits that the new rate cannot tell are cut, to be told again then.
fn check_rate(history: &History, rates: &[u64]) {
    let mut limit = history.limit();
    let mut state = State::new(limit.shape());
    let mut rates = rates.iter().cycle();
    let mut step = 0;
    history.play(|now, hits| {
        step += 1;
        if step % 3 == 0 {
            let rate = rates.next().copied().unwrap_or(1);
            let spec = LimitSpec {
                quota: rate,
                burst: None,
                ..history.spec
            };
            limit = Limit::try_new(spec).unwrap_or(limit);
        }
        let answer = limit.step(&mut state, hits, &Moment::at(now));
        assert!(answer.remaining <= limit.capacity());
        let ends = answer.full_after.get().saturating_add(now.as_micros());
        let is_told = ends <= MAX_COUNT && answer.retry_after < FAR;
        if answer.verdict == Verdict::Later && is_told {
            assert_wait(&limit, &state, hits.max(1), now, answer.retry_after);
        }
        answer
    });
}

fn several() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(quotas(), 1..6)
}

proptest! {
    #[test]
    fn fixed_window(history in histories(Algorithm::FixedWindow), quotas in several()) {
        check(&history, &quotas);
    }

    #[test]
    fn sliding_window(history in histories(Algorithm::SlidingWindow), quotas in several()) {
        check(&history, &quotas);
    }

    #[test]
    fn sliding_log(history in histories(Algorithm::SlidingLog), quotas in several()) {
        check(&history, &quotas);
    }

    #[test]
    fn concurrency(history in histories(Algorithm::Concurrency), quotas in several()) {
        check(&history, &quotas);
    }

    #[test]
    fn bursts(
        algorithm in prop::sample::select(&[Algorithm::TokenBucket, Algorithm::Gcra, Algorithm::LeakyBucket][..]),
        history in histories(Algorithm::TokenBucket),
        quotas in several(),
    ) {
        let window = history.spec.window.get();
        if history.spec.quota > 0 && window.is_multiple_of(history.spec.quota) {
            let spec = LimitSpec { algorithm, ..history.spec };
            check(&History { spec, ..history }, &quotas);
        }
    }

    #[test]
    fn rates(
        algorithm in prop::sample::select(&[Algorithm::TokenBucket, Algorithm::Gcra, Algorithm::LeakyBucket][..]),
        history in histories(Algorithm::TokenBucket),
        rates in several(),
    ) {
        let spec = LimitSpec { algorithm, ..history.spec };
        check_rate(&History { spec, ..history }, &rates);
    }
}
