//! Policies, metrics and explanations of decisions.

use ratekeeper_limiter::Check;

use crate::support::{QUOTA_AND_RATE, TWO_LEVELS, ask, ask_all, limiter, passes};

#[test]
fn policies_are_the_enforced_limits_each_once() {
    let limiter = limiter(
        "
domain: d
evaluation: path
descriptors:
  - key: a
    rate_limit: [ { window: 1s, limit: 5 }, { window: 1m, limit: 50 } ]
    descriptors:
      - key: b
        shadow_mode: true
        rate_limit: { window: 1h, limit: 500 }
",
    );
    let list = [("a", "1"), ("b", "1")];
    let check = Check::new("d").descriptor(list).descriptor(list);
    let policies = limiter.ask_at(&check, limiter.clock().now(), |ruling| ruling.policies());
    let quotas: Vec<_> = policies.iter().map(|p| p.ceiling).collect();
    assert_eq!(quotas, [5, 50]);
}

#[test]
fn no_more_is_left_than_the_limit_that_is_told() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: a
    rate_limit: { window: 1s, limit: 10, burst: 30, algorithm: gcra }
  - key: b
    rate_limit: { window: 1s, limit: 10, burst: 3, algorithm: gcra }
",
    );
    for (key, quota, ceiling, left) in [("a", 10, 30, 29), ("b", 10, 10, 2)] {
        let decision = ask(&limiter, &[(key, "1")]);
        let binding = decision.binding().expect("a limit");
        assert_eq!((binding.quota, binding.ceiling), (quota, ceiling));
        assert_eq!(binding.answered.remaining, left);
        // The next hit comes in after T, all of them as soon as the one is back.
        let told = (binding.answered.reset_after, binding.answered.full_after);
        let hit = ratekeeper_core::Micros::from_millis(100);
        assert_eq!(told, (hit, hit));
    }
}

/// Both have as much remaining: the one that waits longer for more is reported, whatever their order.
#[test]
fn among_equals_the_one_where_there_is_more_latest_binds() {
    let limiter = limiter(
        "
domain: d
evaluation: path
descriptors:
  - key: a
    rate_limit: [ { window: 1s, limit: 5, algorithm: gcra }, { window: 1h, limit: 5, algorithm: gcra } ]
  - key: b
    rate_limit: [ { window: 1h, limit: 5, algorithm: gcra }, { window: 1s, limit: 5, algorithm: gcra } ]
",
    );
    for key in ["a", "b"] {
        let decision = ask(&limiter, &[(key, "1")]);
        let binding = decision.binding().expect("a limit");
        assert_eq!(
            binding.answered.reset_after,
            ratekeeper_core::Micros::from_secs(720)
        );
    }
}

/// A limit that denied nothing is reported as it was before, since nothing was taken.
#[test]
fn what_was_not_taken_has_nothing_to_wait_for() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: a
    rate_limit: { window: 1h, limit: 5, algorithm: fixed_window }
  - key: none
    rate_limit: { window: 1h, limit: 0 }
",
    );
    let decision = ask_all(&limiter, &[&[("a", "1")], &[("none", "1")]], 1, 0);
    assert!(!decision.allowed());
    let other = decision.answers()[0].binding.expect("a limit").answered;
    assert_eq!(other.remaining, 5);
    assert!(other.reset_after.is_zero() && other.full_after.is_zero());
}

#[test]
fn values_are_told_apart_in_metrics_up_to_a_thousand() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: user
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: api_key
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 5 }
",
    );
    for n in 0..1_100 {
        ask(&limiter, &[("user", &format!("u{n}"))]);
    }
    ask(&limiter, &[("api_key", "secret-of-somebody")]);
    let snapshot = limiter.snapshot();
    let details: Vec<_> = snapshot.stats().map(|stats| stats.details()).collect();
    let (names, counts): (Vec<_>, Vec<_>) = details[0].iter().cloned().unzip();
    assert_eq!(names.len(), 1_001);
    assert!(names.iter().any(|name| &**name == "user_u7"));
    assert_eq!(
        counts.iter().map(|counts| counts.allowed).sum::<u64>(),
        1_100
    );
    let (secret, _) = &details[1][0];
    assert!(!secret.contains("secret"), "{secret}");
}

#[test]
fn only_what_is_to_be_told_apart_is_part_of_a_metric() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: tenant
    descriptors:
      - key: path
        value_to_metric: true
        rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: user
    detailed_metric: true
    rate_limit: { unit: hour, requests_per_unit: 5 }
",
    );
    ask(&limiter, &[("tenant", "acme"), ("path", "orders")]);
    ask(&limiter, &[("user", "")]);
    let snapshot = limiter.snapshot();
    let details = snapshot.stats().flat_map(|stats| stats.details());
    let names: Vec<_> = details.map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["tenant.path_orders", "user"]);
}

