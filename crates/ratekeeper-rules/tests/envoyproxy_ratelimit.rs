//! Compatibility with envoyproxy/ratelimit: accepts and refuses the same files, and matches the same.

use ratekeeper_rules::{
    Diagnostics, Entry, Loaded, Options, RuleLimit, RuleSet, Source, Unit, load,
};

fn files(texts: &[&str], merge_domains: bool) -> Result<Loaded, Diagnostics> {
    let sources: Vec<_> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| Source {
            name: format!("{index}.yaml"),
            text: (*text).to_owned(),
        })
        .collect();
    let mut options = Options::default();
    options.merge_domains = merge_domains;
    load(&sources, &options)
}

fn accepted(text: &str) -> RuleSet {
    match files(&[text], false) {
        Ok(loaded) => loaded.rules,
        Err(errors) => panic!("refused:\n{text}\n{errors}"),
    }
}

/// The message of the only error.
fn refused(text: &str) -> String {
    let errors = files(&[text], false)
        .err()
        .unwrap_or_else(|| panic!("accepted:\n{text}"));
    assert_eq!(errors.errors().len(), 1, "{text}\n{errors}");
    errors.errors()[0].message.clone()
}

/// The limit of the leaf that `entries` reach: requests per unit, and the unit; [`None`] if there
/// is none.
fn limit(rules: &RuleSet, domain: &str, entries: &[(&str, &str)]) -> Option<(u64, Option<Unit>)> {
    let entries: Vec<_> = entries
        .iter()
        .map(|&(key, value)| Entry { key, value })
        .collect();
    let leaf = rules.domain(domain)?.walk(&entries).leaf()?;
    let rule = rules.rule(*leaf.node.rules().first()?);
    match rule.limit {
        RuleLimit::Limited(limit) => Some((limit.quota(), rule.unit)),
        RuleLimit::Unlimited => Some((u64::MAX, None)),
    }
}

fn descriptor(body: &str) -> String {
    format!("domain: d\ndescriptors:\n  - key: k\n{body}")
}

#[test]
fn refuses_what_envoyproxy_ratelimit_refuses() {
    let rate_limit = |body: &str| descriptor(&format!("    rate_limit: {{ {body} }}\n"));
    let cases: [(String, &str); 16] = [
        (String::new(), "config file cannot have empty domain"),
        (
            "domain: ''\n".to_owned(),
            "config file cannot have empty domain",
        ),
        (
            "domain: d\ndescriptors:\n  - value: x\n".to_owned(),
            "descriptor has empty key",
        ),
        (
            descriptor("    value: a\n  - key: k\n    value: a\n"),
            "duplicate descriptor composite key 'd.k_a'",
        ),
        (
            rate_limit("unit: foo, requests_per_unit: 1"),
            "invalid rate limit unit 'foo'",
        ),
        (
            rate_limit("requests_per_unit: 1"),
            "invalid rate limit unit ''",
        ),
        (
            rate_limit("unit: unknown, requests_per_unit: 1"),
            "invalid rate limit unit 'unknown'",
        ),
        (
            rate_limit("unlimited: true, unit: day"),
            "should not specify rate limit unit when unlimited",
        ),
        (
            rate_limit("unit: day, requests_per_unit: 1, replaces: [{ name: '' }]"),
            "should not have an empty replaces entry",
        ),
        (
            rate_limit("unit: day, requests_per_unit: 1, name: a, replaces: [{ name: a }]"),
            "replaces should not contain name of same descriptor",
        ),
        (
            descriptor("    value: x\n    share_threshold: true\n"),
            "share_threshold can only be used with wildcard values (containing '*'), but found key 'k_x'",
        ),
        (
            descriptor("    metadata: { 5: x }\n"),
            "error parsing metadata: the key 5 is not text",
        ),
        (
            descriptor("    ratelimit: {}\n"),
            "unknown key 'ratelimit' in a descriptor",
        ),
        (
            descriptor("    0.25: x\n"),
            "key is not of type string: 0.25",
        ),
        (
            "domain: d\ndescriptors:\n  - a\n".to_owned(),
            "list of type other than map: text",
        ),
        (
            descriptor("    value: 1.10\n"),
            "`value` cannot be a decimal number",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refused(&text), message, "{text}");
    }
}

