//! Ratekeeper's own keys.

use ratekeeper_core::{Algorithm, Micros};
use ratekeeper_rules::{
    CalendarUnit, ChangeKind, Consistency, Entry, Evaluation, FailureMode, LeakyOverRls, Loaded,
    Options, PathPattern, Profile, Rule, RuleLimit, ServiceLevel, Source, Unit, load,
};

fn loaded_with(text: &str, options: &Options) -> Loaded {
    match load(
        &[Source {
            name: "f.yaml".to_owned(),
            text: text.to_owned(),
        }],
        options,
    ) {
        Ok(loaded) => loaded,
        Err(errors) => panic!("refused:\n{text}\n{errors}"),
    }
}

fn loaded(text: &str) -> Loaded {
    loaded_with(text, &Options::default())
}

/// The rules of a descriptor `k` with this body.
fn rules(body: &str) -> Vec<Rule> {
    loaded(&format!("domain: d\ndescriptors:\n  - key: k\n{body}"))
        .rules
        .rules()
        .to_vec()
}

fn limits(body: &str) -> Vec<(Algorithm, u64, Micros)> {
    let rules = rules(&format!("    rate_limit: {body}\n"));
    rules
        .iter()
        .filter_map(Rule::limited)
        .map(|limit| (limit.algorithm(), limit.quota(), limit.window()))
        .collect()
}

fn errors(text: &str) -> Vec<String> {
    let sources = [Source {
        name: "f.yaml".to_owned(),
        text: text.to_owned(),
    }];
    let errors = load(&sources, &Options::default())
        .err()
        .unwrap_or_else(|| panic!("accepted:\n{text}"));
    errors
        .errors()
        .iter()
        .map(|error| error.message.clone())
        .collect()
}

/// The message of the only error in a descriptor `k` with this limit.
fn refused(rate_limit: &str) -> String {
    let errors = errors(&format!(
        "domain: d\nplans: [free, pro]\ndescriptors:\n  - key: k\n    rate_limit: {rate_limit}\n"
    ));
    assert_eq!(errors.len(), 1, "{rate_limit}: {errors:?}");
    errors[0].clone()
}

fn ids(text: &str) -> Vec<String> {
    loaded(text)
        .rules
        .rules()
        .iter()
        .map(|rule| rule.id.to_string())
        .collect()
}

#[test]
fn windows_are_units_durations_or_calendars() {
    let second = Micros::from_secs(1);
    assert_eq!(
        limits("{ window: 10s, limit: 5 }"),
        [(Algorithm::SlidingWindow, 5, Micros::from_secs(10))]
    );
    assert_eq!(
        limits("{ window: 250ms, limit: 5 }"),
        [(Algorithm::SlidingWindow, 5, Micros::from_millis(250))]
    );
    assert_eq!(
        limits("{ unit: second, limit: 5 }"),
        [(Algorithm::SlidingWindow, 5, second)]
    );
    assert_eq!(
        limits("{ window: 1s, requests_per_unit: 5 }"),
        [(Algorithm::SlidingWindow, 5, second)]
    );
    let big = 9_007_199_254_740_991_u64;
    assert_eq!(limits(&format!("{{ unit: day, limit: {big} }}"))[0].1, big);

    let rule = &rules("    rate_limit: { window: 1h, limit: 5 }\n")[0];
    assert_eq!((rule.unit, &*rule.window_text), (Some(Unit::Hour), "1h"));
    let rule = &rules("    rate_limit: { window: 90s, limit: 5 }\n")[0];
    assert_eq!((rule.unit, &*rule.window_text), (None, "90s"));
    let rule = &rules("    rate_limit: { unit: month, calendar: Europe/Vienna, limit: 5 }\n")[0];
    let calendar = rule.calendar.as_ref().expect("it follows one");
    assert_eq!(
        (calendar.unit(), calendar.zone()),
        (CalendarUnit::Month, "Europe/Vienna")
    );
    assert_eq!(
        (rule.unit, &*rule.window_text),
        (None, "month@Europe/Vienna")
    );
    assert_eq!(
        rule.limited().map(|limit| limit.algorithm()),
        Some(Algorithm::FixedWindow)
    );
}

