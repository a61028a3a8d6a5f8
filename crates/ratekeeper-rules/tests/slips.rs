//! Warnings about rules that load and do something else than their author meant.

use ratekeeper_rules::{Diagnostic, Loaded, Options, Source, load};

fn loaded(texts: &[&str]) -> Loaded {
    let source = |(number, text): (usize, &&str)| Source {
        name: format!("{number}.yaml"),
        text: (*text).to_owned(),
    };
    let sources: Vec<_> = texts.iter().enumerate().map(source).collect();
    let mut options = Options::default();
    options.merge_domains = true;
    load(&sources, &options).expect("the rules are good")
}

/// Each warning on one line: place, message and help.
fn warnings(texts: &[&str]) -> Vec<String> {
    let told = |warning: &Diagnostic| {
        let help = warning.help.as_deref().unwrap_or("-");
        format!("{} | {help}", warning.brief())
    };
    loaded(texts).warnings.iter().map(told).collect()
}

#[test]
fn a_key_that_a_merge_below_it_writes_again_is_told() {
    let merge = |limit: &str| {
        format!(
            "x-base: &base {{ window: 1m, limit: 100 }}\ndomain: d\ndescriptors:\n- key: a\n  rate_limit: {limit}\n"
        )
    };
    let told = warnings(&[&merge("{ limit: 5, <<: *base }")]);
    assert_eq!(
        told,
        [
            "0.yaml:5:17: what `<<` merges below has `limit` as well, which counts in place of this one | put `<<` \
             first: keys behind it count"
        ]
    );
    for fine in [
        "{ <<: *base, limit: 5 }",
        "{ strict: true, <<: *base }",
        "{ <<: [ *base, { limit: 7 } ] }",
    ] {
        assert_eq!(warnings(&[&merge(fine)]), [""; 0], "{fine}");
    }
}

const LIMIT: &str = "rate_limit: { window: 1m, limit: 9 }";

/// Descriptors that are `key` or `key=value`, each with a limit.
fn file(evaluation: &str, descriptors: &[&str]) -> String {
    let descriptor = |text: &&str| match text.split_once('=') {
        None => format!("- {{ key: '{text}', {LIMIT} }}\n"),
        Some((key, value)) => format!("- {{ key: '{key}', value: '{value}', {LIMIT} }}\n"),
    };
    let descriptors: String = descriptors.iter().map(descriptor).collect();
    format!("domain: d\nevaluation: {evaluation}\ndescriptors:\n{descriptors}")
}

fn of_level(evaluation: &str, descriptors: &[&str]) -> Vec<String> {
    warnings(&[&file(evaluation, descriptors)])
}

#[test]
fn keys_that_another_key_can_be_mistaken_for_are_told_with_a_value_that_does_it() {
    let told = of_level("leaf", &["user", "user_agent"]);
    assert_eq!(
        told,
        [
            "0.yaml:5:10: key and value are joined by `_` to be matched: key `user` with value `agent` finds \
             'user_agent' as well | rename a key, such as `user_agent` to `user-agent`; or write `evaluation: path`, \
             under which keys and values are matched apart"
        ]
    );
    for (descriptors, wanted) in [
        (
            &["a=b_c", "a_b"][..],
            "key `a_b` with value `c` finds 'a_b_c'",
        ),
        (
            &["user", "user_agent=curl"],
            "key `user` with value `agent_curl` finds",
        ),
        (
            &["user=agent", "user_agent=curl"],
            "entries of key `user_agent` can find 'user_agent'",
        ),
        (
            &["api=*", "api_key"],
            "entries of key `api_key` can find 'api_*'",
        ),
        (
            &["api=k*", "api_key"],
            "entries of key `api_key` can find 'api_k*'",
        ),
        (
            &["user", "user_agent=moz*"],
            "key `user` with value `agent_mozx` finds",
        ),
        (&["user", "user_"], "key `user` with value `` finds 'user_'"),
    ] {
        let told = of_level("leaf", descriptors);
        assert!(
            told.iter().any(|told| told.contains(wanted)),
            "{descriptors:?}: {told:?}"
        );
        assert_eq!(of_level("path", descriptors), [""; 0], "{descriptors:?}");
    }
}

