//! Overrides on plans whose limits regions share in another way than that of the default plan.

use ratekeeper_core::Timestamp;
use ratekeeper_rules::{
    Consistency, Dated, RegionMode, RuleSet, TenantIndex, TenantKey, TenantOverride, TenantPlan,
    TenantQuotas, Term,
};

use crate::regions::{enforced, refused, rules};

/// A domain whose tenants are on free or on pro.
fn text(free: &str, pro: &str) -> String {
    format!(
        "domain: d
plans: [free, pro, max]
tenant: key
descriptors:
- key: key
  rate_limit: {free}
  plans: {{ pro: {pro} }}
"
    )
}

/// The rules with a tenant acme on `plan` that has this override, as files have it.
fn listed(text: &str, plan: &str, own: &str) -> String {
    format!("{text}tenants: [ {{ tenant: acme, plan: {plan}, overrides: [ {{ {own} }} ] }} ]\n")
}

/// Quotas of a tenant on pro.
fn stored(limit: u64, algorithm: Option<&str>) -> TenantQuotas {
    TenantQuotas {
        plans: vec![TenantPlan::new("pro")],
        overrides: vec![TenantOverride {
            requests_per_unit: limit,
            unit: Some("minute".into()),
            algorithm: algorithm.map(Into::into),
            ..TenantOverride::default()
        }],
        ..TenantQuotas::default()
    }
}

/// `rules` with these quotas of acme, and the number of those that mean nothing.
fn with(rules: &RuleSet, quotas: &TenantQuotas) -> (RuleSet, usize) {
    let key = TenantKey::from_bytes([9; 16]);
    let mut index = TenantIndex::new(key.clone());
    index.put("d", key.hash("acme"), quotas);
    let with = rules.with_tenants(&index);
    (with.rules, with.unknown)
}

/// Regions that lend each other a limit, or count it together, do so in the store: an override takes that over as well.
#[test]
fn an_override_is_shared_whatever_the_default_plan_says_of_its_consistency() {
    let pros = [
        (
            "{ window: 1m, limit: 6000, algorithm: fixed_window, consistency: exact, regions: bounded }",
            (4_500, Some(RegionMode::Bounded)),
        ),
        (
            "{ window: 1m, limit: 6000, algorithm: fixed_window, consistency: exact, regions: counted }",
            (9_000, Some(RegionMode::Counted)),
        ),
    ];
    for free in [
        "{ window: 1m, limit: 600, algorithm: fixed_window }",
        "{ window: 1m, limit: 600, algorithm: fixed_window, consistency: exact }",
        "{ window: 1m, limit: 600, algorithm: fixed_window, consistency: leased }",
        "{ window: 1m, limit: 600, algorithm: fixed_window, consistency: synced }",
        "{ window: 1m, limit: 600, algorithm: fixed_window, consistency: local }",
    ] {
        for (pro, shared) in pros {
            let text = text(free, pro);
            let of_files = listed(&text, "pro", "window: 1m, limit: 9000");
            assert_eq!(
                enforced(&rules(&of_files, "eu"), "acme", 0),
                shared,
                "{free}"
            );
            let rules = rules(&text, "eu");
            let quotas = stored(9_000, None);
            assert_eq!(quotas.check("d", &rules), Ok(()), "{free}");
            let (rules, unknown) = with(&rules, &quotas);
            assert_eq!(unknown, 0);
            assert_eq!(enforced(&rules, "acme", 0), shared, "{free}");
            let own = rules.rules().last().expect("the override's");
            assert_eq!(own.consistency, Some(Consistency::Exact), "{free}");
        }
    }
}

/// Both plans may be shared alike, and differ in how and where they count: what goes with the regions is the plan's then, too.
#[test]
fn an_override_counts_where_its_plan_does_though_the_default_plan_is_shared_alike() {
    let text = text(
        "{ window: 1m, limit: 600, algorithm: fixed_window, consistency: leased, regions: bounded }",
        "{ window: 1m, limit: 6000, algorithm: token_bucket, consistency: exact, regions: bounded }",
    );
    let bucket = "window: 1m, limit: 9000, algorithm: token_bucket";
    let of_files = rules(&listed(&text, "pro", bucket), "eu");
    let quotas = stored(9_000, Some("token_bucket"));
    let without = rules(&text, "eu");
    assert_eq!(quotas.check("d", &without), Ok(()));
    let (with, unknown) = with(&without, &quotas);
    assert_eq!(unknown, 0);
    for rules in [of_files, with] {
        let shared = (4_500, Some(RegionMode::Bounded));
        assert_eq!(enforced(&rules, "acme", 0), shared);
        let mut own = rules.rules().iter().rev();
        let own = own.find(|rule| rule.plan.as_deref() == Some("custom"));
        let own = own.expect("the override's");
        assert_eq!(own.consistency, Some(Consistency::Exact));
    }
    // On the default plan it is refused, as that cannot lend buckets.
    let told = refused(&listed(&text, "free", bucket));
    assert!(
        told[0].contains("with `consistency: leased` here"),
        "{told:?}"
    );
}

