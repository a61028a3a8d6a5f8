//! Limits that replace others, and limits that come with a request.

use std::sync::atomic::Ordering;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Timestamp};
use ratekeeper_limiter::{
    BroughtLimit, Check, Code, LimitSource, Limiter, LimiterOptions, Override, OwnLimit,
};
use ratekeeper_rules::{FailureMode, Options, Profile, Source, Unit, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

use crate::support::{Pairs, START, TWO_LEVELS, ask, ask_all, limiter, limiter_of_profile, passes};

#[test]
fn a_limit_of_the_request_holds_without_entries() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    let own = Some(Override {
        quota: 0,
        unit: Unit::Second,
    });
    let none: Pairs<'_> = &[];
    let mut check = Check::new("d");
    check.push(none).limit = own.map(Into::into);
    assert!(!limiter.check_now(&check).allowed());
    let check = Check::new("d").descriptor(none);
    assert!(limiter.check_now(&check).allowed());
}

#[test]
fn a_rule_that_is_replaced_neither_answers_nor_counts() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: default
    rate_limit: { unit: hour, requests_per_unit: 0, name: general }
  - key: premium
    rate_limit: { unit: hour, requests_per_unit: 9, name: special, replaces: [ { name: general } ] }
  - key: free
    rate_limit: { unlimited: true, replaces: [ { name: general } ] }
",
    );
    let (default, premium): (Pairs<'_>, Pairs<'_>) = (&[("default", "")], &[("premium", "x")]);
    assert!(!ask_all(&limiter, &[default], 1, 0).allowed());
    let decision = ask_all(&limiter, &[default, premium], 1, 0);
    assert!(decision.allowed());
    assert!(decision.answers()[0].binding.is_none());
    assert_eq!(decision.binding().expect("the special one").quota, 9);
    let unlimited = ask_all(&limiter, &[&[("free", "x")], default], 1, 0);
    assert!(unlimited.allowed());
    assert!(unlimited.answers()[0].unlimited.is_some());
}

#[test]
fn what_is_unlimited_stays_so_when_it_is_replaced() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: free
    rate_limit: { unlimited: true, name: general }
  - key: premium
    rate_limit: { unit: hour, requests_per_unit: 9, replaces: [ { name: general } ] }
",
    );
    let both = ask_all(&limiter, &[&[("free", "x")], &[("premium", "x")]], 1, 0);
    assert!(both.answers()[0].unlimited.is_some());
}

#[test]
fn on_a_path_a_limit_holds_below_a_node_without_one() {
    let limiter = limiter(
        "
domain: d
evaluation: path
descriptors:
  - key: tenant
    rate_limit: { unlimited: true }
    descriptors:
      - key: endpoint
        rate_limit: { unit: hour, requests_per_unit: 1 }
",
    );
    let both: Pairs<'_> = &[("tenant", "a"), ("endpoint", "orders")];
    let first = ask(&limiter, both);
    assert!(first.allowed());
    assert_eq!(
        (first.answers()[0].unlimited, first.answers()[0].code),
        (None, Code::Ok)
    );
    assert!(!ask(&limiter, both).allowed());
    assert!(
        ask(&limiter, &[("tenant", "a")]).answers()[0]
            .unlimited
            .is_some()
    );
}

#[test]
fn a_request_may_bring_its_own_limit() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    let own = Some(Override {
        quota: 1,
        unit: Unit::Hour,
    });
    let mut check = Check::new("d");
    check.push([("tenant", "a")]).limit = own.map(Into::into);
    let now = Timestamp::from_secs(START);
    let first = limiter.check_at(&check, now);
    assert!(first.allowed());
    let binding = first.binding().expect("its own");
    assert_eq!((binding.quota, binding.unit), (1, Some(Unit::Hour)));
    assert!(first.rule(binding).is_none());
    assert!(!limiter.check_at(&check, now).allowed());
    assert!(
        passes(&limiter, &[("tenant", "a")], 3),
        "the rule's counter is another one"
    );
}

#[test]
fn a_limit_of_the_request_is_counted_as_the_profile_counts() {
    let rules = format!("domain: d{TWO_LEVELS}");
    let own = Override {
        quota: 5,
        unit: Unit::Hour,
    };
    let mut check = Check::new("d");
    check.push([("tenant", "a")]).limit = Some(own.into());
    // The hour of a fixed window began fourteen minutes before the start.
    for (profile, full_after) in [(Profile::Envoy, 46 * 60), (Profile::Ratekeeper, 60 * 60)] {
        let limiter = limiter_of_profile(&rules, profile);
        let decision = limiter.check_at(&check, Timestamp::from_secs(START));
        let answered = decision.binding().expect("its own").answered;
        assert_eq!(
            answered.full_after,
            Micros::from_secs(full_after),
            "{profile:?}"
        );
    }
}