#[test]
fn keys_that_no_other_key_can_be_mistaken_for_are_not() {
    for descriptors in [
        &["api_key", "remote_address", "user_agent"][..],
        &["user", "username"],
        &["user", "user-agent"],
        &["path=x*", "paths"],
        &["a=b_c", "a=b"],
        &["path=/a_b", "path"],
        &["user_agent", "agent"],
    ] {
        assert_eq!(of_level("leaf", descriptors), [""; 0], "{descriptors:?}");
    }
    // Only entries of the same depth meet.
    let nested = format!(
        "domain: d\ndescriptors:\n- key: user\n  {LIMIT}\n  descriptors:\n  - {{ key: user_agent, {LIMIT} }}\n"
    );
    assert_eq!(warnings(&[&nested]), [""; 0]);
}

#[test]
fn keys_of_two_files_of_one_domain_meet() {
    let (one, other) = (file("leaf", &["user"]), file("leaf", &["user_agent"]));
    let told = warnings(&[&one, &other]);
    assert!(
        told.len() == 1 && told[0].starts_with("1.yaml:4:10: key and value"),
        "{told:?}"
    );
}

#[test]
fn a_secret_value_is_not_told() {
    let told = of_level("leaf", &["token=sk_live_4242", "token_sk"]);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(!told.concat().contains("live"), "{told:?}");
}

#[test]
fn a_star_in_a_key_is_told() {
    let told = of_level("leaf", &["user*"]);
    assert_eq!(
        told,
        [
            "0.yaml:4:10: the `*` in the key stands for any characters of keys and values: `user*` also matches keys \
             such as `userx` | if you mean every value of one key, write `key: user` without a value; if some of \
             them, put the `*` into `value:`"
        ]
    );
    let told = of_level("path", &["user*"]);
    assert!(told[0].contains("`user*` matches several keys"), "{told:?}");
}

#[test]
fn a_descriptor_that_changes_nothing_is_told_and_an_exemption_is_not() {
    let told = warnings(&["domain: d\ndescriptors:\n- { key: user }\n"]);
    assert_eq!(
        told,
        [
            "0.yaml:3:10: 'user' has no limit, and changes nothing | write `rate_limit: { window: 1m, limit: 100 }` into it, or \
          leave it out"
        ]
    );
    let with = |other: &str| {
        let idle = "- { key: path, value: /health }\n";
        warnings(&[&format!(
            "domain: d\ndescriptors:\n{idle}- {{ {other}, {LIMIT} }}\n"
        )])
    };
    for exempted in [
        "key: path",
        "key: path, value: '/*'",
        "key: path, value: '*lth'",
    ] {
        assert_eq!(with(exempted), [""; 0], "{exempted}");
    }
    for other in ["key: user", "key: path, value: '/api/*'"] {
        assert_eq!(with(other).len(), 1, "{other}");
    }
    let below =
        format!("domain: d\ndescriptors:\n- key: a\n  descriptors:\n  - {{ key: b, {LIMIT} }}\n");
    assert_eq!(warnings(&[&below]), [""; 0]);
}

#[test]
fn a_domain_without_a_limit_is_told() {
    let told = warnings(&["domain: d\n"]);
    let wanted =
        "0.yaml:1:9: this domain has no limit: every request for it passes | write `descriptors:`";
    assert!(told.len() == 1 && told[0].starts_with(wanted), "{told:?}");
    assert_eq!(warnings(&["domain: d\nshed: { workers: {} }\n"]), [""; 0]);
    let told = warnings(&["domain: d\ntenant: user\n"]);
    assert!(
        told[0].contains("but for limits that tenants have of their own"),
        "{told:?}"
    );
}

