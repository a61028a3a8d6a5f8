//! With any numbers as input, nothing panics and no answer is out of range. Edges refuse hits
//! beyond 2^53 - 1; one that gets through saturates.

use proptest::prelude::*;
use ratekeeper_core::{Algorithm, Ask, Limit, MAX_COUNT, Micros, Moment, State, Timestamp};
use ratekeeper_testkit::model::history::specs;

fn numbers() -> impl Strategy<Value = i64> {
    let most = MAX_COUNT as i64;
    prop_oneof![
        any::<i64>(),
        prop::sample::select(vec![0, 1, -1, most, -most, most + 1, i64::MAX, i64::MIN]),
    ]
}

fn times() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        (0..=MAX_COUNT).prop_map(Timestamp::from_micros),
        (0..3_u64).prop_map(Timestamp::from_micros),
        (0..3_u64).prop_map(|before| Timestamp::from_micros(MAX_COUNT - before)),
    ]
}

proptest! {
    #[test]
    fn are_survived(
        specs in prop::sample::select(&Algorithm::ALL[..])
            .prop_flat_map(|algorithm| prop::collection::vec(specs(algorithm), 1..4)),
        steps in prop::collection::vec((times(), numbers(), any::<u64>()), 1..30),
    ) {
        // A counter is only ever read with the same window; quota and burst may change.
        let first = specs[0];
        let limits: Vec<Limit> = specs
            .iter()
            .filter_map(|spec| {
                let window = first.window;
                let sub_windows = first.sub_windows;
                Limit::try_new(ratekeeper_core::LimitSpec { window, sub_windows, ..*spec }).ok()
            })
            .collect();
        prop_assume!(!limits.is_empty());
        let mut state = State::new(limits[0].shape());
        for (step, (now, hits, taken)) in steps.into_iter().enumerate() {
            let limit = &limits[step % limits.len()];
            let at = Moment::at(now);
            for taken in [0, 1, taken] {
                let outcome = limit.test(state.as_ref(), Ask { taken, hits }, &at);
                assert!(outcome.remaining <= limit.capacity());
                assert!(outcome.retry_after <= Micros::MAX);
            }
            crate::charge(limit, &mut state, hits, now);
            let expires = limit.expires_at(state.as_ref(), &at);
            assert!(expires.as_micros() <= MAX_COUNT);
        }
    }

    /// A counter read back from a file may hold anything, in either form: the answer is then
    /// meaningless, but it is an answer.
    #[test]
    fn states_of_no_sense_are_survived(
        spec in prop::sample::select(&Algorithm::ALL[..]).prop_flat_map(specs),
        words in prop::array::uniform4(garbage()),
        heap in prop::collection::vec(garbage(), 0..80),
        steps in prop::collection::vec((times(), numbers()), 1..5),
    ) {
        let limit = Limit::try_new(spec).expect("the strategy draws only valid limits");
        for mut state in [State::Words(words), State::Heap(heap)] {
            for (now, hits) in &steps {
                let at = Moment::at(*now);
                let outcome = limit.test(state.as_ref(), Ask::hits(*hits), &at);
                assert!(outcome.remaining <= limit.capacity());
                assert!(limit.expires_at(state.as_ref(), &at).as_micros() <= MAX_COUNT);
                crate::charge(&limit, &mut state, *hits, *now);
            }
        }
    }
}

fn garbage() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..100_u64,
        prop::sample::select(vec![u64::MAX, MAX_COUNT, 1 << 48, 1 << 53]),
    ]
}
