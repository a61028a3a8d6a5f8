//! `ratekeeper rules test`.

use crate::support::{repository, run, write};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ratekeeper_testkit::assert_contains;
use ring::hmac;
use std::path::Path;
use tempfile::{TempDir, tempdir};

const RULES: &str = "domain: d\nevaluation: path\ntenant: key\nplans: [free, pro]\ndescriptors:\n- key: key\n  \
                     rate_limit: { window: 1m, limit: 2 }\n  plans: { pro: { window: 1m, limit: 4 } }\n\
                     - { key: quiet, shadow_mode: true, rate_limit: { window: 1m, limit: 1 } }\n\
                     - { key: free, rate_limit: { unlimited: true } }\n";

/// A folder with rules, and a test of the given steps.
fn folder(steps: &str) -> TempDir {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules/a.yaml", RULES);
    let text = format!("rules: a.yaml\ndomain: d\ntests:\n- name: t\n  steps:\n{steps}");
    write(folder.path(), "rules/a.test.yaml", &text);
    folder
}

/// The report as JSON, and the exit code.
fn report(folder: &Path) -> (serde_json::Value, Option<i32>) {
    let said = run(folder, "rules test rules --json");
    assert_eq!(said.err, "");
    let report = serde_json::from_str(&said.out).expect("it prints JSON");
    (report, said.code)
}

/// The mismatches of the first failure of a test with these steps: key, expected, actual.
fn mismatches(steps: &str) -> Vec<[String; 3]> {
    let folder = folder(steps);
    let (report, code) = report(folder.path());
    assert_eq!(
        (report["ok"].as_bool(), code),
        (Some(false), Some(1)),
        "{report}"
    );
    let found = report["tests"][0]["failures"][0]["mismatches"].as_array();
    let found = found.expect("it fails").iter();
    let part = |it: &serde_json::Value, key: &str| it[key].as_str().expect("text").to_owned();
    let parts = found.map(|it| ["what", "expected", "actual"].map(|key| part(it, key)));
    parts.collect()
}

fn passes(steps: &str) {
    let folder = folder(steps);
    let said = run(folder.path(), "rules test rules --name t").succeeded();
    assert_eq!(said, "ok    t\nok: 1 test passed\n");
}

#[test]
fn the_example_passes() {
    let said = run(&repository(), "rules test examples/rules-tests").succeeded();
    assert_contains(&said, "ok    an upgrade keeps the usage\n");
    assert!(said.ends_with("ok: 6 tests passed\n"), "{said}");
    let quiet = run(&repository(), "rules test --quiet examples/rules-tests");
    assert_eq!((quiet.code, quiet.out.as_str()), (Some(0), ""));
    let one = run(
        &repository(),
        "rules test --name upgrade examples/rules-tests",
    )
    .succeeded();
    assert_contains(&one, "ok: 1 test passed");
}

#[test]
fn time_passes_between_steps_and_between_requests_of_one() {
    passes(
        "  - { entries: { key: a }, times: 2, expect: allowed }\n  - { entries: { key: a }, at: 59s, expect: denied }\n  \
            - { entries: { key: a }, at: 1m, expect: { decision: allowed, remaining: 1 } }\n",
    );
    passes("  - { entries: { key: a }, times: 3, every: 30s, expect: allowed }\n");
    let found = mismatches("  - { entries: { key: a }, times: 3, every: 29s, expect: allowed }\n");
    assert_eq!(
        found,
        [["decision", "all 3 allowed", "2 allowed, 1 denied"]]
    );
}

#[test]
fn each_test_has_counters_of_its_own() {
    let folder = folder("  - { entries: { key: a }, times: 2, expect: allowed }\n");
    let path = folder.path().join("rules/a.test.yaml");
    let text = std::fs::read_to_string(&path).expect("it is there");
    let (head, test) = text.split_once("- name").expect("it has a test");
    write(
        folder.path(),
        "rules/a.test.yaml",
        &format!("{head}- name{test}- name{test}"),
    );
    assert_contains(
        &run(folder.path(), "rules test rules").succeeded(),
        "2 tests passed",
    );
}

