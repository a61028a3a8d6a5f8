//! Holds matching to a slow and obvious model: of envoyproxy/ratelimit's algorithm, and of the same with keys and
//! values apart.

use proptest::prelude::*;
use ratekeeper_rules::{Entry, Matched, Options, RuleSet, Source, load};

/// A descriptor in the model.
#[derive(Clone, Debug)]
struct Model {
    key: String,
    value: String,
    composite: String,
    children: Vec<Model>,
}

impl Model {
    /// Returns true if its pattern matches the entry; of a model without a `*`, if it equals it.
    fn matches(&self, evaluation: &str, key: &str, value: &str) -> bool {
        match (evaluation, self.value.as_str()) {
            ("leaf", _) => matches(&self.composite, &format!("{key}_{value}")),
            (_, "") => self.key.contains('*') && matches(&self.key, key),
            (_, own) => matches(&self.key, key) && matches(own, value),
        }
    }

    fn equals(&self, evaluation: &str, key: &str, value: &str) -> bool {
        match evaluation {
            "leaf" => self.composite == format!("{key}_{value}"),
            _ => !self.value.is_empty() && self.key == key && self.value == value,
        }
    }

    fn is_key(&self, evaluation: &str, key: &str) -> bool {
        match evaluation {
            "leaf" => self.composite == key,
            _ => self.value.is_empty() && self.key == key,
        }
    }
}

/// Matches each level in order: exact, then the first pattern, then the key; no backtracking.
fn walk<'m>(
    evaluation: &str,
    roots: &'m [Model],
    entries: &[(String, String)],
) -> Vec<(&'m str, Matched)> {
    let mut level = roots;
    let mut path = Vec::new();
    for (key, value) in entries {
        let exact = (level.iter()).find(|node| node.equals(evaluation, key, value));
        let pattern = || {
            let mut patterns = level.iter().filter(|node| node.composite.contains('*'));
            patterns.find(|node| node.matches(evaluation, key, value))
        };
        let key_only = || level.iter().find(|node| node.is_key(evaluation, key));
        let found = exact
            .map(|node| (node, Matched::Exact))
            .or_else(|| pattern().map(|node| (node, Matched::Wildcard)))
            .or_else(|| key_only().map(|node| (node, Matched::KeyOnly)));
        let Some((node, how)) = found else { break };
        path.push((node.composite.as_str(), how));
        level = &node.children;
    }
    path
}

/// Returns true if `pattern` matches `text`: tries every length for every `*`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((prefix, rest)) => text.strip_prefix(prefix).is_some_and(|after| {
            let mut ends = after.char_indices().map(|(at, _)| at).chain([after.len()]);
            ends.any(|at| matches(rest, &after[at..]))
        }),
    }
}

fn yaml(nodes: &[(String, String, Vec<usize>)], all: &mut Vec<Model>) -> Vec<String> {
    let mut seen = Vec::new();
    let mut items = Vec::new();
    for (key, value, _) in nodes {
        let composite = if value.is_empty() {
            key.clone()
        } else {
            format!("{key}_{value}")
        };
        if seen.contains(&composite) {
            continue;
        }
        seen.push(composite.clone());
        let written = if value.is_empty() {
            String::new()
        } else {
            format!(", value: '{value}'")
        };
        items.push(format!("key: '{key}'{written}"));
        all.push(Model {
            key: key.clone(),
            value: value.clone(),
            composite,
            children: Vec::new(),
        });
    }
    items
}

type Descriptors = Vec<(String, String, Vec<usize>)>;

fn descriptors(most: usize) -> impl Strategy<Value = Descriptors> {
    let descriptor = (
        "[ab_]{1,3}\\*?",
        "[ab*_é]{0,4}",
        prop::collection::vec(0_usize..9, 0..1),
    );
    prop::collection::vec(descriptor, 0..most)
}

fn entries() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec(("[ab_]{0,3}", "[ab*_é]{0,5}"), 0..4)
}

/// Two levels: the second one below every descriptor of the first.
fn build(evaluation: &str, first: &Descriptors, second: &Descriptors) -> (RuleSet, Vec<Model>) {
    let (mut roots, mut leaves) = (Vec::new(), Vec::new());
    let below: Vec<_> = yaml(second, &mut leaves)
        .iter()
        .map(|item| format!("{{ {item} }}"))
        .collect();
    let below = format!("descriptors: [ {} ]", below.join(", "));
    let items = yaml(first, &mut roots);
    let text: String = items
        .iter()
        .map(|item| format!("  - {{ {item}, {below} }}\n"))
        .collect();
    for root in &mut roots {
        root.children.clone_from(&leaves);
    }
    let text = format!("domain: d\nevaluation: {evaluation}\ndescriptors:\n{text}");
    let loaded = load(
        &[Source {
            name: "f".to_owned(),
            text,
        }],
        &Options::default(),
    );
    (loaded.expect("generated rules are good").rules, roots)
}

