//! Plans and overrides of tenants.

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Check, LimitSource, Limiter, Override, ReceiptMode};
use ratekeeper_rules::{TenantIndex, TenantKey, TenantQuotas, Unit};
use ratekeeper_store::Answer;
use ratekeeper_store::memory::MemoryStore;

use crate::support::{START, ask, ask_all, limiter, passes, rules};

/// Tenants by key, with 3 calls a minute on the default plan, 2 of them orders.
const RULES: &str = "
domain: d
evaluation: path
tenant: key
plans: [free, pro]
algorithm: fixed_window
descriptors:
- key: key
  rate_limit: { unit: minute, limit: 3 }
  plans: { pro: { unit: minute, limit: 6 } }
  descriptors:
  - key: endpoint
    value: orders
    rate_limit: { unit: minute, limit: 2 }
";

fn with(tenants: &str) -> String {
    format!("{RULES}tenants:\n{tenants}")
}

/// The calls of `pairs` that pass, of ten.
fn passed(limiter: &Limiter<MemoryStore>, pairs: &[(&str, &str)], secs: u64) -> usize {
    let calls = (0..10).map(|_| ask_all(limiter, &[pairs], 1, secs));
    calls.filter(|decision| decision.allowed()).count()
}

#[test]
fn a_tenant_has_the_limits_of_its_plan() {
    let limiter = limiter(&with("- { tenant: acme, plan: pro }\n"));
    assert_eq!(passed(&limiter, &[("key", "acme")], 0), 6);
    assert_eq!(passed(&limiter, &[("key", "other")], 0), 3);
    let denied = ask(&limiter, &[("key", "acme")]);
    let binding = denied.binding().expect("a limit");
    let rule = denied.rule(binding).expect("a rule");
    assert_eq!(
        (&*rule.id, rule.plan.as_deref()),
        ("d.key@pro", Some("pro"))
    );
    assert_eq!(binding.quota, 6);
}

#[test]
fn an_endpoints_limit_holds_beside_the_tenants() {
    let orders = [("key", "acme"), ("endpoint", "orders")];
    let limiter_of = |tenants| limiter(&with(tenants));
    let plan = limiter_of("- { tenant: acme, plan: pro }\n");
    assert_eq!(passed(&plan, &orders, 0), 2, "the endpoint's");
    let own = "- tenant: acme\n  plan: pro\n  overrides: [ { descriptor: 'endpoint:orders', unit: minute, limit: 500 } ]\n";
    assert_eq!(passed(&limiter_of(own), &orders, 0), 6, "the plan's");
    let both = own.replace("} ]", "}, { unit: minute, limit: 9 } ]");
    assert_eq!(
        passed(&limiter_of(&both), &orders, 0),
        9,
        "the tenant's own"
    );
    assert_eq!(
        passed(
            &limiter_of(&both),
            &[("key", "b"), ("endpoint", "orders")],
            0
        ),
        2
    );
}

#[test]
fn the_requests_own_limit_goes_before_all_others() {
    let limiter = limiter(&with(
        "- { tenant: acme, overrides: [ { unit: minute, limit: 9 } ] }\n",
    ));
    let own = Override {
        quota: 1,
        unit: Unit::Minute,
    };
    let mut check = Check::new("d");
    check.push([("key", "acme")]).limit = Some(own.into());
    let decision = limiter.check_at(&check, Timestamp::from_secs(START));
    let binding = decision.binding().expect("a limit");
    assert_eq!((binding.source, binding.quota), (LimitSource::Override, 1));
}

