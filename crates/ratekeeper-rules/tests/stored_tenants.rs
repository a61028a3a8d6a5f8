//! Tenants of a quota store: looked up as a simple model says, and in little memory.

use std::collections::HashMap;
use std::time::Instant;

use proptest::prelude::*;
use ratekeeper_core::Timestamp;
use ratekeeper_rules::{
    Dated as _, Entry, Options, Rule, RuleSet, Source, TenantIndex, TenantKey, TenantOverride,
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
    rules_with(tenants, &Options::default())
}

fn rules_with(tenants: &str, options: &Options) -> RuleSet {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: format!("{RULES}{tenants}"),
    };
    let loaded = load(&[source], options);
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

/// The end of the terms that tests write: 2033-05-18T03:33:20Z.
const END: u64 = 2_000_000_000;

fn until_the_end() -> Term {
    Term {
        from: Term::ALWAYS.from,
        until: Timestamp::from_secs(END),
    }
}

/// The name of the tenant's plan, and its words.
fn plan_in_words(rules: &RuleSet, tenant: &str) -> [Option<String>; 2] {
    let entries = [("customer", tenant)].map(|(key, value)| Entry { key, value });
    let domain = rules.domain("d").expect("the domain");
    let subscription = domain.subscription(&entries, Timestamp::from_secs(1));
    let name = subscription.plan_name().map(str::to_owned);
    [name, subscription.plan_in_words()]
}

#[test]
fn plans_are_told_with_their_time() {
    let mut index = TenantIndex::new(key());
    assert!(index.is_empty());
    let mut put = |tenant: &str, plans, overrides| {
        let quotas = TenantQuotas {
            plans,
            overrides,
            epoch: 0,
        };
        index.put("d", key().hash(tenant), &quotas);
        assert!(!index.is_empty());
    };
    let pro = || TenantPlan::new("pro");
    put("always", vec![pro()], vec![]);
    put("dated", vec![pro().during(until_the_end())], vec![]);
    put("both", vec![pro()], vec![quota(None, 7)]);
    put(
        "later",
        vec![pro().during(until_the_end())],
        vec![quota(None, 7)],
    );
    put("own", vec![], vec![quota(None, 7)]);
    put(
        "own dated",
        vec![],
        vec![quota(None, 7).during(until_the_end())],
    );
    let stored = rules("").with_tenants(&index).rules;
    let listed = rules(
        "tenants:
- { tenant: always, plan: pro }
- { tenant: both, plan: pro, overrides: [ { unit: minute, requests_per_unit: 7 } ] }
- { tenant: own, overrides: [ { unit: minute, requests_per_unit: 7 } ] }
",
    );
    let alone = "custom (overrides only); its other limits are those of free, the default";
    let dated = "pro until 2033-05-18T03:33:20Z";
    for (tenant, name, words, is_listed) in [
        ("always", "pro", "pro", true),
        ("both", "pro", "pro", true),
        ("own", "custom", alone, true),
        ("nobody", "free", "free, the default", true),
        ("own dated", "custom", alone, false),
        ("dated", "pro", dated, false),
        ("later", "pro", dated, false),
    ] {
        let expected = [name, words].map(|text| Some(text.to_owned()));
        assert_eq!(plan_in_words(&stored, tenant), expected, "{tenant}");
        let entries = [("customer", tenant)].map(|(key, value)| Entry { key, value });
        let domain = stored.domain("d").expect("the domain");
        let subscription = domain.subscription(&entries, Timestamp::from_secs(1));
        let has_own = matches!(tenant, "both" | "own" | "own dated" | "later");
        assert_eq!(subscription.has_overrides(), has_own, "{tenant}");
        if is_listed {
            assert_eq!(plan_in_words(&listed, tenant), expected, "{tenant}");
        }
    }
}

#[test]
fn a_domain_that_lists_no_tenants_knows_none() {
    let entries = [("customer", "acme")].map(|(key, value)| Entry { key, value });
    let tenant = |rules: &RuleSet| {
        let domain = rules.domain("d").expect("the domain");
        domain
            .subscription(&entries, Timestamp::from_secs(1))
            .tenant()
    };
    let files = rules("");
    assert_eq!(tenant(&files), None);
    let id = files.whole_override_id(files.domain("d").expect("the domain"));
    assert_eq!(id.as_deref(), Some("d.customer@custom"));
    let index = TenantIndex::new(key());
    let stored = files.with_tenants(&index).rules;
    assert_eq!(tenant(&stored), Some(key().hash("acme")));
}

#[test]
fn a_term_is_two_numbers_in_records() {
    let numbers = <(u64, u64)>::from(until_the_end());
    assert_eq!(numbers, (0, END * 1_000_000));
    assert_eq!(Term::from(numbers), until_the_end());
}

