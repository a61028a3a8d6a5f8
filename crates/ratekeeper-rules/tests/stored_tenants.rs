//! Tenants of a quota store: looked up as a simple model says, and in little memory.

use std::collections::HashMap;
use std::time::Instant;

use proptest::prelude::*;
use ratekeeper_core::Timestamp;
use ratekeeper_rules::{
    Dated as _, Entry, Options, RuleSet, Source, TenantIndex, TenantKey, TenantOverride,
    TenantPlan, TenantQuotas, Term, load,
};

const RULES: &str = "domain: d
evaluation: path
tenant: customer
plans: [free, pro, max]
descriptors:
- key: customer
  rate_limit: { unit: minute, requests_per_unit: 100 }
  plans:
    pro: { unit: minute, requests_per_unit: 1000 }
    max: { unit: minute, requests_per_unit: 5000 }
  descriptors:
  - { key: endpoint, value: a, rate_limit: { unit: minute, requests_per_unit: 20 } }
";

fn rules(tenants: &str) -> RuleSet {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: format!("{RULES}{tenants}"),
    };
    let loaded = load(&[source], &Options::default());
    loaded.expect("the rules are right").rules
}

fn key() -> TenantKey {
    TenantKey::from_bytes([9; 16])
}

fn quota(endpoint: Option<&str>, requests_per_unit: u64) -> TenantOverride {
    TenantOverride {
        descriptor: endpoint
            .map(|name| format!("endpoint:{name}"))
            .into_iter()
            .collect(),
        requests_per_unit,
        unit: Some("minute".into()),
        ..TenantOverride::default()
    }
}

/// The quotas of the rules in force for a tenant, and for an endpoint of it.
fn in_force(rules: &RuleSet, tenant: &str, endpoint: &str, secs: u64) -> [Option<u64>; 2] {
    let entries = [("customer", tenant), ("endpoint", endpoint)];
    let entries = entries.map(|(key, value)| Entry { key, value });
    let domain = rules.domain("d").expect("the domain");
    let walk = domain.walk(&entries);
    let subscription = domain.subscription(&entries, Timestamp::from_secs(secs));
    [1, 2].map(|depth| {
        let visits = walk.get(..depth).unwrap_or(&walk);
        let rule = subscription.rules(&entries[..depth], visits).first()?;
        rules.rule(rule).limited().map(|limit| limit.quota())
    })
}

const PLANS: [(&str, u64); 3] = [("free", 100), ("pro", 1_000), ("max", 5_000)];

/// A change: of one of a few tenants, what it has from now on; nothing deletes it.
#[derive(Clone, Debug)]
struct Change {
    tenant: usize,
    quotas: Option<Quotas>,
}

/// Plans, and overrides of the tenant, of endpoint `a` (a rule) and `b` (none), each with its time.
#[derive(Clone, Debug, Default)]
struct Quotas {
    plans: Vec<(u64, u64, usize)>,
    overrides: Vec<(u64, u64, Option<usize>, u64)>,
}

const ENDPOINTS: [&str; 2] = ["a", "b"];

impl Quotas {
    fn record(&self) -> TenantQuotas {
        let term = |from, until| Term {
            from: Timestamp::from_secs(from),
            until: Timestamp::from_secs(until),
        };
        let plans = self.plans.iter();
        let overrides = self.overrides.iter();
        TenantQuotas {
            plans: plans
                .map(|(from, until, plan)| {
                    TenantPlan::new(PLANS[*plan].0).during(term(*from, *until))
                })
                .collect(),
            overrides: overrides
                .map(|(from, until, endpoint, limit)| {
                    let endpoint = endpoint.map(|at| ENDPOINTS[at]);
                    quota(endpoint, *limit).during(term(*from, *until))
                })
                .collect(),
            epoch: 0,
        }
    }

    /// The limit of the plan that began last, of those in force.
    fn plan(&self, now: u64) -> u64 {
        let in_force = self
            .plans
            .iter()
            .filter(|(from, until, _)| *from <= now && now < *until);
        let last = in_force.max_by_key(|(from, ..)| *from);
        PLANS[last.map_or(0, |(.., plan)| *plan)].1
    }

