//! Every answer follows the definition: it equals the model field by field where the algorithm is
//! exact, and otherwise lies between the definition and a rate lower by 0.1 %.

use ratekeeper_core::{Ask, Limit, Moment, Outcome, State, Timestamp, Verdict};
use ratekeeper_testkit::model::Model;
use ratekeeper_testkit::model::history::History;

/// The definition, and the most that rounding may change.
struct Between {
    exact: Model,
    slowest: Model,
}

impl Between {
    fn new(history: &History) -> Self {
        Self {
            exact: Model::new(history.spec),
            slowest: Model::slowest(history.spec),
        }
    }

    fn check(&self, limit: &Limit, state: &State, ask: Ask, now: Timestamp) -> Outcome {
        let at = Moment::at(now);
        let got = limit.test(state.as_ref(), ask, &at);
        let most = self.exact.answer(ask, now);
        let least = self.slowest.answer(ask, now);
        let tolerance = self.exact.tolerance(ask.hits, now);
        if rounds(limit) || tolerance > 0 {
            let got_room = limit.test(state.as_ref(), Ask::hits(0), &at).remaining;
            assert!(got_room <= self.exact.room(now), "too much room");
            let least_room = self.slowest.room(now).saturating_sub(tolerance);
            assert!(got_room >= least_room, "too little room");
            assert!(most.fits() || !got.fits(), "{got:?} but {most:?}");
            assert_eq!(
                got.verdict == Verdict::Never,
                most.verdict == Verdict::Never
            );
            assert!(got.retry_after >= most.retry_after || got.verdict != most.verdict);
            if tolerance == 0 {
                assert!(got.fits() || !least.fits(), "{got:?} but {least:?}");
                assert!(got.retry_after <= least.retry_after || got.verdict != least.verdict);
                let is_same = |other: &Outcome| {
                    (got.verdict, got.remaining) == (other.verdict, other.remaining)
                };
                assert!(got.reset_after >= most.reset_after || !is_same(&most));
                assert!(got.reset_after <= least.reset_after || !is_same(&least));
                assert!(got.full_after >= most.full_after || got.verdict != most.verdict);
                assert!(got.full_after <= least.full_after || got.verdict != least.verdict);
                assert!(got.delay >= most.delay || got.verdict != most.verdict);
                assert!(got.delay <= least.delay || got.verdict != least.verdict);
            }
        } else {
            assert_eq!(got, most, "{ask:?} at {now:?} of {state:?}");
        }
        got
    }

    fn charge(&mut self, hits: i64, now: Timestamp) {
        self.exact.charge(hits, now);
        self.slowest.charge(hits, now);
    }
}

/// Returns true if the time of one hit is not a whole number of microseconds.
fn rounds(limit: &Limit) -> bool {
    limit.algorithm().has_burst()
        && limit.quota() > 0
        && !limit.window().get().is_multiple_of(limit.quota())
}

fn check(history: &History) {
    let limit = history.limit();
    let mut state = State::new(limit.shape());
    let mut model = Between::new(history);
    history.play(|now, hits| {
        for probe in [0, 1, -1] {
            model.check(&limit, &state, Ask::hits(probe), now);
        }
        let expected = model.check(&limit, &state, Ask::hits(hits), now);
        let got = limit.step(&mut state, hits, &Moment::at(now));
        assert_eq!(got, expected);
        assert!(got.remaining <= limit.capacity());
        assert!(got.verdict != Verdict::Later || !got.retry_after.is_zero());
        model.charge(if got.fits() { hits } else { 0 }, now);
        got
    });
}

/// The same with denied hits counted as well (`count_denied`).
fn check_counting_denied(history: &History) {
    let limit = history.limit();
    let mut state = State::new(limit.shape());
    let mut model = Between::new(history);
    history.play(|now, hits| {
        let got = model.check(&limit, &state, Ask::hits(hits), now);
        // Bounded, so that no count saturates: the model's counts never do.
        let hits = hits.clamp(-1_000_000, 1_000_000);
        crate::charge(&limit, &mut state, hits, now);
        model.charge(hits, now);
        got
    });
}

/// The same paid afterwards, if the algorithm can be: hits are charged whatever is answered.
fn check_post_paid(history: &History) {
    let mut history = history.clone();
    history.spec.post_paid = true;
    let Ok(limit) = Limit::try_new(history.spec) else {
        return;
    };
    let mut state = State::new(limit.shape());
    let mut model = Between::new(&history);
    history.play(|now, hits| {
        let hits = hits.clamp(-1_000_000, 1_000_000);
        for probe in [0, 1, -1] {
            model.check(&limit, &state, Ask::hits(probe), now);
        }
        let twice = Ask { taken: 2, hits };
        model.check(&limit, &state, twice, now);
        let expected = model.check(&limit, &state, Ask::hits(hits), now);
        let got = limit.step(&mut state, hits, &Moment::at(now));
        assert_eq!(got, expected);
        assert!(got.fits() || !got.retry_after.is_zero() || limit.capacity() == 0);
        model.charge(hits, now);
        got
    });
}

fn check_all(history: &History) {
    check(history);
    check_counting_denied(history);
    check_post_paid(history);
}

histories_hold! { check_all }

histories_hold! { check: concurrency Concurrency }
