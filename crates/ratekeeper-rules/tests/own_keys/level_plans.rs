//! Plans and overrides of service levels.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ratekeeper_core::Timestamp;
use ratekeeper_rules::{
    Dated as _, Diagnostic, Entry, Options, PathFolding, RuleSet, SERVICE_LEVELS, Source,
    TenantIndex, TenantKey, TenantOverride, TenantPlan, TenantQuotas, Term, load,
};

use crate::support::{loaded, loaded_with};

/// A level with limits of its own for `pro`, and one that is the same on all plans.
const RULES: &str = "domain: api
tenant: customer
plans: [free, pro, max]
secrets: [customer]
descriptors: [ { key: customer, rate_limit: { unit: day, limit: 7 } } ]
slas:
- id: get-product
  match: { methods: [GET, PUT], pathPattern: '/product/*' }
  tiers: [ { period: 1, threshold: 10 }, { period: 60, threshold: 100 } ]
  plans:
    max: { period: 60, threshold: 5000 }
    pro: [ { period: 1, threshold: 20 }, { period: 60, threshold: 1000 } ]
- id: search
  pathPattern: /search
  tiers: [ { period: 60, threshold: 3 } ]
";

fn key() -> TenantKey {
    TenantKey::from_bytes([5; 16])
}

/// The ids and quotas in force for a call of `caller` at a second.
fn in_force(
    rules: &RuleSet,
    caller: (&str, &str),
    (level, method): (&str, &str),
    secs: u64,
) -> Vec<(String, u64)> {
    let domain = rules.domain(SERVICE_LEVELS).expect("there are levels");
    let entries = [caller, ("sla", level), ("method", method)];
    let entries = entries.map(|(key, value)| Entry { key, value });
    let walk = domain.walk(&entries);
    let subscription = domain.subscription(&entries, Timestamp::from_secs(secs));
    let rules_in_force = subscription.rules(&entries, &walk).iter();
    let told = rules_in_force.map(|index| {
        let rule = rules.rule(index);
        let quota = rule.limited().map_or(u64::MAX, |limit| limit.quota());
        (rule.id.to_string(), quota)
    });
    told.collect()
}

fn told(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    let owned = |(id, quota): &(&str, u64)| ((*id).to_owned(), *quota);
    pairs.iter().map(owned).collect()
}

#[test]
fn a_tenants_plan_and_overrides_hold_for_service_levels() {
    let tenants = "tenants:
- { tenant: acme, plan: pro }
- tenant: globex
  plan: max
  overrides:
  - { descriptor: 'sla:get-product', window: 60s, limit: 60, effective_at: 1970-01-01T00:01:40Z }
  - { descriptor: ['sla:get-product', 'method:PUT'], window: 60s, limit: 6 }
  - { descriptor: 'sla:search', unlimited: true }
";
    let rules = loaded(&format!("{RULES}{tenants}")).rules;
    let get = ("get-product", "GET");
    let free = told(&[("get-product#1s", 10), ("get-product#1m", 100)]);
    let pro = told(&[("get-product@pro#1s", 20), ("get-product@pro#1m", 1_000)]);
    let of = |caller, level, secs| in_force(&rules, caller, level, secs);
    assert_eq!(of(("customer", "acme"), get, 0), pro);
    assert_eq!(of(("tenant", "acme"), get, 0), pro, "named in the path");
    assert_eq!(of(("customer", "eve"), get, 0), free);
    // Another kind of name is not the tenant's.
    assert_eq!(of(("remote_address", "acme"), get, 0), free);
    assert_eq!(of(("api_key", "acme"), get, 0), free);

    let globex = ("customer", "globex");
    assert_eq!(of(globex, get, 0), told(&[("get-product@max", 5_000)]));
    assert_eq!(of(globex, get, 100), told(&[("get-product@custom", 60)]));
    let put = ("get-product", "PUT");
    assert_eq!(of(globex, put, 100), told(&[("get-product@custom", 6)]));
    let lifted = told(&[("search@custom", u64::MAX)]);
    assert_eq!(of(globex, ("search", "GET"), 0), lifted);
    // A level without limits for a plan has those of the default plan.
    let search = told(&[("search", 3)]);
    assert_eq!(of(("customer", "acme"), ("search", "GET"), 0), search);

    let rule = |id: &str| {
        let found = rules.rules().iter().find(|rule| &*rule.id == id);
        found.unwrap_or_else(|| panic!("no {id}"))
    };
    assert_eq!(rules.plan_of(rule("get-product#1s")), "free");
    assert_eq!(rules.plan_of(rule("get-product@pro#1s")), "pro");
    let custom = rule("search@custom");
    assert_eq!(&**rules.tenants_domain_of(custom), "api");
    let levels = rules.domain(SERVICE_LEVELS).expect("there are levels");
    assert!(levels.is_secret("customer"));
    assert_eq!(levels.tenant(), None, "it has no tenants of its own");
    // The tenant's own limit is no limit of its calls by level.
    let acme = [Entry {
        key: "customer",
        value: "acme",
    }];
    let api = rules.domain("api").expect("the domain");
    let subscription = api.subscription(&acme, Timestamp::EPOCH);
    let first = subscription.rules(&acme, &api.walk(&acme)).first();
    assert_eq!(
        first.map(|index| &*rules.rule(index).id),
        Some("api.customer")
    );
}

