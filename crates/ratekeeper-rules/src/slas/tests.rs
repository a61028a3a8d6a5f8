use proptest::prelude::*;

use super::{LevelStatus, PathPattern, ServiceLevel, ServiceLevels};
use crate::{PathFolding, Position};

fn level(id: &str, methods: &[&str], pattern: &str) -> ServiceLevel {
    ServiceLevel {
        id: id.into(),
        enabled: true,
        written_enabled: true,
        methods: methods.iter().map(|method| (*method).into()).collect(),
        pattern: PathPattern::parse(pattern).expect(pattern),
        rules: Vec::new(),
        by_plan: Vec::new(),
        place: Position {
            file: "slas.yaml".into(),
            line: 1,
            column: 1,
        },
    }
}

fn levels(patterns: &[(&[&str], &str)]) -> ServiceLevels {
    let level = |(methods, pattern): &(&[&str], &str)| level(pattern, methods, pattern);
    ServiceLevels::new(patterns.iter().map(level).collect(), PathFolding::default())
}

/// The pattern of the service level that applies, `-` if none does.
fn holds<'a>(levels: &'a ServiceLevels, method: &str, path: &str) -> &'a str {
    levels.find(method, path).map_or("-", |found| {
        let index = levels
            .as_slice()
            .iter()
            .position(|level| level == found.level);
        &levels.as_slice()[index.expect("one of them")].id
    })
}

#[test]
fn the_most_specific_pattern_holds() {
    let all = levels(&[
        (&[], "/**"),
        (&[], "/product/**"),
        (&[], "/product/*"),
        (&[], "/product/7"),
        (&[], "/product/{id}/reviews"),
        (&[], "/*/7/reviews"),
    ]);
    for (path, wanted) in [
        ("/", "/**"),
        ("/users", "/**"),
        ("/product", "/product/**"),
        ("/product/", "/product/**"),
        ("/product/8", "/product/*"),
        ("/product/8/", "/product/*"),
        ("/product/7", "/product/7"),
        ("/product;v=1/7;a=b", "/product/7"),
        ("/product/7/reviews", "/product/{id}/reviews"),
        ("/user/7/reviews", "/*/7/reviews"),
        ("/product/7/photos", "/product/**"),
        ("/productX", "/**"),
    ] {
        assert_eq!(holds(&all, "GET", path), wanted, "{path}");
    }
}

#[test]
fn another_method_is_another_service_level() {
    let all = levels(&[
        (&["GET"], "/product/7"),
        (&["PUT", "POST"], "/product/*"),
        (&[], "/product/{id}"),
    ]);
    assert_eq!(holds(&all, "GET", "/product/7"), "/product/7");
    assert_eq!(holds(&all, "PUT", "/product/7"), "/product/*");
    assert_eq!(holds(&all, "DELETE", "/product/7"), "/product/{id}");
    assert_eq!(holds(&all, "get", "/product/7"), "/product/7");
    let counted = |method| all.find(method, "/product/7").map(|found| found.method);
    assert_eq!(counted("DELETE"), Some("DELETE"));
    assert_eq!(counted("Get"), Some("GET"));
    assert_eq!(counted("delete"), Some("DELETE"));
    assert_eq!(counted("BREW"), Some("other"));
}

#[test]
fn head_counts_as_get_unless_it_is_listed() {
    let all = levels(&[
        (&["GET"], "/product/*"),
        (&["GET"], "/user/*"),
        (&["HEAD"], "/user/*"),
        (&["HEAD"], "/**"),
        (&[], "/order/*"),
    ]);
    let counted = |path| {
        let found = all.find("HEAD", path)?;
        let statuses = all.level_statuses("HEAD", path);
        let mut holding = statuses.iter().filter(|(_, it)| *it == LevelStatus::Holds);
        assert_eq!(
            holding.next().map(|(level, _)| &level.id),
            Some(&found.level.id)
        );
        assert!(holding.next().is_none());
        Some((found.level.pattern.as_str(), found.method))
    };
    assert_eq!(counted("/product/7"), Some(("/product/*", "GET")));
    assert_eq!(counted("/user/7"), Some(("/user/*", "HEAD")));
    assert_eq!(counted("/order/7"), Some(("/order/*", "GET")));
    assert_eq!(counted("/else"), Some(("/**", "HEAD")));
}