    /// The override that began last, of those in force there.
    fn own(&self, endpoint: Option<usize>, now: u64) -> Option<u64> {
        let here = self
            .overrides
            .iter()
            .filter(|(from, until, of, _)| *of == endpoint && *from <= now && now < *until);
        here.max_by_key(|(from, ..)| *from)
            .map(|(.., limit)| *limit)
    }

    fn in_force(&self, endpoint: usize, now: u64) -> [Option<u64>; 2] {
        let of_rule = (endpoint == 0).then_some(20);
        [
            Some(self.own(None, now).unwrap_or_else(|| self.plan(now))),
            self.own(Some(endpoint), now).or(of_rule),
        ]
    }
}

fn terms() -> impl Strategy<Value = (u64, u64)> {
    (0..20_u64, 1..20_u64).prop_map(|(from, length)| (from, from + length))
}

fn changes() -> impl Strategy<Value = Change> {
    let plan = (terms(), 0..PLANS.len()).prop_map(|((from, until), plan)| (from, until, plan));
    let own = (terms(), proptest::option::of(0..ENDPOINTS.len()), 1..9_u64)
        .prop_map(|((from, until), endpoint, limit)| (from, until, endpoint, limit));
    let distinct = |mut quotas: Quotas| {
        // As `check` requires: no two begin at once.
        quotas.plans.sort();
        quotas.plans.dedup_by_key(|(from, ..)| *from);
        quotas.overrides.sort();
        quotas
            .overrides
            .dedup_by_key(|(from, _, endpoint, _)| (*from, *endpoint));
        let mut seen = std::collections::HashSet::new();
        quotas
            .overrides
            .retain(|(from, _, endpoint, _)| seen.insert((*from, *endpoint)));
        quotas
    };
    let quotas = (
        proptest::collection::vec(plan, 0..3),
        proptest::collection::vec(own, 0..5),
    )
        .prop_map(move |(plans, overrides)| distinct(Quotas { plans, overrides }));
    (0..4_usize, proptest::option::weighted(0.8, quotas))
        .prop_map(|(tenant, quotas)| Change { tenant, quotas })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Changes, and checks at all times between them, give what a list of plans and overrides gives.
    #[test]
    fn changes_and_times_give_what_a_model_gives(
        changes in proptest::collection::vec(changes(), 1..12),
    ) {
        let files = rules("");
        let mut last = rules("");
        let mut index = TenantIndex::new(key());
        let mut model: HashMap<usize, Quotas> = HashMap::new();
        for (number, change) in changes.into_iter().enumerate() {
            let name = format!("t{}", change.tenant);
            let before = index.clone();
            match change.quotas {
                Some(quotas) => {
                    quotas.record().check("d", &files).expect("the model's quotas are possible");
                    index.put("d", key().hash(&name), &quotas.record());
                    model.insert(change.tenant, quotas);
                }
                None => {
                    index.remove("d", key().hash(&name));
                    model.remove(&change.tenant);
                }
            }
            if number % 4 == 3 {
                // As after a failure: all is read again, in another order.
                let mut rebuilt = TenantIndex::new(key());
                let mut all: Vec<_> = index.iter().collect();
                all.reverse();
                for (domain, tenant, quotas) in all {
                    rebuilt.put(domain, tenant, &quotas);
                }
                index = rebuilt;
            }
            let joined = last.with_tenants(&index);
            prop_assert_eq!(joined.unknown, 0);
            prop_assert_eq!(index.len(), model.len());
            // With nothing new, there are no more rules.
            let again = joined.rules.with_tenants(&index).rules;
            prop_assert_eq!(again.rules().len(), joined.rules.rules().len());
            // A copy taken before is as it was.
            prop_assert!(before.len() <= index.len() + 1);
            for (tenant, endpoint) in (0..4).flat_map(|tenant| [(tenant, 0), (tenant, 1)]) {
                let none = Quotas::default();
                let quotas = model.get(&tenant).unwrap_or(&none);
                for now in 0..42 {
                    let name = format!("t{tenant}");
                    prop_assert_eq!(
                        in_force(&joined.rules, &name, ENDPOINTS[endpoint], now),
                        quotas.in_force(endpoint, now),
                        "{} at {}: {:?}", name, now, quotas
                    );
                }
            }
            for (domain, tenant, quotas) in index.iter() {
                // A quota read back and put again is the same.
                let mut again = TenantIndex::new(key());
                again.put(domain, tenant, &quotas);
                prop_assert_eq!(again.iter().next().map(|(.., of)| of), Some(quotas));
            }
            last = joined.rules;
        }
    }
}