/// The rules of an override of 7 for a tenant, and of the limit that it replaces.
fn overridden(limit: &str, descriptor: &[&str]) -> (Vec<ratekeeper_rules::Rule>, usize) {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: format!(
            "domain: d
tenant: customer
evaluation: path
descriptors:
- key: customer
  value: acme
  rate_limit: {{ unit: minute, requests_per_unit: 100, {limit} }}
"
        ),
    };
    let loaded = load(&[source], &Options::default());
    let files = loaded.unwrap_or_else(|refused| panic!("{refused}")).rules;
    let mut index = TenantIndex::new(key());
    assert!(*index.key() == key());
    let own = TenantOverride {
        descriptor: descriptor.iter().copied().collect(),
        ..quota(None, 7)
    };
    let quotas = TenantQuotas {
        overrides: vec![own],
        ..TenantQuotas::default()
    };
    index.put("d", key().hash("acme"), &quotas);
    let stored = files.with_tenants(&index);
    (stored.rules.rules().to_vec(), stored.unknown)
}

/// The mode of such a limit, synced, paid afterwards or neither, is of one tenant alone.
#[test]
fn an_override_is_kept_as_the_limit_that_it_replaces() {
    for limit in [
        "consistency: synced",
        "consistency: exact",
        "algorithm: token_bucket, post_paid: true",
        "algorithm: token_bucket",
    ] {
        let (rules, unknown) = overridden(limit, &[]);
        let [base, own] = &rules[..] else {
            panic!("{rules:?}");
        };
        let parts = |rule: &ratekeeper_rules::Rule| {
            let limit = rule.limited().expect("it limits");
            let kind = (limit.algorithm(), limit.sub_windows(), limit.is_post_paid());
            (kind, rule.consistency)
        };
        assert_eq!(parts(own), parts(base), "{limit}");
        assert_eq!(own.limited().expect("it limits").quota(), 7);
        assert!(base.is_global && !own.is_global);
        assert_eq!(unknown, 0);
    }
}

#[test]
fn an_override_where_no_rule_is_has_a_path_and_an_id_without_secrets() {
    for (entry, shown) in [
        ("endpoint:b", "endpoint_b"),
        ("api_key:sk_live_0123456789", "api_key_~"),
        ("api_key:sk*", "api_key_sk*"),
    ] {
        let (rules, _) = overridden("consistency: exact", &[entry]);
        let own = rules.last().expect("the override");
        assert_eq!(own.path.len(), 2, "{:?}", own.path);
        assert!(
            own.id.contains(shown) && !own.id.contains("sk_live"),
            "{}",
            own.id
        );
    }
}

/// The id of the rule of an override for an endpoint of a tenant, in a domain with such descriptors.
fn id_of_override(descriptors: &str) -> String {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: format!("domain: d\ntenant: customer\ndescriptors:\n{descriptors}"),
    };
    let loaded = load(&[source], &Options::default());
    let files = loaded.unwrap_or_else(|refused| panic!("{refused}")).rules;
    let mut index = TenantIndex::new(key());
    let quotas = TenantQuotas {
        overrides: vec![quota(Some("a"), 7)],
        ..TenantQuotas::default()
    };
    index.put("d", key().hash("acme"), &quotas);
    let joined = files.with_tenants(&index).rules;
    let own = joined.rules().last().expect("the override");
    own.id.to_string()
}

/// That of any tenant goes before those of some, wherever they stand.
#[test]
fn an_override_takes_the_place_of_a_limit_below_the_tenants_key() {
    let node = |name: &str| {
        let limit = "rate_limit: { unit: minute, requests_per_unit: 9 }";
        format!("- {{ key: {name}, descriptors: [ {{ key: endpoint, value: a, {limit} }} ] }}\n")
    };
    let [other, some, any] = ["region", "customer, value: big", "customer"].map(node);
    let of_any = "d.customer.endpoint_a@custom";
    let of_some = "d.customer_big.endpoint_a@custom";
    for (nodes, expected) in [
        ([&other, &some, &any], of_any),
        ([&any, &some, &other], of_any),
        ([&other, &some, &other.replace("region", "zone")], of_some),
        (
            [
                &some,
                &other,
                &other.replace("region, ", "region, value: eu, "),
            ],
            of_some,
        ),
    ] {
        let nodes = nodes.map(String::as_str).concat();
        assert_eq!(id_of_override(&nodes), expected, "{nodes}");
    }
}