#[test]
fn a_tenant_that_no_descriptor_has_is_told_with_the_key_that_is_meant() {
    let of = |tenant: &str| {
        warnings(&[&format!(
            "domain: d\ntenant: {tenant}\ndescriptors:\n- {{ key: api_key, {LIMIT} }}\n"
        )])
    };
    assert_eq!(of("api_key"), [""; 0]);
    assert_eq!(
        of("api_kye"),
        [
            "0.yaml:2:9: no descriptor has the entry 'api_kye', which is to name the tenant: no limit here is a \
          tenant's | did you mean `tenant: api_key`?"
        ]
    );
    assert!(of("organization")[0].ends_with("descriptors here have api_key"));
    // Callers of service levels need no descriptor.
    let levels =
        "slas: [ { id: all, pathPattern: '/**', tiers: [ { period: 10, threshold: 7 } ] } ]\n";
    assert_eq!(
        warnings(&[&format!("domain: d\ntenant: api_key\n{levels}")]),
        [""; 0]
    );
}

#[test]
fn a_pattern_behind_one_that_matches_all_that_it_does_is_told() {
    let told = of_level("leaf", &["path=*", "path=/admin/*"]);
    assert_eq!(
        told,
        [
            "0.yaml:5:10: this never matches: 'path_*' at 0.yaml:4:10 matches the same before it | put the narrower pattern first: \
          the first one in the file that matches wins"
        ]
    );
    for evaluation in ["leaf", "path"] {
        for never in [
            &["user", "user=*"][..],
            &["path=/a*", "path=/a/b*"],
            &["path=*a*", "path=xa*"],
        ] {
            assert_eq!(of_level(evaluation, never).len(), 1, "{never:?}");
        }
        for fine in [
            &["path=/admin/*", "path=*"][..],
            &["path=/a*", "path=/b*"],
            &["path=/a*", "path=/a/b"],
            &["path=a*b", "path=a*"],
            &["user", "user=a*"],
        ] {
            assert_eq!(of_level(evaluation, fine), [""; 0], "{fine:?}");
        }
    }
}

#[test]
fn a_flag_of_a_descriptor_without_a_limit_is_told() {
    let of = |flag: &str, own: &str| {
        warnings(&[&format!(
            "domain: d\ndescriptors:\n- key: a\n  {flag}\n{own}  descriptors:\n  - {{ key: b, {LIMIT} }}\n"
        )])
    };
    let told = of("shadow_mode: true", "");
    assert_eq!(
        told,
        [
            "0.yaml:4:3: `shadow_mode` acts on the limits of its own descriptor, which has none: it has no effect on those \
          below | write `shadow_mode` beside each `rate_limit` that it is meant for"
        ]
    );
    for flag in [
        "enabled: false",
        "enforce: 10%",
        "quota_mode: true",
        "on_store_failure: deny",
    ] {
        assert_eq!(of(flag, "").len(), 1, "{flag}");
        assert_eq!(of(flag, &format!("  {LIMIT}\n")), [""; 0], "{flag}");
    }
    for harmless in ["shadow_mode: false", "enabled: true", "enforce: 100%"] {
        assert_eq!(of(harmless, ""), [""; 0], "{harmless}");
    }
}

#[test]
fn blanks_around_a_value_are_told() {
    let told = of_level("leaf", &["path=/a "]);
    assert_eq!(
        told,
        ["0.yaml:4:25: `value` begins or ends with a blank, which counts | leave the blank out"]
    );
}

#[test]
fn a_number_as_people_write_it_is_answered_with_the_number() {
    let refused = |limit: &str| {
        let text = format!("domain: d\ndescriptors:\n- {{ key: a, rate_limit: {limit} }}\n");
        let source = Source {
            name: "f".to_owned(),
            text,
        };
        let errors = load(&[source], &Options::default()).expect_err(limit);
        let told = |error: &Diagnostic| {
            format!(
                "{} | {}",
                error.brief(),
                error.help.as_deref().unwrap_or("-")
            )
        };
        errors.errors().iter().map(told).collect::<Vec<_>>()
    };
    let cut = "the comma ends the value of `limit` here: within braces it separates keys | write `limit: ";
    assert_eq!(
        refused("{ window: 1m, limit: 1,000 }"),
        [format!("f:3:46: {cut}1000`")]
    );
    assert_eq!(
        refused("{ limit: 1,000,000, window: 1m }"),
        [format!("f:3:34: {cut}1000000`")]
    );
    for (written, meant) in [
        ("'1,000'", "`limit: 1000`"),
        ("1.000", "`limit: 1000` or `limit: 1`"),
        ("10k", "`limit: 10000`"),
        ("1e3", "`limit: 1000`"),
        ("100/m", "`window: 1m` and `limit: 100`"),
    ] {
        let told = refused(&format!("{{ window: 1m, limit: {written} }}"));
        assert!(
            told.len() == 1 && told[0].ends_with(&format!("| write {meant}")),
            "{told:?}"
        );
    }
}