#[test]
fn what_decided_is_told_with_every_part_that_differs() {
    let folder = folder(
        "  - { entries: { key: a }, times: 2 }\n  - at: 15s\n    entries: { key: a }\n    expect: { decision: allowed, \
         rule: d.other, remaining: 1, retry_after: 3s }\n",
    );
    let said = run(folder.path(), "rules test rules");
    assert_eq!(
        (said.code, said.err.as_str()),
        (Some(1), ""),
        "{}",
        said.out
    );
    assert_eq!(
        said.out,
        "FAIL  t  rules/a.test.yaml:4:3\n  rules/a.test.yaml:7:5: at 15s\n    \
         decision     expected allowed  was denied\n    rule         expected d.other  was d.key\n    \
         remaining    expected 1        was 0\n    retry_after  expected 3s       was 45s\n    \
         decided by: d.key: 2 per 1m, sliding_window, exact (rules/a.yaml:7:17)\n\
         no test reaches 2 of 3 rules: d.key@pro, d.quiet\n\
         FAILED: 0 tests passed, 1 failed\n"
    );
}

#[test]
fn plans_shadow_and_unlimited_rules_are_expected_by_their_ids() {
    passes(
        "  - { entries: { key: a }, plan: pro, times: 5, expect: { allowed: 4, denied: 1, rule: d.key@pro, limit: 4 } }\n  \
         - { entries: { quiet: a }, times: 2, expect: { decision: allowed, shadow_denied: d.quiet } }\n  \
         - { entries: { free: a }, expect: { decision: allowed, rule: d.free } }\n  \
         - { entries: { other: a }, expect: { decision: allowed, rule: ~ } }\n",
    );
    let found = mismatches("  - { entries: { key: a }, plan: por, expect: allowed }\n");
    assert_eq!(found[0][0], "step");
    assert_contains(&found[0][2], "no plan 'por'; its plans are free, pro");
    let found = mismatches("  - { entries: { kye: a }, expect: { rule: d.key } }\n");
    assert_eq!(found, [["rule", "d.key", "none"]]);
}

#[test]
fn hits_are_spent_looked_at_and_given_back() {
    passes(
        "  - { entries: { key: a }, hits: 3, expect: { decision: denied, retry_after: never } }\n  \
         - { entries: { key: a }, hits: 2, expect: { decision: allowed, remaining: 0 } }\n  \
         - { entries: { key: a }, hits: -1, expect: allowed }\n  \
         - { entries: key=a, hits: 0, expect: { decision: allowed, remaining: 1 } }\n  \
         - { descriptors: [{ entries: { key: a } }, { entries: { key: b }, hits: 2 }], expect: allowed }\n  \
         - { entries: { key: b }, hits: 0, expect: { remaining: 0 } }\n",
    );
}

#[test]
fn a_bad_file_of_tests_is_refused_with_all_its_errors() {
    let folder = folder(
        "  - { entires: { key: a }, expect: allowed }\n  - { entries: { key: a }, at: 9s, expect: alowed }\n  \
         - { entries: { key: a }, at: 3s, times: 2, expect: { allowed: 2, denied: 1 } }\n",
    );
    let said = run(folder.path(), "rules test rules");
    assert_eq!(said.code, Some(1));
    for line in [
        "rules/a.test.yaml:6:7: unknown key 'entires' in a step",
        "help: did you mean `entries`?",
        "rules/a.test.yaml:7:44: `expect` cannot be 'alowed'",
        "help: did you mean `allowed`?",
        "rules/a.test.yaml:8:65: 3 answers are expected, and there are only 2 requests",
    ] {
        assert!(said.err.contains(line), "{line}\n{}", said.err);
    }
    let (report, _) = report(folder.path());
    assert_eq!(report["errors"][0]["line"], 6, "{report}");
    assert_eq!(report["errors"][0]["help"], "did you mean `entries`?");
}