#[test]
fn overrides_are_told_with_their_entries_and_time() {
    let mut index = TenantIndex::new(key());
    let quotas = TenantQuotas {
        overrides: vec![
            quota(Some("a"), 7),
            quota(Some("b"), 8).during(until_the_end()),
            quota(Some("c"), 9).during(Term {
                from: Timestamp::from_secs(END),
                until: Term::ALWAYS.until,
            }),
        ],
        ..TenantQuotas::default()
    };
    index.put("d", key().hash("acme"), &quotas);
    let stored = rules("").with_tenants(&index).rules;
    let listed = rules(
        "tenants:
- tenant: acme
  overrides:
  - { descriptor: 'endpoint:a', unit: minute, requests_per_unit: 7 }
  - { descriptor: 'endpoint:b', unit: minute, requests_per_unit: 8, expires_at: 2033-05-18T03:33:20Z }
  - { descriptor: 'endpoint:c', unit: minute, requests_per_unit: 9, effective_at: 2033-05-18T03:33:20Z }
",
    );
    for rules in [stored, listed] {
        let domain = rules.domain("d").expect("the domain");
        let told = |tenant, endpoint, secs| {
            let entries = [("customer", tenant), ("endpoint", endpoint)];
            let entries = entries.map(|(key, value)| Entry { key, value });
            let subscription = domain.subscription(&entries, Timestamp::from_secs(secs));
            let own = subscription.override_entries();
            let own = own.iter().map(|entries| match &entries[..] {
                [entry] => format!("{}:{}", entry.key, entry.value),
                other => panic!("{other:?}"),
            });
            let mut own: Vec<_> = own.collect();
            own.sort_unstable();
            let walk = domain.walk(&entries);
            (
                subscription.override_in_words(&entries, &walk),
                own.join(" "),
            )
        };
        let both = "endpoint:a endpoint:b".to_owned();
        let until = " until 2033-05-18T03:33:20Z".to_owned();
        let from = " from 2033-05-18T03:33:20Z".to_owned();
        assert_eq!(told("acme", "a", 1), (Some(String::new()), both.clone()));
        assert_eq!(told("acme", "b", 1), (Some(until), both.clone()));
        assert_eq!(told("acme", "c", 1), (None, both));
        let later = "endpoint:a endpoint:c".to_owned();
        assert_eq!(told("acme", "c", END), (Some(from), later));
        assert_eq!(told("nobody", "a", 1), (None, String::new()));
    }
}

#[test]
fn the_first_mistake_in_quotas_is_named() {
    let files = rules("");
    let refused = |plans: Vec<TenantPlan>, overrides: Vec<TenantOverride>| {
        let quotas = TenantQuotas {
            plans,
            overrides,
            epoch: 0,
        };
        let refused = quotas.check("d", &files).err();
        refused.map(|it| format!("{}: {it}", it.field()))
    };
    let starting = |from| Term {
        from: Timestamp::from_secs(from),
        until: Term::ALWAYS.until,
    };
    let plans = |count| {
        let plans = (0..count).map(|from| TenantPlan::new("pro").during(starting(from)));
        plans.collect::<Vec<_>>()
    };
    assert_eq!(refused(plans(64), vec![]), None);
    let many = Some("plans: there are more than 64".to_owned());
    assert_eq!(refused(plans(65), vec![]), many);
    let over = |until| {
        let from = Timestamp::from_secs(END);
        let until = Timestamp::from_secs(until);
        vec![TenantPlan::new("pro").during(Term { from, until })]
    };
    assert_eq!(refused(over(END + 1), vec![]), None);
    let backwards = Some("plans[0].expires_at: it ends before it begins".to_owned());
    assert_eq!(refused(over(END), vec![]), backwards);
    let twice = |list| {
        let why = "another one begins at the same time";
        Some(format!("{list}[1].effective_at: {why}"))
    };
    assert_eq!(
        refused([plans(1), plans(1)].concat(), vec![]),
        twice("plans")
    );
    let both = vec![quota(Some("a"), 1), quota(Some("a"), 2)];
    assert_eq!(refused(vec![], both), twice("overrides"));
    let others = vec![quota(Some("a"), 1), quota(Some("b"), 2)];
    assert_eq!(refused(vec![], others), None);
}