/// The errors of two files, each with its place and its fix.
fn refused(files: &[&str]) -> Vec<String> {
    let sources = ["a.yaml", "b.yaml", "c.yaml"].iter().zip(files);
    let sources = sources.map(|(name, text)| Source {
        name: (*name).to_owned(),
        text: (*text).to_owned(),
    });
    let sources: Vec<_> = sources.collect();
    let refused = load(&sources, &Options::default());
    let refused = refused.err().unwrap_or_else(|| panic!("accepted"));
    let errors = refused.errors().iter().map(|error| {
        let help = error.help.as_deref().unwrap_or("no fix");
        format!("{}: {}; {help}", error.place, error.message)
    });
    errors.collect()
}

const LEVEL: &str = "slas:\n- id: a\n  pathPattern: /a\n  methods: [GET]\n  tiers: [ { period: 1, threshold: 1 } ]\n";

#[test]
fn wrong_plans_of_service_levels_are_refused() {
    let domain = |name: &str| {
        format!("domain: {name}\ntenant: customer\nplans: [free, pro]\ndescriptors: []\n")
    };
    let with = |plans: &str| format!("{}{LEVEL}  plans: {plans}\n", domain("d"));
    let pro = "  plans: { pro: { period: 1, threshold: 2 } }\n";
    assert_eq!(
        refused(&[&format!("{LEVEL}{pro}")]),
        [
            "a.yaml:6:12: plans need a domain that says which entry names the tenant; write `domain: api`, \
             `tenant: api_key` and `plans: [free, pro]` at the top of a file"
        ]
    );
    assert_eq!(
        refused(&[&format!("{LEVEL}{pro}"), &domain("d"), &domain("e")]),
        [
            "a.yaml:6:12: several domains have tenants: it is not clear whose plans these are; put `slas:` into the \
             file of the domain whose tenants are meant"
        ]
    );
    let in_its_file = [format!("{}{LEVEL}{pro}", domain("d")), domain("e")];
    let sources = in_its_file.map(|text| Source {
        name: "f.yaml".to_owned(),
        text,
    });
    assert!(load(&sources, &Options::default()).is_ok());
    for (plans, message) in [
        (
            "{ prp: { period: 1, threshold: 2 } }",
            "a.yaml:10:12: the domain has no plan 'prp'; did you mean `pro`?",
        ),
        (
            "{ free: { period: 1, threshold: 2 } }",
            "a.yaml:10:12: the default plan's limits are there twice: `tiers` has them; leave one of them out",
        ),
        (
            "{ pro: [] }",
            "a.yaml:10:12: the plan 'pro' has no tier; write `plans: { pro: [ { period: 10, threshold: 5000 } ] }`",
        ),
        (
            "[pro]",
            "a.yaml:10:10: `plans` of a service level must be a mapping, not a list; write `plans: { pro: [ { period: \
             10, threshold: 5000 } ] }`",
        ),
        (
            "{ pro: { period: 1 } }",
            "a.yaml:10:19: a tier needs a `threshold`; write `threshold: 1000`: calls a period",
        ),
    ] {
        assert_eq!(refused(&[&with(plans)]), [message], "{plans}");
    }
    for (descriptor, message) in [
        (
            "'sla:b'",
            "a.yaml:11:35: there is no service level 'b'; did you mean `sla:a`?",
        ),
        (
            "sla",
            "a.yaml:11:35: there is no service level ''; did you mean `sla:a`?",
        ),
        (
            "['sla:a', 'method:PUT']",
            "a.yaml:11:45: the service level 'a' has no counter for the method 'PUT'; write one of its methods, in \
             capitals",
        ),
        (
            "['sla:a', 'endpoint:x']",
            "a.yaml:11:45: only `method:` can follow the service level 'a'; write `descriptor: \"sla:a\"`",
        ),
    ] {
        let tenants = format!(
            "tenants:\n- {{ tenant: t, overrides: [ {{ descriptor: {descriptor}, window: 1s, limit: 5 }} ] }}\n"
        );
        let text = format!("{}{LEVEL}{tenants}", domain("d"));
        let said = refused(&[&text]);
        let at = said.first().and_then(|said| said.split_once(": "));
        let expected = message.split_once(": ");
        assert_eq!(
            (said.len(), at.map(|(_, words)| words)),
            (1, expected.map(|(_, words)| words)),
            "{descriptor}: {said:?}"
        );
        let line = at.and_then(|(place, _)| place.split(':').nth(1));
        assert_eq!(line, Some("11"), "{said:?}");
    }
}

