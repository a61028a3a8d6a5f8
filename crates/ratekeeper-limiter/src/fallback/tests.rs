use ratekeeper_core::Verdict;
use ratekeeper_store::StoreError;

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_789_000_020);

fn limit(quota: u64) -> Limit {
    limit_of(Algorithm::FixedWindow, quota)
}

fn limit_of(algorithm: Algorithm, quota: u64) -> Limit {
    Limit::try_new(LimitSpec::new(algorithm, quota, Micros::from_secs(60))).unwrap()
}

fn later(seconds: u64) -> Timestamp {
    NOW.after(Micros::from_secs(seconds))
}

fn step(limit: &Limit, identity: u64) -> Step {
    Step::new(
        CounterKey {
            subject: 7,
            identity,
        },
        *limit,
    )
}

fn fallback(local_factor: f64) -> Fallback {
    let memory = MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    };
    Fallback::new(FallbackConfig {
        memory,
        local_factor,
    })
    .unwrap()
}

fn decide(fallback: &Fallback, steps: &[Step], modes: &[FailureMode]) -> Verdicts {
    let request = Request::new(steps, Mode::default(), NOW);
    fallback.decide(&request, modes.iter().copied(), None)
}

fn admitted(fallback: &Fallback, step: Step) -> usize {
    admitted_at(fallback, step, NOW)
}

fn admitted_at(fallback: &Fallback, step: Step, now: Timestamp) -> usize {
    let steps = [step];
    let request = Request::new(&steps, Mode::default(), now);
    let ask = || fallback.decide(&request, [FailureMode::Local].into_iter(), None);
    (0..100).filter(|_| ask().allowed).count()
}

fn said(remaining: u64) -> Answered {
    Answered {
        verdict: Verdict::Fits,
        remaining,
        reset_after: Micros::from_secs(1),
        full_after: Micros::from_secs(60),
        retry_after: Micros::ZERO,
        delay: Micros::ZERO,
        leased: false,
        cut: 0,
        counted: true,
    }
}

#[test]
fn a_node_alone_enforces_its_share_of_the_limit() {
    let limit = limit(10);
    assert_eq!(admitted(&fallback(1.0), step(&limit, 1)), 10);
    assert_eq!(admitted(&fallback(0.5), step(&limit, 1)), 5);
    assert_eq!(admitted(&fallback(0.01), step(&limit, 1)), 1);
}

#[test]
fn counters_start_from_what_was_last_left() {
    let limit = limit(10);
    let fallback = fallback(1.0);
    fallback.observe(&step(&limit, 1), &said(3), NOW);
    assert_eq!(admitted(&fallback, step(&limit, 1)), 3);
    // The store was back for a moment without knowing those hits: they are not forgotten here.
    fallback.observe(&step(&limit, 1), &said(2), NOW);
    assert_eq!(admitted(&fallback, step(&limit, 1)), 0);
    // The remaining hits of a window that has ended mean nothing.
    fallback.observe(
        &step(&limit, 2),
        &said(0),
        Timestamp::from_secs(1_788_999_000),
    );
    assert_eq!(admitted(&fallback, step(&limit, 2)), 10);
}

/// A tenant that kept within its limit since the store last answered is not denied for hits it
/// had spent before.
#[test]
fn what_came_back_since_it_was_said_is_there() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::Gcra] {
        let limit = limit_of(algorithm, 60);
        let fallback = fallback(1.0);
        fallback.observe(&step(&limit, 1), &said(0), NOW);
        fallback.observe(&step(&limit, 2), &said(0), NOW);
        assert_eq!(admitted(&fallback, step(&limit, 1)), 0, "{algorithm:?}");
        assert_eq!(
            admitted_at(&fallback, step(&limit, 2), later(30)),
            30,
            "{algorithm:?}"
        );
    }
    for algorithm in [Algorithm::SlidingWindow, Algorithm::SlidingLog] {
        let limit = limit_of(algorithm, 60);
        let fallback = fallback(1.0);
        fallback.observe(&step(&limit, 1), &said(20), NOW);
        let admitted = |seconds| admitted_at(&fallback, step(&limit, 1), later(seconds));
        assert_eq!(admitted(50), 20, "{algorithm:?}");
        // A sub-window of 5 s has to pass as well; the 20 of just now are still there.
        assert_eq!(admitted(66), 40, "{algorithm:?}");
    }
}

#[test]
fn a_denial_by_mode_charges_no_other_counter() {
    let limit = limit(10);
    let fallback = fallback(1.0);
    let steps = [step(&limit, 1), step(&limit, 2)];
    for _ in 0..5 {
        let verdicts = decide(&fallback, &steps, &[FailureMode::Local, FailureMode::Deny]);
        assert!(!verdicts.allowed);
        assert_eq!(verdicts.outcomes[1], StepOutcome::Full(FullMode::Deny));
    }
    assert_eq!(admitted(&fallback, steps[0]), 10);
    assert_eq!(admitted(&fallback, steps[1]), 10);
}

