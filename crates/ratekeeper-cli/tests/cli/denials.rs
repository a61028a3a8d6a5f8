//! The denial log: who is denied, by which rule, for which request.

use crate::support::{FREE_PORTS, ratekeeper, write};
use ratekeeper_testkit::process::{Process, eventually};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use tempfile::tempdir;

const RULES: &str = "domain: d
descriptors:
- { key: api_key, rate_limit: { window: 24h, limit: 1, algorithm: fixed_window } }
- { key: path, rate_limit: { window: 24h, limit: 1, algorithm: fixed_window } }
";

/// A service that logs JSON.
fn serve(folder: &Path, more: &[&str]) -> (Process, Value) {
    write(folder, "rules.yaml", RULES);
    let flags = ["--rules", "rules.yaml"];
    let json = ["--log-format", "json", "--node-name", "node-7"];
    let args = [&["serve"][..], &FREE_PORTS, &flags, &json, more].concat();
    let mut process = Process::spawn("ratekeeper", ratekeeper(folder, &args));
    process.wait_for_output("\"serving\"");
    let events = events(&process);
    let serving = events.into_iter().find(|it| it["message"] == "serving");
    (process, serving.expect("it says where it serves"))
}

fn events(process: &Process) -> Vec<Value> {
    let output = process.output();
    let lines = output.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn denials(process: &Process) -> Vec<Value> {
    let mut events = events(process);
    events.retain(|event| event["message"] == "request over its limit");
    events
}

/// Sends a request with `head` after its first line; returns the answer.
fn send(serving: &Value, line: &str, head: &str, body: &str) -> String {
    let address = serving["http"].as_str().expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{head}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn check(serving: &Value, head: &str, key: &str, value: &str) {
    let body = format!(
        r#"{{"domain":"d","descriptors":[{{"entries":[{{"key":"{key}","value":"{value}"}}]}}]}}"#
    );
    let head = format!("Content-Type: application/json\r\n{head}");
    let answer = send(serving, "POST /v1/check", &head, &body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_denied_request_is_logged_with_its_caller_rule_and_request() {
    let folder = tempdir().expect("a folder can be made");
    let (mut process, serving) = serve(folder.path(), &[]);
    for _ in 0..2 {
        check(
            &serving,
            "X-Request-Id: abc-1\r\n",
            "api_key",
            "sk_live_geheim",
        );
        let auth = "X-Forwarded-Method: PUT\r\nX-Forwarded-Uri: /orders?card=4711\r\n";
        send(&serving, "GET /v1/auth", auth, "");
    }
    eventually("both denials are logged", || denials(&process).len() == 2);
    let denials = denials(&process);
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
    let output = process.output();
    for secret in ["sk_live_geheim", "4711"] {
        assert!(!output.contains(secret), "{output}");
    }
    assert!(process.terminate().success());
}

#[test]
fn a_flood_of_denials_is_a_few_lines_and_a_count() {
    let folder = tempdir().expect("a folder can be made");
    let (mut process, serving) = serve(folder.path(), &["--denial-log", "2"]);
    let begun = std::time::Instant::now();
    let mut sent = 0;
    eventually("a line says how many were left out", || {
        (0..20).for_each(|_| check(&serving, "", "api_key", "a"));
        sent += 20;
        let mut denials = denials(&process).into_iter();
        denials.any(|denial| denial["left_out"].as_u64() > Some(0))
    });
    let lines = denials(&process).len() as u64;
    let seconds = begun.elapsed().as_secs() + 1;
    assert!(
        lines <= 2 * (seconds + 1),
        "{lines} lines in {seconds} s of {sent} requests"
    );
    assert!(process.terminate().success());
}

#[test]
fn the_denial_log_can_be_turned_off() {
    let folder = tempdir().expect("a folder can be made");
    let (mut process, serving) = serve(folder.path(), &["--denial-log", "0"]);
    (0..20).for_each(|_| check(&serving, "", "api_key", "a"));
    assert!(process.terminate().success());
    assert_eq!(denials(&process), [] as [Value; 0]);
    let refused = ratekeeper(folder.path(), &["serve", "--denial-log", "many"]).output();
    let err = String::from_utf8(refused.expect("it starts").stderr).expect("UTF-8");
    assert!(err.contains("write 0 to 1000"), "{err}");
}