#[test]
fn a_quota_store_may_limit_service_levels_too() {
    let rules = loaded(RULES).rules;
    let own = |descriptor: &[&str]| TenantOverride {
        descriptor: descriptor.iter().copied().collect(),
        requests_per_unit: 44,
        unit: Some("minute".into()),
        ..TenantOverride::default()
    };
    let quotas = |own: TenantOverride| TenantQuotas {
        plans: vec![TenantPlan::new("pro")],
        overrides: vec![own],
        epoch: 3,
    };
    let good = quotas(own(&["sla:search"]));
    assert_eq!(good.check("api", &rules), Ok(()));
    let wrong = quotas(own(&["sla:searsh"])).check("api", &rules);
    let wrong = wrong.expect_err("there is no such level");
    assert_eq!(wrong.field(), "overrides[0].descriptor");
    assert_eq!(
        wrong.to_string(),
        "there is no service level 'searsh'; did you mean `sla:search`?"
    );
    assert!(good.check(SERVICE_LEVELS, &rules).is_err());

    let mut index = TenantIndex::new(key());
    index.put("api", key().hash("acme"), &good);
    let joined = rules.with_tenants(&index);
    assert_eq!(joined.unknown, 0);
    let acme = ("customer", "acme");
    let of = |rules: &RuleSet, level| in_force(rules, acme, level, 9);
    let custom = told(&[("search@custom", 44)]);
    assert_eq!(of(&joined.rules, ("search", "GET")), custom);
    let pro = told(&[("get-product@pro#1s", 20), ("get-product@pro#1m", 1_000)]);
    assert_eq!(of(&joined.rules, ("get-product", "GET")), pro);
    let levels = joined.rules.domain(SERVICE_LEVELS).expect("levels");
    let entries = [Entry {
        key: acme.0,
        value: acme.1,
    }];
    let epoch = levels.subscription(&entries, Timestamp::EPOCH).epoch();
    assert_eq!(epoch, 3, "a reset begins new counters here as well");
    // What is gone from the store is gone here.
    index.remove("api", key().hash("acme"));
    let joined = joined.rules.with_tenants(&index).rules;
    assert_eq!(of(&joined, ("search", "GET")), told(&[("search", 3)]));
}

const PLANS: [&str; 3] = ["free", "pro", "max"];
const DESCRIPTORS: [&[&str]; 3] = [
    &["sla:get-product"],
    &["sla:get-product", "method:PUT"],
    &["sla:search"],
];

/// The plans and overrides of a tenant, each with the seconds in which it is in force.
#[derive(Clone, Debug, Default)]
struct Model {
    plans: BTreeMap<u64, (u64, usize)>,
    overrides: BTreeMap<(usize, u64), (u64, u64)>,
}

impl Model {
    fn quotas(&self) -> TenantQuotas {
        let term = |from: u64, length: u64| Term {
            from: Timestamp::from_secs(from),
            until: Timestamp::from_secs(from + length),
        };
        let plans = self.plans.iter();
        let overrides = self.overrides.iter();
        TenantQuotas {
            plans: plans
                .map(|(from, (length, plan))| {
                    TenantPlan::new(PLANS[*plan]).during(term(*from, *length))
                })
                .collect(),
            overrides: overrides
                .map(|((descriptor, from), (length, limit))| {
                    let descriptor = DESCRIPTORS[*descriptor].iter();
                    let own = TenantOverride {
                        descriptor: descriptor.copied().collect(),
                        requests_per_unit: *limit,
                        window: Some("60s".into()),
                        ..TenantOverride::default()
                    };
                    own.during(term(*from, *length))
                })
                .collect(),
            epoch: 0,
        }
    }

    /// The same as a file has it.
    fn file(&self) -> String {
        let time = |secs: u64| format!("1970-01-01T00:{:02}:{:02}Z", secs / 60, secs % 60);
        let term = |from: u64, length: u64| {
            let (from, until) = (time(from), time(from + length));
            format!("effective_at: {from}, expires_at: {until}")
        };
        let plans: Vec<_> = self
            .plans
            .iter()
            .map(|(from, (length, plan))| {
                format!("{{ name: {}, {} }}", PLANS[*plan], term(*from, *length))
            })
            .collect();
        let overrides: Vec<_> = self
            .overrides
            .iter()
            .map(|((descriptor, from), (length, limit))| {
                let descriptor = DESCRIPTORS[*descriptor].join("', '");
                let term = term(*from, *length);
                format!("{{ descriptor: ['{descriptor}'], window: 60s, limit: {limit}, {term} }}")
            })
            .collect();
        format!(
            "tenants:\n- tenant: acme\n  plan: [ {} ]\n  overrides: [ {} ]\n",
            plans.join(", "),
            overrides.join(", ")
        )
    }