#[test]
fn the_descriptor_that_binds_is_numbered() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    assert!(passes(&limiter, &[("tenant", "spent")], 3));
    let (fresh, spent): (&[_], &[_]) = (&[("tenant", "fresh")], &[("tenant", "spent")]);
    let number = |lists: &[&[(&str, &str)]]| {
        let decision = ask_all(&limiter, lists, 1, 0);
        decision.binding_descriptor()
    };
    assert_eq!(number(&[fresh, spent]), Some(1));
    assert_eq!(number(&[spent, fresh]), Some(0));
    assert_eq!(number(&[&[("other", "")]]), None);
}

#[test]
fn the_rule_that_answered_is_named() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    let decision = ask(&limiter, &[("tenant", "a")]);
    let status = decision.limit_status().expect("a limit");
    assert_eq!(status.rule_id(), "d.tenant");
    let snapshot = limiter.snapshot();
    let check = Check::new("d").descriptor([("tenant", "a"), ("endpoint", "orders")]);
    let slots = limiter.ask_at(&check, limiter.clock().now(), |ruling| {
        let limits = ruling.limits().map(|(step, ..)| step.rule);
        limits.collect::<Vec<_>>()
    });
    let ids: Vec<_> = slots
        .into_iter()
        .filter_map(|slot| snapshot.rule_of(slot))
        .collect();
    let ids: Vec<_> = ids.into_iter().map(|rule| &*rule.id).collect();
    assert_eq!(ids, ["d.tenant.endpoint_orders"]);
}

#[test]
fn metrics_hold_no_secret_of_the_file_and_no_long_value() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: api_key
    value: sk_live_0123456789
    descriptors:
      - key: path
        value_to_metric: true
        rate_limit: { unit: hour, requests_per_unit: 5 }
",
    );
    let long = "x".repeat(1_000_000);
    ask(
        &limiter,
        &[("api_key", "sk_live_0123456789"), ("path", &long)],
    );
    ask(
        &limiter,
        &[
            ("api_key", "sk_live_0123456789"),
            ("path", &format!("{long}y")),
        ],
    );
    let snapshot = limiter.snapshot();
    let details = snapshot.stats().next().expect("the rule").details();
    assert_eq!(details.len(), 2, "long values are still told apart");
    for (value, _) in details {
        assert!(value.len() < 200 && !value.contains("sk_live"), "{value}");
        assert!(value.starts_with("api_key_~"), "{value}");
    }
}

#[test]
fn an_explanation_combines_as_the_limiter_does() {
    let limiter = limiter(QUOTA_AND_RATE);
    let alone = Check::new("d").descriptor([("spent", "1")]);
    let check = alone.clone().descriptor([("fresh", "1")]);
    assert!(limiter.check_now(&check).allowed());
    assert!(
        limiter.explain_now(&check).allowed,
        "one quota of two is spent"
    );
    assert!(!limiter.explain_now(&alone).allowed && !limiter.check_now(&alone).allowed());
}

#[test]
fn an_explanation_names_the_rules_and_takes_nothing() {
    let limiter = limiter(&format!("domain: d\nevaluation: path{TWO_LEVELS}"));
    let entries = [("tenant", "a"), ("endpoint", "orders")];
    let check = Check::new("d").descriptor(entries).hits(7);
    for _ in 0..5 {
        let explanation = limiter.explain_now(&check);
        assert!(explanation.known && explanation.allowed);
        let nodes = &explanation.descriptors[0].nodes;
        assert_eq!(nodes.len(), 2);
        assert_eq!(
            (nodes[0].how.as_str(), nodes[1].how.as_str()),
            ("key only", "exact")
        );
        assert_eq!(nodes[0].limits[0].remaining, Some(3));
        assert_eq!(nodes[1].limits[0].answer, "allow");
        assert_eq!(
            nodes[1].limits[0].limit,
            "2 per 1m, fixed_window, exact in each window, up to twice the limit across an edge"
        );
        assert!(nodes[1].limits[0].place.starts_with("rules.yaml:"));
    }
    let snapshot = limiter.snapshot();
    assert!(
        snapshot.stats().all(|stats| stats.counts().allowed == 0),
        "it is no traffic"
    );
    drop(snapshot);

    assert!(passes(&limiter, &entries, 2));
    let explanation = limiter.explain_now(&check);
    let denied = &explanation.descriptors[0].nodes[1].limits[0];
    assert!(!explanation.allowed);
    assert_eq!(denied.answer, "deny");
    assert!(denied.retry_after_ms.is_some());
}

#[test]
fn of_two_limits_that_answer_alike_the_first_is_told() {
    let limiter = limiter(
        "
domain: d
evaluation: path
descriptors:
  - key: tenant
    rate_limit: { unit: hour, requests_per_unit: 1, algorithm: fixed_window }
    descriptors:
      - key: endpoint
        rate_limit: { unit: hour, requests_per_unit: 1, algorithm: fixed_window }
",
    );
    for allowed in [true, false] {
        let decision = ask(&limiter, &[("tenant", "a"), ("endpoint", "orders")]);
        assert_eq!(decision.allowed(), allowed);
        let binding = decision.binding().expect("a limit");
        let rule = decision.rule(binding).expect("a rule");
        assert_eq!(&*rule.id, "d.tenant");
    }
}
