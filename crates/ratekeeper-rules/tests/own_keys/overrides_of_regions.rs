//! Overrides on plans whose limits regions share in another way than that of the default plan.

use ratekeeper_rules::{
    Consistency, RegionMode, RuleSet, TenantIndex, TenantKey, TenantOverride, TenantPlan,
    TenantQuotas,
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

/// The override names an algorithm that cannot be shared where hits are leased.
#[test]
fn an_override_is_refused_where_its_buckets_would_be_leased_and_lent() {
    let text = text(
        "{ window: 1m, limit: 600, consistency: leased, regions: bounded }",
        "{ window: 1m, limit: 6000 }",
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
