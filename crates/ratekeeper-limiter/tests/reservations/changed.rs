//! Limits of single tenants that change while work is in flight: what is in flight is settled all the same.

use std::sync::Arc;

use ratekeeper_core::Micros;
use ratekeeper_limiter::{BudgetUse, Check, Limiter, LimiterOptions, ReceiptMode, Reserve};
use ratekeeper_rules::{Options, RuleSet, Source, load};
use ratekeeper_store::Answer;
use ratekeeper_store::memory::MemoryStore;

use super::{LIMIT, commit, limiter_with, now, store};

/// The hits in flight.
const TAKEN: u64 = 300;

/// Budgets of 100 for everyone, with such `overrides` of tenants.
fn rules(algorithm: &str, overrides: &[(&str, u64, &str)]) -> RuleSet {
    let limit = |quota: u64, more: &str| {
        format!("window: 1000d, limit: {quota}, algorithm: {algorithm}, post_paid: true{more}")
    };
    let tenants = overrides.iter().map(|(tenant, quota, more)| {
        let own = limit(*quota, more);
        format!("- {{ tenant: {tenant}, overrides: [ {{ {own} }} ] }}\n")
    });
    let tenants: String = tenants.collect();
    let text = format!(
        "domain: d\ntenant: user\ndescriptors:\n- {{ key: user, rate_limit: {{ {} }} }}\ntenants:\n{tenants}",
        limit(100, ""),
    );
    let name = "rules.yaml".to_owned();
    match load(&[Source { name, text }], &Options::default()) {
        Ok(loaded) => loaded.rules,
        Err(refused) => panic!("{refused}"),
    }
}

fn limiter(algorithm: &str, overrides: &[(&str, u64, &str)]) -> Arc<Limiter<MemoryStore>> {
    Arc::new(limiter_with(rules(algorithm, overrides), store()))
}

fn check(hits: u64) -> Check<'static> {
    let hits = i64::try_from(hits).expect("small");
    Check::new("d").descriptor([("user", "acme")]).hits(hits)
}

fn reserve(limiter: &Limiter<MemoryStore>) -> String {
    let reserve = Reserve {
        hits: TAKEN,
        fixed: &[],
        ttl: Micros::from_secs(60),
        key: None,
    };
    let reserved = now(limiter.caller("me").reserve(&check(TAKEN), &reserve));
    let reservation = reserved.expect("it is carried out").reservation;
    reservation.expect("there is room").token
}

fn left(limiter: &Limiter<MemoryStore>) -> u64 {
    let (decision, _) = now(limiter.peek(&check(0)));
    let binding = decision.answers()[0].binding.expect("a limit matched");
    binding.answered.remaining
}

const ALGORITHMS: [&str; 3] = ["fixed_window", "sliding_window", "token_bucket"];

/// The limits that a tenant may have after one of 500: a larger or a smaller one, that of another tenant, and one larger than all.
const CHANGES: [&[(&str, u64, &str)]; 3] = [
    &[("acme", 600, "")],
    &[("acme", 450, ""), ("other", LIMIT, "")],
    &[("other", 7, ""), ("acme", LIMIT, "")],
];

fn quota_of_acme(overrides: &[(&str, u64, &str)]) -> u64 {
    let own = overrides.iter().find(|(tenant, ..)| *tenant == "acme");
    own.expect("it has one").1
}

#[test]
fn a_reservation_is_settled_though_the_tenants_own_limit_has_changed() {
    for algorithm in ALGORITHMS {
        for overrides in CHANGES {
            for used in [10, 350] {
                let limiter = limiter(algorithm, &[("acme", 500, "")]);
                let token = reserve(&limiter);
                limiter.replace_rules(rules(algorithm, overrides));
                let settled = commit(&limiter, &token, used);
                assert_eq!((settled.limits, settled.limits_gone), (1, 0));
                let expected = quota_of_acme(overrides) - used;
                assert_eq!(left(&limiter), expected, "{algorithm}: {overrides:?}");
            }
        }
    }
}