    /// The quotas in force, worked out the long way.
    fn in_force(&self, level: &str, method: &str, now: u64) -> Vec<u64> {
        // The closest descriptor first.
        let order: &[usize] = match (level, method) {
            ("get-product", "PUT") => &[1, 0],
            ("get-product", _) => &[0],
            _ => &[2],
        };
        for descriptor in order {
            let mut last = None;
            for ((of, from), (length, limit)) in &self.overrides {
                if of == descriptor && *from <= now && now < from + length {
                    last = Some(*limit);
                }
            }
            if let Some(limit) = last {
                return vec![limit];
            }
        }
        let mut plan = 0;
        for (from, (length, index)) in &self.plans {
            if *from <= now && now < from + length {
                plan = *index;
            }
        }
        match (level, plan) {
            ("search", _) => vec![3],
            (_, 0) => vec![10, 100],
            (_, 1) => vec![20, 1_000],
            _ => vec![5_000],
        }
    }
}

fn models() -> impl Strategy<Value = Model> {
    let plans = proptest::collection::btree_map(0..30_u64, (1..30_u64, 0..3_usize), 0..4);
    let overrides =
        proptest::collection::btree_map((0..3_usize, 0..30_u64), (1..30_u64, 50..60_u64), 0..6);
    (plans, overrides).prop_map(|(plans, overrides)| Model { plans, overrides })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Each level is limited as a slow model of any plans and overrides says, from a file or a store
    /// alike, at every second, and no other tenant is affected.
    #[test]
    fn levels_are_limited_as_a_model_says(model in models()) {
        let bare = loaded(RULES).rules;
        let quotas = model.quotas();
        prop_assert_eq!(quotas.check("api", &bare), Ok(()));
        let mut index = TenantIndex::new(key());
        index.put("api", key().hash("acme"), &quotas);
        let stored = bare.with_tenants(&index);
        prop_assert_eq!(stored.unknown, 0);
        let filed = loaded(&format!("{RULES}{}", model.file())).rules;
        for (level, method) in [("get-product", "GET"), ("get-product", "PUT"), ("search", "GET")] {
            for now in 0..62 {
                let expected = model.in_force(level, method, now);
                for rules in [&stored.rules, &filed] {
                    for caller in ["customer", "tenant"] {
                        let found = in_force(rules, (caller, "acme"), (level, method), now);
                        let found: Vec<_> = found.into_iter().map(|(_, quota)| quota).collect();
                        prop_assert_eq!(&found, &expected, "{} {} at {}", level, method, now);
                    }
                    let others = in_force(rules, ("customer", "eve"), (level, method), now);
                    let others: Vec<_> = others.into_iter().map(|(_, quota)| quota).collect();
                    prop_assert_eq!(others, Model::default().in_force(level, method, now));
                }
            }
        }
    }
}

#[test]
fn a_tenant_whose_name_no_path_has_is_told() {
    let file = |tenant: &str, path: &str| {
        format!(
            "domain: api\ntenant: customer\nplans: [free, pro]\ntenants: [ {{ tenant: {tenant}, plan: pro }} ]\n\
             descriptors: [ {{ key: customer, rate_limit: {{ unit: day, limit: 7 }} }} ]\n\
             slas: [ {{ id: get, pathPattern: '{path}', tiers: [ {{ period: 1, threshold: 10 }} ] }} ]\n"
        )
    };
    let mut options = Options::default();
    let told = |text: &str, options: &Options| {
        let warnings = loaded_with(text, options).warnings;
        warnings.iter().map(Diagnostic::brief).collect::<Vec<_>>()
    };
    let by_path = "/orgs/{tenant}/**";
    assert_eq!(
        told(&file("Acme", by_path), &options),
        [
            "f.yaml:4:22: names of tenants from paths are compared in lower case: no service level finds this one by its path"
        ]
    );
    for (tenant, path) in [("acme", by_path), ("Acme", "/orgs/{org}/**")] {
        assert_eq!(
            told(&file(tenant, path), &options),
            [""; 0],
            "{tenant} {path}"
        );
    }
    options.path_folding = PathFolding::NONE;
    assert_eq!(told(&file("Acme", by_path), &options), [""; 0]);
}
