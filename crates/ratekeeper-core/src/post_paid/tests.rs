use crate::{
    Algorithm, Ask, Limit, LimitError, LimitSpec, MAX_COUNT, Micros, Moment, Outcome, State,
    Timestamp, Verdict,
};

const ALL: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
];

fn spec(algorithm: Algorithm) -> LimitSpec {
    LimitSpec {
        post_paid: true,
        ..LimitSpec::new(algorithm, 100, Micros::from_secs(10))
    }
}

fn limit(algorithm: Algorithm) -> Limit {
    Limit::try_new(spec(algorithm)).expect("a valid limit")
}

fn step(limit: &Limit, state: &mut State, hits: i64, micros: u64) -> Outcome {
    let at = Timestamp::from_micros(1_700_000_000_000_000 + micros);
    limit.step(state, hits, &Moment::at(at))
}

fn debt(limit: &Limit, answered: Outcome) -> u64 {
    limit.debt(answered.remaining, answered.full_after)
}

#[test]
fn a_look_is_denied_after_a_charge_of_more_than_was_left() {
    for limit in ALL.map(limit) {
        let name = limit.algorithm().name();
        let mut state = State::new(limit.shape());
        assert_eq!(
            step(&limit, &mut state, 0, 0).verdict,
            Verdict::Fits,
            "{name}"
        );
        // It was let in while something was left, and pays in full.
        let charged = step(&limit, &mut state, 500, 1);
        assert_eq!(
            (charged.verdict, charged.remaining),
            (Verdict::Fits, 0),
            "{name}"
        );
        let look = step(&limit, &mut state, 0, 2);
        assert_eq!(look.verdict, Verdict::Later, "{name}");
        assert_eq!(look.reset_after, look.retry_after, "{name}");
        let back = 2 + look.retry_after.get();
        assert_eq!(
            step(&limit, &mut state, 0, back - 1).verdict,
            Verdict::Later,
            "{name}"
        );
        assert_eq!(
            step(&limit, &mut state, 0, back).verdict,
            Verdict::Fits,
            "{name}"
        );
    }
}

#[test]
fn a_look_passes_to_the_last_hit_and_a_late_charge_is_denied_but_counted() {
    for limit in ALL.map(limit) {
        let name = limit.algorithm().name();
        let mut state = State::new(limit.shape());
        assert_eq!(step(&limit, &mut state, 99, 0).remaining, 1, "{name}");
        assert!(step(&limit, &mut state, 0, 0).fits(), "{name}");
        assert!(step(&limit, &mut state, 1, 0).fits(), "{name}");
        let before = state.clone();
        assert!(!step(&limit, &mut state, 0, 0).fits(), "{name}");
        assert_eq!(state, before, "{name}: a look changes nothing");
        assert_eq!(
            step(&limit, &mut state, 1, 0).verdict,
            Verdict::Later,
            "{name}"
        );
        assert!(step(&limit, &mut state, -2, 0).fits(), "{name}: a refund");
        assert!(step(&limit, &mut state, 0, 0).fits(), "{name}");
    }
}

#[test]
fn a_bucket_owes_at_most_its_debt_and_pays_it_by_its_rate() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::Gcra] {
        let limit = Limit::try_new(LimitSpec {
            max_debt: Some(50),
            ..spec(algorithm)
        })
        .expect("a valid limit");
        assert_eq!(limit.max_debt(), Some(50));
        let mut state = State::new(limit.shape());
        let charged = step(&limit, &mut state, i64::MAX, 0);
        assert_eq!(debt(&limit, charged), 50);
        // 50 are paid in five seconds, and one more hit comes 100 ms later.
        assert_eq!(
            step(&limit, &mut state, 0, 0).retry_after,
            Micros::from_millis(5_100)
        );
        assert_eq!(debt(&limit, step(&limit, &mut state, 0, 2_000_000)), 30);
        // A refund pays too.
        assert_eq!(debt(&limit, step(&limit, &mut state, -20, 2_000_000)), 10);
        // Charged again, it is at its bottom and no lower.
        assert_eq!(debt(&limit, step(&limit, &mut state, 500, 2_000_000)), 50);
        let at = Moment::at(Timestamp::from_micros(1_700_000_002_000_000));
        let empty = limit.expires_at(state.as_ref(), &at).since(at.now);
        assert_eq!(empty, Micros::from_secs(15));
    }
}