/// It has what everyone has then, in the same counter.
#[test]
fn a_reservation_is_settled_though_the_tenant_has_no_limit_of_its_own_any_more() {
    let limiter = limiter("fixed_window", &[("acme", 500, "")]);
    let token = reserve(&limiter);
    limiter.replace_rules(rules("fixed_window", &[]));
    assert_eq!(left(&limiter), 0);
    assert_eq!(commit(&limiter, &token, 10).given_back, 290);
    assert_eq!(left(&limiter), 90);
}

/// A limit with another window has other counters.
#[test]
fn a_reservation_of_a_counter_that_is_gone_is_settled_with_no_other() {
    let limiter = limiter("fixed_window", &[("acme", 500, "")]);
    let token = reserve(&limiter);
    limiter.replace_rules(rules("token_bucket", &[("acme", 600, "")]));
    let settled = commit(&limiter, &token, 10);
    assert_eq!((settled.limits, settled.limits_gone), (0, 1));
    assert_eq!(left(&limiter), 600);
}

#[test]
fn a_bill_is_paid_though_the_tenants_own_limit_has_changed() {
    for algorithm in ALGORITHMS {
        for overrides in CHANGES {
            for budgets in [BudgetUse::Look, BudgetUse::Reserve(20)] {
                let limiter = limiter(algorithm, &[("acme", 500, "")]);
                let mut check = check(1);
                check.budgets = budgets;
                let at = limiter.clock().now();
                let Answer::Decided(admitted) = limiter.admit(&check, at, ReceiptMode::Dropped)
                else {
                    panic!("the memory store decides at once");
                };
                limiter.replace_rules(rules(algorithm, overrides));
                let bill = admitted.bill.expect("a budget");
                assert!(bill.pay(&limiter, TAKEN).is_none());
                let expected = quota_of_acme(overrides) - TAKEN;
                assert_eq!(left(&limiter), expected, "{algorithm}: {overrides:?}");
            }
        }
    }
}

/// Two limits with the same words, of which one ends debts.
#[test]
fn one_tenants_limit_settles_no_reservation_of_anothers() {
    let settled_by = |other: &str| {
        let overrides = [
            ("acme", 500, ", max_debt: 300"),
            ("other", 500, ", max_debt: 0"),
        ];
        let shown = if other == "acme" { [0, 1] } else { [1, 0] };
        let limiter = Arc::new(limiter_with(
            rules("token_bucket", &shown.map(|at| overrides[at])),
            store(),
        ));
        let token = reserve(&limiter);
        commit(&limiter, &token, 700);
        let (decision, _) = now(limiter.peek(&check(0)));
        let binding = decision.answers()[0].binding.expect("a limit matched");
        decision.limit_status_of(&binding).debt
    };
    assert_eq!([settled_by("acme"), settled_by("other")], [200, 200]);
}

#[test]
fn an_ordinary_limit_settles_no_budget() {
    let text = "
domain: d
tenant: user
descriptors:
- { key: user, rate_limit: { unit: day, limit: 100, algorithm: token_bucket } }
tenants:
- { tenant: acme, overrides: [ { unit: day, limit: 500, post_paid: true } ] }
- { tenant: other, overrides: [ { unit: day, limit: 500 } ] }
";
    let name = "rules.yaml".to_owned();
    let text = text.to_owned();
    let rules = match load(&[Source { name, text }], &Options::default()) {
        Ok(loaded) => loaded.rules,
        Err(refused) => panic!("{refused}"),
    };
    let limiter = Limiter::new(rules, store(), LimiterOptions::default());
    let token = reserve(&limiter);
    let settled = now(limiter.caller("me").commit(&token, 400)).map(|settled| settled.limits);
    assert_eq!(settled, Ok(1));
    assert_eq!(left(&limiter), 100);
}
