use proptest::prelude::*;

use super::*;

fn policy() -> AdjustPolicy {
    AdjustPolicy {
        mode: AdjustMode::On,
        plans: Vec::new(),
        raise_at_percent: 80,
        step_percent: 50,
        steps_max: 2,
        lower_after: Micros::from_secs(86_400),
    }
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn raised(steps: u16) -> RaisedSteps {
    RaisedSteps {
        steps,
        since: at(1_000_000),
    }
}

fn calls(latest: u64, peak: u64) -> ObservedCalls {
    ObservedCalls { latest, peak }
}

#[test]
fn four_fifths_of_a_limit_are_a_step() {
    let (policy, now) = (policy(), at(1_000_060));
    let next = |steps, latest| policy.next(1_000, raised(steps), calls(latest, latest), now);
    assert_eq!(next(0, 799), None);
    assert_eq!(next(0, 800), Some(1));
    assert_eq!(next(1, 1_199), None, "of 1500");
    assert_eq!(next(1, 1_200), Some(2));
    assert_eq!(next(2, 2_000), None, "there are two at most");
    assert_eq!(policy.next(0, raised(0), calls(9, 9), now), None);
    let too_soon = at(1_000_059);
    assert_eq!(
        policy.next(1_000, raised(1), calls(9_999, 9_999), too_soon),
        None
    );
}

#[test]
fn a_quiet_day_takes_a_step_back() {
    let policy = policy();
    let quiet = calls(0, 799);
    let next = |secs| policy.next(1_000, raised(1), quiet, at(secs));
    assert_eq!(next(1_086_399), None);
    assert_eq!(next(1_086_400), Some(0));
    let busy = calls(0, 800);
    assert_eq!(policy.next(1_000, raised(1), busy, at(9_000_000)), None);
    assert_eq!(
        policy.next(1_000, raised(0), calls(0, 0), at(9_000_000)),
        None
    );
}

#[test]
fn a_narrower_policy_holds_at_once() {
    let policy = AdjustPolicy {
        steps_max: 1,
        ..policy()
    };
    assert_eq!(
        policy.next(10, raised(5), calls(100, 100), at(1_000_000)),
        Some(1)
    );
}

#[cfg(feature = "yaml")]
#[test]
fn a_raised_limit_has_a_burst_if_it_had_one_of_its_own() {
    let raised = |limit: &str| {
        let source = crate::Source {
            name: "d.yaml".to_owned(),
            text: format!("domain: d\ndescriptors: [ {{ key: k, rate_limit: {{ {limit} }} }} ]\n"),
        };
        let loaded = crate::load(&[source], &crate::Options::default());
        let rules = loaded.unwrap_or_else(|refused| panic!("{refused}")).rules;
        let own = policy().override_of(&rules.rules()[0], 1);
        let own = own.expect("it limits");
        (own.requests_per_unit, own.unit, own.window, own.burst)
    };
    let (minute, window) = (Some("minute".into()), Some("90s".into()));
    let bucket = "limit: 100, algorithm: token_bucket";
    for (limit, expected) in [
        (
            "unit: minute, limit: 100",
            (150, minute.clone(), None, None),
        ),
        (
            &format!("unit: minute, {bucket}"),
            (150, minute, None, None),
        ),
        (
            &format!("window: 90s, {bucket}, burst: 40"),
            (150, None, window, Some(60)),
        ),
        (
            "unit: minute, limit: 1000, algorithm: sliding_window, strict: true",
            (1_500, Some("minute".into()), None, None),
        ),
    ] {
        assert_eq!(raised(limit), expected, "{limit}");
    }
}

/// A policy, a capacity, and the calls of each hour.
fn worlds() -> impl Strategy<Value = (AdjustPolicy, u64, Vec<u64>)> {
    let policy = (1..=100_u8, 1..=100_u8, 1..=20_u16, 1..48_u64);
    let policy = policy.prop_map(|(raise_at, step, most, hours)| AdjustPolicy {
        raise_at_percent: raise_at,
        step_percent: step,
        steps_max: most,
        lower_after: Micros::from_secs(hours * 3_600),
        ..self::policy()
    });
    let hours = proptest::collection::vec(prop_oneof![Just(0), 0..3_000_u64], 1..200);
    (policy, 1..2_000_u64, hours)
}

proptest! {
    /// Over any usage: the number of steps stays within bounds and changes by one; it grows only with need, and
    /// shrinks only after a time without; what was just taken back is not given again by the same calls.
    #[test]
    fn steps_follow_need_and_nothing_else((policy, capacity, hours) in worlds()) {
        let mut now = RaisedSteps::default();
        let quiet_hours = usize::try_from(policy.lower_after.get() / 3_600_000_000).expect("few");
        for (hour, latest) in hours.iter().enumerate() {
            let time = at((hour as u64 + 1) * 3_600);
            let first = (hour + 1).saturating_sub(quiet_hours + 1);
            let peak = hours[first..=hour].iter().copied().max().unwrap_or(0);
            let demand = ObservedCalls { latest: *latest, peak };
            let was = now.steps;
            let Some(next) = policy.next(capacity, now, demand, time) else {
                // Left alone with need: only at the top.
                let needs = u128::from(*latest) * 100
                    >= u128::from(policy.raised(capacity, now.steps)) * u128::from(policy.raise_at_percent);
                prop_assert!(!needs || now.steps == policy.steps_max, "{:?} {:?}", now, demand);
                continue;
            };
            prop_assert!(next <= policy.steps_max);
            prop_assert_eq!(next.abs_diff(now.steps), 1);
            if next > now.steps {
                prop_assert!(*latest >= policy.threshold(capacity, now.steps));
            } else {
                prop_assert!(time >= now.since.after(policy.lower_after));
                prop_assert!(peak < policy.threshold(capacity, next));
            }
            now = RaisedSteps { steps: next, since: time };
            // What the same calls took back they do not give again, nor the other way round.
            let again = policy.next(capacity, now, demand, time);
            prop_assert_ne!(again, Some(was));
        }
    }

    /// A limit never gets smaller with a step, and never larger than all steps together make it.
    #[test]
    fn a_raised_limit_is_bounded(quota in 0..=MAX_COUNT, step in 1..=100_u8, steps in 0..=20_u16) {
        let policy = AdjustPolicy { step_percent: step, ..policy() };
        let raised = policy.raised(quota, steps);
        prop_assert!(raised >= quota && raised <= policy.raised(quota, steps + 1));
        let most = u128::from(quota) * (100 + u128::from(step) * u128::from(steps)) / 100;
        prop_assert_eq!(u128::from(raised), most.min(u128::from(MAX_COUNT)));
    }
}
