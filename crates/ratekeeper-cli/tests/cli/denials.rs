//! The denial log: who is denied, by which rule, for which request.

use crate::support::{self, Ratekeeper, run};
use ratekeeper_testkit::http1::ask;
use ratekeeper_testkit::process::eventually;
use serde_json::Value;
use std::path::Path;
use tempfile::tempdir;

const RULES: &str = "domain: d
descriptors:
- { key: api_key, rate_limit: { window: 24h, limit: 1, algorithm: fixed_window } }
- { key: path, rate_limit: { window: 24h, limit: 1, algorithm: fixed_window } }
";

/// A service that logs JSON.
fn serve(folder: &Path, more: &[&str]) -> Ratekeeper {
    let setup = support::serve(folder).rules(RULES);
    let json = "--log-format json --node-name node-7";
    let service = setup.args(json).args(more).start();
    service.wait_for_log("\"serving\"");
    service
}

fn denials(service: &Ratekeeper) -> Vec<Value> {
    let log = service.log();
    let events = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let is_denial = |event: &Value| event["message"] == "request over its limit";
    events.filter(is_denial).collect()
}

fn check(service: &Ratekeeper, head: &str, key: &str, value: &str) {
    let body = format!(
        r#"{{"domain":"d","descriptors":[{{"entries":[{{"key":"{key}","value":"{value}"}}]}}]}}"#
    );
    let head = format!("Content-Type: application/json\r\n{head}");
    let answer = ask(service.port, "POST", "/v1/check", &head, &body);
    assert_eq!(answer.map(|answer| answer.status), Some(200));
}

#[test]
fn the_end_of_the_log_of_a_key_is_logged() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &[]);
    let path = "/admin/v1/denials/log/path:a";
    let json = "Content-Type: application/json\r\n";
    for (method, body, status) in [("PUT", "{\"minutes\":1}", 200), ("DELETE", "", 204)] {
        let answer = ask(service.admin, method, path, json, body);
        assert_eq!(answer.map(|answer| answer.status), Some(status), "{method}");
    }
    service.wait_for_log("all denials of a key are logged for a while");
    service.wait_for_log("the denials of a key are logged as any others again");
}

#[test]
fn a_denied_request_is_logged_with_its_caller_rule_and_request() {
    let folder = tempdir().expect("a folder can be made");
    let mut service = serve(folder.path(), &[]);
    for _ in 0..2 {
        check(
            &service,
            "X-Request-Id: abc-1\r\n",
            "api_key",
            "sk_live_geheim",
        );
        let auth = "X-Forwarded-Method: PUT\r\nX-Forwarded-Uri: /orders?card=4711\r\n";
        let _ = ask(service.port, "GET", "/v1/auth", auth, "");
    }
    eventually("both denials are logged", || denials(&service).len() == 2);
    let denials = denials(&service);
    let of = |protocol: &str| {
        let mut found = denials.iter();
        found
            .find(|denial| denial["protocol"] == protocol)
            .unwrap_or_else(|| panic!("no line of {protocol}: {denials:?}"))
    };
    let v1 = of("v1");
    assert_eq!(v1["request_id"], "abc-1");
    assert_eq!(v1["domain"], "d");
    assert_eq!(v1["rule"], "d.api_key");
    assert_eq!(v1["node"], "node-7");
    assert_eq!(v1["limit"], "1 per 1d");
    assert!(v1["retry_after_ms"].as_u64() > Some(0), "{v1}");
    let scope = v1["scope"].as_str().expect("a scope");
    assert!(scope.starts_with("api_key:~"), "{scope}");
    let auth = of("auth");
    assert_eq!(auth["method"], "PUT");
    assert_eq!(auth["path"], "/orders");
    assert_eq!(auth["rule"], "d.path");
    assert_eq!(
        auth["request_id"].as_str().expect("an id was made").len(),
        16
    );
    let output = service.log();
    for secret in ["sk_live_geheim", "4711"] {
        assert!(!output.contains(secret), "{output}");
    }
    assert!(service.process.terminate().success());
}

#[test]
fn a_flood_of_denials_is_a_few_lines_and_a_count() {
    let folder = tempdir().expect("a folder can be made");
    let mut service = serve(folder.path(), &["--denial-log", "2"]);
    let begun = std::time::Instant::now();
    let mut sent = 0;
    eventually("a line says how many were left out", || {
        (0..20).for_each(|_| check(&service, "", "api_key", "a"));
        sent += 20;
        let mut denials = denials(&service).into_iter();
        denials.any(|denial| denial["left_out"].as_u64() > Some(0))
    });
    let lines = denials(&service).len() as u64;
    let seconds = begun.elapsed().as_secs() + 1;
    assert!(
        lines <= 2 * (seconds + 1),
        "{lines} lines in {seconds} s of {sent} requests"
    );
    assert!(service.process.terminate().success());
}

#[test]
fn the_denial_log_can_be_turned_off() {
    let folder = tempdir().expect("a folder can be made");
    let mut service = serve(folder.path(), &["--denial-log", "0"]);
    (0..20).for_each(|_| check(&service, "", "api_key", "a"));
    assert!(service.process.terminate().success());
    assert_eq!(denials(&service), [] as [Value; 0]);
    let refused = run(folder.path(), "serve --denial-log many");
    refused.refused("write 0 to 1000");
}
