//! What a limiter decides, from rules in YAML to statuses, at times that the test chooses.

use ratekeeper_core::{Micros, Timestamp, Verdict};
use ratekeeper_limiter::{
    Check, Code, Decision, Descriptor, Limiter, LimiterOptions, Modes, Override, Waiting,
};
use ratekeeper_rules::{Entry, Options, RuleSet, Source, Unit, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

const START: u64 = 1_700_000_040;

fn rules(yaml: &str) -> RuleSet {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: yaml.to_owned(),
    };
    match load(&[source], &Options::default()) {
        Ok(loaded) => loaded.rules,
        Err(refused) => panic!("{refused}"),
    }
}

fn limiter_with(yaml: &str, modes: Modes) -> Limiter<MemoryStore> {
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    let mut options = LimiterOptions::default();
    options.modes = modes;
    Limiter::new(rules(yaml), store, options)
}

fn limiter(yaml: &str) -> Limiter<MemoryStore> {
    limiter_with(yaml, Modes::default())
}

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn entries<'a>(pairs: Pairs<'a>) -> Vec<Entry<'a>> {
    pairs
        .iter()
        .map(|(key, value)| Entry { key, value })
        .collect()
}

/// Asks for `hits` on every descriptor, `secs` after the start.
fn ask_all(limiter: &Limiter<MemoryStore>, lists: &[Pairs<'_>], hits: i64, secs: u64) -> Decision {
    let lists: Vec<_> = lists.iter().map(|pairs| entries(pairs)).collect();
    let descriptor = |entries| Descriptor {
        hits,
        ..Descriptor::new(entries)
    };
    let descriptors: Vec<_> = lists.iter().map(|entries| descriptor(entries)).collect();
    let check = Check {
        domain: "d",
        descriptors: &descriptors,
        waiting: Waiting::Cannot,
    };
    limiter.check_at(&check, Timestamp::from_secs(START + secs))
}

fn ask(limiter: &Limiter<MemoryStore>, pairs: Pairs<'_>) -> Decision {
    ask_all(limiter, &[pairs], 1, 0)
}

fn passes(limiter: &Limiter<MemoryStore>, pairs: Pairs<'_>, times: u64) -> bool {
    (0..times).all(|_| ask(limiter, pairs).allowed())
}

const TWO_LEVELS: &str = "
descriptors:
  - key: tenant
    rate_limit: { unit: minute, requests_per_unit: 3, algorithm: fixed_window }
    descriptors:
      - key: endpoint
        value: orders
        rate_limit: { unit: minute, requests_per_unit: 2, algorithm: fixed_window }
";

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
    assert_eq!(decision.statuses().len(), 1);
    let entries = entries(&[("tenant", "a")]);
    let descriptors = [Descriptor::new(&entries)];
    let check = Check {
        domain: "other",
        descriptors: &descriptors,
        waiting: Waiting::Cannot,
    };
    let decision = limiter.check_now(&check);
    assert!(decision.allowed());
    assert_eq!(decision.statuses()[0].code, Code::Ok);
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
        let codes: Vec<_> = denied.statuses().iter().map(|status| status.code).collect();
        assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit]);
        let fitted = denied.statuses()[0].binding.expect("a limit");
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
fn shadow_and_partly_enforced_rules_count_and_let_pass() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 1 }
  - key: some
    enforce: 10%
    rate_limit: { unit: hour, requests_per_unit: 0 }
",
    );
    assert!(passes(&limiter, &[("shadow", "1")], 5));
    let status = ask(&limiter, &[("shadow", "1")]).statuses()[0];
    assert_eq!(status.code, Code::Ok);
    assert!(status.binding.expect("shown all the same").shadow);

    let subjects: Vec<_> = (0..2_000).map(|n| format!("user-{n}")).collect();
    let denied = |subject: &&String| !ask(&limiter, &[("some", subject)]).allowed();
    let once: Vec<_> = subjects.iter().filter(denied).collect();
    let again: Vec<_> = subjects.iter().filter(denied).collect();
    assert_eq!(once, again, "the same subjects every time");
    assert!(
        (100..300).contains(&once.len()),
        "about a tenth: {}",
        once.len()
    );

    let snapshot = limiter.snapshot();
    let counts: Vec<_> = snapshot.stats().map(|stats| stats.counts()).collect();
    assert_eq!(
        (counts[0].allowed, counts[0].denied, counts[0].shadow_denied),
        (1, 0, 5)
    );
    assert_eq!(counts[1].denied + counts[1].shadow_denied, 4_000);
}

