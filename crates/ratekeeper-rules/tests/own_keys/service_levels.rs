//! Service levels.

use ratekeeper_rules::{Entry, FailureMode, Options, PathPattern, Rule, ServiceLevel, Unit};

use crate::support::{errors, loaded, loaded_with};

#[test]
fn service_levels_are_checked_nested_flat_and_alone() {
    let loaded = loaded_with(
        "- id: get\n  methods: [get, HEAD, GET]\n  pathPattern: /product/*\n  tiers: [ { period: 1, threshold: 10 }, { period: 10s, threshold: 50 } ]\n\
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
            "`period` is longer than 0",
            "there is no `pathPattern`",
            "'A B' is not an HTTP method",
            "methods and pathPattern stand under `match` or beside it, not both",
            "unknown key 'limit' in a tier",
            "a tier needs a `period`",
        ]
    );
    assert_eq!(
        errors("[]"),
        ["expected a mapping at the top of a file, found a list"]
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
        ["the domain `slas` is reserved for service levels"]
    );
    assert_eq!(
        loaded("domain: slas\ndescriptors: []\n")
            .rules
            .domains()
            .len(),
        1
    );
}