#[test]
fn a_store_goes_before_files_and_a_reset_alone_changes_no_plan() {
    let files = rules("tenants:\n- { tenant: acme, plan: pro }\n- { tenant: bob, plan: pro }\n");
    let mut index = TenantIndex::new(key());
    let on_max = TenantQuotas {
        plans: vec![TenantPlan::new("max")],
        ..TenantQuotas::default()
    };
    index.put("d", key().hash("acme"), &on_max);
    let reset = TenantQuotas {
        epoch: 3,
        ..TenantQuotas::default()
    };
    index.put("d", key().hash("bob"), &reset);
    let joined = files.with_tenants(&index).rules;
    assert_eq!(in_force(&joined, "acme", "a", 0)[0], Some(5_000));
    assert_eq!(
        in_force(&joined, "bob", "a", 0)[0],
        Some(1_000),
        "as the file says"
    );
    assert_eq!(in_force(&joined, "eve", "a", 0)[0], Some(100));
    let epoch = |name: &str| {
        let entries = [Entry {
            key: "customer",
            value: name,
        }];
        let domain = joined.domain("d").expect("the domain");
        domain.subscription(&entries, Timestamp::EPOCH).epoch()
    };
    assert_eq!((epoch("acme"), epoch("bob"), epoch("eve")), (0, 3, 0));
    // Once it is gone from the store, the file counts again.
    index.remove("d", key().hash("acme"));
    let joined = joined.with_tenants(&index).rules;
    assert_eq!(in_force(&joined, "acme", "a", 0)[0], Some(1_000));
    assert_eq!(
        joined.rules().len(),
        files.rules().len(),
        "nothing piles up"
    );
}

#[test]
fn what_the_rules_do_not_have_is_ignored_and_counted() {
    let mut index = TenantIndex::new(key());
    let odd = TenantQuotas {
        plans: vec![TenantPlan::new("gold")],
        overrides: vec![
            TenantOverride {
                algorithm: Some("magic".into()),
                ..quota(Some("a"), 7)
            },
            quota(None, 8),
        ],
        epoch: 0,
    };
    index.put("d", key().hash("acme"), &odd);
    index.put("elsewhere", key().hash("acme"), &odd);
    let joined = rules("").with_tenants(&index);
    assert_eq!(joined.unknown, 3, "a domain, a plan and a limit");
    assert_eq!(in_force(&joined.rules, "acme", "a", 0), [Some(8), Some(20)]);
}

#[test]
fn an_override_can_be_a_budget() {
    let mut index = TenantIndex::new(key());
    let budget = TenantOverride {
        algorithm: Some("gcra".into()),
        post_paid: Some(true),
        max_debt: Some(40),
        ..quota(None, 7)
    };
    let of = |own: &TenantOverride| TenantQuotas {
        overrides: vec![own.clone()],
        ..TenantQuotas::default()
    };
    index.put("d", key().hash("acme"), &of(&budget));
    let joined = rules("").with_tenants(&index);
    assert_eq!(joined.unknown, 0);
    let made = joined.rules.rules().last().and_then(|rule| rule.limited());
    assert_eq!(made.and_then(|limit| limit.max_debt()), Some(40));
    // A debt needs a budget, and one of a bucket.
    let refused = |own: TenantOverride| {
        let bad = of(&own).check("d", &joined.rules).expect_err("it is wrong");
        bad.to_string()
    };
    let no_budget = TenantOverride {
        post_paid: Some(false),
        ..budget.clone()
    };
    assert!(refused(no_budget).contains("needs `post_paid: true`"));
    let window = TenantOverride {
        algorithm: None,
        ..budget
    };
    assert!(refused(window).contains("has no max_debt"));
}