#[test]
fn global_shadow_mode_allows_and_still_says_which_descriptor_is_over() {
    let modes = Modes {
        shadow: true,
        quota: false,
    };
    let limiter = limiter_with(&format!("domain: d{TWO_LEVELS}"), modes);
    assert!(passes(&limiter, &[("tenant", "a")], 10));
    assert_eq!(
        ask(&limiter, &[("tenant", "a")]).statuses()[0].code,
        Code::OverLimit
    );
}

#[test]
fn quota_mode_denies_when_every_quota_descriptor_is_over() {
    let yaml = "
domain: d
descriptors:
  - key: a
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 0 }
  - key: b
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 100 }
";
    let (a, b): (Pairs<'_>, Pairs<'_>) = (&[("a", "1")], &[("b", "1")]);
    let own = limiter(yaml);
    assert!(ask_all(&own, &[a, b], 1, 0).allowed());
    assert!(!ask_all(&own, &[a], 1, 0).allowed());
    assert!(!ask_all(&own, &[a, &[("x", "1")]], 1, 0).allowed());

    let global = limiter_with(
        yaml,
        Modes {
            shadow: false,
            quota: true,
        },
    );
    let idle = ask_all(&global, &[a, &[("x", "1")]], 1, 0);
    assert!(
        idle.allowed(),
        "an unmatched descriptor counts as one that is not over"
    );
}

const QUOTA_AND_RATE: &str = "
domain: d
descriptors:
  - key: spent
    quota_mode: true
    rate_limit: { unit: month, requests_per_unit: 1 }
  - key: fresh
    quota_mode: true
    rate_limit: { unit: month, requests_per_unit: 100 }
  - key: rate
    rate_limit: { window: 1s, limit: 1, algorithm: gcra }
";

#[test]
fn a_quota_that_had_no_say_does_not_tell_when_to_come_back() {
    let limiter = limiter(QUOTA_AND_RATE);
    let all: [Pairs<'_>; 3] = [&[("spent", "1")], &[("fresh", "1")], &[("rate", "1")]];
    assert!(ask_all(&limiter, &all, 1, 0).allowed());
    let denied = ask_all(&limiter, &all, 1, 0);
    assert!(!denied.allowed());
    let binding = denied.binding().expect("the rate");
    assert_eq!(denied.rule(binding).expect("a rule").id.as_ref(), "d.rate");
    assert_eq!(binding.answered.retry_after, Micros::from_secs(1));

    let allowed = ask_all(&limiter, &all[..2], 1, 0);
    assert!(allowed.allowed());
    let binding = allowed.binding().expect("the one with room");
    assert_eq!(binding.quota, 100);
    let snapshot = limiter.snapshot();
    let spent = snapshot.stats().next().expect("the first rule").counts();
    assert_eq!(
        (spent.allowed, spent.denied, spent.shadow_denied),
        (1, 0, 2)
    );
}

#[test]
fn what_is_not_enforced_is_not_counted_as_denied() {
    let modes = Modes {
        shadow: true,
        quota: false,
    };
    let limiter = limiter_with(&format!("domain: d{TWO_LEVELS}"), modes);
    assert!(passes(&limiter, &[("tenant", "a")], 5));
    let snapshot = limiter.snapshot();
    let counts = snapshot.stats().next().expect("the first rule").counts();
    assert_eq!(
        (counts.allowed, counts.denied, counts.shadow_denied),
        (3, 0, 2)
    );
}

#[test]
fn an_explanation_combines_as_the_limiter_does() {
    let limiter = limiter(QUOTA_AND_RATE);
    let lists = [entries(&[("spent", "1")]), entries(&[("fresh", "1")])];
    let descriptors: Vec<_> = lists.iter().map(|list| Descriptor::new(list)).collect();
    let check = Check {
        domain: "d",
        descriptors: &descriptors,
        waiting: Waiting::Cannot,
    };
    assert!(limiter.check_now(&check).allowed());
    assert!(limiter.explain(&check).allowed, "one quota of two is spent");
    let alone = Check {
        descriptors: &descriptors[..1],
        ..check
    };
    assert!(!limiter.explain(&alone).allowed && !limiter.check_now(&alone).allowed());
}

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
    let list = entries(&[("a", "1"), ("b", "1")]);
    let descriptors = [Descriptor::new(&list), Descriptor::new(&list)];
    let check = Check {
        domain: "d",
        descriptors: &descriptors,
        waiting: Waiting::Cannot,
    };
    let decision = limiter.check_now(&check);
    let quotas: Vec<_> = limiter
        .policies(&check, &decision)
        .iter()
        .map(|p| p.quota)
        .collect();
    assert_eq!(quotas, [5, 50]);
}