#[test]
fn time_does_not_go_back() {
    let folder = folder(
        "  - { entries: { key: a }, times: 3, every: 5s }\n  - { entries: { key: a }, at: 9s, expect: allowed }\n",
    );
    let said = run(folder.path(), "rules test rules").refused("a.test.yaml:7:32:");
    assert_contains(
        &said,
        "the step before ends at 10s, and time does not go back",
    );
}

#[test]
fn rules_of_the_command_line_win_and_bad_ones_are_refused() {
    let folder = folder("  - { entries: { key: a }, expect: { limit: 2 } }\n");
    let other = RULES.replace("limit: 2 }", "limit: 7 }");
    write(folder.path(), "other.yaml", &other);
    let said = run(folder.path(), "rules test rules --rules other.yaml");
    assert_eq!(said.code, Some(1));
    assert_contains(&said.out, "limit  expected 2  was 7");
    write(folder.path(), "other.yaml", "domain: d\nbananas: 3\n");
    let said = run(folder.path(), "rules test rules --rules other.yaml").refused("other.yaml:2:1");
    assert_contains(&said, "bananas");
    run(folder.path(), "rules test other.yaml")
        .refused("unknown key 'bananas' at the top of a file of tests");
    let none = run(folder.path(), "rules test");
    assert_eq!(none.code, Some(2));
}

#[test]
fn a_folder_of_rules_is_read_without_its_tests() {
    let folder = folder("  - { entries: { key: a }, expect: allowed }\n");
    let said = run(folder.path(), "rules check rules").succeeded();
    assert_contains(&said, "from 1 file");
    // A name alone takes no rules out of force.
    write(
        folder.path(),
        "rules/b.test.yaml",
        "domain: b\ndescriptors:\n- { key: k, rate_limit: { window: 1m, limit: 1 } }\n",
    );
    let said = run(folder.path(), "rules check rules").succeeded();
    assert_contains(&said, "from 2 files");
    assert_contains(
        &run(folder.path(), "rules test rules").succeeded(),
        "1 test passed",
    );
    let said = run(folder.path(), "rules check rules/a.test.yaml").refused("unknown key 'tests'");
    assert_contains(&said, "ratekeeper rules test");
}

#[test]
fn an_http_request_may_be_refused_before_any_limit() {
    passes(
        "  - { request: GET /a/../b, headers: { x-api-key: ada }, client: 192.0.2.7, expect: { refused: 400 } }\n  \
         - { request: GET /x, expect: { decision: allowed, rule: ~ } }\n",
    );
    let found = mismatches("  - { request: GET /x, expect: { refused: 400 } }\n");
    assert_eq!(found, [["refused", "refused with 400", "no refusal"]]);
    let found = mismatches("  - { request: GET, expect: allowed }\n");
    assert_contains(
        &found[0][2],
        "rules/a.test.yaml:6:16: `GET` is not a method and path",
    );
}

#[test]
fn the_schema_of_tests_is_printed() {
    let said = run(&repository(), "rules schema --tests").succeeded();
    let file = repository().join("docs/rules-tests.schema.json");
    assert_eq!(
        said,
        std::fs::read_to_string(file).expect("it is checked in")
    );
}

/// The rules and tests of files, by their names in the folder `rules`.
fn files(files: &[(&str, &str)]) -> TempDir {
    let folder = tempdir().expect("a folder can be made");
    for (name, text) in files {
        write(folder.path(), &format!("rules/{name}"), text);
    }
    folder
}

/// A file with one test, on the plan `pro`.
fn of_pro(steps: &str) -> String {
    format!("rules: a.yaml\ndomain: d\ntests:\n- name: t\n  plan: pro\n  steps:\n{steps}")
}