#[test]
fn usage_and_debt_are_kept_when_it_is_switched_on_and_off() {
    for algorithm in ALL {
        let (paid_after, paid_before) = (limit(algorithm), limit(algorithm).prepaid());
        let mut state = State::new(paid_before.shape());
        step(&paid_before, &mut state, 40, 0);
        assert_eq!(step(&paid_after, &mut state, 0, 0).remaining, 60);
        step(&paid_after, &mut state, 500, 0);
        assert!(!step(&paid_before, &mut state, 1, 0).fits());
        assert!(!step(&paid_after, &mut state, 0, 0).fits());
    }
}

#[test]
fn a_limit_lowered_below_its_debt_forgets_none_of_it() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::Gcra] {
        let high = limit(algorithm);
        let low = Limit::try_new(LimitSpec {
            quota: 10,
            burst: Some(10),
            max_debt: Some(5),
            ..spec(algorithm)
        })
        .expect("a valid limit");
        let mut state = State::new(high.shape());
        step(&high, &mut state, 600, 0);
        // 600 are missing, of which 591 have to come back at one a second.
        assert_eq!(
            step(&low, &mut state, 0, 0).retry_after,
            Micros::from_secs(591)
        );
        step(&low, &mut state, 1, 0);
        assert_eq!(debt(&high, step(&high, &mut state, 0, 0)), 500);
    }
}

#[test]
fn a_clock_that_goes_back_over_a_debt_keeps_it() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::Gcra] {
        let limit = limit(algorithm);
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 400, 3_600_000_000);
        let moved = step(&limit, &mut state, 0, 0);
        assert_eq!((moved.verdict, debt(&limit, moved)), (Verdict::Later, 300));
        assert_eq!(moved.retry_after, Micros::from_millis(30_100));
        assert!(step(&limit, &mut state, 0, 30_100_000).fits());
    }
}

#[test]
fn earlier_steps_of_a_request_count_before_its_look() {
    for limit in ALL.map(limit) {
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 90, 0);
        let at = Moment::at(Timestamp::from_micros(1_700_000_000_000_000));
        let ask = |taken, hits| limit.test(state.as_ref(), Ask { taken, hits }, &at);
        assert!(ask(9, 0).fits());
        assert!(!ask(10, 0).fits());
        assert!(ask(9, 5).fits());
        assert!(!ask(10, 5).fits());
        assert!(ask(30, -5).fits(), "a refund");
    }
}

#[test]
fn what_cannot_be_paid_afterwards_is_refused() {
    let refused = |spec: LimitSpec| Limit::try_new(spec).expect_err("no such limit");
    for algorithm in [Algorithm::LeakyBucket, Algorithm::Concurrency] {
        assert_eq!(refused(spec(algorithm)), LimitError::NoPostPaid(algorithm));
    }
    let cut = LimitSpec {
        sub_windows: Some(6),
        ..spec(Algorithm::SlidingWindow)
    };
    assert_eq!(refused(cut), LimitError::PostPaidWithSubWindows);
    let in_advance = LimitSpec {
        post_paid: false,
        max_debt: Some(1),
        ..spec(Algorithm::Gcra)
    };
    assert_eq!(refused(in_advance), LimitError::DebtWithoutPostPaid);
    let window = LimitSpec {
        max_debt: Some(1),
        ..spec(Algorithm::FixedWindow)
    };
    assert_eq!(refused(window), LimitError::NoDebt(Algorithm::FixedWindow));
    let endless = LimitSpec {
        max_debt: Some(MAX_COUNT),
        ..spec(Algorithm::Gcra)
    };
    let most = MAX_COUNT / 100_000 - 100;
    assert_eq!(refused(endless), LimitError::DebtTooLarge(most));
    let longest = LimitSpec {
        max_debt: Some(most),
        ..endless
    };
    assert!(Limit::try_new(longest).is_ok());
}