#[test]
fn a_limit_apart_from_the_rules_needs_no_domain_and_shares_no_counter_with_them() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    let spec = LimitSpec::new(Algorithm::FixedWindow, 3, Micros::from_secs(60));
    let own = OwnLimit {
        limit: Limit::try_new(spec).expect("a valid limit"),
        on_store_failure: FailureMode::Deny,
    };
    let now = Timestamp::from_secs(START);
    let ask = |domain: &str| {
        let mut check = Check::new(domain);
        check.push([("tenant", "a")]).limit = Some(BroughtLimit::Own(&own));
        let decision = limiter.check_at(&check, now);
        let source = decision.binding().expect("it has a limit").source;
        assert_eq!(source, LimitSource::Own(FailureMode::Deny));
        decision.allowed()
    };
    let passed = |domain| (0..5).filter(|_| ask(domain)).count();
    // The rule of this tenant has the same algorithm and window, and the same domain.
    assert_eq!(passed("d"), 3);
    assert!(passes(&limiter, &[("tenant", "a")], 3));
    assert!(!passes(&limiter, &[("tenant", "a")], 1));
    assert_eq!(passed("no rule has this domain"), 3);
    assert_eq!(limiter.totals().unknown_domain.load(Ordering::Relaxed), 0);
}

#[test]
fn a_limit_apart_from_the_rules_says_nothing_of_the_domains_of_others() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    let spec = LimitSpec::new(Algorithm::FixedWindow, 3, Micros::from_secs(60));
    let own = OwnLimit {
        limit: Limit::try_new(spec).expect("a valid limit"),
        on_store_failure: FailureMode::Deny,
    };
    let unknown = || limiter.totals().unknown_domain.load(Ordering::Relaxed);
    let mut asked = 0;
    // The domain of the request, and that of a descriptor without a limit.
    for (domain, other) in [("d", Some("nowhere")), ("nowhere", None)] {
        for is_first in [true, false] {
            let mut check = Check::new(domain);
            for brings in [is_first, !is_first] {
                let terms = check.push([("tenant", "a")]);
                match brings {
                    true => terms.limit = Some(BroughtLimit::Own(&own)),
                    false => terms.domain = other,
                }
            }
            limiter.check_at(&check, Timestamp::from_secs(START));
            asked += 1;
            assert_eq!(unknown(), asked, "{domain} {is_first}");
        }
    }
}

#[test]
fn a_limit_apart_from_the_rules_takes_the_hits_of_its_descriptor() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    let spec = LimitSpec::new(Algorithm::TokenBucket, 3, Micros::from_secs(60));
    for (post_paid, passed) in [(false, 1), (true, 2)] {
        let spec = LimitSpec { post_paid, ..spec };
        let own = OwnLimit {
            limit: Limit::try_new(spec).expect("a valid limit"),
            on_store_failure: FailureMode::Deny,
        };
        let mut check = Check::new("d");
        let terms = check.push([("kind", if post_paid { "budget" } else { "rate" })]);
        terms.limit = Some(BroughtLimit::Own(&own));
        terms.hits = 2;
        let now = Timestamp::from_secs(START);
        let asked = (0..3).filter(|_| limiter.check_at(&check, now).allowed());
        assert_eq!(asked.count(), passed, "{post_paid}");
    }
}

#[test]
fn a_budget_of_the_request_is_charged_whatever_another_limit_answers() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - { key: closed, rate_limit: { unit: hour, requests_per_unit: 0 } }
",
    );
    let spec = LimitSpec::new(Algorithm::TokenBucket, 5, Micros::from_secs(60));
    for (post_paid, left) in [(false, 5), (true, 3)] {
        let spec = LimitSpec { post_paid, ..spec };
        let own = OwnLimit {
            limit: Limit::try_new(spec).expect("a valid limit"),
            on_store_failure: FailureMode::Deny,
        };
        let kind = if post_paid { "budget" } else { "rate" };
        let mut check = Check::new("d").descriptor([("closed", "")]);
        let terms = check.push([("kind", kind)]);
        terms.limit = Some(BroughtLimit::Own(&own));
        terms.hits = 2;
        let decision = limiter.check_at(&check, Timestamp::from_secs(START));
        assert!(!decision.allowed());
        let binding = decision.answers()[1].binding.expect("its own");
        assert_eq!(binding.answered.remaining, left, "{kind}");
    }
}

/// The author of the one never named the other.
#[test]
fn a_rule_replaces_none_of_another_domain() {
    let of = |domain: &str, limit: &str| Source {
        name: format!("{domain}.yaml"),
        text: format!(
            "domain: {domain}\ndescriptors: [ {{ key: k, rate_limit: {{ unit: hour, {limit} }} }} ]\n"
        ),
    };
    let sources = [
        of("d", "limit: 1, name: base"),
        of("other", "limit: 9, replaces: [ { name: base } ]"),
    ];
    let loaded = load(&sources, &Options::default()).unwrap_or_else(|refused| panic!("{refused}"));
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    let limiter = Limiter::new(loaded.rules, store, LimiterOptions::default());
    let mut check = Check::new("d");
    check.push([("k", "v")]);
    check.push([("k", "v")]).domain = Some("other");
    let allowed = [0, 0].map(|_| limiter.check_now(&check).allowed());
    assert_eq!(allowed, [true, false]);
}