#[test]
fn the_plan_of_a_test_is_that_of_every_tenant_it_names() {
    let steps = "  - { entries: { other: a }, expect: { rule: ~ } }\n  - { entries: { key: a }, expect: { limit: 4 } }\n  \
                 - { entries: { key: b }, plan: free, expect: { limit: 2 } }\n  \
                 - { entries: { key: c }, expect: { limit: 4 } }\n  - { entries: { key: b }, expect: { limit: 2 } }\n";
    let folder = files(&[("a.yaml", RULES), ("a.test.yaml", &of_pro(steps))]);
    run(folder.path(), "rules test rules").succeeded();
}

#[test]
fn a_request_that_no_rule_knows_is_not_just_allowed() {
    let found = mismatches("  - { domain: dd, entries: { key: a }, expect: allowed }\n");
    assert_eq!(found[0][0], "step");
    assert_contains(&found[0][2], "the rules have no domain `dd`");
    let found = mismatches("  - { entries: { kye: a }, times: 9, expect: allowed }\n");
    assert_eq!(found, [["rule", "any, or `rule: ~`", "none"]]);
    let found = mismatches("  - { entries: { kye: a }, times: 9, expect: { allowed: 9 } }\n");
    assert_eq!(found[0][0], "rule");
    passes(
        "  - { domain: dd, entries: { key: a }, expect: { decision: allowed, rule: ~ } }\n  \
         - { entries: { kye: a }, expect: { decision: allowed, rule: ~ } }\n  \
         - { entries: { quiet: a }, times: 2, expect: allowed }\n  - { entries: { free: a }, expect: allowed }\n  \
         - { entries: { kye: a } }\n",
    );
}

#[test]
fn an_expectation_that_nothing_can_fail_is_refused() {
    let folder = folder(
        "  - { entries: { key: a }, expect: {} }\n  - { request: GET /a/../b, expect: { refused: 400, allowed: 1 } }\n",
    );
    let said =
        run(folder.path(), "rules test rules").refused("a.test.yaml:6:36: `expect` is empty");
    assert_contains(&said, "a.test.yaml:7:");
    assert_contains(&said, "no limit is asked about a request that is refused");
}

#[test]
fn refused_rules_leave_the_results_of_other_tests() {
    let test = "rules: a.yaml\ndomain: d\ntests:\n- name: t\n  steps:\n  - { entries: { key: a }, expect: allowed }\n";
    let broken = test.replace("a.yaml", "b.yaml");
    let folder = files(&[
        ("a.yaml", RULES),
        ("b.yaml", "domain: b\nbananas: 3\n"),
        ("a.test.yaml", test),
        (
            "b.test.yaml",
            &format!(
                "{broken}{}",
                "- name: u\n  steps:\n  - { entries: { key: a } }\n"
            ),
        ),
        ("c.test.yaml", &test.replace("name: t", "name: v")),
    ]);
    let (report, code) = report(folder.path());
    assert_eq!(
        (report["passed"].as_u64(), code),
        (Some(2), Some(1)),
        "{report}"
    );
    assert_eq!(
        report["errors"].as_array().map(Vec::len),
        Some(1),
        "{report}"
    );
    let error = &report["errors"][0];
    assert_contains(error["file"].as_str().expect("a file"), "b.yaml");
    assert_eq!(error["line"], 2, "{report}");
    let said = run(folder.path(), "rules test rules");
    assert_contains(&said.err, "b.yaml:2:1: unknown key 'bananas'");
    assert_contains(&said.out, "FAILED: 2 tests passed, 0 failed, 1 error");
}

#[test]
fn the_shadow_mode_of_a_service_is_not_that_of_tests() {
    let folder =
        folder("  - { entries: { key: a }, times: 3, expect: { allowed: 2, denied: 1 } }\n");
    write(folder.path(), "ratekeeper.yaml", "shadow_mode: true\n");
    let said = run(folder.path(), "rules test rules --config ratekeeper.yaml").succeeded();
    assert!(said.ends_with("ok: 1 test passed\n"), "{said}");
}