fn check(evaluation: &str, rules: &RuleSet, roots: &[Model], asked: &[(String, String)]) {
    let entries: Vec<_> = asked
        .iter()
        .map(|(key, value)| Entry { key, value })
        .collect();
    let domain = rules.domain("d").expect("it is there");
    let found = domain.walk(&entries);
    let visits: Vec<_> = found
        .iter()
        .map(|visit| (visit.node.pattern(), visit.how))
        .collect();
    let expected = walk(evaluation, roots, asked);
    assert_eq!(visits, expected, "{evaluation}: {asked:?}");
    let complete = !asked.is_empty() && expected.len() == asked.len();
    assert_eq!(found.is_complete(), complete);
    assert_eq!(found.leaf().is_some(), complete);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn few_descriptors_match_as_in_the_model(
        first in descriptors(7), second in descriptors(4), asked in prop::collection::vec(entries(), 1..20),
    ) {
        for evaluation in ["leaf", "path"] {
            let (rules, roots) = build(evaluation, &first, &second);
            for asked in &asked {
                check(evaluation, &rules, &roots, asked);
            }
        }
    }

    /// Enough descriptors to be hashed instead of scanned.
    #[test]
    fn many_descriptors_match_as_in_the_model(
        first in descriptors(60), second in descriptors(30), asked in prop::collection::vec(entries(), 1..20),
    ) {
        for evaluation in ["leaf", "path"] {
            let (rules, roots) = build(evaluation, &first, &second);
            for asked in &asked {
                check(evaluation, &rules, &roots, asked);
            }
        }
    }
}

fn rules(descriptors: &str) -> RuleSet {
    let text = format!("domain: d\ndescriptors:\n{descriptors}");
    load(
        &[Source {
            name: "f".to_owned(),
            text,
        }],
        &Options::default(),
    )
    .expect("good rules")
    .rules
}

fn first(rules: &RuleSet, key: &str, value: &str) -> Option<String> {
    let walk = rules.domain("d")?.walk(&[Entry { key, value }]);
    walk.first().map(|visit| visit.node.pattern().to_owned())
}

#[test]
fn the_first_pattern_of_the_file_wins_not_the_longest() {
    let rules = rules(
        "  - { key: path, value: /a* }\n  - { key: path, value: /a/b* }\n  - { key: path, value: /a/b/c }\n",
    );
    assert_eq!(first(&rules, "path", "/a/b/x").as_deref(), Some("path_/a*"));
    assert_eq!(
        first(&rules, "path", "/a/b/c").as_deref(),
        Some("path_/a/b/c")
    );
    assert_eq!(first(&rules, "path", "/b"), None);
}

#[test]
fn stars_stand_anywhere_and_for_nothing_as_well() {
    let rules = rules("  - { key: p, value: 'a*b*c' }\n  - { key: 'x*y', value: z }\n");
    for value in ["abc", "aXbYc", "abbc", "abcbc", "a*b*c"] {
        assert_eq!(
            first(&rules, "p", value).as_deref(),
            Some("p_a*b*c"),
            "{value}"
        );
    }
    for value in ["ac", "ab", "bc", "acb", "", "xabc", "abcx"] {
        assert_eq!(first(&rules, "p", value), None, "{value}");
    }
    assert_eq!(first(&rules, "xy", "z").as_deref(), Some("x*y_z"));
    assert_eq!(first(&rules, "x_y", "z").as_deref(), Some("x*y_z"));
    // Prefix and suffix may not share characters.
    let rules = self::rules("  - { key: p, value: 'ab*ba' }\n");
    assert_eq!(first(&rules, "p", "aba"), None);
    assert_eq!(first(&rules, "p", "abba").as_deref(), Some("p_ab*ba"));
}

