//! Plans and tenants.

use ratekeeper_core::Timestamp;
use ratekeeper_rules::{Entry, Loaded, Options, Rule, RuleLimit, Source, TenantKey, load};

use crate::support::{errors, ids, loaded, loaded_with};

/// Plans, and a descriptor below the tenant's.
const RULES: &str = "domain: d
evaluation: path
tenant: customer
plans: [free, pro, max]
descriptors:
  - key: customer
    rate_limit: { unit: minute, limit: 10 }
    plans:
      pro: { unit: minute, limit: 100 }
    concurrency: { limit: 5 }
    descriptors:
      - key: endpoint
        value: POST /orders
        rate_limit: [ { window: 1s, limit: 5 }, { window: 60s, limit: 20 } ]
      - key: endpoint
        value: GET /*
        rate_limit: { window: 60s, limit: 30, algorithm: fixed_window }
      - key: endpoint
        rate_limit: { window: 60s, limit: 40 }
";

fn sources(tenants: &str) -> [Source; 2] {
    [("rules.yaml", RULES), ("tenants.yaml", tenants)].map(|(name, text)| Source {
        name: name.to_owned(),
        text: text.to_owned(),
    })
}

fn with_tenants(tenants: &str) -> Loaded {
    match load(&sources(tenants), &Options::default()) {
        Ok(loaded) => loaded,
        Err(errors) => panic!("refused:\n{tenants}\n{errors}"),
    }
}

/// The errors of a file of tenants, each with its place and its fix.
fn refused(tenants: &str) -> Vec<String> {
    let refused = load(&sources(tenants), &Options::default());
    let refused = refused
        .err()
        .unwrap_or_else(|| panic!("accepted:\n{tenants}"));
    let told = refused.errors().iter().map(|error| {
        let help = error.help.as_deref().unwrap_or("no fix");
        format!("{}: {}; {help}", error.place, error.message)
    });
    told.collect()
}

/// The ids and quotas in force for some entries of a descriptor, `secs` after the epoch.
pub(crate) fn in_force(loaded: &Loaded, entries: &[(&str, &str)], secs: u64) -> Vec<(String, u64)> {
    let entries: Vec<_> = entries
        .iter()
        .map(|(key, value)| Entry { key, value })
        .collect();
    let domain = loaded.rules.domain("d").expect("the domain");
    let walk = domain.walk(&entries);
    let subscription = domain.subscription(&entries, Timestamp::from_secs(secs));
    let rules = subscription.rules(&entries, &walk).iter();
    let rules = rules.map(|index| loaded.rules.rule(index));
    let told = rules.map(|rule| {
        let quota = rule.limited().map_or(u64::MAX, |limit| limit.quota());
        (rule.id.to_string(), quota)
    });
    told.collect()
}

pub(crate) fn one(id: &str, quota: u64) -> Vec<(String, u64)> {
    vec![(id.to_owned(), quota)]
}

#[test]
fn each_plan_has_rules_of_its_own() {
    let loaded = loaded(
        "domain: d\nplans: [free, pro, max]\ndescriptors:\n\
         \x20 - key: a\n    rate_limit: { unit: minute, limit: 10 }\n\
         \x20   plans:\n      max: [ { unit: minute, limit: 1000 }, { unit: day, limit: 5000 } ]\n      pro: { unit: minute, limit: 100, algorithm: gcra, burst: 20 }\n\
         \x20 - key: b\n    id: bee\n    plans: { free: { unit: day, limit: 3 }, pro: { unlimited: true } }\n\
         \x20 - key: c\n    plans: { pro: { unit: day, limit: 3 } }\n",
    );
    let rules = loaded.rules.rules().iter();
    let told: Vec<_> = rules
        .map(|rule| {
            (
                &*rule.id,
                rule.plan.as_deref(),
                rule.limited().map(|limit| limit.quota()),
            )
        })
        .collect();
    let expected = [
        ("d.a", None, Some(10)),
        ("d.a@pro", Some("pro"), Some(100)),
        ("d.a@max#1m", Some("max"), Some(1_000)),
        ("d.a@max#1d", Some("max"), Some(5_000)),
        ("bee", None, Some(3)),
        ("bee@pro", Some("pro"), None),
        ("d.c", None, None),
        ("d.c@pro", Some("pro"), Some(3)),
    ];
    assert_eq!(told, expected);
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let c = &loaded.rules.rules()[6];
    assert_eq!(
        c.limit,
        RuleLimit::Unlimited,
        "the default plan has no limit here"
    );
}

#[test]
fn wrong_plans_are_refused() {
    assert_eq!(
        errors(
            "domain: d\nplans: [free, pro, pro]\ndescriptors:\n  - key: a\n    rate_limit: { unit: day, limit: 1 }\n\
                \x20   plans: { prro: { unit: day, limit: 1 }, free: { unit: day, limit: 2 } }\n"
        ),
        [
            "plan 'pro' is there twice",
            "the domain has no plan 'prro'",
            "the default plan's limit is there twice: `rate_limit` is the default plan's"
        ]
    );
    let reserved = errors("domain: d\nplans: [free, custom]\ndescriptors: []\n");
    assert_eq!(
        reserved,
        ["a plan cannot be called 'custom': limits that one tenant has alone are"]
    );
}

#[test]
fn a_plan_is_no_part_of_a_name() {
    let ids = ids("domain: d\nplans: [free, pro]\ndescriptors:\n\
         \x20 - { key: a, rate_limit: { unit: day, limit: 1 }, plans: { pro: { unit: day, limit: 2 } } }\n\
         \x20 - { key: a@pro, rate_limit: { unit: day, limit: 1 } }\n");
    assert_eq!(ids, ["d.a", "d.a@pro", "d.a\\@pro"]);
}

#[test]
fn a_plan_replaces_the_rates_of_a_node_and_leaves_its_permits() {
    let loaded =
        with_tenants("tenants:\n- { tenant: acme, plan: pro }\n- { tenant: big, plan: max }\n");
    let permits = ("d.customer#concurrency".to_owned(), 5);
    let of = |name| in_force(&loaded, &[("customer", name)], 0);
    assert_eq!(
        of("acme"),
        [("d.customer@pro".to_owned(), 100), permits.clone()]
    );
    let default = [("d.customer".to_owned(), 10), permits];
    assert_eq!(of("nobody"), default);
    assert_eq!(
        of("big"),
        default,
        "a plan without limits here has the default's"
    );
    assert_eq!(
        loaded
            .rules
            .domain("d")
            .map(|domain| domain.tenants_listed()),
        Some(2)
    );
}

#[test]
fn an_override_is_of_the_descriptor_that_it_names() {
    let loaded = with_tenants(
        "tenants:
- tenant: acme
  plan: pro
  overrides:
  - { unit: minute, requests_per_unit: 700 }
  - { descriptor: 'endpoint:POST /orders', unit: minute, requests_per_unit: 500 }
  - { descriptor: 'endpoint:GET /*', window: 60s, limit: 300 }
  - { descriptor: endpoint, window: 60s, limit: 400 }
  - { descriptor: ['region:eu', 'shop:a:b'], window: 60s, limit: 7 }
  - { descriptor: 'endpoint:PUT /x', unlimited: true }
",
    );
    let of = |more: &[(&str, &str)]| {
        let tenant = [("customer", "acme")];
        in_force(&loaded, &[&tenant, more].concat(), 0)
    };
    let permits = ("d.customer#concurrency".to_owned(), 5);
    assert_eq!(of(&[]), [("d.customer@custom".to_owned(), 700), permits]);
    let orders = "d.customer.endpoint_POST /orders@custom";
    assert_eq!(of(&[("endpoint", "POST /orders")]), one(orders, 500));
    let read = "d.customer.endpoint_GET /*@custom";
    assert_eq!(of(&[("endpoint", "GET /a")]), one(read, 300));
    assert_eq!(
        of(&[("endpoint", "X")]),
        one("d.customer.endpoint@custom", 400)
    );
    let put = "d.customer.endpoint_PUT /x@custom";
    assert_eq!(of(&[("endpoint", "PUT /x")]), one(put, u64::MAX));
    // No rule has this one. A value may have colons.
    let shop = [("region", "eu"), ("shop", "a:b")];
    assert_eq!(of(&shop), one("d.customer.region_eu.shop_a:b@custom", 7));
    assert_eq!(of(&[("region", "eu")]), []);
    assert_eq!(of(&[("region", "eu"), ("shop", "a")]), []);
    // Others have what the rules say.
    let other = in_force(&loaded, &[("customer", "b"), ("endpoint", "GET /a")], 0);
    assert_eq!(other, one("d.customer.endpoint_GET /*", 30));
    let mut rules = loaded.rules.rules().iter();
    let own = rules.find(|rule| *rule.id == *read).and_then(Rule::limited);
    let algorithm = own.map(|limit| limit.algorithm().name());
    assert_eq!(
        algorithm,
        Some("fixed_window"),
        "as the limit whose place it takes"
    );
}

#[test]
fn a_closer_rule_goes_before_a_wider_override() {
    let loaded = with_tenants(
        "tenants:\n- tenant: acme\n  overrides: [ { descriptor: endpoint, window: 60s, limit: 400 } ]\n",
    );
    let of = |endpoint| in_force(&loaded, &[("customer", "acme"), ("endpoint", endpoint)], 0);
    assert_eq!(of("GET /a"), one("d.customer.endpoint_GET /*", 30));
    assert_eq!(of("else"), one("d.customer.endpoint@custom", 400));
}

#[test]
fn equal_overrides_of_many_tenants_are_one_rule() {
    let mut file = "tenants:\n".to_owned();
    for number in 0..1_000 {
        let limit = 100 + number % 2;
        file.push_str(&format!(
            "- {{ tenant: t{number}, overrides: [ {{ descriptor: 'endpoint:POST /orders', unit: minute, limit: {limit} }} ] }}\n"
        ));
    }
    let loaded = with_tenants(&file);
    let rules = loaded.rules.rules().iter();
    let custom = rules
        .filter(|rule| rule.plan.as_deref() == Some("custom"))
        .count();
    assert_eq!(custom, 2);
    let of = |name| {
        in_force(
            &loaded,
            &[("customer", name), ("endpoint", "POST /orders")],
            0,
        )
    };
    assert_eq!(of("t998")[0].1, 100);
    assert_eq!(of("t999")[0].1, 101);
}

#[test]
fn the_latest_that_has_begun_and_not_ended_is_in_force() {
    let loaded = with_tenants(
        "tenants:
- tenant: acme
  plan:
  - { name: pro, expires_at: 1970-01-01T01:00:00+00:00 }
  - { name: max, effective_at: 1970-01-01T00:30:00Z, expires_at: 1970-01-01T00:40:00Z }
  overrides:
  - { descriptor: 'endpoint:POST /orders', unit: minute, limit: 50, effective_at: 1970-01-01T00:00:10Z }
  - { descriptor: 'endpoint:POST /orders', unit: minute, limit: 60, effective_at: 1970-01-01T00:00:20Z, expires_at: 1970-01-01T00:00:30Z }
- { tenant: b, plan: pro, effective_at: 1970-01-01T00:00:10Z, expires_at: 1970-01-01T00:00:20Z,
    overrides: [ { descriptor: 'endpoint:x', unit: minute, limit: 9 } ] }
",
    );
    let plan = |name, secs| {
        let entries = [Entry {
            key: "customer",
            value: name,
        }];
        let domain = loaded.rules.domain("d").expect("the domain");
        let subscription = domain.subscription(&entries, Timestamp::from_secs(secs));
        domain.plan_name(subscription.plan()).to_owned()
    };
    let plans = [0, 1_799, 1_800, 2_399, 2_400, 3_599, 3_600].map(|secs| plan("acme", secs));
    assert_eq!(plans, ["pro", "pro", "max", "max", "pro", "pro", "free"]);
    let orders = |secs| {
        let entries = [("customer", "acme"), ("endpoint", "POST /orders")];
        let in_force = in_force(&loaded, &entries, secs);
        in_force.last().map(|(_, quota)| *quota)
    };
    let quotas = [9, 10, 19, 20, 29, 30].map(orders);
    assert_eq!(quotas, [20, 50, 50, 60, 60, 50].map(Some));
    assert_eq!(
        [9, 10, 19, 20].map(|secs| plan("b", secs)),
        ["free", "pro", "pro", "free"]
    );
    let own = |secs| in_force(&loaded, &[("customer", "b"), ("endpoint", "x")], secs)[0].1;
    assert_eq!(
        [9, 10, 19, 20].map(own),
        [40, 9, 9, 40],
        "dates of the tenant hold for its overrides"
    );
}

#[test]
fn secrets_are_named_by_their_hash() {
    let rules = RULES.replace("customer", "api_key");
    let key = TenantKey::from_bytes([7; 16]);
    let mut options = Options::default();
    options.tenant_key = Some(key.clone());
    let hash = key.hash("0123456789abcdef");
    let file = format!("{rules}tenants:\n- {{ hash: '{hash}', plan: pro }}\n");
    let loaded = loaded_with(&file, &options);
    assert!(
        loaded
            .warnings
            .iter()
            .all(|warning| !warning.message.contains("secret"))
    );
    let of = |value| in_force(&loaded, &[("api_key", value)], 0)[0].1;
    assert_eq!((of("0123456789abcdef"), of("0123456789abcdee")), (100, 10));

    let clear = format!("{rules}tenants:\n- {{ tenant: 0123456789abcdef, plan: pro }}\n");
    let loaded = loaded_with(&clear, &options);
    let warned = loaded
        .warnings
        .iter()
        .map(|warning| warning.message.as_str());
    let warned: Vec<_> = warned
        .filter(|message| message.contains("secret"))
        .collect();
    assert_eq!(
        warned,
        ["the value of `api_key` is a secret, and stands here in the clear"]
    );

    let twice = format!("{clear}- {{ hash: '{hash}', plan: max }}\n");
    let source = |text: &str| {
        [Source {
            name: "f.yaml".to_owned(),
            text: text.to_owned(),
        }]
    };
    let refused = load(&source(&twice), &options).expect_err("one tenant, named in both ways");
    assert_eq!(refused.errors()[0].message, "this tenant is there twice");
    let mut keyless = Options::default();
    keyless.stores = Some(Vec::new());
    let refused = load(&source(&file), &keyless).expect_err("no key");
    let message = "a hash means nothing without the `tenant_key` that it was made with";
    assert_eq!(refused.errors()[0].message, message);
}

#[test]
fn every_error_of_a_file_is_told_with_its_place_and_a_fix() {
    let told = refused(
        "tenants:
- { tenant: a, plan: prro }
- { tenant: a, plan: pro }
- { plan: pro }
- { tenant: '', plan: pro }
- { tenant: b }
- { tenant: c, plan: pro, effective_at: January }
- { tenant: e, plan: pro, effective_at: 2027-01-31T00:00:00Z, expires_at: 2027-01-31T00:00:00Z }
- { tenant: f, overrides: [ { descriptor: ':x', unit: minute, limit: 1 } ] }
- { tenant: g, overrides: [ { descriptor: endpoint, unit: minute, limit: 1 }, { descriptor: endpoint, unit: day, limit: 1 } ] }
- { tenant: h, plann: pro }
- { tenant: i, hash: 0f, plan: pro }
- { hash: xyz, plan: pro }
- { tenant: j, plan: [ { name: pro }, { name: max } ] }
",
    );
    let expected = [
        "tenants.yaml:2:22: the domain has no plan 'prro'; did you mean `pro`?",
        "tenants.yaml:3:13: this tenant is there twice; it is at tenants.yaml:2:13 already: put both into one",
        "tenants.yaml:4:5: there is no tenant; write `tenant:` and its value, or `hash:` and what `ratekeeper key hash` prints",
        "tenants.yaml:5:13: a tenant cannot be empty; write the value of its `customer`",
        "tenants.yaml:6:5: this tenant has neither a plan nor overrides; write `plan: pro`, or leave it out",
        "tenants.yaml:7:41: `effective_at` is neither a date nor a date and time of RFC 3339; write `effective_at: 2027-01-31T00:00:00Z`, with `Z` or the offset from UTC, or `effective_at: 2027-01-31`, which is its start in UTC",
        "tenants.yaml:8:75: this ends before it begins; `expires_at` is later than `effective_at`",
        "tenants.yaml:9:43: the entry of a descriptor has no key; write `descriptor: \"endpoint:POST /orders\"`, the key, a colon and the value",
        "tenants.yaml:10:81: this tenant has an override of the same descriptor from the same time on; leave one of them out",
        "tenants.yaml:11:16: unknown key 'plann' in a tenant; did you mean `plan`?",
        "tenants.yaml:11:5: this tenant has neither a plan nor overrides; write `plan: pro`, or leave it out",
        "tenants.yaml:12:22: `tenant` and `hash` name the same thing; leave one of them out",
        "tenants.yaml:13:11: this is no hash of a tenant: it has 32 hexadecimal digits; write what `ratekeeper key hash` prints, in quotes",
        "tenants.yaml:14:41: this tenant has a plan from the same time on; give one of them another `effective_at`",
    ];
    let mut expected = expected.map(str::to_owned);
    let mut told_sorted = told.clone();
    told_sorted.sort();
    expected.sort();
    assert_eq!(told_sorted, expected);
}

#[test]
fn a_plain_date_is_its_start_in_utc() {
    let tenants =
        |from: &str| format!("tenants:\n- {{ tenant: a, plan: pro, effective_at: {from} }}\n");
    // The same moment twice is told as such.
    let both = tenants("2027-01-31")
        + "- { tenant: b, plan: pro, effective_at: 2027-01-31, expires_at: 2027-01-31T00:00:00Z }\n";
    assert_eq!(
        refused(&both),
        [
            "tenants.yaml:3:65: this ends before it begins; `expires_at` is later than `effective_at`"
        ]
    );
}

#[test]
fn a_file_of_tenants_finds_its_domain() {
    let two = format!("{}---\n", RULES);
    let other = RULES.replace("domain: d", "domain: other");
    let load_all = |texts: &[&str]| {
        let sources = texts.iter().enumerate().map(|(number, text)| Source {
            name: format!("{number}.yaml"),
            text: (*text).to_owned(),
        });
        let sources: Vec<_> = sources.collect();
        let loaded = load(&sources, &Options::default());
        loaded.map_err(|refused| refused.errors()[0].message.clone())
    };
    let pro = "tenants:\n- { tenant: a, plan: pro }\n";
    let message = |texts: &[&str]| load_all(texts).map(|_| ()).expect_err("refused");
    assert_eq!(
        message(&[RULES, &other, pro]),
        "several domains have tenants"
    );
    let named = format!("domain: other\n{pro}");
    let loaded = load_all(&[RULES, &other, &named]).expect("it names one");
    let listed = |name| {
        loaded
            .rules
            .domain(name)
            .map(|domain| domain.tenants_listed())
    };
    assert_eq!((listed("d"), listed("other")), (Some(0), Some(1)));
    let wrong = format!("domain: othr\n{pro}");
    assert_eq!(
        message(&[RULES, &other, &wrong]),
        "there is no domain 'othr'"
    );
    let without = "domain: d\ndescriptors: []\n";
    assert_eq!(
        message(&[without, pro]),
        "no domain says which entry names the tenant"
    );
    let named = format!("domain: d\n{pro}");
    assert_eq!(
        message(&[without, &named]),
        "the domain 'd' does not say which entry names the tenant"
    );
    assert!(load_all(&[&two, pro]).is_ok());
}
