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

/// Half of the bucket, and of its debt of ten bursts, is all that this node lets pass.
#[test]
fn what_a_node_cut_off_a_reservation_is_not_owed() {
    let fallback = fallback(0.5);
    let mut reserve = budgeted(4_000);
    crate::purpose::reserve(&mut reserve);
    let steps = [reserve];
    let mode = FailureMode::Local;
    let verdicts = decide(&fallback, &steps, &[mode]);
    assert!(verdicts.allowed);
    let passed = Passed {
        now: NOW,
        boot: Micros::ZERO,
        named_by: ratekeeper_store::HashKey::from_bytes([0; 16]),
    };
    let request = Request::new(&steps, Mode::default(), NOW);
    let fault = |_| Some(StoreError::Unavailable);
    let modes = [mode].into_iter();
    fallback.owe(&request, modes, &verdicts, fault, (&passed, &[]));
    assert_eq!(fallback.owed().counts().owed, 550);
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

#[test]
fn counters_that_share_a_place_are_told_apart() {
    let limit = limit(10);
    let fallback = fallback(1.0);
    let told = step(&limit, 1);
    let mut other = told;
    other.key.subject ^= 1 << 40;
    other.key.identity ^= 1 << 40;
    fallback.observe(&told, &said(0), NOW);
    assert_eq!(admitted(&fallback, other), 10);
    assert_eq!(admitted(&fallback, told), 0);
}

#[test]
fn leases_and_counters_of_this_node_tell_nothing() {
    let limit = limit(10);
    let fallback = fallback(1.0);
    let leased = Answered {
        leased: true,
        ..said(0)
    };
    fallback.observe(&step(&limit, 1), &leased, NOW);
    let uncounted = Answered {
        counted: false,
        ..said(0)
    };
    fallback.observe(&step(&limit, 2), &uncounted, NOW);
    let synced = Step {
        sync: Micros::from_secs(1),
        ..step(&limit, 3)
    };
    fallback.observe(&synced, &said(0), NOW);
    for identity in 1..=3 {
        let admitted = admitted(&fallback, step(&limit, identity));
        assert_eq!(admitted, 10, "{identity}");
    }
}

#[test]
fn what_was_denied_or_cost_nothing_is_not_owed() {
    let (limit, local) = (limit(10), FailureMode::Local);
    let step = step(&limit, 1);
    assert!(owes(&step, local, true) && owes(&step, FailureMode::Allow, true));
    assert!(!owes(&step, local, false), "it was denied");
    assert!(!owes(&step, FailureMode::Deny, true));
    for hits in [0, -1] {
        assert!(!owes(&Step { hits, ..step }, local, true), "{hits}");
    }
    let permits = Step::new(step.key, limit_of(Algorithm::Concurrency, 10));
    assert!(!owes(&permits, local, true));
    assert!(owes(&budgeted(1), FailureMode::Deny, false));
    assert!(!owes(&budgeted(0), local, true));
}

#[test]
fn counters_that_have_expired_are_dropped() {
    let fallback = fallback(1.0);
    assert_eq!(admitted(&fallback, step(&limit(10), 1)), 10);
    assert_eq!(fallback.store.stats().counters, 1);
    (1_000..1_100).for_each(|seconds| fallback.maintain(later(seconds)));
    assert_eq!(fallback.store.stats().counters, 0);
}

#[test]
fn a_share_of_a_limit_is_cut_into_as_many_windows() {
    let spec = LimitSpec::new(Algorithm::SlidingWindow, 1_000, Micros::from_secs(60));
    for sub_windows in [4, 12] {
        let spec = LimitSpec {
            sub_windows: Some(sub_windows),
            ..spec
        };
        let share = scaled(&Limit::try_new(spec).unwrap(), 0.5);
        assert_eq!((share.quota(), share.sub_windows()), (500, sub_windows));
    }
}

/// The node has charged more than the store knows.
#[test]
fn a_debt_of_the_node_is_not_charged_again() {
    let fallback = fallback(1.0);
    let local = || [FailureMode::Local].into_iter();
    let charges = [budgeted(120)];
    let request = Request::new(&charges, Mode::default(), later(0));
    fallback.decide(&request, local(), None);
    let told = Answered {
        verdict: Verdict::Later,
        full_after: Micros::from_secs(66),
        ..said(0)
    };
    fallback.observe(&budgeted(0), &told, later(0));
    let looks = [budgeted(0)];
    let look = |seconds| {
        let request = Request::new(&looks, Mode::default(), later(seconds));
        fallback.decide(&request, local(), None).allowed
    };
    assert!(!look(11) && look(13));
}
