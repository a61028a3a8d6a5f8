//! `shed:` as files have it.

use ratekeeper_rules::{Options, PathFolding, ShedMode, ShedRequest, ShedRules, Source, load};

fn read(text: &str) -> Result<ShedRules, Vec<String>> {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: text.to_owned(),
    };
    match load(&[source], &Options::default()) {
        Ok(loaded) => Ok((**loaded.rules.shed().expect("the file has it")).clone()),
        Err(refused) => Err(refused.errors().iter().map(|it| it.brief()).collect()),
    }
}

/// A request that a trusted proxy sent.
const fn asked<'a>(method: &'a str, path: &'a str, plan: Option<&'a str>) -> ShedRequest<'a> {
    ShedRequest {
        method,
        path,
        plan,
        is_from_trusted: true,
    }
}

const WHOLE: &str = "
domain: shop
shed:
  priorities: [test, read, write, critical]
  classify:
    - { class: critical, methods: [post], pathPattern: /v1/charges/** }
    - { class: test, header: X-Test-Mode }
    - { class: critical, header: x-tier, value: gold }
  fleet: { capacity: 1000, reserve: 25%, mode: shadow }
  workers: { good: 60%, bad: 75% }
  adaptive: { min: 2, max: 400, mode: off }
";

#[test]
fn a_whole_section_is_read() {
    let shed = read(WHOLE).expect("it is right");
    let fleet = shed.fleet.expect("it is there");
    assert_eq!(
        (fleet.capacity, fleet.reserve_percent, fleet.mode),
        (1_000, 25, ShedMode::Shadow)
    );
    let workers = shed.workers.expect("it is there");
    assert_eq!(
        (workers.good_percent, workers.bad_percent, workers.mode),
        (60, 75, ShedMode::On)
    );
    let adaptive = shed.adaptive.expect("it is there");
    assert_eq!(
        (adaptive.min, adaptive.max, adaptive.mode),
        (2, 400, ShedMode::Off)
    );
    assert!(shed.is_in_use());
}

#[test]
fn the_first_classifier_that_matches_decides_else_the_method() {
    let shed = read(WHOLE).expect("it is right");
    let class = |method, path, headers: &[(&str, &'static str)]| {
        let find = |name: &str| {
            let found = headers.iter().find(|(header, _)| *header == name);
            found.map(|(_, value)| value.as_bytes())
        };
        let found = shed.class_of(asked(method, path, None), find);
        (shed.name(found.class.into()).to_owned(), found.by)
    };
    let critical = || "critical".to_owned();
    assert_eq!(
        class("POST", "/v1/charges/7", &[("x-test-mode", "1")]),
        (critical(), Some(0))
    );
    assert_eq!(class("GET", "/v1/charges", &[]), ("read".to_owned(), None));
    assert_eq!(
        class("GET", "/", &[("x-test-mode", "")]),
        ("test".to_owned(), Some(1))
    );
    assert_eq!(
        class("PUT", "/", &[("x-tier", "gold")]),
        (critical(), Some(2))
    );
    assert_eq!(
        class("PUT", "/", &[("x-tier", "tin")]),
        ("write".to_owned(), None)
    );
}

#[test]
fn the_headers_of_strangers_lower_a_class_and_never_raise_it() {
    let shed = read(WHOLE).expect("it is right");
    let stranger = ShedRequest {
        is_from_trusted: false,
        ..asked("PUT", "/", None)
    };
    let of = |request, header: &str| {
        let value: &[u8] = b"gold";
        let found = shed.class_of(request, |name| (name == header).then_some(value));
        let name = shed.name(found.class.into()).to_owned();
        (name, found.reason("PUT"))
    };
    let said = |class: &str, reason: &str| (class.to_owned(), reason.to_owned());
    let trusted = asked("PUT", "/", None);
    assert_eq!(
        of(trusted, "x-tier"),
        said("critical", "item 3 of `classify`")
    );
    assert_eq!(
        of(stranger, "x-tier"),
        said(
            "write",
            "its method, PUT: no trusted proxy sent its headers, so they do not raise it"
        )
    );
    assert_eq!(
        of(stranger, "x-test-mode"),
        said("test", "item 2 of `classify`")
    );
    assert_eq!(of(stranger, "x-other"), said("write", "its method, PUT"));
}

#[test]
fn a_plan_gives_a_class() {
    let shed = read("shed: { workers: {}, classify: [ { class: critical, plan: pro } ] }");
    let shed = shed.expect("it is right");
    assert!(shed.goes_by_plan());
    let class = |plan| {
        let found = shed.class_of(asked("GET", "/", plan), |_| None);
        (found.class, found.by)
    };
    assert_eq!(class(Some("pro")), (3, Some(0)));
    assert_eq!(class(Some("free")), (1, None));
    assert_eq!(class(None), (1, None));
}

#[test]
fn short_sections_have_safe_defaults() {
    let shed = read("shed: { workers: {}, adaptive: {}, mode: shadow }").expect("it is right");
    let (workers, adaptive) = (shed.workers.expect("on"), shed.adaptive.expect("on"));
    assert_eq!(
        (workers.good_percent, workers.bad_percent, workers.mode),
        (70, 80, ShedMode::Shadow)
    );
    assert_eq!(
        (adaptive.min, adaptive.max, adaptive.mode),
        (1, 1_000, ShedMode::Shadow)
    );
    assert_eq!(shed.fleet, None);
}

#[test]
fn files_without_it_shed_nothing() {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: "domain: shop\n".to_owned(),
    };
    let loaded = load(&[source], &Options::default()).expect("it is right");
    assert!(loaded.rules.shed().is_none());
}

/// Refused text, and the beginning of the first complaint.
const REFUSED: [(&str, &str); 14] = [
    (
        "shed: { workers: { good: 80%, bad: 70% } }",
        "1:36: utilisation cannot be good up to 80% and bad from 70%",
    ),
    (
        "shed: { workers: { good: 85% } }",
        "1:20: utilisation cannot be good up to 85%",
    ),
    (
        "shed: { workers: { bad: 101% } }",
        "1:25: `bad` cannot be '101%'",
    ),
    (
        "shed: { workers: { bad: 80 } }",
        "1:25: `bad` cannot be '80'",
    ),
    (
        "shed: { fleet: { reserve: 20% } }",
        "1:18: `fleet` needs a `capacity`",
    ),
    (
        "shed: { fleet: { capacity: 0 } }",
        "1:28: `capacity` is at least 1",
    ),
    (
        "shed: { fleet: { capacity: 9, reserve: 100% } }",
        "1:40: a `reserve` of 100%",
    ),
    (
        "shed: { adaptive: { min: 9, max: 3 } }",
        "1:34: the smallest limit, 9, is larger than the largest, 3",
    ),
    (
        "shed: { adaptive: { mode: maybe } }",
        "1:27: `mode` cannot be 'maybe'",
    ),
    (
        "shed: { workers: {}, classify: [ { class: wirte, header: x } ] }",
        "1:43: there is no priority 'wirte'",
    ),
    (
        "shed: { workers: {}, classify: [ { class: read } ] }",
        "1:36: this matches every request",
    ),
    (
        "shed: { workers: {}, priorities: [a, b] }",
        "1:22: set `default`, or define the priorities",
    ),
    (
        "shed: { workers: {}, priorities: [a, a], default: a }",
        "1:38: the priority 'a' is there twice",
    ),
    (
        "shed: { wrokers: {} }",
        "1:9: unknown key 'wrokers' in shed",
    ),
];

#[test]
fn nonsense_is_refused_with_its_place() {
    let mut wrong = Vec::new();
    for (text, complaint) in REFUSED {
        let errors = read(text).expect_err(text);
        if !errors[0].starts_with(&format!("rules.yaml:{complaint}")) {
            wrong.push(format!("{text}\n{errors:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_one_file_may_have_it() {
    let source = |name: &str| Source {
        name: name.to_owned(),
        text: "shed: { workers: {} }\n".to_owned(),
    };
    let refused = load(&[source("a.yaml"), source("b.yaml")], &Options::default());
    let refused = refused.expect_err("it is in both").to_string();
    assert!(
        refused.contains("b.yaml:1:1: `shed` is in two files"),
        "{refused}"
    );
    assert!(refused.contains("a.yaml:1:1 already"), "{refused}");
}

/// As service levels compare them.
#[test]
fn classifiers_compare_paths_as_all_rules_do() {
    let class = |options: &Options| {
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: WHOLE.to_owned(),
        };
        let loaded = load(&[source], options).unwrap_or_else(|refused| panic!("{refused}"));
        let shed = loaded.rules.shed().expect("the file has it").clone();
        let charge = asked("POST", "/V1/Charges/7", None);
        shed.class_of(charge, |_| None).by
    };
    let mut options = Options::default();
    assert_eq!(class(&options), Some(0));
    options.path_folding = PathFolding::NONE;
    assert_eq!(class(&options), None);
}