#[test]
fn broken_yaml_is_refused() {
    for text in [
        "domain: 'd\n",
        "domain: d\n descriptors: []\n",
        "domain: d\n- a\n",
        "domain: [d\n",
        "domain: *nowhere\n",
        "\tdomain: d\n",
        "domain: d\ndescriptors:\n\t- key: a\n",
        "%YAML 1.2\n---\ndomain: d\n",
        "domain: !!int five\n",
    ] {
        let message = refused(text);
        assert!(
            message.starts_with("error loading config file: "),
            "{text}: {message}"
        );
    }
}

#[test]
fn values_of_the_wrong_type_are_refused() {
    for body in [
        "    rate_limit: { unit: day, requests_per_unit: -1 }\n",
        "    rate_limit: { unit: day, requests_per_unit: 4294967296 }\n",
        "    rate_limit: { unit: day, requests_per_unit: '5' }\n",
        "    rate_limit: { unit: day, requests_per_unit: 1.5 }\n",
        "    rate_limit: { unit: day, requests_per_unit: 1, unlimited: 'true' }\n",
        "    rate_limit: fast\n",
        "    rate_limit: { unit: [day], requests_per_unit: 1 }\n",
        "    rate_limit: { unit: day, requests_per_unit: 1, replaces: [a] }\n",
        "    rate_limit: { unit: day, requests_per_unit: 1, replaces: { name: a } }\n",
        "    rate_limit: Null\n",
        "    shadow_mode: 1\n",
        "    descriptors: { key: a }\n",
        "    descriptors: a\n",
        "    descriptors: [null]\n",
        "    value: 9223372036854775808\n",
        "    value: 1e3\n",
        "    value: .inf\n",
        "    value: [a]\n",
        "    metadata: [a]\n",
        // A value is checked even where its key has no meaning.
        "    unit: 1.5\n",
        "    domain: [a]\n",
        "    domain: { bogus: 1 }\n",
    ] {
        refused(&descriptor(body));
    }
}

#[test]
fn keys_that_are_no_text_are_refused() {
    for key in ["on", "y", "404", "1.5", "~", "0x10"] {
        assert_eq!(
            refused(&format!("domain: d\n{key}: x\n")),
            format!("key is not of type string: {key}")
        );
    }
}

#[test]
fn accepts_what_envoyproxy_ratelimit_accepts() {
    let rate_limit = |body: &str| descriptor(&format!("    rate_limit: {{ {body} }}\n"));
    for text in [
        rate_limit("unlimited: true, unit: foo"),
        rate_limit("unlimited: true, requests_per_unit: 7"),
        rate_limit("unit: day, requests_per_unit: 1, replaces: [{ name: nobody }]"),
        rate_limit("unit: DaY"),
        descriptor(
            "    rate_limit: { unit: day, name: a }\n  - key: b\n    rate_limit: { unit: day, name: a }\n",
        ),
        descriptor("    shadow_mode: true\n    quota_mode: true\n    rate_limit: { unit: day }\n"),
        descriptor("    descriptors: [{ key: a }]\n"),
        descriptor("    value: a*\n  - key: k\n    value: '*'\n"),
        descriptor("    rate_limit:\n    value: ~\n    descriptors: null\n"),
        "domain: d\n".to_owned(),
        "domain: d\nunit: whatever\nrequests_per_unit: many\n".to_owned(),
        "domain: d\ndescriptors: []\n---\n[broken".to_owned(),
        "domain: d\n...\n}".to_owned(),
        "{domain: d, descriptors: [{key: a, rate_limit: {unit: day}}]}".to_owned(),
        "domain:\td\ndescriptors:\t[]\n".to_owned(),
        "\u{feff}domain: d\r\ndescriptors:\r\n  - key: a\r\n".to_owned(),
        "%YAML 1.1\n---\ndomain: d\n".to_owned(),
    ] {
        accepted(&text);
    }
}

#[test]
fn scalars_keep_their_text_and_follow_yaml_1_1() {
    let rules = accepted(&descriptor(
        "    value: 010\n    rate_limit: { unit: day, requests_per_unit: 010 }\n\
         \x20 - { key: k, value: yes, rate_limit: { unit: day, requests_per_unit: 0x10 } }\n\
         \x20 - { key: k, value: 404, rate_limit: { unit: day, requests_per_unit: 1_000 } }\n\
         \x20 - { key: k, value: 2001-12-14, rate_limit: { unit: week, requests_per_unit: 0b11 } }\n\
         \x20 - { key: k, value: '1.10', rate_limit: { unit: month, requests_per_unit: 2 } }\n\
         \x20 - { key: on, rate_limit: { unit: year, requests_per_unit: 1, unlimited: off } }\n",
    ));
    let of = |value| limit(&rules, "d", &[("k", value)]);
    assert_eq!(of("010"), Some((8, Some(Unit::Day))));
    assert_eq!(of("yes"), Some((16, Some(Unit::Day))));
    assert_eq!(of("404"), Some((1000, Some(Unit::Day))));
    assert_eq!(of("2001-12-14"), Some((3, Some(Unit::Week))));
    assert_eq!(of("1.10"), Some((2, Some(Unit::Month))));
    assert_eq!(of("8"), None);
    assert_eq!(
        limit(&rules, "d", &[("on", "")]),
        Some((1, Some(Unit::Year)))
    );
}