/// The same of stores.
#[test]
fn an_override_of_a_lent_limit_counts_in_the_store_of_its_plan() {
    let text = text(
        "{ window: 1m, limit: 600, algorithm: fixed_window, regions: bounded }",
        "{ window: 1m, limit: 6000, algorithm: fixed_window, store: other, regions: bounded }",
    );
    let listed = listed(&text, "pro", "window: 1m, limit: 9000");
    let rules = rules(&listed, "eu");
    let mut own = rules.rules().iter();
    let own = own.find(|rule| rule.plan.as_deref() == Some("custom"));
    assert_eq!(own.expect("the override's").store.as_deref(), Some("other"));
}

/// The override names an algorithm that cannot be shared where hits are leased.
#[test]
fn an_override_is_refused_where_its_buckets_would_be_leased_and_lent() {
    let text = text(
        "{ window: 1m, limit: 600, consistency: leased, regions: bounded }",
        "{ window: 1m, limit: 6000, consistency: leased }",
    );
    let quotas = stored(9_000, Some("token_bucket"));
    let told = quotas.check("d", &rules(&text, "eu"));
    let told = told.expect_err("leased buckets cannot be lent").to_string();
    assert!(told.contains("with `consistency: leased` here"), "{told}");
    let own = "window: 1m, limit: 9000, algorithm: token_bucket";
    let told = refused(&listed(&text, "pro", own));
    assert!(
        told[0].contains("with `consistency: leased` here"),
        "{told:?}"
    );
}

const DAY: u64 = 86_400;

fn term(from: u64, until: u64) -> Term {
    Term {
        from: Timestamp::from_secs(from * DAY),
        until: Timestamp::from_secs(until * DAY),
    }
}

/// Plans that regions count together and of which each has all, where a token bucket is possible on the latter alone.
fn counted_and_whole() -> String {
    text(
        "{ window: 1m, limit: 600, algorithm: fixed_window, regions: counted }",
        "{ window: 1m, limit: 6000, algorithm: token_bucket, regions: none }",
    )
}

/// Returns true if a token bucket is allowed in the second term to a tenant on these plans, by the database and by files.
fn allows(plans: &[(&str, Term)], own: Term) -> bool {
    let text = counted_and_whole();
    let mut quotas = stored(9_000, Some("token_bucket"));
    let of_plans = plans.iter();
    quotas.plans = of_plans
        .map(|(name, term)| TenantPlan::new(*name).during(*term))
        .collect();
    quotas.overrides = vec![quotas.overrides.remove(0).during(own)];
    let by_check = quotas.check("d", &rules(&text, "eu"));
    let dates = |term: Term| {
        let (from, until) = term.dates();
        let from = from.map(|at| format!(", effective_at: {}", at));
        let until = until.map(|at| format!(", expires_at: {}", at));
        from.unwrap_or_default() + &until.unwrap_or_default()
    };
    let of_plans = plans.iter();
    let of_plans = of_plans.map(|(name, term)| format!("{{ name: {name}{} }}", dates(*term)));
    let of_plans = format!("[ {} ]", of_plans.collect::<Vec<_>>().join(", "));
    let own = format!(
        "window: 1m, limit: 9000, algorithm: token_bucket{}",
        dates(own)
    );
    let of_files = listed(&text, &of_plans, &own);
    match by_check {
        Ok(()) => {
            rules(&of_files, "eu");
            true
        }
        Err(_) => {
            let told = refused(&of_files);
            assert!(
                told[0].contains("a token_bucket is not counted"),
                "{told:?}"
            );
            false
        }
    }
}