#[test]
fn tokens_are_judged_by_the_time_of_their_step() {
    const SECRET: &str = "a secret of at least thirty-two bytes";
    // The test begins at the default time, 2026-01-01; the token is valid for its first hour.
    let parts = [
        r#"{"alg":"HS256"}"#,
        r#"{"sub":"ada","exp":1767229200,"nbf":1767225600}"#,
    ];
    let message = parts
        .map(|part| BASE64_URL_SAFE_NO_PAD.encode(part))
        .join(".");
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, message.as_bytes()));
    let asked =
        format!("request: GET /x, headers: {{ authorization: 'Bearer {message}.{signature}' }}");
    let folder = folder(&format!(
        "  - {{ {asked}, expect: {{ decision: allowed, rule: ~ }} }}\n  \
         - {{ at: 59m, {asked}, expect: {{ decision: allowed, rule: ~ }} }}\n  \
         - {{ at: 62m, {asked}, expect: {{ refused: 401 }} }}\n"
    ));
    write(folder.path(), "secret", SECRET);
    let settings = "identity: { from: [ 'claim:sub' ], jwt: { secret_file: secret } }\n";
    write(folder.path(), "settings.yaml", settings);
    run(folder.path(), "rules test rules --config settings.yaml").succeeded();
}

#[test]
fn rules_that_no_test_reaches_are_told() {
    let steps = "  - { entries: { key: a }, expect: allowed }\n  - { entries: { quiet: a }, expect: allowed }\n  \
                 - { entries: { free: a }, expect: allowed }\n";
    let folder = folder(steps);
    let (told, code) = report(folder.path());
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(told["rules"], 3, "{told}");
    assert_eq!(told["unreached"], serde_json::json!(["d.key@pro"]));
    let said = run(folder.path(), "rules test rules").succeeded();
    assert_contains(&said, "no test reaches 1 of 3 rules: d.key@pro\n");
    // Tests that are left out may reach it.
    let said = run(folder.path(), "rules test rules --name t").succeeded();
    assert!(!said.contains("reaches"), "{said}");
}

#[test]
fn results_are_written_as_junit_xml() {
    let test = "rules: a.yaml\ndomain: d\ntests:\n- name: a <b> & c\n  steps:\n  - { entries: { key: a }, expect: denied }\n";
    let folder = files(&[
        ("a.yaml", RULES),
        ("a.test.yaml", test),
        ("b.test.yaml", &test.replace("denied", "allowed")),
        ("c.test.yaml", "tests: []\nbananas: 3\n"),
    ]);
    let said = run(folder.path(), "rules test rules --junit out.xml");
    assert_eq!(said.code, Some(1), "{}", said.err);
    let xml = std::fs::read_to_string(folder.path().join("out.xml")).expect("it is written");
    for part in [
        "<testsuite name=\"rules/a.test.yaml\" tests=\"1\" failures=\"1\" errors=\"0\" skipped=\"0\">\n\
         <testcase name=\"a &lt;b&gt; &amp; c\" classname=\"rules/a.test.yaml\" file=\"rules/a.test.yaml\" line=\"4\">\n\
         <failure message=\"FAIL  a &lt;b&gt; &amp; c  rules/a.test.yaml:4:3\">",
        "decision  expected denied  was allowed\n",
        "<testsuite name=\"rules/b.test.yaml\" tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\">\n",
        "<error message=\"rules/c.test.yaml:1:1: there are no tests\">",
        "rules/c.test.yaml:2:1: unknown key &apos;bananas&apos;",
    ] {
        assert_contains(&xml.replace('\'', "&apos;"), part);
    }
    let nowhere = run(folder.path(), "rules test rules --junit no/out.xml");
    nowhere.refused("cannot write no/out.xml");
    // Whoever reads JSON gets it all the same.
    let both = run(folder.path(), "rules test rules --junit no/out.xml --json");
    let told: serde_json::Value = serde_json::from_str(&both.out).expect("it prints JSON");
    assert_eq!((both.code, &told["passed"]), (Some(1), &1.into()), "{told}");
    assert_contains(&both.err, "cannot write no/out.xml");
}

