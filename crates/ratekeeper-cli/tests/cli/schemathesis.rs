//! The HTTP APIs against their OpenAPI document: Schemathesis sends requests that fit it and requests that do not, and
//! checks every answer.

use crate::quotas::RULES;
use crate::support::{Ratekeeper, http, serve, write};
use ratekeeper_testkit::process::tool_folder;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;

/// More rules.
const JOB: &str = "- { key: job, concurrency: { limit: 3 } }\n";

/// The processor time that one run may take, in seconds. A run needs about a third of it.
const CPU_SECONDS_MAX: u32 = 60;

/// The random requests of each operation, beside those that cover the limits of each parameter.
const EXAMPLES: &str = "25";

/// A body may be refused for its size before it is read: 413 is among the refusals of invalid data.
const SETTINGS: &str = "[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, \"5xx\"]
";

/// A route whose answer does not end.
const ENDLESS: &str = "/admin/v1/live";

/// A route that proxies ask by any method, also by those that OpenAPI has no word for.
const FORWARD_AUTH: &str = "/v1/auth";

/// Properties of every answer. Not among them: that a valid request is accepted, since a document cannot say which
/// plans, rules and permits there are.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,negative_data_rejection,\
                      allow_header_conformance";

/// A property of the check API alone: the admin API refuses writes without JSON (415) before it looks at the method.
const METHODS: &str = "unsupported_method";

#[test]
fn the_admin_api_answers_as_its_document_says() {
    answers_as_documented("/admin/", ENDLESS, CHECKS, |service| service.admin);
}

#[test]
fn the_check_api_answers_as_its_document_says() {
    let checks = format!("{CHECKS},{METHODS}");
    answers_as_documented("/v1/", FORWARD_AUTH, &checks, |service| service.port);
}

#[test]
fn forward_auth_answers_as_its_document_says() {
    answers_as_documented(FORWARD_AUTH, ENDLESS, CHECKS, |service| service.port);
}

/// Holds the paths that begin with `prefix`, but for `other`, to the document.
fn answers_as_documented(
    prefix: &str,
    other: &str,
    checks: &str,
    listener: impl Fn(&Ratekeeper) -> u16,
) {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    let service = serve(folder)
        .rules(&format!("{RULES}{JOB}"))
        .args("--data-dir data")
        .start();
    let (status, document) = http(service.admin, "GET", "/admin/v1/openapi.json", "");
    assert_eq!(status, 200, "{document}");
    write(folder, "openapi.json", &document);

    write(folder, "schemathesis.toml", SETTINGS);

    let told = fuzz(folder, (prefix, other), checks, listener(&service));
    let report = fs::read_to_string(folder.join("report.json"));
    let report = report.unwrap_or_else(|error| panic!("no report ({error}): {told}"));
    let report: Value = serde_json::from_str(&report).expect("the report is JSON");
    assert_eq!(report["exit_code"], 0, "{told}");
    assert_eq!(report["complete"], true, "{told}");
    let tested = report["operations"]["tested"].as_u64();
    assert_eq!(tested, Some(operations(&document, prefix, other)), "{told}");
    println!(
        "{tested:?} operations, {} requests",
        report["test_cases"]["generated"]
    );
    assert!(!service.log().contains("panicked"), "{}", service.log());
    // It still serves, and ends in order.
    assert_eq!(http(service.admin, "GET", "/readyz", "").0, 200);
    assert!(service.stop().success());
}

/// Runs Schemathesis on the paths that begin with `prefix`, but for `other`, and returns all that it prints.
fn fuzz(folder: &Path, (prefix, other): (&str, &str), checks: &str, listener: u16) -> String {
    let limited = format!("ulimit -t {CPU_SECONDS_MAX}; exec python3 -m schemathesis.cli \"$@\"");
    let url = format!("http://127.0.0.1:{listener}");
    let paths = format!("^{prefix}");
    let mut command = Command::new("sh");
    command
        .current_dir(folder)
        .env("PYTHONPATH", tool_folder("schemathesis").join("lib"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-c", &limited, "schemathesis", "run", "openapi.json"])
        .args(["--url", &url, "--include-path-regex", &paths])
        .args(["--exclude-path", other])
        .args(["--phases", "coverage,fuzzing", "--checks", checks])
        .args(["--max-examples", EXAMPLES, "--seed", "1"])
        .args(["--generation-database", "none", "--no-shrink"])
        // On a busy machine data are made slowly.
        .args(["--suppress-health-check", "all"])
        .args(["--continue-on-failure", "--request-timeout", "30"])
        .args(["--report-json-path", "report.json", "--no-color"]);
    let output = command.output().expect("sh starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// The number of operations that the document has on these paths.
fn operations(document: &str, prefix: &str, other: &str) -> u64 {
    let document: Value = serde_json::from_str(document).expect("it is JSON");
    let paths = document["paths"].as_object().expect("it has paths");
    let wanted = paths
        .iter()
        .filter(|(path, _)| path.starts_with(prefix) && *path != other);
    let methods = [
        "get", "head", "put", "post", "patch", "delete", "options", "trace",
    ];
    wanted
        .map(|(_, item)| {
            methods
                .iter()
                .filter(|method| item.get(method).is_some())
                .count() as u64
        })
        .sum()
}