#[test]
fn every_algorithm_has_its_own_keys() {
    let of = |body: &str| {
        *rules(&format!("    rate_limit: {body}\n"))[0]
            .limited()
            .expect("a limit")
    };
    let bucket = of("{ window: 1m, limit: 60, algorithm: token_bucket, burst: 10 }");
    assert_eq!(
        (bucket.algorithm(), bucket.quota(), bucket.capacity()),
        (Algorithm::TokenBucket, 60, 10)
    );
    assert_eq!(
        of("{ window: 1m, limit: 60, algorithm: gcra }").capacity(),
        60
    );
    assert_eq!(
        of("{ window: 1m, limit: 60, sub_windows: 6 }").sub_windows(),
        6
    );
    assert_eq!(
        of("{ window: 1m, limit: 60, algorithm: fixed_window }").algorithm(),
        Algorithm::FixedWindow
    );
    assert_eq!(
        of("{ window: 1m, limit: 60, algorithm: sliding_log }").algorithm(),
        Algorithm::SlidingLog
    );
    assert_eq!(
        of("{ window: 1m, limit: 60, algorithm: leaky_bucket }").algorithm(),
        Algorithm::LeakyBucket
    );
}

#[test]
fn limits_that_cannot_be_are_refused() {
    for (limit, message) in [
        (
            "{ window: 0s, limit: 5 }",
            "a window is at least 1 microsecond",
        ),
        ("{ window: 10s }", "there is no `limit`"),
        ("{ window: 10s, limit: }", "`limit` is empty"),
        (
            "{ window: 10s, limit: 1, requests_per_unit: 1 }",
            "`limit` and `requests_per_unit` say the same thing",
        ),
        (
            "{ window: 10s, unit: day, limit: 1 }",
            "`window` already says how long",
        ),
        (
            "{ window: 10s, calendar: UTC, limit: 1 }",
            "`window` already says how long",
        ),
        ("{ calendar: UTC, limit: 1 }", "a calendar has no window ''"),
        (
            "{ calendar: UTC, unit: hour, limit: 1 }",
            "a calendar has no window 'hour'",
        ),
        (
            "{ calendar: Moon/Base, unit: day, limit: 1 }",
            "there is no time zone 'Moon/Base'",
        ),
        (
            "{ unit: day, limit: 9007199254740992 }",
            "`limit` is a whole number from 0 to 9007199254740991, not 9007199254740992",
        ),
        (
            "{ unit: day, limit: 5, burst: 0, algorithm: gcra }",
            "a burst is at least 1; to block everything set the limit to 0",
        ),
        (
            "{ unit: day, limit: 5, sub_windows: 65 }",
            "sub_windows is 1 to 64",
        ),
        (
            "{ unit: day, limit: 5, sub_windows: 2, algorithm: gcra }",
            "gcra has no sub_windows; sliding_window has",
        ),
        (
            "{ unit: day, limit: 5, algorithm: sliding }",
            "`algorithm` cannot be 'sliding'",
        ),
        (
            "{ unit: day, limit: 5, algorithm: concurrency }",
            "concurrency is no algorithm of a rate",
        ),
        (
            "{ unlimited: true, window: 10s }",
            "`window` contradicts `unlimited`",
        ),
        ("[]", "there is no limit in this list"),
        ("[ 5 ]", "list of type other than map: a whole number"),
        (
            "[ { unit: day, limit: 5 }, { unlimited: true } ]",
            "unlimited stands alone, not in a list",
        ),
    ] {
        assert_eq!(refused(limit), message, "{limit}");
    }
}

#[test]
fn two_limits_of_a_list_differ_in_algorithm_or_window() {
    let twice = refused("[ { window: 60s, limit: 5 }, { unit: minute, limit: 9 } ]");
    assert_eq!(
        twice,
        "this list has a limit of the same algorithm and window (1m) on line 5"
    );
    let body = "    rate_limit: [ { window: 1m, limit: 5 }, { window: 1m, limit: 9, algorithm: gcra }, { window: 1s, limit: 2 } ]\n";
    let rules = rules(body);
    let ids: Vec<_> = rules.iter().map(|rule| &*rule.id).collect();
    assert_eq!(ids, ["d.k#1m:sliding_window", "d.k#1m:gcra", "d.k#1s"]);
}

