//! Windows that change, turns of leaky buckets, and calendars.

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_limiter::{Check, Limiter, Modes, Waiting};
use ratekeeper_store::memory::MemoryStore;

use crate::support::{Pairs, START, ask, ask_all, limiter, limiter_with, passes, rules};

#[test]
fn usage_outlives_a_changed_limit_and_not_a_changed_window() {
    let yaml = |limit: u64, window: &str| {
        format!(
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {{ window: {window}, limit: {limit} }}\n"
        )
    };
    let limiter = limiter(&yaml(10, "1h"));
    assert!(passes(&limiter, &[("a", "1")], 8));
    limiter.replace_rules(rules(&yaml(9, "1h")));
    assert!(passes(&limiter, &[("a", "1")], 1));
    assert!(!ask(&limiter, &[("a", "1")]).allowed());
    limiter.replace_rules(rules(&yaml(5, "1h")));
    let lowered = ask_all(&limiter, &[&[("a", "1")]], 0, 0);
    assert_eq!(lowered.binding().expect("a limit").answered.remaining, 0);
    limiter.replace_rules(rules(&yaml(12, "1h")));
    assert!(passes(&limiter, &[("a", "1")], 3));
    limiter.replace_rules(rules(&yaml(12, "2h")));
    assert!(passes(&limiter, &[("a", "1")], 12));
    let snapshot = limiter.snapshot();
    let allowed: Vec<_> = snapshot
        .stats()
        .map(|stats| stats.counts().allowed)
        .collect();
    assert_eq!(allowed.len(), 1);
    assert!(
        allowed[0] >= 24,
        "the rule kept its statistics: {allowed:?}"
    );
}

/// The plan is a label of one histogram; the counts of a rule are told without it.
#[test]
fn the_counts_of_a_rule_outlive_a_plan_of_another_name() {
    let yaml = |plans: &str| {
        format!(
            "domain: d\ntenant: a\n{plans}descriptors:\n  - key: a\n    rate_limit: {{ window: 1h, limit: 10 }}\n"
        )
    };
    let limiter = limiter(&yaml(""));
    let mut asked = 0;
    for (plans, plan) in [
        ("", ""),
        ("plans: [free, pro]\n", "free"),
        ("plans: [basic, pro]\n", "basic"),
    ] {
        limiter.replace_rules(rules(&yaml(plans)));
        assert!(passes(&limiter, &[("a", "1")], 2));
        asked += 2;
        let snapshot = limiter.snapshot();
        let listed = snapshot.listed().next().expect("the rule");
        assert_eq!(snapshot.rules().plan_of(listed.rule), plan);
        assert_eq!(listed.stats.counts().allowed, asked, "{plan}");
    }
}

#[test]
fn a_leaky_bucket_delays_who_can_wait_and_refuses_who_cannot() {
    let yaml = "
domain: d
descriptors:
  - key: a
    rate_limit: { window: 1s, limit: 10, burst: 3, algorithm: leaky_bucket }
  - key: b
    leaky_over_rls: allow
    rate_limit: { window: 1s, limit: 10, burst: 3, algorithm: leaky_bucket }
";
    let limiter = limiter(yaml);
    let wait = |key: &str, waiting| {
        let mut check = Check::new("d").descriptor([(key, "1")]);
        check.waiting = waiting;
        let decision = limiter.check_at(&check, Timestamp::from_secs(START));
        (decision.allowed(), decision.delay())
    };
    assert_eq!(wait("a", Waiting::Can), (true, Micros::ZERO));
    assert_eq!(wait("a", Waiting::Cannot), (false, Micros::ZERO));
    assert_eq!(wait("a", Waiting::Can), (true, Micros::from_millis(100)));
    assert_eq!(wait("a", Waiting::Can), (true, Micros::from_millis(200)));
    assert_eq!(wait("a", Waiting::Can), (false, Micros::ZERO));
    assert_eq!(wait("b", Waiting::Cannot), (true, Micros::ZERO));
    assert_eq!(wait("b", Waiting::Cannot), (true, Micros::from_millis(100)));
}