#[test]
fn the_last_of_equal_keys_counts_and_mappings_are_laid_over_each_other() {
    let rules = accepted(&descriptor(
        "    rate_limit: { unit: minute, requests_per_unit: 5 }\n    rate_limit: { requests_per_unit: 7 }\n",
    ));
    assert_eq!(
        limit(&rules, "d", &[("k", "")]),
        Some((7, Some(Unit::Minute)))
    );

    let merged = "domain: d\ndescriptors:\n  - &base { key: k, rate_limit: { unit: minute, requests_per_unit: 5 } }\n\
                  \x20 - { <<: *base, value: x, rate_limit: { requests_per_unit: 9 } }\n";
    let rules = accepted(merged);
    for (value, quota) in [("x", 9), ("y", 5)] {
        let found = limit(&rules, "d", &[("k", value)]);
        assert_eq!(found, Some((quota, Some(Unit::Minute))), "{value}");
    }
}

#[test]
fn a_domain_in_two_files_is_an_error_unless_they_are_merged() {
    let one = "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    let two = "domain: d\ndescriptors:\n  - { key: b, rate_limit: { unit: day, requests_per_unit: 2 } }\n";
    let errors = files(&[one, two], false).expect_err("it is there twice");
    assert_eq!(errors.errors().len(), 1);
    assert_eq!(
        errors.errors()[0].message,
        "duplicate domain 'd' in config file"
    );
    assert_eq!(errors.errors()[0].place.to_string(), "1.yaml:1:9");

    let rules = files(&[one, two], true).expect("they may be merged").rules;
    assert_eq!(rules.domains().len(), 1);
    assert_eq!(limit(&rules, "d", &[("a", "")]), Some((1, Some(Unit::Day))));
    assert_eq!(limit(&rules, "d", &[("b", "")]), Some((2, Some(Unit::Day))));

    // Merging stops at the root: the same composite key is still an error.
    let errors = files(&[one, one], true).expect_err("the key is there twice");
    assert_eq!(
        errors.errors()[0].message,
        "duplicate descriptor composite key 'd.a'"
    );
}

/// Both into one descriptor is no way out where keys and values are matched apart.
#[test]
fn composites_that_collide_are_refused_with_a_help_that_can_be_followed() {
    let colliding = "descriptors:\n  - key: a_b\n  - { key: a, value: b }\n";
    let twice = "descriptors:\n  - { key: a, value: b }\n  - { key: a, value: b }\n";
    for (domain, level, told) in [
        ("domain: d\n", colliding, "put both into one"),
        (
            "domain: d\nevaluation: path\n",
            colliding,
            "rename one of the two keys",
        ),
        ("domain: d\nevaluation: path\n", twice, "put both into one"),
    ] {
        let errors = files(&[&format!("{domain}{level}")], false).expect_err("they collide");
        let help = errors.errors()[0].help.as_deref().unwrap_or_default();
        assert!(help.contains(told), "{help}");
    }
}

#[test]
fn composites_collide_as_in_envoyproxy_ratelimit() {
    assert_eq!(
        refused("domain: d\ndescriptors:\n  - key: a_b\n  - { key: a, value: b }\n"),
        "duplicate descriptor composite key 'd.a_b'"
    );
    let rules = accepted(
        "domain: d\ndescriptors:\n  - { key: a, value: b_c, rate_limit: { unit: day, requests_per_unit: 1 } }\n\
         \x20 - { key: x_y, rate_limit: { unit: day, requests_per_unit: 2 } }\n",
    );
    for (key, value, quota) in [
        ("a_b", "c", 1),
        ("a", "b_c", 1),
        ("x", "y", 2),
        ("x_y", "anything", 2),
    ] {
        let found = limit(&rules, "d", &[(key, value)]);
        assert_eq!(found, Some((quota, Some(Unit::Day))), "{key} {value}");
    }
}