#[test]
fn the_profile_decides_the_defaults() {
    let text = "domain: d\ndescriptors:\n  - { key: k, rate_limit: { unit: minute, requests_per_unit: 5 } }\n";
    let ours = loaded(text).rules;
    assert_eq!(
        ours.rules()[0].limited().map(|limit| limit.algorithm()),
        Some(Algorithm::SlidingWindow)
    );
    assert!(!ours.rules()[0].count_denied);
    let mut options = Options::default();
    options.profile = Profile::Envoy;
    options.on_store_failure = FailureMode::Deny;
    let envoys = loaded_with(text, &options).rules;
    assert_eq!(
        envoys.rules()[0].limited().map(|limit| limit.algorithm()),
        Some(Algorithm::FixedWindow)
    );
    assert!(envoys.rules()[0].count_denied);
    assert_eq!(envoys.rules()[0].on_store_failure, FailureMode::Deny);
}

#[test]
fn policies_are_taken_from_limit_descriptor_and_domain_in_this_order() {
    let loaded = loaded(
        "domain: d\nevaluation: path\ntenant: api_key\non_store_failure: deny\nalgorithm: gcra\nenforce: 50%\n\
         descriptors:\n\
         \x20 - key: a\n    rate_limit: { unit: day, limit: 1 }\n\
         \x20 - key: b\n    on_store_failure: allow\n    algorithm: fixed_window\n    count_denied: true\n    consistency: local\n\
         \x20   enforce: 12.5%\n\
         \x20   rate_limit:\n      - { unit: day, limit: 1 }\n      - { unit: hour, limit: 1, algorithm: leaky_bucket, leaky_over_rls: allow, enabled: false, on_store_failure: local }\n",
    );
    let domain = loaded.rules.domain("d").expect("it is there");
    assert_eq!(
        (domain.evaluation(), domain.tenant()),
        (Evaluation::Path, Some("api_key"))
    );
    let [a, day, hour] = loaded.rules.rules() else {
        panic!("three rules")
    };
    let algorithm = |rule: &Rule| rule.limited().map(|limit| limit.algorithm());
    assert_eq!(
        (algorithm(a), a.on_store_failure, a.enforce.hundredths()),
        (Some(Algorithm::Gcra), FailureMode::Deny, 5_000)
    );
    assert_eq!(
        (algorithm(day), day.on_store_failure),
        (Some(Algorithm::FixedWindow), FailureMode::Allow)
    );
    assert_eq!(
        (algorithm(hour), hour.on_store_failure),
        (Some(Algorithm::LeakyBucket), FailureMode::Local)
    );
    assert!(day.count_denied && hour.count_denied && !a.count_denied);
    assert!(day.enabled && !hour.enabled);
    assert_eq!(
        (hour.leaky_over_rls, a.leaky_over_rls),
        (LeakyOverRls::Allow, LeakyOverRls::Deny)
    );
    assert_eq!(
        (day.consistency, a.consistency),
        (Some(Consistency::Local), None)
    );
    assert_eq!(hour.enforce.to_string(), "12.5%");
    // What is off at the domain stays off.
    let off = self::loaded(
        "domain: d\nenabled: false\ndescriptors:\n  - { key: a, enabled: true, rate_limit: { unit: day, limit: 1 } }\n",
    );
    assert!(!off.rules.rules()[0].enabled);
}

#[test]
fn plans_wait_with_the_default_ones_limit_in_force() {
    let loaded = loaded(
        "domain: d\nplans: [free, pro, max]\ndescriptors:\n\
         \x20 - key: a\n    rate_limit: { unit: minute, limit: 10 }\n\
         \x20   plans:\n      max: [ { unit: minute, limit: 1000 }, { unit: day, limit: 5000 } ]\n      pro: { unit: minute, limit: 100, algorithm: gcra, burst: 20 }\n\
         \x20 - key: b\n    plans: { free: { unit: day, limit: 3 }, pro: { unlimited: true } }\n\
         \x20 - key: c\n    plans: { pro: { unit: day, limit: 3 } }\n",
    );
    let [a, b, c] = loaded.rules.rules() else {
        panic!("three rules")
    };
    let plans: Vec<_> = a
        .plans
        .iter()
        .map(|plan| (&*plan.plan, &*plan.window_text))
        .collect();
    assert_eq!(plans, [("pro", "1m"), ("max", "1m"), ("max", "1d")]);
    assert_eq!(a.limited().map(|limit| limit.quota()), Some(10));
    assert_eq!(b.limited().map(|limit| limit.quota()), Some(3));
    assert_eq!(b.plans[0].limit, RuleLimit::Unlimited);
    assert_eq!((c.limit, c.plans.len()), (RuleLimit::Unlimited, 1));
    let warnings: Vec<_> = loaded
        .warnings
        .iter()
        .map(|warning| warning.place.line)
        .collect();
    assert_eq!(warnings, [7, 10, 12]);
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
}