#[test]
fn a_descriptor_that_no_rule_has_is_limited_for_that_tenant_alone() {
    for evaluation in ["path", "leaf"] {
        let yaml = with(
            "- { tenant: acme, overrides: [ { descriptor: 'region:eu', unit: minute, limit: 1 } ] }\n",
        );
        let limiter =
            limiter(&yaml.replace("evaluation: path", &format!("evaluation: {evaluation}")));
        let eu = [("key", "acme"), ("region", "eu")];
        assert_eq!(passed(&limiter, &eu, 0), 1, "{evaluation}");
        let denied = ask(&limiter, &eu);
        let rule = denied.binding().and_then(|binding| denied.rule(binding));
        assert_eq!(rule.map(|rule| &*rule.id), Some("d.key.region_eu@custom"));
        // Under `path` the tenant's 3 a minute count too, of which one is spent.
        let us = [("key", "acme"), ("region", "us")];
        let expected = if evaluation == "path" { 2 } else { 10 };
        assert_eq!(passed(&limiter, &us, 0), expected, "{evaluation}");
    }
}

/// Of entries that no rule has. A leaf stands for just its own.
#[test]
fn an_override_counts_where_all_its_entries_are_or_on_a_path_to_more() {
    let own =
        "- { tenant: acme, overrides: [ { descriptor: 'region:eu', unit: minute, limit: 1 } ] }\n";
    let longer = [("key", "acme"), ("region", "eu"), ("zone", "a")];
    for (evaluation, expected) in [("path", 1), ("leaf", 10)] {
        let yaml = with(own).replace("evaluation: path", &format!("evaluation: {evaluation}"));
        assert_eq!(
            passed(&limiter(&yaml), &longer, 0),
            expected,
            "{evaluation}"
        );
    }
}

#[test]
fn a_reset_of_usage_forgets_hits_and_no_requests_in_flight() {
    let yaml = "
domain: d
tenant: key
descriptors:
- { key: key, rate_limit: { window: 10000d, limit: 9, algorithm: fixed_window } }
- { key: key, value: busy, concurrency: { limit: 3, timeout: 60s } }
";
    let limiter = limiter(yaml);
    let key = TenantKey::from_bytes([9; 16]);
    for epoch in 0..3_u32 {
        let mut index = TenantIndex::new(key.clone());
        let quotas = TenantQuotas {
            epoch,
            ..TenantQuotas::default()
        };
        for tenant in ["acme", "busy"] {
            index.put("d", key.hash(tenant), &quotas);
        }
        assert_eq!(limiter.replace_tenants(index), 0);
        let left = |tenant| {
            let check = Check::new("d").descriptor([("key", tenant)]);
            let now = limiter.clock().now();
            let admitted = match limiter.admit(&check, now, ReceiptMode::Dropped) {
                Answer::Decided(admitted) => admitted,
                Answer::Pending(_) => panic!("the memory store decides at once"),
            };
            let binding = admitted.decision.binding().expect("a limit");
            binding.answered.remaining
        };
        assert_eq!((left("acme"), left("busy")), (8, 2 - u64::from(epoch)));
    }
}

#[test]
fn a_limit_before_the_tenants_entry_is_for_all_tenants_together() {
    let limiter = limiter(
        "
domain: d
evaluation: path
tenant: key
algorithm: fixed_window
descriptors:
- key: region
  rate_limit: { unit: minute, limit: 3 }
  descriptors:
  - { key: key, rate_limit: { unit: minute, limit: 2 } }
",
    );
    let of = |tenant| passed(&limiter, &[("region", "eu"), ("key", tenant)], 0);
    assert_eq!(["a", "b"].map(of), [2, 1]);
}

#[test]
fn dates_are_honoured_to_the_second() {
    let limiter = limiter(&with(
        "- { tenant: acme, plan: pro, effective_at: 2023-11-14T22:14:10Z, expires_at: 2023-11-14T22:14:20Z }\n",
    ));
    let quota = |micros| {
        let check = Check::new("d").descriptor([("key", "acme")]).hits(0);
        let decision = limiter.check_at(&check, Timestamp::from_micros(micros));
        decision.binding().map(|binding| binding.quota)
    };
    let begin = (START + 10) * 1_000_000;
    let moments = [begin - 1, begin, begin + 9_999_999, begin + 10_000_000];
    assert_eq!(moments.map(quota), [3, 6, 6, 3].map(Some));
}