#[test]
fn a_key_and_a_value_that_join_to_another_key_find_it_as_in_envoyproxy_ratelimit_and_not_by_paths()
{
    let descriptors = "  - { key: user }\n  - { key: user_agent }\n  - { key: ip, value: a_b }\n  - { key: ip_a, value: c }\n\
                       \x20 - { key: t, value: '*' }\n  - { key: t_x }\n";
    let found = |evaluation: &str, key: &str, value: &str| {
        let text = format!("domain: d\nevaluation: {evaluation}\ndescriptors:\n{descriptors}");
        let source = Source {
            name: "f".to_owned(),
            text,
        };
        let rules = load(&[source], &Options::default())
            .expect("good rules")
            .rules;
        first(&rules, key, value)
    };
    for (key, value, joined, apart) in [
        ("user", "agent", Some("user_agent"), Some("user")),
        ("user", "bob", Some("user"), Some("user")),
        ("user_agent", "curl", Some("user_agent"), Some("user_agent")),
        ("ip", "a_b", Some("ip_a_b"), Some("ip_a_b")),
        ("ip_a", "b", Some("ip_a_b"), None),
        ("ip_a_b", "z", Some("ip_a_b"), None),
        ("ip", "a_c", Some("ip_a_c"), None),
        ("t_x", "y", Some("t_*"), Some("t_x")),
        ("t", "x_y", Some("t_*"), Some("t_*")),
    ] {
        assert_eq!(
            found("leaf", key, value).as_deref(),
            joined,
            "{key}={value}"
        );
        assert_eq!(found("path", key, value).as_deref(), apart, "{key}={value}");
    }
}

#[test]
fn there_is_no_way_back_and_depth_must_match() {
    let rules = rules(
        "  - { key: a, value: x, descriptors: [ { key: b, value: y } ] }\n\
         \x20 - { key: a, descriptors: [ { key: b, value: z } ] }\n",
    );
    let domain = rules.domain("d").expect("it is there");
    let entry = |key, value| Entry { key, value };
    // `a_x` is chosen; there is no way back to `a`, though only that has a `b_z` below it.
    let walk = domain.walk(&[entry("a", "x"), entry("b", "z")]);
    assert_eq!((walk.len(), walk.is_complete()), (1, false));
    let walk = domain.walk(&[entry("a", "x"), entry("b", "y")]);
    assert_eq!((walk.len(), walk.is_complete()), (2, true));
    let walk = domain.walk(&[entry("a", "x"), entry("b", "y"), entry("c", "")]);
    assert_eq!((walk.len(), walk.is_complete()), (2, false));
    assert!(domain.walk(&[]).leaf().is_none());
}

#[test]
fn long_patterns_and_long_values_match() {
    let long = "v".repeat(300);
    let short: String = (0..20)
        .map(|number| format!("  - {{ key: k, value: v{number} }}\n"))
        .collect();
    let rules = rules(&format!("{short}  - {{ key: k, value: {long} }}\n"));
    assert_eq!(first(&rules, "k", &long), Some(format!("k_{long}")));
    assert_eq!(first(&rules, "k", "v7").as_deref(), Some("k_v7"));
    assert_eq!(first(&rules, "k", &"v".repeat(100_000)), None);
}

#[test]
fn walks_deeper_than_their_inline_room_are_whole() {
    let mut nested = String::new();
    for level in (0..12).rev() {
        let below = if nested.is_empty() {
            String::new()
        } else {
            format!(", descriptors: [ {nested} ]")
        };
        nested = format!("{{ key: k{level}{below} }}");
    }
    let rules = rules(&format!("  - {nested}\n"));
    let keys: Vec<_> = (0..12).map(|level| format!("k{level}")).collect();
    let entries: Vec<_> = keys.iter().map(|key| Entry { key, value: "v" }).collect();
    let walk = rules.domain("d").expect("it is there").walk(&entries);
    assert_eq!(walk.len(), 12);
    assert_eq!(
        walk.leaf()
            .map(|leaf| leaf.node.pattern().to_owned())
            .as_deref(),
        Some("k11")
    );
}

/// With few siblings they are compared, with many they are hashed.
#[test]
fn each_rule_is_found_by_its_id_with_its_path() {
    let values: String = (0..100)
        .map(|value| {
            format!(
                "  - key: tenant\n    value: t{value}\n    rate_limit: {{ unit: hour, requests_per_unit: 1 }}\n    descriptors:\n      \
                 - key: user\n        rate_limit: {{ unit: hour, requests_per_unit: 1 }}\n"
            )
        })
        .collect();
    let text = format!("domain: d\ndescriptors:\n{values}");
    let source = Source {
        name: "d.yaml".to_owned(),
        text,
    };
    let rules = load(&[source], &Options::default())
        .expect("they are good")
        .rules;
    assert_eq!(rules.rules().len(), 200);
    for rule in rules.rules() {
        let (domain, path) = rules.path_of(&rule.id).expect("it is there");
        assert_eq!(domain.name(), "d");
        let patterns: Vec<_> = path.iter().map(|node| node.pattern()).collect();
        let expected: Vec<_> = rule.path.iter().map(|part| &**part).collect();
        assert_eq!(patterns, expected, "{}", rule.id);
    }
    assert!(rules.path_of("d.tenant").is_none());
}