#[test]
fn concurrency_is_a_rule_of_its_own() {
    let rules = rules(
        "    concurrency: { limit: 20, timeout: 30s, retry_after: 2s }\n    rate_limit: { unit: day, limit: 5 }\n",
    );
    let [rate, permits] = &rules[..] else {
        panic!("two rules")
    };
    assert_eq!((&*rate.id, &*permits.id), ("d.k", "d.k#concurrency"));
    let limit = permits.limited().expect("a limit");
    assert_eq!(
        (limit.algorithm(), limit.quota(), limit.window()),
        (Algorithm::Concurrency, 20, Micros::from_secs(30))
    );
    assert_eq!(permits.retry_after, Some(Micros::from_secs(2)));
    assert_eq!(
        errors("domain: d\ndescriptors:\n  - { key: k, concurrency: { timeout: 0s, limit: 1 } }\n"),
        ["a timeout is at least 1 microsecond"]
    );
    assert_eq!(
        errors("domain: d\ndescriptors:\n  - { key: k, concurrency: {} }\n"),
        ["there is no `limit`"]
    );
}

#[test]
fn stores_that_there_are_not_are_refused_where_they_are_named() {
    let text = "domain: d\nstore: eu\nplans: [free, pro]\ndescriptors:\n  - key: k\n    store: us\n    \
                rate_limit: { unit: day, limit: 5 }\n    plans: { pro: { unit: day, limit: 9, store: ue } }\n  \
                - { key: l, store: default, rate_limit: { unit: day, limit: 5 } }\n  \
                - { key: m, rate_limit: { unit: day, limit: 5, store: eu } }\n";
    let source = Source {
        name: "r.yaml".to_owned(),
        text: text.to_owned(),
    };
    let load = |stores: &[&str]| {
        let mut options = Options::default();
        options.stores = Some(stores.iter().map(|name| (*name).into()).collect());
        ratekeeper_rules::load(std::slice::from_ref(&source), &options)
    };
    let refused = load(&["eu"]).expect_err("two of them are not there");
    let said: Vec<String> = refused.errors().iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].contains("r.yaml:6:12") && said[0].contains("there is no store 'us'"),
        "{said:?}"
    );
    assert!(
        said[0].contains("the stores are default, eu") || said[0].contains("did you mean `eu`?"),
        "{said:?}"
    );
    assert!(
        said[1].contains("there is no store 'ue'") && said[1].contains("did you mean `eu`?"),
        "{said:?}"
    );
    let loaded = load(&["eu", "us", "ue"]).expect("all are there");
    let stores: Vec<_> = loaded
        .rules
        .rules()
        .iter()
        .map(|rule| rule.store.as_deref())
        .collect();
    assert_eq!(stores, [Some("us"), Some("default"), Some("eu")]);
    assert_eq!(
        loaded.rules.rules()[0].plans[0].store.as_deref(),
        Some("ue")
    );
}

#[test]
fn what_is_not_there_yet_is_accepted_with_a_warning() {
    for (body, part) in [
        (
            "    store: eu\n",
            "whether there is a store 'eu' is not known here",
        ),
        (
            "    consistency: leased\n",
            "counts exactly, in the memory of this node",
        ),
        (
            "    consistency: synced\n",
            "counts exactly, in the memory of this node",
        ),
        (
            "    concurrency: { limit: 1 }\n",
            "checks over RLS, HTTP and replay skip this limit",
        ),
    ] {
        let text = format!(
            "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{ unit: day, limit: 5 }}\n{body}"
        );
        let loaded = loaded(&text);
        assert_eq!(loaded.warnings.len(), 1, "{body}");
        assert!(
            loaded.warnings[0].message.contains(part),
            "{}",
            loaded.warnings[0]
        );
    }
}

