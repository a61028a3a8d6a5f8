//! The access log, and the command that reads it.

use crate::support::{Act, Answer, Gateway, PROGRAM, RULES, Upstream, ok};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::ratekeeper::{Said, command, run};

fn logged(format: &str) -> (Gateway, String) {
    let upstream = Upstream::start(|_| ok("hello"));
    let gateway = Gateway::start(
        &upstream.url(),
        &["--access-log", "access.log", "--access-log-format", format],
    );
    for number in 0..5 {
        let lines = [
            "X-Api-Key: few",
            "User-Agent: a \"quoted\\one\"",
            "Referer: https://a.example/from?token=secret",
        ];
        gateway.get(&format!("/orders/{number}?token=secret"), &lines);
    }
    let file = gateway.folder().join("access.log");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually("five lines are written", || {
        read().matches('\n').count() == 5
    });
    let text = read();
    (gateway, text)
}

#[test]
fn a_log_on_standard_output_has_no_other_line() {
    let upstream = Upstream::start(|_| ok("hello"));
    let gateway = Gateway::without_stderr(&upstream.url(), &["--access-log", "-"]);
    gateway.get("/orders/1", &[]);
    eventually("the request is logged", || {
        gateway.process.has_printed("/orders/1")
    });
    for line in gateway.process.output().lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["path"], "/orders/1");
    }
}

#[test]
fn a_line_says_what_was_decided_and_why() {
    let (_gateway, text) = logged("json");
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let first = &lines[0];
    assert_eq!(first["remote_address"], "127.0.0.1");
    assert_eq!(
        (&first["method"], &first["path"]),
        (&"GET".into(), &"/orders/0".into())
    );
    assert_eq!(
        (&first["status"], &first["bytes"]),
        (&200.into(), &5.into())
    );
    assert_eq!(
        (&first["decision"], &first["upstream"]),
        (&"allow".into(), &"upstream".into())
    );
    assert_eq!(first["user_agent"], "a \"quoted\\one\"");
    assert_eq!(first["referer"], "https://a.example/from");
    let last = &lines[4];
    assert_eq!(
        (&last["status"], &last["decision"]),
        (&429.into(), &"deny".into())
    );
    let rule = last["rule"].as_str().unwrap_or_default();
    assert!(rule.starts_with("api.api_key_~"), "keys are secret: {last}");
    assert!(
        last["reason"]
            .as_str()
            .is_some_and(|reason| !reason.is_empty()),
        "{last}"
    );
    assert!(last["retry_after"].is_string(), "{last}");
    assert!(!text.contains("secret"), "queries are left out: {text}");
}

/// Replays the gateway's own log.
fn replay(gateway: &Gateway, more: &[&str]) -> Said {
    let own = ["replay", "--rules", "rules.yaml", "--log", "access.log"];
    let args = [&own, more].concat();
    run(&mut command(PROGRAM, gateway.folder(), &args))
}

#[test]
fn replay_reads_both_formats() {
    for format in ["json", "combined"] {
        let (gateway, text) = logged(format);
        let said = replay(&gateway, &["--strict", "--json"]);
        assert!(said.code == Some(0), "{format}: {}\n{text}", said.err);
    }
}

/// A replay with the gateway's settings denies the requests that the gateway denied.
#[test]
fn a_replay_of_the_log_decides_as_the_gateway_did() {
    let rules = "
domain: api
descriptors:
  - key: endpoint
    value: GET /v1/organizations/acme/0
    rate_limit: { window: 10000d, limit: 4 }
  - key: org
    rate_limit: { window: 10000d, limit: 18 }
slas_base: /v1/organizations/{tenant}
slas: [ { id: second, pathPattern: /1, tiers: [ { period: 10000d, threshold: 3 } ] } ]
";
    let settings = "
identity: { from: [ 'path:/v1/organizations/{org}/*' ] }
auth:
  descriptors: [ [ { key: endpoint, from: endpoint } ], [ { key: org, from: identity } ] ]
";
    let upstream = Upstream::start(|_| ok("hello"));
    let url = upstream.url();
    let gateway = Gateway::start_with(
        rules,
        settings,
        &["--upstream", &url, "--access-log", "access.log"],
    );
    let path = |number: u32| format!("/v1/organizations/%61cme/{}", number % 3);
    let statuses = (0..40).map(|number| gateway.get(&path(number), &[]).status);
    let denied = statuses.filter(|status| *status == 429).count();
    // Four of the first path pass, three of the second, and of the third what the organisation has left.
    assert_eq!(denied, 40 - 18);
    let file = gateway.folder().join("access.log");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually("every line is written", || {
        read().matches('\n').count() == 40
    });
    let report = replay(&gateway, &[]).out;
    let wanted = format!("40 requests, {} allowed, {denied} denied", 40 - denied);
    assert_contains(&report, &wanted);
}

