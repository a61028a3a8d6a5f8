//! Policies by which limits follow usage.

use ratekeeper_core::{Limit, Micros};
use ratekeeper_rules::{
    AdjustMode, AdjustPolicy, PlanIndex, Rule, TenantIndex, TenantKey, TenantOverride, TenantQuotas,
};

use crate::support::{errors, loaded};

fn text(adjust: &str, pro: &str) -> String {
    format!(
        "domain: d\ntenant: customer\nplans: [free, pro, max]\nadjust: {adjust}\ndescriptors:\n\
         - key: customer\n  rate_limit: {{ unit: minute, limit: 10 }}\n  plans: {{ pro: {pro} }}\n"
    )
}

const PRO: &str = "{ unit: minute, limit: 1000 }";

#[test]
fn a_policy_begins_in_shadow_and_is_bounded() {
    let loaded = loaded(&text("{ plans: [pro] }", PRO));
    let policy = loaded.rules.domain("d").and_then(|domain| domain.adjust());
    let policy = policy.expect("there is a policy");
    assert_eq!(policy.mode, AdjustMode::Shadow);
    assert_eq!(
        (
            policy.raise_at_percent,
            policy.step_percent,
            policy.steps_max
        ),
        (80, 50, 2)
    );
    assert_eq!(policy.lower_after, Micros::from_secs(86_400));
    let [(plan, index)] = policy.plans[..] else {
        panic!("one plan")
    };
    let rule = loaded.rules.rule(index);
    assert_eq!((plan, &*rule.id), (PlanIndex(1), "d.customer@pro"));
    let expected = TenantOverride {
        requests_per_unit: 1_500,
        unit: Some("minute".into()),
        algorithm: Some("sliding_window".into()),
        post_paid: Some(false),
        steps: Some(1),
        ..TenantOverride::default()
    };
    assert_eq!(policy.override_of(rule, 1), Some(expected));
    assert_eq!(
        (AdjustPolicy::period(rule), AdjustPolicy::capacity(rule)),
        (1, 1_000)
    );
}

#[test]
fn windows_are_judged_over_whole_minutes_and_bursts_grow_along() {
    let of = |pro: &str| {
        let loaded = loaded(&text("{ plans: [pro], mode: on }", pro));
        let domain = loaded.rules.domain("d").expect("the domain");
        let policy = domain.adjust().expect("there is a policy");
        let rule = loaded.rules.rule(policy.plans[0].1);
        let own = policy.override_of(rule, 2).expect("a limit");
        (
            AdjustPolicy::period(rule),
            AdjustPolicy::capacity(rule),
            (own.requests_per_unit, own.window, own.burst),
        )
    };
    let second = of("{ window: 10s, limit: 100 }");
    assert_eq!(second, (1, 600, (200, Some("10s".into()), None)));
    let odd = of("{ window: 90s, limit: 90, algorithm: gcra, burst: 7 }");
    assert_eq!(odd, (2, 120, (180, Some("90s".into()), Some(14))));
}