#[test]
fn ids_are_the_path_whatever_the_order_and_explicit_ones_unique() {
    let one = "  - { key: a, value: x, rate_limit: { unit: day, limit: 1 } }\n";
    let two = "  - { key: b, id: mine, rate_limit: [ { unit: day, limit: 1 }, { window: 10s, limit: 1 }, { unit: hour, limit: 1, id: own } ] }\n";
    assert_eq!(
        ids(&format!("domain: d\ndescriptors:\n{one}{two}")),
        ["d.a_x", "mine#1d", "mine#10s", "own"]
    );
    assert_eq!(
        ids(&format!("domain: d\ndescriptors:\n{two}{one}")),
        ["mine#1d", "mine#10s", "own", "d.a_x"]
    );
    let same = "domain: d\ndescriptors:\n  - { key: a, id: i, rate_limit: { unit: day, limit: 1 } }\n  - { key: b, id: i, rate_limit: { unit: day, limit: 1 } }\n";
    assert_eq!(errors(same), ["duplicate id 'i'"]);
}

#[test]
fn ids_that_would_read_the_same_are_told_apart_in_any_order() {
    let deep = "  - { key: a, descriptors: [ { key: b, rate_limit: { unit: day, limit: 1 } } ] }\n";
    let dotted = "  - { key: a.b, rate_limit: { unit: day, limit: 1 } }\n";
    assert_eq!(
        ids(&format!("domain: d\ndescriptors:\n{deep}{dotted}")),
        ["d.a.b", "d.a\\.b"]
    );
    assert_eq!(
        ids(&format!("domain: d\ndescriptors:\n{dotted}{deep}")),
        ["d.a\\.b", "d.a.b"]
    );
    let taken = "  - { key: c, id: d.a.b, rate_limit: { unit: day, limit: 1 } }\n";
    assert_eq!(
        ids(&format!("domain: d\ndescriptors:\n{deep}{taken}")),
        ["d.a.b~2", "d.a.b"]
    );
}

#[test]
fn secrets_are_not_in_ids() {
    let text = "domain: d\nsecrets: [partner]\ndescriptors:\n\
                \x20 - { key: api_key, value: sk_live_51H8abcdefgh, rate_limit: { unit: day, limit: 1 } }\n\
                \x20 - { key: Authorization, value: short, rate_limit: { unit: day, limit: 1 } }\n\
                \x20 - { key: partner, value: a-very-long-secret, rate_limit: { unit: day, limit: 1 } }\n\
                \x20 - { key: api_key, value: 'internal-*', rate_limit: { unit: day, limit: 1 } }\n\
                \x20 - { key: user, value: alice, rate_limit: { unit: day, limit: 1 } }\n";
    let ids = ids(text);
    let all = ids.join(" ") + &loaded(text).rules.rlconfig();
    assert!(
        !all.contains("sk_live") && !all.contains("short") && !all.contains("a-very"),
        "{all}"
    );
    assert!(
        ids[0].starts_with("d.api_key_~") && ids[0].ends_with("…efgh"),
        "{}",
        ids[0]
    );
    assert_eq!(ids[3..], ["d.api_key_internal-*", "d.user_alice"]);
}

#[test]
fn service_levels_are_checked_nested_flat_and_alone() {
    let loaded = loaded_with(
        "- id: get\n  methods: [get, HEAD]\n  pathPattern: /product/*\n  tiers: [ { period: 1, threshold: 10 }, { period: 10s, threshold: 50 } ]\n\
         - id: put\n  enabled: no\n  match: { pathPattern: '/files/**' }\n  tiers: [ { period: 10, threshold: 100, algorithm: gcra, burst: 5 } ]\n",
        &{
            let mut options = Options::default();
            options.slas_base = PathPattern::parse("/v1/{tenant}").ok();
            options
        },
    );
    let [get, put] = loaded.rules.service_levels() else {
        panic!("two levels")
    };
    assert_eq!(get.methods, ["GET".into(), "HEAD".into()]);
    assert_eq!(get.pattern.as_str(), "/v1/{tenant}/product/*");
    let tiers = |level: &ServiceLevel| {
        let rules = level.rules.iter().map(|index| loaded.rules.rule(*index));
        let tier = |rule: &Rule| {
            let limit = rule.limited().expect("a limit");
            format!(
                "{} {} {}/{}",
                rule.id,
                limit.algorithm().name(),
                limit.capacity(),
                rule.window_text
            )
        };
        rules.map(tier).collect::<Vec<_>>()
    };
    assert_eq!(
        tiers(get),
        ["get#1s fixed_window 10/1s", "get#10s fixed_window 50/10s"]
    );
    assert_eq!(tiers(put), ["put gcra 5/10s"]);
    assert!(get.enabled && !put.enabled && put.methods.is_empty() && put.pattern.has_rest());
    assert!(!loaded.rules.rule(put.rules[0]).enabled);
    assert_eq!(loaded.rules.domains().len(), 0);
    assert!(loaded.warnings.is_empty());

    assert_eq!(
        errors(
            "slas_base: v1\nslas:\n  - id: a\n    tiers: []\n    pathPattern: /x*\n  - tiers: [ { period: 0, threshold: 1 } ]\n    match: { methods: ['A B'] }\n\
             \x20 - id: a\n    pathPattern: /\n    methods: [GET]\n    match: { pathPattern: / }\n    tiers: [ { period: 1, threshold: 1, limit: 2 }, { threshold: 1 } ]\n"
        ),
        [
            "the path 'v1' does not start with `/`",
            "a service level needs at least one tier",
            "in 'x*' the `*` is not a whole segment",
            "a service level needs an id",
            "`period` is at least 1 second",
            "there is no `pathPattern`",
            "'A B' is no HTTP method",
            "methods and pathPattern stand under `match` or beside it, not both",
            "unknown key 'limit' in a tier",
            "a tier needs a `period`",
        ]
    );
    assert_eq!(
        errors("[]"),
        ["a list cannot stand at the top of a file: keys and values do"]
    );
}