#[test]
fn usage_outlives_a_change_of_plan() {
    let limiter = limiter(RULES);
    let acme = [("key", "acme")];
    assert!(passes(&limiter, &acme, 3));
    assert!(!ask(&limiter, &acme).allowed());
    limiter.replace_rules(rules(&with("- { tenant: acme, plan: pro }\n")));
    assert_eq!(passed(&limiter, &acme, 0), 3, "three of six are spent");
    limiter.replace_rules(rules(&with(
        "- { tenant: acme, overrides: [ { unit: minute, limit: 8 } ] }\n",
    )));
    assert_eq!(passed(&limiter, &acme, 0), 2, "six of eight are spent");
    limiter.replace_rules(rules(RULES));
    assert_eq!(passed(&limiter, &acme, 0), 0);
}

#[test]
fn statistics_are_by_rule_and_plan() {
    let limiter = limiter(&with(
        "- { tenant: acme, plan: pro }
- { tenant: one, overrides: [ { unit: minute, limit: 8 } ] }
- { tenant: two, overrides: [ { unit: minute, limit: 9 } ] }
",
    ));
    for (name, calls) in [("acme", 1), ("one", 2), ("two", 3), ("other", 4)] {
        for _ in 0..calls {
            ask(&limiter, &[("key", name)]);
        }
    }
    let snapshot = limiter.snapshot();
    let told: Vec<_> = snapshot
        .listed()
        .map(|listed| {
            let counts = listed.stats.counts();
            let rule = &*listed.stats.rule;
            (rule, listed.plan, counts.allowed, counts.denied)
        })
        .collect();
    let expected = [
        ("d.key", "free", 3, 1),
        ("d.key@pro", "pro", 1, 0),
        ("d.key.endpoint_orders", "free", 0, 0),
        ("d.key@custom", "custom", 5, 0),
    ];
    assert_eq!(told, expected);
    drop(snapshot);
    // A reload keeps them.
    limiter.replace_rules(rules(&with(
        "- { tenant: two, overrides: [ { unit: minute, limit: 4 } ] }\n",
    )));
    let snapshot = limiter.snapshot();
    let custom = snapshot.listed().find(|listed| listed.plan == "custom");
    let allowed = custom.map(|listed| listed.stats.counts().allowed);
    assert_eq!(allowed, Some(5));
}

#[test]
fn an_explanation_names_plan_and_override() {
    let limiter = limiter(&with(
        "- { tenant: bare, overrides: [ { descriptor: 'endpoint:orders', unit: minute, limit: 7 } ] }
- tenant: acme
  plan: pro
  expires_at: 2200-01-01T00:00:00Z
  overrides: [ { descriptor: 'endpoint:orders', unit: minute, limit: 500 }, { descriptor: 'region:eu', unit: minute, limit: 1 } ]
",
    ));
    let explain = |pairs: &[(&str, &str)]| {
        let mut explained = limiter.explain_now(&Check::new("d").descriptor(pairs));
        explained.descriptors.remove(0)
    };
    let acme = explain(&[("key", "acme"), ("endpoint", "orders")]);
    assert_eq!(acme.plan.as_deref(), Some("pro until 2200-01-01T00:00:00Z"));
    let limits = acme.nodes.iter().flat_map(|node| &node.limits);
    let limits: Vec<_> = limits
        .map(|limit| {
            (
                limit.rule.as_str(),
                limit.plan.as_deref(),
                limit.note.as_deref(),
            )
        })
        .collect();
    let note = "an override of this tenant until 2200-01-01T00:00:00Z";
    let expected = [
        ("d.key@pro", Some("pro"), None),
        ("d.key.endpoint_orders@custom", Some("custom"), Some(note)),
    ];
    assert_eq!(limits, expected);
    let unruled = explain(&[("key", "acme"), ("region", "eu")]);
    let last = unruled.nodes.last().expect("the override");
    assert_eq!(
        (last.pattern.as_str(), last.how.as_str()),
        ("region_eu", "no rule")
    );
    let other = explain(&[("key", "other")]);
    assert_eq!(other.plan.as_deref(), Some("free, the default"));
    let bare = explain(&[("key", "bare"), ("endpoint", "orders")]);
    let plan = "custom (overrides only); its other limits are those of free, the default";
    assert_eq!(bare.plan.as_deref(), Some(plan));
    let limits = bare.nodes.iter().flat_map(|node| &node.limits);
    let plans: Vec<_> = limits.map(|limit| limit.plan.as_deref()).collect();
    assert_eq!(plans, [None, Some("custom")], "as the plan says");
}