#[test]
fn limits_that_no_tenant_has_any_more_go() {
    let (mut joined, key) = (rules(""), key());
    let mut index = TenantIndex::new(key.clone());
    let of_files = joined.rules().len();
    for number in 1..=5_000 {
        let quotas = TenantQuotas {
            overrides: vec![quota(None, number)],
            ..TenantQuotas::default()
        };
        index.put("d", key.hash("acme"), &quotas);
        if number % 500 == 0 {
            joined = joined.with_tenants(&index).rules;
            assert_eq!(in_force(&joined, "acme", "a", 0)[0], Some(number));
            let own = joined.rules().len() - of_files;
            assert!(own <= 1_100, "{own} rules for one limit");
        }
    }
}

#[test]
fn unknown_tenants_may_pass() {
    let joined = rules("")
        .with_tenants(&TenantIndex::allowing_all(key()))
        .rules;
    assert_eq!(in_force(&joined, "acme", "a", 0), [None, None]);
}

/// Memory that is resident, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    kib.unwrap_or(0) * 1_024
}

/// Prints what a million tenants with overrides take: `cargo test --release -p ratekeeper-rules --test
/// stored_tenants -- --ignored --nocapture million`.
#[test]
#[ignore = "a measurement"]
fn a_million_tenants() {
    const TENANTS: u64 = 1_000_000;
    let (files, key) = (rules(""), key());
    let before = resident();
    let start = Instant::now();
    let mut index = TenantIndex::new(key.clone());
    for (number, (plan, _)) in (0..TENANTS).zip(PLANS.iter().cycle()) {
        let quotas = TenantQuotas {
            plans: vec![TenantPlan::new(*plan)],
            overrides: vec![quota(Some("a"), number % 1_000 + 1)],
            epoch: 0,
        };
        index.put("d", key.hash(&format!("customer-{number}")), &quotas);
    }
    let took = start.elapsed();
    let bytes = resident().saturating_sub(before);
    println!(
        "{TENANTS} tenants with 1000 different overrides: {} MB, filled in {took:?}",
        bytes / 1_000_000
    );
    let start = Instant::now();
    let mut joined = files.with_tenants(&index).rules;
    println!("put under the rules in {:?}", start.elapsed());

    let names: Vec<_> = (0..TENANTS)
        .map(|number| format!("customer-{}", number.wrapping_mul(7_919) % TENANTS))
        .collect();
    let domain = joined.domain("d").expect("the domain");
    let timed = |what: &str, look: &dyn Fn(&[Entry<'_>; 2]) -> usize| {
        let start = Instant::now();
        let mut sum = 0;
        for name in &names {
            let entries = [("customer", &**name), ("endpoint", "a")];
            sum += look(&entries.map(|(key, value)| Entry { key, value }));
        }
        let each = start.elapsed().as_nanos() / u128::from(TENANTS);
        println!("{what}: {each} ns ({sum})");
        each
    };
    let now = Timestamp::from_secs(1_800_000_000);
    let each = timed("a look-up of the plan, keys in random order", &|entries| {
        domain.subscription(entries, now).plan().get()
    });
    timed("with the override", &|entries| {
        let subscription = domain.subscription(entries, now);
        usize::from(subscription.rules(entries, &[]).is_override)
    });
    let start = Instant::now();
    index.put("d", key.hash("customer-5"), &TenantQuotas::default());
    joined = files.with_tenants(&index).rules;
    println!("one change in {:?}", start.elapsed());
    assert_eq!(
        in_force(&joined, "customer-5", "a", 0),
        [Some(100), Some(20)]
    );
    assert!(bytes < 200_000_000, "{bytes} bytes");
    if !cfg!(debug_assertions) {
        assert!(each < 100, "{each} ns");
    }
}
