use std::borrow::Cow;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::PathForm::{self, Endpoint, Path, Segment};
use super::{PathFolding, PathKeys};
use crate::{Entry, Matched, Options, RuleSet, Source, load};

const BOTH: PathFolding = PathFolding {
    ignores_case: true,
    ignores_trailing_slash: true,
};

#[test]
fn spellings_that_lax_services_serve_alike_are_one() {
    for (form, sent, counted) in [
        (Path, "/orders/export", "/orders/export"),
        (Path, "/Orders/EXPORT/", "/orders/export"),
        (Path, "/orders//", "/orders"),
        (Path, "/", "/"),
        (Path, "", ""),
        (Path, "*", "*"),
        (Endpoint, "POST /Orders/Export/", "POST /orders/export"),
        (Endpoint, "POST /orders/", "POST /orders"),
        (Endpoint, "GET /", "GET /"),
        (Segment, "Acme", "acme"),
        (Path, "/CAFÉ/STRASSE", "/café/strasse"),
        (
            Path,
            "/stra\u{1e9e}e/straße/\u{212a}/\u{17f}",
            "/strasse/strasse/k/s",
        ),
    ] {
        assert_eq!(BOTH.fold(form, sent), counted, "{sent}");
        assert_eq!(PathFolding::NONE.fold(form, sent), sent);
    }
    let is_borrowed = |form, text| matches!(BOTH.fold(form, text), Cow::Borrowed(_));
    assert!(is_borrowed(Path, "/orders/7/") && is_borrowed(Endpoint, "POST /orders/7/"));
}

#[test]
fn each_difference_can_be_kept() {
    let (case, slash) = (
        PathFolding {
            ignores_trailing_slash: false,
            ..BOTH
        },
        PathFolding {
            ignores_case: false,
            ..BOTH
        },
    );
    assert_eq!(case.fold(Path, "/Orders/"), "/orders/");
    assert_eq!(slash.fold(Path, "/Orders/"), "/Orders");
    assert!(case.is_same("A", "a") && !slash.is_same("A", "a"));
}

proptest! {
    #[test]
    fn folding_twice_changes_nothing(path in "/[a-zA-ZéÉßſİıǅΣς/ ]{0,20}") {
        for form in [Path, Endpoint, Segment] {
            let once = BOTH.fold(form, &path).into_owned();
            prop_assert_eq!(BOTH.fold(form, &once).into_owned(), once);
        }
    }
}

/// Rules of a domain `d`: for each value of `key` a limit, in that order.
fn rules(key: &str, values: &[&str], form: PathForm) -> RuleSet {
    let rule = |value: &&str| {
        format!(
            "- {{ key: {key}, value: '{value}', rate_limit: {{ unit: hour, requests_per_unit: 3 }} }}\n"
        )
    };
    let all: String = values.iter().map(rule).collect();
    let text = format!("domain: d\ndescriptors:\n{all}");
    let name = "d.yaml".to_owned();
    let mut options = Options::default();
    let forms = BTreeSet::from([form]);
    options.path_keys = PathKeys::from([("k".into(), forms.clone()), ("path".into(), forms)]);
    let loaded = load(&[Source { name, text }], &options);
    loaded.expect("good rules").rules
}

/// The value of the node that an entry finds.
fn found<'a>(rules: &'a RuleSet, key: &str, value: &str) -> Option<(&'a str, Matched)> {
    let domain = rules.domain("d").expect("the domain");
    let leaf = domain.walk(&[Entry { key, value }]).leaf()?;
    Some((leaf.node.value().unwrap_or_default(), leaf.how))
}

#[test]
fn rules_are_found_under_the_folded_value_and_as_they_are_written() {
    for (form, written, asked) in [
        (Path, "/Orders/Export", "/orders/export"),
        (Path, "/orders/export/", "/orders/export"),
        (Endpoint, "POST /Orders/", "POST /orders"),
        (Segment, "Acme", "acme"),
    ] {
        let rules = rules("k", &[written], form);
        for value in [asked, written] {
            let wanted = Some((written, Matched::Exact));
            assert_eq!(found(&rules, "k", value), wanted, "{value}");
        }
        let others = rules_of_another_key(written);
        assert_eq!(found(&others, "other", asked), None, "{asked}");
    }
}

fn rules_of_another_key(value: &str) -> RuleSet {
    rules("other", &[value], Path)
}