/// The default plan counts only where no other is in force, and only the plan that is in force counts.
#[test]
fn an_override_is_allowed_by_the_plans_of_its_own_time() {
    let (pro, max) = ("pro", "max");
    let ended = [(pro, term(10, 20))];
    assert!(allows(&ended, term(10, 20)));
    assert!(allows(&ended, term(12, 18)));
    assert!(!allows(&ended, term(9, 20)));
    assert!(!allows(&ended, term(10, 21)));
    assert!(!allows(&ended, Term::ALWAYS));
    // Without a gap.
    let after = [(pro, term(10, 15)), (pro, term(15, 20))];
    assert!(allows(&after, term(10, 20)));
    let gap = [(pro, term(10, 15)), (pro, term(16, 20))];
    assert!(!allows(&gap, term(10, 20)));
    // Max has the limit of the default plan.
    let next = [(pro, term(10, 20)), (max, term(20, 30))];
    assert!(allows(&next, term(10, 20)));
    assert!(!allows(&next, term(10, 21)));
    // Of several in force, the one that began last counts.
    let between = [(pro, Term::ALWAYS), (max, term(10, 20))];
    assert!(allows(&between, term(0, 10)));
    assert!(!allows(&between, term(0, 11)));
    assert!(!allows(&between, Term::ALWAYS));
    assert!(allows(&between, term(20, 30)));
    let beneath = [(max, term(10, 20)), (pro, term(10, 21))];
    let hidden = [
        (
            max,
            Term {
                from: Timestamp::EPOCH,
                ..term(10, 20)
            },
        ),
        beneath[1],
    ];
    assert!(allows(&hidden, term(10, 21)));
}

/// The tenant as a whole has dates, and its override those of the tenant.
#[test]
fn an_override_of_a_tenant_with_dates_needs_no_default_plan() {
    let own = "window: 1m, limit: 9000, algorithm: token_bucket";
    let text = counted_and_whole();
    let whole = |dates: &str| {
        text.clone()
            + &format!(
                "tenants: [ {{ tenant: acme, plan: pro{dates}, overrides: [ {{ {own} }} ] }} ]\n"
            )
    };
    let rules = rules(&whole(", effective_at: 1970-01-02T00:00:00Z"), "eu");
    assert_eq!(enforced(&rules, "acme", DAY), (9_000, None));
}

/// An override that is off for all who have it is ignored, even if the rules allow it to others.
#[test]
fn an_override_that_is_off_on_its_tenants_plan_is_told_as_ignored() {
    let key = TenantKey::from_bytes([9; 16]);
    let rules = rules(&counted_and_whole(), "eu");
    let mut quotas = stored(9_000, Some("token_bucket"));
    assert_eq!(with(&rules, &quotas).1, 0);
    quotas.plans.clear();
    assert_eq!(with(&rules, &quotas).1, 1);
    let during = |plans: &[(&str, Term)], own: Term| {
        let mut quotas = stored(9_000, Some("token_bucket"));
        let of_plans = plans.iter();
        quotas.plans = of_plans
            .map(|(name, term)| TenantPlan::new(*name).during(*term))
            .collect();
        quotas.overrides = vec![quotas.overrides.remove(0).during(own)];
        with(&rules, &quotas).1
    };
    assert_eq!(during(&[("pro", term(10, 20))], term(10, 20)), 0);
    assert_eq!(during(&[("max", Term::ALWAYS)], term(10, 20)), 1);
    assert_eq!(during(&[("pro", term(10, 20))], term(10, 21)), 1);
    // Once no tenant has it any more, or all who have it are on pro, it is ignored no longer.
    let mut index = TenantIndex::new(key.clone());
    let off = TenantQuotas {
        plans: Vec::new(),
        ..stored(9_000, Some("token_bucket"))
    };
    index.put("d", key.hash("acme"), &off);
    index.put("d", key.hash("bolt"), &stored(9_000, Some("token_bucket")));
    let joined = rules.with_tenants(&index);
    assert_eq!(joined.unknown, 1);
    index.remove("d", key.hash("acme"));
    assert_eq!(joined.rules.with_tenants(&index).unknown, 0);
    // Nor one that no plan allows.
    index.put("d", key.hash("acme"), &stored(9_000, Some("nonsense")));
    let joined = joined.rules.with_tenants(&index);
    assert_eq!(joined.unknown, 1);
    index.remove("d", key.hash("acme"));
    assert_eq!(joined.rules.with_tenants(&index).unknown, 0);
}