#[test]
fn an_override_counts_alone_where_a_pattern_is_shared() {
    let yaml = "
domain: d
tenant: key
algorithm: fixed_window
descriptors:
- { key: key, value: 'bot-*', share_threshold: true, rate_limit: { unit: minute, limit: 2 } }
tenants:
- { tenant: bot-7, overrides: [ { unit: minute, limit: 3 } ] }
";
    let limiter = limiter(yaml);
    assert_eq!(passed(&limiter, &[("key", "bot-1")], 0), 2);
    assert_eq!(passed(&limiter, &[("key", "bot-7")], 0), 3);
    assert_eq!(
        passed(&limiter, &[("key", "bot-2")], 0),
        0,
        "they share theirs"
    );
}

mod model {
    //! A simple model, which a sequence of changes, times and checks has to agree with.

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const TENANTS: [&str; 3] = ["a", "b", "c"];

    /// A tenant as a file lists it: a plan, and overrides of orders, each with its term.
    type Listed = (Option<(bool, Span)>, Vec<(u64, Span)>);
    type Span = (u64, u64);

    #[derive(Clone, Debug)]
    enum Act {
        Change([Listed; 3]),
        Wait(u64),
        Call { tenant: usize, orders: bool },
    }

    fn span() -> impl Strategy<Value = Span> {
        (0..200_u64, 1..200_u64).prop_map(|(from, length)| (from, from + length))
    }

    fn listed() -> impl Strategy<Value = Listed> {
        let plan = proptest::option::of((any::<bool>(), span()));
        (plan, proptest::collection::vec((0..6_u64, span()), 0..3))
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            1 => [listed(), listed(), listed()].prop_map(Act::Change),
            3 => (1..40_u64).prop_map(Act::Wait),
            16 => (0..3_usize, any::<bool>()).prop_map(|(tenant, orders)| Act::Call { tenant, orders }),
        ]
    }

    fn time(secs: u64) -> String {
        let secs = START + secs;
        let (day, secs) = (secs / 86_400, secs % 86_400);
        // The tests begin on 2023-11-14, day 19,675, and last some hours at most.
        let date = 14 + day - 19_675;
        format!(
            "2023-11-{date}T{:02}:{:02}:{:02}Z",
            secs / 3_600,
            secs / 60 % 60,
            secs % 60
        )
    }

    fn file(change: &[Listed; 3]) -> String {
        let mut text = RULES.to_owned() + "tenants:\n";
        for (name, (plan, own)) in TENANTS.iter().zip(change) {
            text.push_str(&format!("- tenant: {name}\n  overrides:\n"));
            let term = |(from, until): &Span| {
                format!(
                    "effective_at: '{}', expires_at: '{}'",
                    time(*from),
                    time(*until)
                )
            };
            for (number, (limit, span)) in own.iter().enumerate() {
                // Two that begin together are refused.
                if own[..number].iter().all(|(_, other)| other.0 != span.0) {
                    let term = term(span);
                    text.push_str(&format!(
                        "  - {{ descriptor: 'endpoint:orders', unit: minute, limit: {limit}, {term} }}\n"
                    ));
                }
            }
            if let Some((pro, span)) = plan {
                let plan = if *pro { "pro" } else { "free" };
                text.push_str(&format!("  plan: [ {{ name: {plan}, {} }} ]\n", term(span)));
            }
        }
        text
    }

    /// The limits of a call: of the tenant, and of its orders.
    fn limits(change: &[Listed; 3], tenant: usize, now: u64) -> (u64, u64) {
        let (plan, own) = &change[tenant];
        let in_force = |(from, until): Span| from <= now && now < until;
        let pro = plan.is_some_and(|(pro, span)| pro && in_force(span));
        let mut latest: Option<(u64, u64)> = None;
        for (number, (limit, span)) in own.iter().enumerate() {
            let repeated = own[..number].iter().any(|(_, other)| other.0 == span.0);
            if !repeated && in_force(*span) && latest.is_none_or(|(from, _)| span.0 > from) {
                latest = Some((span.0, *limit));
            }
        }
        (
            if pro { 6 } else { 3 },
            latest.map_or(2, |(_, limit)| limit),
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn decisions_are_those_of_a_simple_model(acts in proptest::collection::vec(act(), 1..120)) {
            let limiter = limiter(RULES);
            let mut change: [Listed; 3] = Default::default();
            let (mut now, mut counts) = (0_u64, BTreeMap::<(usize, bool, u64), u64>::new());
            for act in acts {
                match act {
                    Act::Change(to) => {
                        limiter.replace_rules(rules(&file(&to)));
                        change = to;
                    }
                    Act::Wait(secs) => now += secs,
                    Act::Call { tenant, orders } => {
                        let (all, of_orders) = limits(&change, tenant, now);
                        let minute = (START + now) / 60;
                        let count = |orders| counts.get(&(tenant, orders, minute)).copied().unwrap_or(0);
                        let expected = count(false) < all && (!orders || count(true) < of_orders);
                        if expected {
                            *counts.entry((tenant, false, minute)).or_default() += 1;
                            if orders {
                                *counts.entry((tenant, true, minute)).or_default() += 1;
                            }
                        }
                        let pairs = [("key", TENANTS[tenant]), ("endpoint", "orders")];
                        let pairs = if orders { &pairs[..] } else { &pairs[..1] };
                        let decision = ask_all(&limiter, &[pairs], 1, now);
                        prop_assert_eq!(decision.allowed(), expected, "{} at {}", TENANTS[tenant], now);
                    }
                }
            }
        }
    }
}