#[test]
fn the_ways_in_which_a_rule_denies_less_are_worded() {
    let worded = |flags: &str| {
        let text = format!("domain: d\ndescriptors:\n- {{ key: a, {flags} {LIMIT} }}\n");
        loaded(&[&text]).rules.rules()[0].exceptions_in_words()
    };
    for (flags, wanted) in [
        ("", ""),
        ("shadow_mode: true,", "shadow"),
        ("enforce: 0%,", "shadow"),
        ("enforce: 12.5%,", "enforced for 12.5%, shadow for the rest"),
        ("quota_mode: true,", "quota mode"),
        (
            "quota_mode: true, enforce: 10%,",
            "enforced for 10%, shadow for the rest, quota mode",
        ),
        ("enabled: false, shadow_mode: true,", "off"),
    ] {
        assert_eq!(worded(flags), wanted, "{flags}");
    }
}

#[test]
fn an_override_of_the_tenants_own_entry_is_told_unless_a_rule_has_it_twice() {
    let file = |below: &str, descriptor: &str| {
        format!(
            "domain: d\ntenant: a\ndescriptors:\n- key: a\n  {LIMIT}\n{below}tenants:\n- tenant: x\n  overrides:\n  - {{ \
             descriptor: {descriptor}, window: 1m, limit: 5 }}\n"
        )
    };
    let wanted = "`a` is the tenant's own entry, and an override names the entries behind it: this one never holds | \
                  leave it out";
    for (descriptor, column) in [("'a:x'", 19), ("[ 'b:1', a ]", 28)] {
        let told = warnings(&[&file("", descriptor)]);
        assert_eq!(told, [format!("0.yaml:9:{column}: {wanted}")]);
    }
    let below = format!("  descriptors: [ {{ key: a, {LIMIT} }} ]\n");
    for fine in [file(&below, "'a:x'"), file("", "'b:1'")] {
        assert_eq!(warnings(&[&fine]), [""; 0], "{fine}");
    }
}

#[test]
fn leases_that_a_limit_is_too_small_for_are_told() {
    let leased = |limit: u32| {
        format!(
            "domain: d\ndescriptors:\n- key: a\n  consistency: leased\n  rate_limit: {{ window: 1m, limit: {limit}, \
             algorithm: fixed_window }}\n"
        )
    };
    assert_eq!(
        warnings(&[&leased(63)]),
        [
            "0.yaml:5:17: `consistency: leased` changes nothing here: a limit this small is counted exactly | write \
             `consistency: exact`"
        ]
    );
    assert_eq!(warnings(&[&leased(64)]), [""; 0]);
    let domain = "domain: d\nconsistency: leased\ndescriptors:\n- { key: a, rate_limit: { window: 1m, limit: 10 } }\n";
    assert_eq!(warnings(&[domain]), [""; 0]);
}