#[test]
fn wildcards_match_folded_values() {
    for (form, written, asked) in [
        (Path, "/Admin/*", "/admin/x"),
        (Path, "/Admin/*/Keys/", "/admin/x/keys"),
        (Path, "*/Export", "/orders/export"),
        // `/admin/` without its slash.
        (Path, "/admin/*", "/admin"),
        (Path, "/a/*/b/*", "/a/x/b"),
        (Endpoint, "POST /Admin/*", "POST /admin"),
        (Endpoint, "* /Admin/*", "PUT /admin/x"),
        (Endpoint, "POST *Export", "POST /orders/export"),
        (Segment, "Team-*", "team-a"),
    ] {
        let rules = rules("k", &[written], form);
        let wanted = Some((written, Matched::Wildcard));
        assert_eq!(found(&rules, "k", asked), wanted, "{written} {asked}");
    }
    let rules = rules("k", &["/admin/*"], Path);
    for other in ["/adm", "/admins", "/administration", "/"] {
        assert_eq!(found(&rules, "k", other), None, "{other}");
    }
    let root = self::rules("k", &["/*"], Path);
    assert_eq!(found(&root, "k", "/"), Some(("/*", Matched::Wildcard)));
    assert_eq!(found(&root, "k", ""), None);
}

#[test]
fn a_rule_that_is_written_so_goes_first_and_patterns_keep_their_order() {
    let rules = rules(
        "k",
        &["/Orders", "/orders", "/A*", "/a/*", "/Q/*", "/q"],
        Path,
    );
    assert_eq!(
        found(&rules, "k", "/orders"),
        Some(("/orders", Matched::Exact))
    );
    assert_eq!(found(&rules, "k", "/a/x"), Some(("/A*", Matched::Wildcard)));
    assert_eq!(found(&rules, "k", "/q"), Some(("/q", Matched::Exact)));
}

#[test]
fn many_rules_and_long_ones_are_found_too() {
    let values: Vec<String> = (0..50).map(|at| format!("/Orders/{at}")).collect();
    let mut values: Vec<&str> = values.iter().map(String::as_str).collect();
    let long = format!("/Long/{}", "x".repeat(300));
    values.push(&long);
    let rules = rules("k", &values, Path);
    assert_eq!(
        found(&rules, "k", "/orders/37"),
        Some(("/Orders/37", Matched::Exact))
    );
    let asked = long.to_lowercase();
    assert_eq!(found(&rules, "k", &asked), Some((&*long, Matched::Exact)));
}

#[test]
fn a_key_with_an_asterisk_folds_what_its_value_says() {
    let text = "domain: d\ndescriptors: [ { key: p*h, value: /Orders, rate_limit: { unit: hour, requests_per_unit: 3 } } ]";
    let (name, text) = ("d.yaml".to_owned(), text.to_owned());
    let loaded = load(&[Source { name, text }], &Options::default());
    let rules = loaded.expect("good rules").rules;
    assert!(found(&rules, "path", "/orders").is_some());
}

/// A database may have as many overrides of paths as there are paths in rules, and each load looks up all of them.
#[cfg(feature = "yaml")]
#[test]
fn overrides_are_not_compared_with_the_rules_of_all_other_paths() {
    const MANY: u64 = 200;
    let mut text = "domain: d\nevaluation: path\ntenant: customer\ndescriptors:\n- key: customer\n  descriptors:\n".to_owned();
    for path in 0..MANY {
        text += &format!(
            "  - {{ key: endpoint, value: GET /Rule/{path}/, rate_limit: {{ unit: hour, limit: 2 }} }}\n"
        );
    }
    text += "tenants:\n";
    for path in 0..MANY {
        let of =
            |path: &str| format!("{{ descriptor: 'endpoint:GET {path}', unit: hour, limit: 3 }}");
        let (ruled, other) = (of(&format!("/rule/{path}")), of(&format!("/Other/{path}")));
        text += &format!("- {{ tenant: 't{path}', overrides: [{ruled}, {other}] }}\n");
    }
    let source = crate::Source {
        name: "f.yaml".to_owned(),
        text,
    };
    super::FOLDED.set(0);
    let loaded = crate::load(&[source], &crate::Options::default());
    let rules = loaded.expect("it is right").rules;
    assert!(super::FOLDED.get() < 20 * MANY, "{}", super::FOLDED.get());
    // Those that have a rule are in its place.
    let ids = rules.rules().iter().map(|rule| &*rule.id);
    let ruled = ids.filter(|id| id.contains("/Rule/") && id.ends_with("@custom"));
    assert_eq!(ruled.count() as u64, MANY);
}