#[test]
fn a_limit_of_the_request_holds_without_entries() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    let own = Some(Override {
        quota: 0,
        unit: Unit::Second,
    });
    let descriptors = [Descriptor {
        limit: own,
        ..Descriptor::new(&[])
    }];
    let check = Check {
        domain: "d",
        descriptors: &descriptors,
        waiting: Waiting::Cannot,
    };
    assert!(!limiter.check_now(&check).allowed());
    let none = [Descriptor::new(&[])];
    assert!(
        limiter
            .check_now(&Check {
                descriptors: &none,
                ..check
            })
            .allowed()
    );
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
    assert!(decision.statuses()[0].binding.is_none());
    assert_eq!(decision.binding().expect("the special one").quota, 9);
    let unlimited = ask_all(&limiter, &[&[("free", "x")], default], 1, 0);
    assert!(unlimited.allowed());
    assert!(unlimited.statuses()[0].unlimited.is_some());
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
    assert!(both.statuses()[0].unlimited.is_some());
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
        (first.statuses()[0].unlimited, first.statuses()[0].code),
        (None, Code::Ok)
    );
    assert!(!ask(&limiter, both).allowed());
    assert!(
        ask(&limiter, &[("tenant", "a")]).statuses()[0]
            .unlimited
            .is_some()
    );
}

#[test]
fn a_request_may_bring_its_own_limit() {
    let limiter = limiter(&format!("domain: d{TWO_LEVELS}"));
    let entries = entries(&[("tenant", "a")]);
    let own = Some(Override {
        quota: 1,
        unit: Unit::Hour,
    });
    let descriptors = [Descriptor {
        limit: own,
        ..Descriptor::new(&entries)
    }];
    let check = Check {
        domain: "d",
        descriptors: &descriptors,
        waiting: Waiting::Cannot,
    };
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
        let entries = [Entry { key, value: "1" }];
        let descriptors = [Descriptor::new(&entries)];
        let check = Check {
            domain: "d",
            descriptors: &descriptors,
            waiting,
        };
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
    let list = entries(pairs);
    let descriptors = [Descriptor::new(&list)];
    let check = Check {
        domain: "d",
        descriptors: &descriptors,
        waiting: Waiting::Can,
    };
    let ask = || limiter.check_at(&check, Timestamp::from_secs(START));
    ask();
    let decision = ask();
    (decision.allowed(), decision.delay())
}

#[test]
fn a_leaky_bucket_that_only_watches_holds_nobody_back() {
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
    let list = entries(&[("a", "1")]);
    let descriptors = [Descriptor::new(&list)];
    let turn = Micros::from_secs(360);
    let ask = |waiting| {
        let check = Check {
            domain: "d",
            descriptors: &descriptors,
            waiting,
        };
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
    let entries = [Entry {
        key: "a",
        value: "1",
    }];
    let descriptors = [Descriptor::new(&entries)];
    let check = Check {
        domain: "d",
        descriptors: &descriptors,
        waiting: Waiting::Cannot,
    };
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

#[test]
fn disabled_rules_and_permits_that_nobody_would_release_are_skipped() {
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
fn an_explanation_names_the_rules_and_takes_nothing() {
    let limiter = limiter(&format!("domain: d\nevaluation: path{TWO_LEVELS}"));
    let entries = entries(&[("tenant", "a"), ("endpoint", "orders")]);
    let descriptors = [Descriptor {
        hits: 7,
        ..Descriptor::new(&entries)
    }];
    let check = Check {
        domain: "d",
        descriptors: &descriptors,
        waiting: Waiting::Cannot,
    };
    for _ in 0..5 {
        let explanation = limiter.explain(&check);
        assert!(explanation.known && explanation.allowed);
        let nodes = &explanation.descriptors[0].nodes;
        assert_eq!(nodes.len(), 2);
        assert_eq!(
            (nodes[0].how.as_str(), nodes[1].how.as_str()),
            ("key only", "exact")
        );
        assert_eq!(nodes[0].limits[0].remaining, Some(3));
        assert_eq!(nodes[1].limits[0].answer, "allow");
        assert_eq!(nodes[1].limits[0].limit, "2 per 1m, fixed_window");
        assert!(nodes[1].limits[0].place.starts_with("rules.yaml:"));
    }
    let snapshot = limiter.snapshot();
    assert!(
        snapshot.stats().all(|stats| stats.counts().allowed == 0),
        "it is no traffic"
    );
    drop(snapshot);

    assert!(passes(
        &limiter,
        &[("tenant", "a"), ("endpoint", "orders")],
        2
    ));
    let explanation = limiter.explain(&Check { ..check });
    let denied = &explanation.descriptors[0].nodes[1].limits[0];
    assert!(!explanation.allowed);
    assert_eq!(denied.answer, "deny");
    assert!(denied.retry_after_ms.is_some());
}
