//! The exact text of errors and warnings.

use ratekeeper_rules::{Diagnostic, Options, Source, load};

fn report(text: &str) -> String {
    let sources = [Source {
        name: "rules.yaml".to_owned(),
        text: text.to_owned(),
    }];
    match load(&sources, &Options::default()) {
        Ok(loaded) => loaded
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n\n"),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn a_slip_in_a_key_is_shown_with_the_right_one() {
    let text = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit:\n      unit: minute\n      request_per_unit: 5\n";
    let expected = "\
rules.yaml:6:7: unknown key 'request_per_unit' in a rate_limit
6 |       request_per_unit: 5
  |       ^^^^^^^^^^^^^^^^
  = help: did you mean `requests_per_unit`?";
    assert_eq!(report(text), expected);
}

#[test]
fn all_errors_come_at_once_in_the_order_of_the_lines() {
    let text = "domain: shop\ndescriptors:\n  - key: user\n    value: 1.10\n    rate_limit: { unit: fortnight, requests_per_unit: 5 }\n  - value: x\n";
    let expected = "\
rules.yaml:4:12: `value` cannot be a decimal number
4 |     value: 1.10
  |            ^^^^
  = help: for the text, quote it: `value: \"1.10\"`

rules.yaml:5:25: invalid rate limit unit 'fortnight'
5 |     rate_limit: { unit: fortnight, requests_per_unit: 5 }
  |                         ^^^^^^^^^
  = help: write `unit:` with one of second, minute, hour, day, week, month, year, or `window: 10s`

rules.yaml:6:5: descriptor has empty key
6 |   - value: x
  |     ^^^^^
  = help: write `key: some_name`";
    assert_eq!(report(text), expected);
}

/// Each error or warning on one line: place, message and help.
fn told(text: &str) -> Vec<String> {
    let sources = [Source {
        name: "rules.yaml".to_owned(),
        text: text.to_owned(),
    }];
    let (errors, warnings) = match load(&sources, &Options::default()) {
        Ok(loaded) => (Vec::new(), loaded.warnings),
        Err(all) => (all.errors().to_vec(), all.warnings().to_vec()),
    };
    let line = |it: &Diagnostic| format!("{} | {}", it.brief(), it.help.as_deref().unwrap_or("-"));
    errors.iter().chain(&warnings).map(line).collect()
}

fn of_tiers(tiers: &str) -> Vec<String> {
    told(&format!(
        "domain: d\ntenant: t\nplans: [free, pro]\nslas:\n- id: a\n  match: {{ pathPattern: /a }}\n  tiers:\n{tiers}"
    ))
}

const OCTAL: &str = "YAML takes a number that begins with 0 for an octal one";

#[test]
fn a_period_without_a_unit_is_told_apart_from_one_that_is_too_short() {
    for (period, wanted) in [
        (
            "\"10\"",
            "`period` is not a duration: '10' has no unit | write `period: 10`, without quotes, or `period: 10s`",
        ),
        (
            "10 s",
            "`period` is not a duration: '10 s' is not a whole number with a unit | write `period: 10`, or `period: 500ms`",
        ),
        (
            "0s",
            "`period` is longer than 0 | write `period: 10`, or `period: 500ms`",
        ),
        (
            "[10]",
            "`period` is not a duration: it must be a duration | write `period: 10`, or `period: 500ms`",
        ),
    ] {
        let told = of_tiers(&format!("  - {{ period: {period}, threshold: 5 }}\n"));
        assert_eq!(told, [format!("rules.yaml:8:15: {wanted}")], "{period}");
    }
}

#[test]
fn numbers_that_begin_with_a_zero_are_told_as_what_yaml_makes_of_them() {
    let of_level =
        of_tiers("  - { period: 08, threshold: 09 }\n  - { period: 010, threshold: 0 }\n");
    assert_eq!(
        of_level,
        [
            format!(
                "rules.yaml:8:15: `period` cannot be 08: {OCTAL}, which has no 8 and no 9 | write `period: 8`"
            ),
            format!(
                "rules.yaml:8:30: `threshold` cannot be 09: {OCTAL}, which has no 8 and no 9 | write `threshold: 9`"
            ),
            format!("rules.yaml:9:15: `period` is 8: {OCTAL} | write `period: 10` or `period: 8`"),
        ]
    );
    let limit = |keys: &str| {
        told(&format!(
            "domain: d\ndescriptors:\n- key: a\n  rate_limit: {{ {keys} }}\n"
        ))
    };
    assert_eq!(
        limit("unit: day, limit: 010"),
        [format!(
            "rules.yaml:4:35: `limit` is 8: {OCTAL} | write `limit: 10` or `limit: 8`"
        )]
    );
    assert_eq!(
        limit("unit: day, limit: \"010\""),
        ["rules.yaml:4:35: `limit` must be a number, not text | write `limit: 10`, without quotes"]
    );
    assert_eq!(
        limit("window: 08, limit: 1"),
        [
            "rules.yaml:4:25: `window` is not a duration: '08' has no unit | say the unit: `window: 8s`"
        ]
    );
    for fine in [
        "unit: day, limit: 07",
        "unit: day, limit: 00",
        "unit: day, limit: 0x10",
    ] {
        assert_eq!(limit(fine), [""; 0], "{fine}");
    }
}

#[test]
fn twin_tiers_are_told_once_each_at_the_second_one() {
    let one = "  - { period: 10, threshold: 5 }\n";
    let plan = one.replace("  -", "    -");
    let plans = format!("{one}  plans:\n    pro:\n{plan}{plan}");
    for (tiers, wanted) in [
        (
            format!("{one}{one}"),
            "9:7: the same tier is on line 8 already | leave one of them out",
        ),
        (
            format!("{one}  - {{ period: 10s, threshold: 6 }}\n"),
            "9:7: a tier of the same period is on line 8 | keep the smaller one",
        ),
        (
            plans,
            "12:9: the same tier is on line 11 already | leave one of them out",
        ),
    ] {
        assert_eq!(of_tiers(&tiers), [format!("rules.yaml:{wanted}")]);
    }
}

#[test]
fn broken_yaml_is_shown_where_it_breaks() {
    let text = "domain: shop\ndescriptors:\n- \tkey: a\n";
    let expected = "\
rules.yaml:3:4: error loading config file: a tab cannot indent: use spaces
3 | -  key: a
  |    ^
  = help: use spaces in place of tabs: YAML does not take tabs for indentation";
    assert_eq!(report(text), expected);
}

#[test]
fn warnings_have_the_same_shape() {
    let text = "domain: shop\ndescriptors:\n  - key: user\n    unit: minute\n    rate_limit: { unit: minute, requests_per_unit: 5 }\n";
    let expected = "\
rules.yaml:4:5: warning: `unit` means nothing in a descriptor and is ignored
4 |     unit: minute
  |     ^^^^";
    assert_eq!(report(text), expected);
}

#[test]
fn places_are_right_after_bom_tabs_wide_characters_and_crlf() {
    let text = "\u{feff}domain: shop\r\ndescriptors:\r\n  - {key: \"größe\",\tvalue: 1.5}\r\n";
    let expected = "\
rules.yaml:3:27: `value` cannot be a decimal number
3 |   - {key: \"größe\", value: 1.5}
  |                           ^^^
  = help: for the text, quote it: `value: \"1.5\"`";
    assert_eq!(report(text), expected);
}

#[test]
fn long_lines_are_cut_around_the_place_and_controls_are_not_printed() {
    let text = format!("domain: {} \u{1b}[31m\n", "x".repeat(500));
    let report = report(&text);
    assert!(report.starts_with("rules.yaml:1:510: error loading config file: control characters are not allowed: U+001B\n"), "{report}");
    assert!(
        report
            .lines()
            .all(|line| line.chars().count() < 140 && !line.contains('\u{1b}')),
        "{report}"
    );
}

#[test]
fn errors_of_all_files_are_told() {
    let source = |name: &str, text: &str| Source {
        name: name.to_owned(),
        text: text.to_owned(),
    };
    let sources = [
        source("a.yaml", "domain: [\n"),
        source("b.yaml", "domain: b\n"),
        source("c.yaml", "domain: c\nunits: x\n"),
    ];
    let errors = load(&sources, &Options::default()).expect_err("two files are wrong");
    let places: Vec<_> = errors
        .errors()
        .iter()
        .map(|error| error.place.file.to_string())
        .collect();
    assert_eq!(places, ["a.yaml", "c.yaml"]);
}

/// Logs and health answers reach people who may not read the file.
#[test]
fn briefly_told_no_value_is_quoted() {
    let secret = "sk?live_4eC39HqLyjWDarjtT1zdp7dc";
    let number = "4242424242424242424242424242424242";
    for wrong in [
        format!("  - key: api_key\n    value: {secret}\n    rate_limitt: {{}}\n"),
        format!("  - key: api_key\n    value: {secret} rate_limit: {{}}\n"),
        format!("  - key: api_key\n    value: \"{secret}\n"),
        format!("  - key: api_key\n    value: {secret}\n    share_threshold: true\n"),
        format!("  - key: api_key\n    value: [{secret}]\n"),
        format!("  - key: api_key\n    value: {number}\n"),
        format!("  - key: api_key\n    valeu: {secret}\n"),
        format!("  - key: api_key\n    {secret}:\n"),
        format!("  - {{ key: api_key, {secret} }}\n"),
        format!("  - {{ key: api_key, value: ?{secret} }}\n"),
        format!("  - value:{secret}\n"),
        format!("  - {secret}\n"),
        format!("  - key: api_key\n    value: {secret}\n  - key: api_key\n    value: {secret}\n"),
        format!("  - key: api_key\n    value: !!int {secret}\n"),
        format!("  - key: api_key\n    value: *{secret}\n"),
    ] {
        let sources = [Source {
            name: "rules.yaml".to_owned(),
            text: format!("domain: shop\ndescriptors:\n{wrong}"),
        }];
        let errors = load(&sources, &Options::default()).unwrap_err();
        let report = errors.brief();
        for part in [secret, &secret[..16], number] {
            assert!(!report.contains(part), "{report}\n\n{wrong}");
        }
        for line in report.lines() {
            assert!(line.starts_with("rules.yaml:"), "{report}");
        }
    }
}

/// The message and the help of the only diagnostic.
fn problem(rules: &str) -> String {
    report(&format!("domain: d\ndescriptors:\n{rules}"))
}

#[test]
fn a_number_that_is_too_large_is_told_the_largest() {
    let said = problem("- { key: a, rate_limit: { window: 1m, limit: 99999999999999999999 } }\n");
    assert!(!said.contains("decimal"), "{said}");
    assert!(
        said.contains("write at most `limit: 9007199254740991`"),
        "{said}"
    );
}

#[test]
fn a_rate_as_people_say_it_is_answered_with_the_mapping() {
    for (written, meant) in [
        ("10/s", "{ window: 1s, limit: 10 }"),
        ("100 per minute", "{ window: 1m, limit: 100 }"),
        ("a lot", "{ window: 1s, limit: 10 }"),
    ] {
        let said = problem(&format!("- key: a\n  rate_limit: {written}\n"));
        assert!(said.contains(&format!("help: write `{meant}`")), "{said}");
    }
}

#[test]
fn wrong_indentation_and_tabs_are_named() {
    let limit = "rate_limit: { window: 1m, limit: 9 }";
    for text in [
        format!("  - key: a\n    {limit}\n - key: b\n"),
        format!("  - key: a\n   {limit}\n"),
        format!("  - key: a\n      {limit}\n"),
        format!("  - key: a\n  {limit}\n"),
    ] {
        let said = problem(&text);
        assert!(said.contains("help: check the indentation"), "{said}");
    }
    for text in [
        "\t- key: a\n",
        "- key: a\n\trate_limit: { window: 1m, limit: 9 }\n",
    ] {
        let said = problem(text);
        assert!(said.contains("help: use spaces in place of tabs"), "{said}");
    }
}

#[test]
fn a_regular_expression_gets_a_warning() {
    let rule = |key: &str, value: &str| {
        problem(&format!(
            "- {{ key: {key}, value: '{value}', rate_limit: {{ window: 1m, limit: 9 }} }}\n"
        ))
    };
    let said = rule("path", "^/api/.*$");
    assert!(said.contains("looks like a regular expression"), "{said}");
    assert!(said.contains("write `value: \"/api/*\"`"), "{said}");
    let said = rule("path", r"/v\d+/x");
    assert!(said.contains("with `*` for any characters"), "{said}");
    for fine in ["/api/*", "GET /a.b", "10$ off", "*.example.com"] {
        assert_eq!(rule("path", fine), "", "{fine}");
    }
}

#[test]
fn templates_at_the_top_are_ignored_and_a_second_document_is_not_quietly() {
    let text = "x-common: &c { window: 1m, limit: 9 }\ndomain: d\ndescriptors:\n- key: a\n  rate_limit: *c\n- key: b\n  rate_limit: { <<: *c, limit: 3 }\n";
    assert_eq!(report(text), "");
    let below = problem("- { key: a, x-common: 3 }\n");
    assert!(below.contains("unknown key 'x-common'"), "{below}");
    let two = report("domain: d\n---\ndomain: e\n");
    assert!(two.contains("nothing in it is in force"), "{two}");
}