#[test]
fn a_classifier_behind_one_that_covers_it_is_told() {
    let of = |items: &str| {
        let text = format!("domain: d\nshed:\n  workers: {{}}\n  classify:\n{items}");
        warnings(&[&text])
    };
    let told = of("  - { class: read, methods: [GET, POST] }
  - { class: critical, methods: [GET], pathPattern: /pay/** }
  - { class: read, methods: [POST], header: x-a }
");
    assert_eq!(
        told,
        [
            "0.yaml:6:7: this decides nothing: item 1, on line 5, matches all that it matches | put it before that one",
            "0.yaml:7:7: this decides nothing: item 1, on line 5, matches all that it matches | leave it out",
        ]
    );
    for (first, second) in [
        ("pathPattern: /a/**", "pathPattern: /A"),
        ("pathPattern: '/a/*/c'", "pathPattern: '/a/{b}/c', plan: p"),
        ("header: x-a", "header: X-A, value: v"),
        ("header: x-a, value: v", "header: x-a, value: v"),
        ("plan: p", "plan: p, methods: [GET]"),
    ] {
        let pair = |one: &str, other: &str| {
            let item = |keys: &str| format!("  - {{ class: test, {keys} }}\n");
            let told = of(&(item(one) + &item(other)));
            told.iter().any(|it| it.contains("decides nothing"))
        };
        assert!(pair(first, second), "{first} | {second}");
        assert!(
            first == second || !pair(second, first),
            "{second} | {first}"
        );
    }
    let fine = of("  - { class: test, pathPattern: /a/* }
  - { class: test, pathPattern: /a/** }
  - { class: test, header: x-a, value: v }
  - { class: test, header: x-a, value: w }
  - { class: test, methods: [GET], header: x-b }
  - { class: test, methods: [POST], header: x-b }
  - { class: test, header: x-b }
");
    assert_eq!(fine, [""; 0]);
}

/// It says nothing about the items behind it, as the condition that it lacks was meant.
#[test]
fn a_wrong_item_of_classify_is_the_only_thing_told() {
    for wrong in [
        "{ class: critical, header: \"x-p: 1\" }",
        "{ class: critical, pathPattern: pay }",
        "{ class: critical, methods: [\"G T\"] }",
        "{ class: urgent, methods: [PUT] }",
    ] {
        let text = format!(
            "domain: d
shed:
  fleet: {{ capacity: 1000 }}
  classify:
  - {wrong}
  - {{ class: read, methods: [POST] }}
  - {{ class: read, methods: [PATCH] }}
"
        );
        let source = Source {
            name: "0.yaml".to_owned(),
            text,
        };
        let refused = load(&[source], &Options::default()).expect_err("an item is wrong");
        assert_eq!(refused.errors().len(), 1, "{refused}");
        assert_eq!(refused.warnings(), [], "{wrong}");
    }
}

#[test]
fn a_reserve_for_a_class_that_no_request_is_in_is_told() {
    let of = |shed: &str| warnings(&[&format!("domain: d\nshed: {{ {shed} }}\n")]);
    assert_eq!(
        of("fleet: { capacity: 1000 }"),
        [
            "0.yaml:2:9: 20% of the capacity is kept for the class 'critical', and no request is in it | add an item \
             with `class: critical` to `classify`, or write `reserve: 0%` here"
        ]
    );
    for fine in [
        "fleet: { capacity: 1000, reserve: 0% }",
        "fleet: { capacity: 1000 }, classify: [ { class: critical, methods: [PUT] } ]",
        "fleet: { capacity: 1000 }, priorities: [read, write]",
        "fleet: { capacity: 1000 }, priorities: [a], default: a",
        "workers: {}, adaptive: {}",
    ] {
        assert_eq!(of(fine), [""; 0], "{fine}");
    }
}

#[test]
fn a_plan_of_a_classifier_that_no_domain_has_is_told() {
    let shed = "shed: { workers: {}, classify: [ { class: critical, plan: golf } ] }\n";
    let of = |domain: &str| {
        let told = warnings(&[&format!("domain: d\n{domain}"), shed]);
        let is_it = |it: &&String| it.starts_with("1.yaml");
        told.iter().filter(is_it).cloned().collect::<Vec<_>>()
    };
    let wrong = "1.yaml:1:59: no domain has the plan 'golf'";
    let help = |help: &str| vec![format!("{wrong} | {help}")];
    let named = |plans: &str| format!("tenant: user\nplans: [{plans}]\n");
    assert_eq!(of(&named("free, gold")), help("did you mean `gold`?"));
    assert_eq!(of(&named("x, y")), help("the plans are x, y"));
    let none = "name the plans of a domain: `plans: [free, golf]`";
    assert_eq!(of(""), help(none));
    assert_eq!(of(&named("free, golf")), [""; 0]);
}