#[test]
fn flags_and_metadata_arrive() {
    let rules = accepted(&descriptor(
        "    value: files/*\n    share_threshold: true\n    value_to_metric: yes\n    detailed_metric: on\n\
         \x20   shadow_mode: true\n    quota_mode: true\n\
         \x20   metadata: { tier: gold, weight: 1.5, list: [1, yes, null], deep: { a: 2001-01-01, b: .inf } }\n\
         \x20   rate_limit: { unit: hour, requests_per_unit: 3, name: files, replaces: [{ name: all }] }\n",
    ));
    let rule = &rules.rules()[0];
    let node = &rules.domain("d").expect("it is there").nodes()[0];
    assert!(node.share_threshold() && node.value_to_metric());
    assert_eq!(
        (node.pattern(), node.key(), node.value()),
        ("k_files/*", "k", Some("files/*"))
    );
    assert!(rule.shadow && rule.quota_mode && rule.detailed_metric && rule.value_to_metric);
    assert_eq!(rule.name.as_deref(), Some("files"));
    assert_eq!(rule.replaces, ["all".into()]);
    let metadata =
        serde_json::to_string(rule.metadata.as_deref().expect("it is there")).expect("JSON");
    assert_eq!(
        metadata,
        r#"{"deep":{"a":"2001-01-01","b":"Infinity"},"list":[1,true,null],"tier":"gold","weight":1.5}"#
    );
}

#[test]
fn rlconfig_has_the_format_of_envoyproxy_ratelimit() {
    let text = "domain: mongo_cps\ndescriptors:\n  - key: database\n    value: users\n\
                \x20   rate_limit: { unit: second, requests_per_unit: 500 }\n    shadow_mode: true\n\
                \x20   descriptors:\n      - { key: op, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 5 } }\n";
    let mut options = Options::default();
    options.profile = ratekeeper_rules::Profile::Envoy;
    let loaded = load(
        &[Source {
            name: "a.yaml".to_owned(),
            text: text.to_owned(),
        }],
        &options,
    );
    let expected = "mongo_cps.database_users: unit=SECOND requests_per_unit=500, shadow_mode: true, quota_mode: false\n\
                    mongo_cps.database_users.op: unit=MINUTE requests_per_unit=5, shadow_mode: false, quota_mode: true\n";
    assert_eq!(loaded.expect("it is accepted").rules.rlconfig(), expected);
}

/// A descriptor's entries, and the limit that applies to them.
type Lookup = (Vec<(String, String)>, Option<String>);

/// A line of `answers.jsonl`, with the answer that envoyproxy/ratelimit (as of January 2026, when a
/// `*` had to be the last character) gave to it.
#[derive(serde::Deserialize)]
struct Answer {
    files: Vec<String>,
    #[serde(default)]
    merge: bool,
    accepted: bool,
    /// Entries in domain `d`, and the limit that applied to them.
    #[serde(default)]
    asked: Vec<Lookup>,
}

fn met(rules: &RuleSet, entries: &[(String, String)]) -> Option<String> {
    let entries: Vec<_> = entries
        .iter()
        .map(|(key, value)| Entry { key, value })
        .collect();
    let leaf = rules.domain("d")?.walk(&entries).leaf()?;
    let rule = rules.rule(*leaf.node.rules().first()?);
    let RuleLimit::Limited(limit) = rule.limit else {
        return Some("unlimited".to_owned());
    };
    let mut met = format!("{} {}", rule.unit?.name(), limit.quota());
    for (flag, word) in [(rule.shadow, " shadow"), (rule.quota_mode, " quota")] {
        met.push_str(if flag { word } else { "" });
    }
    if let Some(name) = &rule.name {
        met.push_str(&format!(" {name}"));
    }
    Some(met)
}

#[test]
fn recorded_answers_of_envoyproxy_ratelimit_are_ours() {
    for line in include_str!("envoyproxy_ratelimit/answers.jsonl").lines() {
        let answer: Answer = serde_json::from_str(line).expect("a recorded answer");
        let texts: Vec<_> = answer.files.iter().map(String::as_str).collect();
        match files(&texts, answer.merge) {
            Ok(loaded) => {
                assert!(answer.accepted, "accepted: {line}");
                for (entries, expected) in &answer.asked {
                    assert_eq!(
                        met(&loaded.rules, entries),
                        *expected,
                        "{entries:?} in {line}"
                    );
                }
            }
            Err(errors) => assert!(!answer.accepted, "refused: {line}\n{errors}"),
        }
    }
}
