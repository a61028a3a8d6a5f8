//! The limits that a request matches, and their combined answer.

use ratekeeper_core::{Micros, Verdict};
use ratekeeper_limiter::{Check, Code};

use crate::support::{Pairs, TWO_LEVELS, ask, ask_all, limiter, passes};

#[test]
fn leaf_counts_the_last_node_and_path_counts_them_all() {
    let orders: Pairs<'_> = &[("tenant", "a"), ("endpoint", "orders")];
    let other: Pairs<'_> = &[("tenant", "a"), ("endpoint", "other")];

    let leaf = limiter(&format!("domain: d{TWO_LEVELS}"));
    assert!(passes(&leaf, orders, 2));
    assert!(!ask(&leaf, orders).allowed());
    assert!(passes(&leaf, other, 10), "no limit at that depth");
    assert!(
        passes(&leaf, &[("tenant", "a")], 3),
        "the tenant's own count is untouched"
    );

    let path = limiter(&format!("domain: d\nevaluation: path{TWO_LEVELS}"));
    assert!(passes(&path, orders, 2));
    assert!(!ask(&path, orders).allowed());
    assert!(
        ask(&path, other).allowed(),
        "the denied request took nothing from the tenant"
    );
    assert!(!ask(&path, other).allowed(), "three in all");
}

#[test]
fn a_key_alone_counts_each_value_by_itself() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    assert!(passes(&limiter, &[("tenant", "a")], 3));
    assert!(!ask(&limiter, &[("tenant", "a")]).allowed());
    assert!(passes(&limiter, &[("tenant", "b")], 3));
}

#[test]
fn what_no_rule_matches_is_allowed_and_counted() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    let decision = ask(&limiter, &[("nobody", "a")]);
    assert!(decision.allowed() && decision.binding().is_none());
    assert_eq!(decision.answers().len(), 1);
    let check = Check::new("other").descriptor([("tenant", "a")]);
    let decision = limiter.check_now(&check);
    assert!(decision.allowed());
    assert_eq!(decision.answers()[0].code, Code::Ok);
    let totals = limiter.totals();
    assert_eq!(
        totals.unmatched.load(std::sync::atomic::Ordering::Relaxed),
        1
    );
    assert_eq!(
        totals
            .unknown_domain
            .load(std::sync::atomic::Ordering::Relaxed),
        1
    );
}

#[test]
fn the_most_restrictive_limit_answers() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: ip
    rate_limit:
      - { window: 10s, limit: 2, algorithm: fixed_window }
      - { window: 1h, limit: 5, algorithm: fixed_window }
",
    );
    let first = ask(&limiter, &[("ip", "1")]);
    let binding = first.binding().expect("a limit");
    assert_eq!((binding.quota, binding.answered.remaining), (2, 1));
    assert_eq!(first.rule(binding).expect("a rule").id.as_ref(), "d.ip#10s");

    assert!(ask(&limiter, &[("ip", "1")]).allowed());
    let denied = ask(&limiter, &[("ip", "1")]);
    assert_eq!(denied.binding().expect("a limit").quota, 2);

    // Both are over now: the hour has the longer wait.
    for secs in [10, 20] {
        ask_all(&limiter, &[&[("ip", "1")]], 2, secs);
    }
    ask_all(&limiter, &[&[("ip", "1")]], 1, 30);
    let denied = ask_all(&limiter, &[&[("ip", "1")]], 2, 30);
    let binding = denied.binding().expect("a limit");
    assert_eq!(binding.quota, 5);
    assert_eq!(binding.answered.retry_after, binding.answered.reset_after);
}

#[test]
fn statuses_are_one_to_one_and_a_denied_request_takes_nothing() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: a
    rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: b
    rate_limit: { unit: hour, requests_per_unit: 1 }
",
    );
    let both: [Pairs<'_>; 3] = [&[("a", "1")], &[("x", "1")], &[("b", "1")]];
    assert!(ask_all(&limiter, &both, 1, 0).allowed());
    for _ in 0..10 {
        let denied = ask_all(&limiter, &both, 1, 0);
        assert!(!denied.allowed());
        let codes: Vec<_> = denied.answers().iter().map(|status| status.code).collect();
        assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit]);
        let fitted = denied.answers()[0].binding.expect("a limit");
        assert_eq!(fitted.answered.remaining, 4, "what was not taken is left");
    }
    let left = ask_all(&limiter, &[&[("a", "1")]], 0, 0);
    assert_eq!(left.binding().expect("a limit").answered.remaining, 4);
}

#[test]
fn more_than_a_limit_ever_holds_is_never() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    let denied = ask_all(&limiter, &[&[("tenant", "a")]], 4, 0);
    let answered = denied.binding().expect("a limit").answered;
    assert_eq!(answered.verdict, Verdict::Never);
    assert_eq!(answered.retry_after, Micros::ZERO);
    assert_eq!(answered.remaining, 3);
}

#[test]
fn a_shared_pattern_has_one_counter() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: path
    value: /files/*
    share_threshold: true
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: path
    value: /own/*
    rate_limit: { unit: hour, requests_per_unit: 2 }
",
    );
    assert!(ask(&limiter, &[("path", "/files/a")]).allowed());
    assert!(ask(&limiter, &[("path", "/files/b")]).allowed());
    assert!(!ask(&limiter, &[("path", "/files/c")]).allowed());
    assert!(passes(&limiter, &[("path", "/own/a")], 2));
    assert!(passes(&limiter, &[("path", "/own/b")], 2));
}

#[test]
fn a_shared_pattern_of_keys_shares_values_and_not_keys() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: path*
    share_threshold: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
",
    );
    assert!(ask(&limiter, &[("path1", "a")]).allowed());
    assert!(!ask(&limiter, &[("path1", "b")]).allowed());
    assert!(ask(&limiter, &[("path2", "a")]).allowed());
}

#[test]
fn disabled_rules_and_permits_that_would_not_be_released_are_skipped() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: off
    enabled: false
    rate_limit: { unit: hour, requests_per_unit: 0 }
  - key: busy
    concurrency: { limit: 1, timeout: 60s }
",
    );
    assert!(passes(&limiter, &[("off", "1")], 3));
    assert!(passes(&limiter, &[("busy", "1")], 3));
    let skipped = &limiter.totals().concurrency_skipped;
    assert_eq!(skipped.load(std::sync::atomic::Ordering::Relaxed), 3);
}

#[test]
fn refunds_give_back_and_a_peek_takes_nothing() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    let tenant: [Pairs<'_>; 1] = [&[("tenant", "a")]];
    assert!(ask_all(&limiter, &tenant, 3, 0).allowed());
    let peek = ask_all(&limiter, &tenant, 0, 0);
    assert!(peek.allowed(), "at the limit a peek is still fine");
    assert!(peek.binding().expect("a limit").answered.retry_after > Micros::ZERO);
    assert!(ask_all(&limiter, &tenant, -2, 0).allowed());
    assert!(ask_all(&limiter, &tenant, 2, 0).allowed());
    assert!(!ask_all(&limiter, &tenant, 1, 0).allowed());
    assert!(
        ask_all(&limiter, &tenant, i64::MIN, 0).allowed(),
        "however much is given back"
    );
    assert!(ask_all(&limiter, &tenant, 3, 0).allowed());
    assert!(!ask_all(&limiter, &tenant, i64::MAX, 0).allowed());
}