#[test]
fn service_levels_are_limits_of_a_domain_of_their_own() {
    let text = "domain: shop\nsecrets: [user]\non_store_failure: deny\ndescriptors: [ { key: user, rate_limit: { unit: day, limit: 1 } } ]\n\
                slas:\n  - { id: get, pathPattern: /a, shadow_mode: true, enforce: 10%, tiers: [ { period: 60, threshold: 5 } ] }\n";
    let rules = loaded(text).rules;
    let names: Vec<_> = rules
        .domains()
        .map(|domain| domain.name().to_owned())
        .collect();
    assert_eq!(names, ["shop"]);
    let levels = rules.service_level_domain().expect("a domain");
    let entry = |key, value| Entry { key, value };
    let walk = levels.walk(&[
        entry("api_key", "x"),
        entry("sla", "get"),
        entry("method", "GET"),
    ]);
    let leaf = walk.leaf().expect("a node");
    let rule = rules.rule(leaf.node.rules()[0]);
    assert_eq!(
        (&*rule.id, &*rule.domain, rule.unit),
        ("get", "slas", Some(Unit::Minute))
    );
    assert!(rule.shadow && rule.enforce.hundredths() == 1_000);
    assert_eq!(rule.on_store_failure, FailureMode::Deny);
    assert!(
        rules
            .rlconfig()
            .contains("slas.*.sla_get.method: unit=MINUTE requests_per_unit=5")
    );
}

#[test]
fn service_levels_that_contradict_each_other_are_refused() {
    let level = |id: &str, rest: &str| {
        format!("  - {{ id: {id}, tiers: [ {{ period: 1, threshold: 1 }} ], {rest} }}\n")
    };
    let all = |levels: &[String]| format!("slas:\n{}", levels.concat());
    assert_eq!(
        errors(&all(&[
            level("a", "methods: [GET, PUT], pathPattern: '/p/*'"),
            level("b", "methods: [PUT], pathPattern: '/p/{id}'"),
        ])),
        ["PUT /p/{id} has a service level already: 'a' at f.yaml:2:7"]
    );
    let fine = all(&[
        level("a", "methods: [GET], pathPattern: '/p/*'"),
        level("b", "pathPattern: '/p/*'"),
        level("c", "pathPattern: '/p/{id}', enabled: false"),
    ]);
    assert_eq!(loaded(&fine).rules.service_levels().len(), 3);
    assert_eq!(
        errors(&all(&[
            level("a", "pathPattern: /a"),
            level("a", "pathPattern: /b")
        ])),
        ["duplicate id 'a' of a service level"]
    );
    assert_eq!(
        errors(&all(&[
            level("'a*'", "pathPattern: /a"),
            level("b", "pathPattern: '/caf%C3%A9'")
        ])),
        [
            "the id 'a*' of a service level has a `*`",
            "in 'caf%C3%A9' a character is percent-encoded: paths are matched decoded, so write the character itself",
        ]
    );
    let twice = format!(
        "slas_base: '/v1/{{tenant}}'\n{}",
        all(&[level("a", "pathPattern: '/{tenant}'")])
    );
    assert_eq!(errors(&twice), ["the variable {tenant} is there twice"]);
    let namesake = format!("domain: slas\n{}", all(&[level("a", "pathPattern: /a")]));
    assert_eq!(
        errors(&namesake),
        ["`domain: slas` is what service levels are counted under"]
    );
    assert_eq!(
        loaded("domain: slas\ndescriptors: []\n")
            .rules
            .domains()
            .len(),
        1
    );
}