/// A limit in place of another one has its name, and replaces what that does, whoever has it.
#[test]
fn limits_of_plans_and_tenants_replace_and_are_replaced_as_those_of_all() {
    let rules = |name: &str| {
        format!(
            "
domain: d
tenant: key
plans: [free, pro, all]
algorithm: fixed_window
descriptors:
- key: key
  rate_limit: {{ unit: hour, limit: 100, name: per-key, replaces: [ {{ name: global }} ] }}
  plans:
    pro: {{ unit: hour, limit: 1000 }}
    all: {{ unlimited: true }}
- {{ key: global, rate_limit: {{ unit: hour, limit: 2, name: global }} }}
- {{ key: strict, rate_limit: {{ unit: hour, limit: 4, replaces: [ {{ name: {name} }} ] }} }}
tenants:
- {{ tenant: acme, plan: pro }}
- {{ tenant: free, plan: all }}
- {{ tenant: own, overrides: [ {{ unit: hour, limit: 1 }} ] }}
- {{ tenant: open, overrides: [ {{ unlimited: true }} ] }}
"
        )
    };
    let denied = |limiter: &Limiter<MemoryStore>, lists: &[&[(&str, &str)]]| {
        let calls = (0..6).map(|_| ask_all(limiter, lists, 1, 0));
        calls.filter(|decision| !decision.allowed()).count()
    };
    for (tenant, own) in [("x", 0), ("acme", 0), ("free", 0), ("own", 5), ("open", 0)] {
        let key: &[_] = &[("key", tenant)];
        let limiter_of = |name| limiter(&rules(name));
        let told = denied(&limiter_of("per-key"), &[key, &[("global", "")]]);
        assert_eq!(told, own, "{tenant} is held to the global limit");
        let told = denied(&limiter_of("per-key"), &[key, &[("strict", "")]]);
        assert_eq!(told, 2, "{tenant} is held to the replaced limit");
        let told = denied(&limiter_of("global"), &[key, &[("strict", "")]]);
        assert_eq!(told, own.max(2), "{tenant} has a limit of its own");
    }
}
