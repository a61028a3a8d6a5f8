//! Overrides of budgets: those in files are what the same records in a quota store are.

use ratekeeper_core::Limit;
use ratekeeper_rules::{
    Options, Rule, Source, TenantIndex, TenantKey, TenantOverride, TenantQuotas, load,
};

use crate::support::{loaded, loaded_with};

const RULES: &str = "domain: d
tenant: customer
descriptors:
  - key: customer
    rate_limit: { unit: hour, limit: 100, algorithm: token_bucket, post_paid: true }
";

fn file(own: &str) -> String {
    format!("{RULES}tenants: [ {{ tenant: acme, overrides: [ {{ {own} }} ] }} ]\n")
}

/// The rule of the override that a file has.
fn listed(own: &str) -> Rule {
    let loaded = loaded(&file(own));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    loaded.rules.rules().last().expect("a rule").clone()
}

/// The rule of the override that a quota store has.
fn stored(own: TenantOverride) -> Rule {
    let key = TenantKey::from_bytes([9; 16]);
    let mut index = TenantIndex::new(key.clone());
    let quotas = TenantQuotas {
        overrides: vec![own],
        ..TenantQuotas::default()
    };
    index.put("d", key.hash("acme"), &quotas);
    let loaded = loaded_with(RULES, &Options::default());
    let found = loaded.rules.with_tenants(&index);
    assert_eq!(found.unknown, 0);
    found.rules.rules().last().expect("a rule").clone()
}

fn in_one_place(mut rule: Rule) -> Rule {
    (rule.place.line, rule.place.column) = (1, 1);
    rule.place.file = "f.yaml".into();
    rule
}

fn own(requests_per_unit: u64) -> TenantOverride {
    TenantOverride {
        requests_per_unit,
        unit: Some("hour".into()),
        ..TenantOverride::default()
    }
}

#[test]
fn an_override_of_a_budget_is_one_unless_it_says_otherwise() {
    for (written, record, is_post_paid) in [
        ("unit: hour, limit: 500", own(500), true),
        (
            "unit: hour, limit: 500, max_debt: 50",
            TenantOverride {
                max_debt: Some(50),
                ..own(500)
            },
            true,
        ),
        (
            "unit: hour, limit: 500, algorithm: sliding_window",
            TenantOverride {
                algorithm: Some("sliding_window".into()),
                ..own(500)
            },
            true,
        ),
        (
            "unit: hour, limit: 500, post_paid: false",
            TenantOverride {
                post_paid: Some(false),
                ..own(500)
            },
            false,
        ),
    ] {
        let rule = listed(written);
        let is_budget = rule.limited().is_some_and(Limit::is_post_paid);
        assert_eq!(is_budget, is_post_paid, "{written}");
        assert_eq!(in_one_place(rule), in_one_place(stored(record)));
    }
}

#[test]
fn an_override_that_lifts_a_budget_is_no_budget() {
    assert!(listed("unlimited: true").limited().is_none());
}

#[test]
fn an_override_of_a_budget_that_cannot_be_one_says_how_to_write_it() {
    let source = Source {
        name: "f.yaml".to_owned(),
        text: file("unit: hour, limit: 500, algorithm: leaky_bucket"),
    };
    let refused = load(&[source], &Options::default()).expect_err("it cannot be one");
    let [error] = refused.errors() else {
        panic!("one error: {refused}");
    };
    assert_eq!(error.place.line, 6, "that of the override");
    let message = "leaky_bucket cannot be post_paid; fixed_window, sliding_window, sliding_log, token_bucket and gcra can";
    assert_eq!(error.message, message);
    let help = "write `algorithm: token_bucket`, or `post_paid: false`";
    assert_eq!(error.help.as_deref(), Some(help));
    let own = "unit: hour, limit: 500, algorithm: leaky_bucket, post_paid: false";
    assert!(listed(own).limited().is_some());
}