#[test]
fn policies_that_make_no_sense_are_refused() {
    for (adjust, pro, message) in [
        ("{}", PRO, "`adjust` does not say whose limits it raises"),
        (
            "{ plans: [free] }",
            PRO,
            "this is the default plan; tenants are on it without an entry",
        ),
        ("{ plans: [prp] }", PRO, "the domain has no plan 'prp'"),
        ("{ plans: [pro, pro] }", PRO, "plan 'pro' is there twice"),
        ("{ plans: [pro], steps: 0 }", PRO, "`steps` is at least 1"),
        ("{ plans: [pro], step: 0% }", PRO, "`step` is at least 1%"),
        (
            "{ plans: [pro], lower_after: 1s }",
            PRO,
            "`lower_after` is 1m to 60d",
        ),
        (
            "{ plans: [pro], rise_at: 90% }",
            PRO,
            "unknown key 'rise_at' in adjust",
        ),
        (
            "{ plans: [pro] }",
            "[ { window: 1s, limit: 5 }, { window: 60s, limit: 20 } ]",
            "the tenant's descriptor has several limits on this plan",
        ),
        (
            "{ plans: [pro] }",
            "{ unlimited: true }",
            "the tenant's descriptor has no limit on this plan",
        ),
        (
            "{ plans: [pro] }",
            "{ unit: day, limit: 5, calendar: UTC }",
            "the limit of this plan follows a calendar, is strict, or has sub_windows",
        ),
        (
            "{ plans: [pro] }",
            "{ window: 32d, limit: 5 }",
            "the window of this plan's limit is longer than 31 days",
        ),
    ] {
        assert_eq!(errors(&text(adjust, pro)), [message], "{adjust} {pro}");
    }
    let no_quota = "domain: d\nplans: [free, pro]\nadjust: { plans: [pro] }\ndescriptors: []\n";
    assert_eq!(
        errors(no_quota),
        ["`adjust` needs to know which entry names the tenant"]
    );
    let elsewhere =
        "domain: d\ntenant: t\nplans: [free, pro]\nadjust: { plans: [pro] }\ndescriptors: []\n";
    assert_eq!(
        errors(elsewhere),
        ["there is no descriptor `t` whose limits could be raised"]
    );
    assert_eq!(
        errors("adjust: { plans: [pro] }\nslas: []\n"),
        ["config file cannot have empty domain"]
    );
}

#[test]
fn dates_that_no_clock_reaches_are_refused() {
    let with = |key: &str, time: &str| {
        format!(
            "{}tenants:\n- {{ tenant: a, plan: pro, {key}: {time} }}\n",
            text("{ plans: [pro] }", PRO)
        )
    };
    assert_eq!(
        errors(&with("expires_at", "2300-01-01T00:00:00Z")),
        ["`expires_at` is too late: times end in June 2255"]
    );
    assert_eq!(
        errors(&with("effective_at", "9999-01-01T00:00:00Z")),
        ["`effective_at` is too late: times end in June 2255"]
    );
    loaded(&with("expires_at", "2255-06-04T23:59:59Z"));
}

/// The raised limit is counted where the plan's is, whatever the default plan has.
#[test]
fn a_raised_limit_differs_from_its_plans_in_nothing_but_size() {
    const FREE: &str = "{ unit: minute, limit: 10 }";
    let bucket = "{ unit: minute, limit: 1000, algorithm: token_bucket, burst: 500 }";
    let budget = "{ unit: minute, limit: 1000, algorithm: gcra, post_paid: true, max_debt: 40 }";
    let window = "{ unit: minute, limit: 1000, algorithm: fixed_window, post_paid: true }";
    for (free, pro) in [
        (FREE, bucket),
        (FREE, budget),
        (FREE, window),
        (budget, PRO),
        (budget, bucket),
    ] {
        let text = text("{ plans: [pro], mode: on }", pro).replace(FREE, free);
        let rules = loaded(&text).rules;
        let domain = rules.domain("d").expect("the domain");
        let policy = domain.adjust().expect("there is a policy");
        let plans = rules.rule(policy.plans[0].1);
        let own = policy.override_of(plans, 1).expect("a limit");
        let quotas = TenantQuotas {
            overrides: vec![own],
            ..TenantQuotas::default()
        };
        quotas.check("d", &rules).expect("it is a good override");
        let key = TenantKey::from_bytes([9; 16]);
        let mut index = TenantIndex::new(key.clone());
        index.put("d", key.hash("acme"), &quotas);
        let raised = rules.with_tenants(&index).rules;
        let raised = raised.rules().last().and_then(Rule::limited);
        let facts = |limit: &Limit, more: u64| {
            let debt = limit.max_debt().map(|debt| debt * more / 2);
            let sizes = [limit.quota(), limit.capacity()].map(|size| size * more / 2);
            let kind = (limit.algorithm(), limit.window(), limit.is_post_paid());
            (kind, sizes, debt)
        };
        let expected = plans.limited().map(|limit| facts(limit, 3));
        assert_eq!(raised.map(|limit| facts(limit, 2)), expected, "{text}");
    }
}