#[test]
fn the_tenant_is_a_variable_of_the_path() {
    let all = levels(&[
        (&[], "/v1/organizations/{tenant}/product/*"),
        (&[], "/v1/organizations/*/users"),
    ]);
    let tenant = |path| all.find("GET", path).and_then(|found| found.tenant);
    assert_eq!(tenant("/v1/organizations/A/product/7"), Some("A"));
    assert_eq!(tenant("/v1;x/organizations/A;y=1/product/7/"), Some("A"));
    assert_eq!(tenant("/v1/organizations/A/users"), None);
    assert_eq!(holds(&all, "GET", "/v1/organizations/product/7"), "-");
}

#[test]
fn a_disabled_service_level_matches_nothing() {
    let mut off = level("off", &[], "/product/7");
    off.enabled = false;
    let all = ServiceLevels::new(
        vec![off, level("on", &[], "/product/*")],
        PathFolding::default(),
    );
    assert_eq!(holds(&all, "GET", "/product/7"), "on");
    let statuses: Vec<_> = all
        .level_statuses("GET", "/product/7")
        .into_iter()
        .map(|(level, status)| (&*level.id, status))
        .collect();
    assert_eq!(
        statuses,
        [("off", LevelStatus::Disabled), ("on", LevelStatus::Holds)]
    );
}

fn segment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "*", "{x}", "{tenant}"])
}

fn pattern() -> impl Strategy<Value = String> {
    let segments = prop::collection::vec(segment(), 0..5);
    (segments, any::<bool>()).prop_map(|(segments, has_rest)| {
        let mut seen = Vec::new();
        let mut text = String::new();
        for segment in segments {
            let is_new = !segment.starts_with('{') || !seen.contains(&segment);
            seen.push(segment);
            text.push('/');
            text.push_str(if is_new { segment } else { "*" });
        }
        if has_rest {
            text.push_str("/**");
        }
        if text.is_empty() {
            "/".to_owned()
        } else {
            text
        }
    })
}

proptest! {
    /// The router finds the same as trying all patterns and comparing those that match, in any
    /// order.
    #[test]
    fn the_router_finds_the_most_specific_of_all(
        patterns in prop::collection::vec((pattern(), prop::sample::select(vec![&[][..], &["GET"], &["PUT"]])), 1..20),
        path in prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "d", ""]), 0..6),
        method in prop::sample::select(vec!["GET", "PUT", "POST"]),
    ) {
        let mut taken = super::conflicts::Taken::new(PathFolding::default());
        let all = patterns.iter().enumerate();
        let all: Vec<_> = all
            .map(|(number, (pattern, methods))| level(&number.to_string(), methods, pattern))
            .filter(|level| taken.take(level).is_none())
            .collect();
        let folding = PathFolding::default();
        let reversed = ServiceLevels::new(all.iter().rev().cloned().collect(), folding);
        let levels = ServiceLevels::new(all, folding);
        let path = format!("/{}", path.join("/"));
        let found = levels.find(method, &path).map(|found| &*found.level.id);
        let scanned = levels.level_statuses(method, &path);
        let scanned = scanned.iter().find(|(_, status)| *status == LevelStatus::Holds);
        prop_assert_eq!(found, scanned.map(|(level, _)| &*level.id));
        prop_assert_eq!(found, reversed.find(method, &path).map(|found| &*found.level.id));
    }
}

#[test]
fn case_is_ignored_unless_services_tell_it_apart() {
    let all = || {
        vec![
            level("product", &[], "/v1/{tenant}/Product/*"),
            level("files", &[], "/FILES/**"),
        ]
    };
    let folded = ServiceLevels::new(all(), PathFolding::default());
    let found = folded.find("GET", "/V1/Acme/product/7").expect("a level");
    assert_eq!((&*found.level.id, found.tenant), ("product", Some("Acme")));
    for path in ["/files/a", "/Files", "/fILES/a/b/"] {
        assert!(folded.find("GET", path).is_some(), "{path}");
        assert_eq!(folded.level_statuses("GET", path).len(), 1, "{path}");
    }
    let exact = ServiceLevels::new(all(), PathFolding::NONE);
    assert!(exact.find("GET", "/files/a").is_none());
    assert!(exact.find("GET", "/FILES/a").is_some());
    assert!(exact.level_statuses("GET", "/files/a").is_empty());
}