#[test]
fn what_is_allowed_by_mode_leaves_the_rest_enforced() {
    let limit = limit(2);
    let fallback = fallback(1.0);
    let steps = [step(&limit, 1), step(&limit, 2)];
    let modes = [FailureMode::Allow, FailureMode::Local];
    let answers = [(); 3].map(|()| decide(&fallback, &steps, &modes));
    assert_eq!(answers.each_ref().map(|it| it.allowed), [true, true, false]);
    for verdicts in answers {
        assert_eq!(verdicts.outcomes[0], StepOutcome::Full(FullMode::Allow));
        assert!(matches!(verdicts.outcomes[1], StepOutcome::OnThisNode(_)));
    }
}

/// Limits in quota mode deny if every descriptor is over, no matter who counted it.
#[test]
fn quota_mode_spans_what_is_answered_and_what_is_not() {
    let (none, wide) = (limit(0), limit(10));
    for (fits, other, allowed) in [(true, 1, true), (true, 0, false), (false, 1, false)] {
        let fallback = fallback(1.0);
        let quota = |limit, identity| Step {
            quota_mode: true,
            ..step(limit, identity)
        };
        let steps = [
            quota(if fits { &wide } else { &none }, 1),
            Step {
                descriptor: other,
                ..quota(&none, 2)
            },
        ];
        let request = Request::new(&steps, Mode::default(), NOW);
        let mut answered = decide(&fallback, &steps, &[FailureMode::Local; 2]);
        answered.allowed = true;
        answered.outcomes[1] = StepOutcome::Unanswered(StoreError::Timeout);
        let modes = [FailureMode::Local; 2].into_iter();
        let verdicts = fallback.decide(&request, modes, Some(&answered));
        assert_eq!(verdicts.allowed, allowed, "{fits} {other}");
        assert_eq!(verdicts.outcomes[0], answered.outcomes[0]);
        let modes = [FailureMode::Allow; 2];
        assert!(decide(&fallback, &steps, &modes).allowed);
    }
}

#[test]
fn a_factor_of_nothing_is_refused() {
    for local_factor in [0.0, -1.0, 1.5, f64::NAN] {
        let config = FallbackConfig {
            memory: MemoryConfig::default(),
            local_factor,
        };
        assert_eq!(Fallback::new(config).unwrap_err(), FallbackError::Factor);
    }
}

/// A bucket of 100 a minute, paid afterwards.
fn budget() -> Limit {
    let spec = LimitSpec::new(Algorithm::TokenBucket, 100, Micros::from_secs(60));
    let spec = LimitSpec {
        post_paid: true,
        ..spec
    };
    Limit::try_new(spec).unwrap()
}

/// A step of so many hits on a budget, as rules compile it.
fn budgeted(hits: i64) -> Step {
    Step {
        hits,
        charge: Charge::Always,
        ..step(&budget(), 1)
    }
}

#[test]
fn modes_answer_looks_at_a_budget_and_every_charge_is_owed_in_full() {
    for (mode, allowed) in [(FailureMode::Allow, true), (FailureMode::Deny, false)] {
        let fallback = fallback(1.0);
        assert_eq!(decide(&fallback, &[budgeted(0)], &[mode]).allowed, allowed);
        let charges = [budgeted(500)];
        let verdicts = decide(&fallback, &charges, &[mode]);
        assert_eq!(verdicts.allowed, allowed);
        let passed = Passed {
            now: later(0),
            boot: Micros::ZERO,
            named_by: ratekeeper_store::HashKey::from_bytes([0; 16]),
        };
        let request = Request::new(&charges, Mode::default(), later(0));
        let fault = |_| Some(StoreError::Unavailable);
        fallback.owe(
            &request,
            [mode].into_iter(),
            &verdicts,
            fault,
            (&passed, &[]),
        );
        assert_eq!(fallback.owed().counts().owed, 500, "{mode:?}");
    }
}

#[test]
fn a_debt_that_the_store_told_holds_on_the_node_alone() {
    let fallback = fallback(1.0);
    // 50 below zero: 150 are missing, at 100 a minute.
    let told = Answered {
        verdict: Verdict::Later,
        full_after: Micros::from_secs(90),
        ..said(0)
    };
    fallback.observe(&budgeted(0), &told, later(0));
    let look = |seconds| {
        let steps = [budgeted(0)];
        let request = Request::new(&steps, Mode::default(), later(seconds));
        let modes = [FailureMode::Local].into_iter();
        fallback.decide(&request, modes, None).allowed
    };
    assert!(!look(0) && !look(30));
    assert!(look(31));
}