/// The file of the run before would otherwise be taken for this one's in silence.
#[test]
fn a_report_that_cannot_be_written_is_told_of_also_where_no_test_could_run() {
    let folder = folder("  - { entries: { key: a }, expect: allowed }\n");
    let said = run(folder.path(), "rules test nothing --junit no/out.xml");
    assert_eq!((said.code, &*said.out), (Some(1), ""));
    for part in ["cannot write no/out.xml", "cannot read nothing"] {
        assert_contains(&said.err, part);
    }
}

/// A file that stays from the run before would be taken for this one's.
#[test]
fn junit_xml_tells_of_tests_that_could_not_run() {
    let folder = folder("  - { entries: { key: a }, expect: allowed }\n");
    let xml = || {
        let said = run(folder.path(), "rules test rules --junit out.xml");
        let xml = std::fs::read_to_string(folder.path().join("out.xml")).expect("it is written");
        (xml, said.code)
    };
    let (passed, code) = xml();
    assert_eq!(code, Some(0), "{passed}");
    assert_contains(&passed, "tests=\"1\" failures=\"0\" errors=\"0\"");
    // Two errors are one refusal of one file, and the test is there.
    write(
        folder.path(),
        "rules/a.yaml",
        "domain: d\nbananas: 3\napples: 4\n",
    );
    let (refused, code) = xml();
    assert_eq!(code, Some(1), "{refused}");
    for part in [
        "tests=\"2\" failures=\"0\" errors=\"1\" skipped=\"1\">",
        "<testcase name=\"t\" classname=\"rules/a.test.yaml\" file=\"rules/a.test.yaml\" line=\"4\">\n\
         <skipped message=\"its rules are refused\"/>\n",
        "rules/a.yaml:2:1: unknown key 'bananas'",
        "rules/a.yaml:3:1: unknown key 'apples'",
    ] {
        assert_contains(&refused, part);
    }
    std::fs::remove_file(folder.path().join("rules/a.yaml")).expect("it is there");
    let (gone, code) = xml();
    assert_eq!(code, Some(1), "{gone}");
    assert_contains(&gone, "tests=\"1\" failures=\"0\" errors=\"1\"");
    assert_contains(&gone, "a.yaml");
}

/// Tests in several folders name the same rules each in its own way.
#[test]
fn rules_are_one_set_however_tests_name_them() {
    let test = |key: &str| {
        format!(
            "rules: ../rules/a.yaml\ndomain: d\ntests:\n- name: t\n  steps:\n  - {{ entries: {{ {key}: a }}, expect: \
             allowed }}\n  - {{ entries: {{ key: p }}, plan: pro, expect: allowed }}\n"
        )
    };
    let folder = folder("  - { entries: { key: a }, expect: allowed }\n");
    write(folder.path(), "t1/x.test.yaml", &test("key"));
    write(folder.path(), "t2/x.test.yaml", &test("quiet"));
    let told = || {
        let said = run(folder.path(), "rules test t1 t2 --json");
        let told: serde_json::Value = serde_json::from_str(&said.out).expect("it prints JSON");
        told
    };
    let whole = told();
    assert_eq!(whole["rules"], 3, "{whole}");
    assert_eq!(whole["unreached"], serde_json::json!([]), "{whole}");
    // A file that is refused may have reached the others.
    write(
        folder.path(),
        "t2/x.test.yaml",
        "rules: ../rules/a.yaml\nbananas: 3\n",
    );
    let part = told();
    assert_eq!(part["ok"], false, "{part}");
    assert_eq!(part["unreached"], serde_json::Value::Null, "{part}");
}