/// The first of these leaves at once, the others at most an hour later.
const LEAKY: &str = "rate_limit: { window: 1h, limit: 10, algorithm: leaky_bucket }";

fn delay_of_the_second(limiter: &Limiter<MemoryStore>, pairs: Pairs<'_>) -> (bool, Micros) {
    let mut check = Check::new("d").descriptor(pairs);
    check.waiting = Waiting::Can;
    let ask = || limiter.check_at(&check, Timestamp::from_secs(START));
    ask();
    let decision = ask();
    (decision.allowed(), decision.delay())
}

#[test]
fn a_leaky_bucket_that_only_watches_delays_no_request() {
    let rule =
        |settings: &str| format!("domain: d\ndescriptors:\n- key: a\n  {settings}\n  {LEAKY}\n");
    let enforced = limiter(&rule("name: queue"));
    let (_, delay) = delay_of_the_second(&enforced, &[("a", "1")]);
    assert!(!delay.is_zero());
    for settings in ["shadow_mode: true", "enforce: 0%"] {
        let watching = limiter(&rule(settings));
        let found = delay_of_the_second(&watching, &[("a", "1")]);
        assert_eq!(found, (true, Micros::ZERO), "{settings}");
    }
    let modes = Modes {
        shadow: true,
        ..Modes::default()
    };
    let watching = limiter_with(&rule("name: queue"), modes);
    let found = delay_of_the_second(&watching, &[("a", "1")]);
    assert_eq!(found, (true, Micros::ZERO));
}

#[test]
fn who_cannot_wait_so_long_leaves_the_turn_to_others() {
    let limiter = limiter(&format!("domain: d\ndescriptors:\n- key: a\n  {LEAKY}\n"));
    let turn = Micros::from_secs(360);
    let ask = |waiting| {
        let mut check = Check::new("d").descriptor([("a", "1")]);
        check.waiting = waiting;
        let decision = limiter.check_at(&check, Timestamp::from_secs(START));
        let answered = decision.binding().expect("it is limited").answered;
        (decision.allowed(), decision.delay(), answered.retry_after)
    };
    let within = Waiting::Within(turn);
    assert_eq!(ask(within), (true, Micros::ZERO, Micros::ZERO));
    assert_eq!(ask(within), (true, turn, Micros::ZERO));
    for _ in 0..20 {
        assert_eq!(ask(within), (false, Micros::ZERO, turn));
    }
    let both = Micros::new(2 * turn.get());
    assert_eq!(ask(Waiting::Can), (true, both, Micros::ZERO));
}

#[test]
fn who_is_denied_is_not_told_to_wait_for_a_turn() {
    let limiter = limiter(&format!(
        "domain: d\nevaluation: path\ndescriptors:\n- key: a\n  {LEAKY}\n  descriptors:\n  - key: b\n    rate_limit: {{ window: 1h, limit: 1 }}\n"
    ));
    let found = delay_of_the_second(&limiter, &[("a", "1"), ("b", "1")]);
    assert_eq!(found, (false, Micros::ZERO));
    let (allowed, delay) = delay_of_the_second(&limiter, &[("a", "1")]);
    assert!(allowed && !delay.is_zero());
}

#[test]
fn a_calendar_month_ends_where_the_zone_says() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: a
    rate_limit: { calendar: Europe/Vienna, unit: month, limit: 1, algorithm: fixed_window }
",
    );
    let check = Check::new("d").descriptor([("a", "1")]);
    // 2026-03-31 23:59:59.999999 in Vienna is 21:59:59.999999 UTC: summer time has begun.
    let april = 1_774_994_400_000_000;
    let at = |micros| limiter.check_at(&check, Timestamp::from_micros(micros));
    assert!(at(april - 2).allowed());
    let denied = at(april - 1);
    let answered = denied.binding().expect("a limit").answered;
    assert_eq!(
        (denied.allowed(), answered.retry_after),
        (false, Micros::new(1))
    );
    assert!(at(april).allowed());
}