#[test]
fn no_client_writes_fields_of_the_log() {
    let (gateway, text) = logged("combined");
    assert!(!text.contains("secret"), "queries are left out: {text}");
    gateway.get(r#"/x"_200_1_"-"_"y"#, &["X-Api-Key: another"]);
    let file = gateway.folder().join("access.log");
    eventually("the path is written as one", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.contains(r#" "GET /x\"_200_1_\"-\"_\"y HTTP/1.1" 200 5 "-" "-""#)
    });
}

#[test]
fn a_log_that_is_moved_away_is_opened_again() {
    let (gateway, _) = logged("json");
    let file = gateway.folder().join("access.log");
    std::fs::rename(&file, gateway.folder().join("access.log.1")).expect("it can be moved");
    eventually("a new file has lines", || {
        gateway.get("/again", &[]);
        std::fs::read_to_string(&file).is_ok_and(|text| text.contains("/again"))
    });
}

/// The lines of the log, once there are so many.
fn lines(gateway: &Gateway, count: usize) -> Vec<serde_json::Value> {
    let file = gateway.folder().join("access.log");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually("all lines are written", || {
        read().matches('\n').count() == count
    });
    let text = read();
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("JSON")
}

#[test]
fn a_line_tells_what_the_gateway_itself_refused() {
    let upstream = Upstream::start(|asked| match asked.head.starts_with("GET /hang") {
        true => Act::Hang,
        false => ok("hello"),
    });
    let settings = "request_body_max: 1KiB\nupstream_requests_max: 1\nupstream_queue_max: 0\n";
    let url = upstream.url();
    let args = ["--upstream", &url, "--access-log", "access.log"];
    let gateway = Gateway::start_with(RULES, settings, &args);
    let refusals = [
        ("GET /a/../b", "", 400, "refuse"),
        ("CONNECT a:1", "", 405, "refuse"),
        ("POST /large", "Content-Length: 2000\r\n", 413, "refuse"),
        ("GET /full", "", 503, "shed"),
    ];
    let host = "Host: a:1\r\nConnection: close\r\n";
    let held = gateway.open(&format!("GET /hang HTTP/1.1\r\n{host}\r\n"));
    eventually("its place is taken", || upstream.asked().len() == 1);
    for (start, line, status, _) in refusals {
        let said = gateway.say(&format!("{start} HTTP/1.1\r\n{host}{line}\r\n"));
        assert_eq!(Answer::read(&said).status, status, "{start}");
    }
    let logged = lines(&gateway, refusals.len());
    for ((start, _, status, decision), line) in refusals.into_iter().zip(logged) {
        assert_eq!(line["status"], status, "{start}: {line}");
        assert_eq!(line["decision"], decision, "{start}: {line}");
        assert!(line["reason"].is_string(), "{start}: {line}");
    }
    drop(held);
}

#[test]
fn a_client_that_hangs_up_before_its_answer_has_a_line() {
    let upstream = Upstream::start(|_| Act::Hang);
    let args = ["--access-log", "access.log"];
    let gateway = Gateway::start(&upstream.url(), &args);
    let client = gateway.open("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is asked", || upstream.asked().len() == 1);
    drop(client);
    let line = lines(&gateway, 1).remove(0);
    assert_eq!(
        (&line["path"], &line["status"]),
        (&"/hang".into(), &499.into())
    );
    assert!(line["decision"].is_null(), "{line}");
}