#[test]
fn changes_tell_which_counters_start_afresh() {
    let before = "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, limit: 1 } }\n  - { key: b, rate_limit: { unit: day, limit: 1 } }\n\
                  \x20 - { key: c, rate_limit: { unit: day, limit: 1 } }\n  - { key: d, rate_limit: { unit: day, limit: 1 } }\n";
    let after = "domain: d\ndescriptors:\n  - { key: e, rate_limit: { unit: day, limit: 1 } }\n  - { key: d, rate_limit: { unit: day, limit: 1 } }\n\
                 \x20 - { key: a, rate_limit: { unit: day, limit: 2 } }\n  - { key: b, rate_limit: { unit: hour, limit: 1 } }\n";
    let (before, after) = (loaded(before).rules, loaded(after).rules);
    let changes: Vec<_> = after
        .changes_since(&before)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        changes,
        [
            "d.a has changed and keeps its usage",
            "d.b starts afresh: it was sliding_window of 1d in 12 parts, and is sliding_window of 1h in 12 parts",
            "d.c is gone",
            "d.e is new",
        ]
    );
    assert!(after.changes_since(&after).is_empty());
    assert!(
        !after
            .changes_since(&before)
            .iter()
            .any(|change| change.kind == ChangeKind::Added && &*change.rule == "d.d")
    );
}

#[test]
fn costs_of_what_does_not_fit_in_line_are_told() {
    let loaded = loaded(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, limit: 10000, algorithm: sliding_log } }\n\
         \x20 - { key: b, rate_limit: { unit: day, limit: 1 } }\n",
    );
    let costly: Vec<_> = loaded
        .rules
        .costly()
        .map(|(rule, cost)| format!("{}: {cost}", rule.id))
        .collect();
    assert_eq!(costly, ["d.a: 64 B a counter and up to 161 kB more"]);
}

#[test]
fn settings_of_merged_files_add_up_and_may_not_contradict_each_other() {
    let source = |name: &str, text: &str| Source {
        name: name.to_owned(),
        text: text.to_owned(),
    };
    let one = source(
        "1",
        "domain: d\nevaluation: path\nenforce: 10%\ndescriptors:\n  - { key: a, rate_limit: { unit: day, limit: 1 } }\n",
    );
    let two = source(
        "2",
        "domain: d\ntenant: a\nalgorithm: gcra\nevaluation: path\ndescriptors:\n  - { key: b, rate_limit: { unit: day, limit: 1 } }\n",
    );
    let mut options = Options::default();
    options.merge_domains = true;
    let rules = load(&[one.clone(), two], &options)
        .expect("they add up")
        .rules;
    let domain = rules.domain("d").expect("it is there");
    assert_eq!(
        (domain.evaluation(), domain.tenant()),
        (Evaluation::Path, Some("a"))
    );
    for rule in rules.rules() {
        assert_eq!(
            rule.limited().map(|limit| limit.algorithm()),
            Some(Algorithm::Gcra)
        );
        assert_eq!(rule.enforce.hundredths(), 1_000);
    }
    let contrary = source("2", "domain: d\nevaluation: leaf\nenforce: 20%\n");
    let errors = load(&[one, contrary], &options).expect_err("they contradict each other");
    let messages: Vec<_> = errors
        .errors()
        .iter()
        .map(|error| error.message.as_str())
        .collect();
    let differs = |key: &str| format!("`{key}` differs from that of another file of this domain");
    assert_eq!(messages, [differs("enforce"), differs("evaluation")]);
}

#[test]
fn a_name_that_nobody_has_is_warned_of_where_it_stands() {
    let loaded = loaded(
        "domain: d\ndescriptors:\n  - key: k\n    rate_limit: { unit: day, limit: 1, replaces: [ { name: nobody } ] }\n",
    );
    assert_eq!(loaded.warnings.len(), 1);
    assert_eq!(loaded.warnings[0].place.to_string(), "f.yaml:4:60");
    assert_eq!(
        loaded.warnings[0].message,
        "no limit of this domain has the name 'nobody'"
    );
}