#[test]
fn texts_of_overrides_are_bounded() {
    let files = rules("");
    let refused = |lengths: &[usize]| {
        let entries = lengths.iter().enumerate();
        let entry = |(number, length): (usize, &usize)| {
            let key = format!("k{number}:");
            key.clone() + &"v".repeat(length - key.len())
        };
        let own = TenantOverride {
            descriptor: entries.map(entry).collect(),
            ..quota(None, 1)
        };
        let quotas = TenantQuotas {
            overrides: vec![own],
            ..TenantQuotas::default()
        };
        quotas.check("d", &files).err().map(|it| it.to_string())
    };
    for (lengths, expected) in [
        (vec![256], None),
        (
            vec![257],
            Some("it has 1 to 256 bytes and no control characters"),
        ),
        (vec![256; 4], None),
        (
            vec![256, 256, 256, 252, 5],
            Some("its entries have more than 1024 bytes"),
        ),
        (vec![8; 64], None),
        (vec![8; 65], Some("it has too many entries")),
    ] {
        assert_eq!(refused(&lengths).as_deref(), expected, "{lengths:?}");
    }
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
    index.put_trace("d", key().hash("bob"), 3);
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
    // A store that has a tenant goes before files also if it gives it nothing.
    index.put("d", key().hash("acme"), &TenantQuotas::default());
    let joined = joined.with_tenants(&index).rules;
    assert_eq!(in_force(&joined, "acme", "a", 0)[0], Some(100));
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
fn a_store_can_have_what_files_give_a_tenant() {
    let mut options = Options::default();
    options.tenant_key = Some(key());
    let files = rules_with(
        "tenants:
- tenant: acme
  plan:
  - { name: max, effective_at: 2030-01-01 }
  - { name: pro, expires_at: 2030-01-01 }
  overrides:
  - { limit: 7, window: 1m }
  - { descriptor: \"endpoint:a\", limit: 8, window: 90s, algorithm: token_bucket, burst: 20, effective_at: 2029-01-01 }
  - { descriptor: [\"endpoint:b\", \"x\"], limit: 9, unit: hour, algorithm: gcra, burst: 9 }
  - { descriptor: \"endpoint:c\", unlimited: true }
  - { descriptor: \"endpoint:d\", limit: 3, window: 1m, name: shown }
",
        &options,
    );
    let listed = files.listed("d", "acme").expect("files list it");
    let hash = key().hash("acme");
    assert_eq!(
        files.listed_hash("d", (&key(), hash)).as_ref(),
        Some(&listed)
    );
    assert_eq!(files.listed_hash("d", (&TenantKey::default(), hash)), None);
    assert_eq!(files.listed("d", "bob"), None);
    listed
        .quotas
        .check("d", &files)
        .expect("a store can have it");
    let plans = listed.quotas.plans.iter().map(|plan| &*plan.plan);
    assert_eq!(plans.collect::<Vec<_>>(), ["pro", "max"]);
    let unstorable = listed.unstorable.iter().map(ToString::to_string);
    assert_eq!(unstorable.collect::<Vec<_>>(), ["endpoint:c", "endpoint:d"]);

    // The same rules are in force, whoever says so.
    let mut index = TenantIndex::new(key());
    index.put("d", key().hash("acme"), &listed.quotas);
    let joined = files.with_tenants(&index).rules;
    // In 2028, 2029 and 2030.
    for time in [1_850_000_000, 1_870_000_000, 1_900_000_000] {
        let now = Timestamp::from_secs(time);
        for rest in [
            &[][..],
            &[("endpoint", "a")],
            &[("endpoint", "b"), ("x", "1")],
        ] {
            let entries = std::iter::once(("customer", "acme")).chain(rest.iter().copied());
            let entries: Vec<_> = entries.map(|(key, value)| Entry { key, value }).collect();
            let of = |rules: &RuleSet| -> Vec<Rule> {
                let domain = rules.domain("d").expect("the domain");
                let (subscription, walk) =
                    (domain.subscription(&entries, now), domain.walk(&entries));
                let found = subscription.rules(&entries, &walk);
                let unplaced = |rule: &Rule| {
                    let mut rule = rule.clone();
                    rule.place = files.rules()[0].place.clone();
                    rule
                };
                found
                    .iter()
                    .map(|index| unplaced(rules.rule(index)))
                    .collect()
            };
            assert_eq!(of(&joined), of(&files), "{entries:?} at {time}");
            assert!(
                !of(&files).is_empty() || rest.len() > 1,
                "{entries:?} at {time}"
            );
        }
    }
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

/// A limit of those before the tenant is not the tenant's.
#[test]
fn limits_before_the_tenants_entry_hold_though_all_tenants_may_pass() {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: "domain: d
evaluation: path
tenant: customer
descriptors:
- key: region
  rate_limit: { unit: minute, requests_per_unit: 50 }
  descriptors:
  - { key: customer, rate_limit: { unit: minute, requests_per_unit: 100 } }
"
        .to_owned(),
    };
    let loaded = load(&[source], &Options::default());
    let rules = loaded.expect("the rules are right").rules;
    let joined = rules.with_tenants(&TenantIndex::allowing_all(key())).rules;
    let entries = [("region", "eu"), ("customer", "acme")];
    let entries = entries.map(|(key, value)| Entry { key, value });
    let domain = joined.domain("d").expect("the domain");
    let walk = domain.walk(&entries);
    let subscription = domain.subscription(&entries, Timestamp::from_secs(0));
    let quotas = [1, 2].map(|depth| {
        let rule = subscription
            .rules(&entries[..depth], &walk[..depth])
            .first()?;
        joined.rule(rule).limited().map(|limit| limit.quota())
    });
    assert_eq!(quotas, [Some(50), None]);
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
