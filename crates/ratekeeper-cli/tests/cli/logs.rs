//! `--log-format json`, and what the log says of a reload.

use crate::support::{self, Said, http, write};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::ratekeeper::Setup;
use serde_json::Value;
use std::io::{PipeWriter, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use tempfile::tempdir;

const RULES: &str =
    "domain: d\ndescriptors:\n- { key: user, rate_limit: { window: 1h, limit: 3 } }\n";

fn serve(folder: &Path, more: &[&str]) -> Setup {
    support::serve(folder).args("--rules rules.yaml").args(more)
}

/// Every line of both streams, each of which has to be one JSON object.
fn events(said: &str) -> Vec<Value> {
    let event = |line: &str| {
        let event = serde_json::from_str(line);
        let event: Value = event.unwrap_or_else(|error| panic!("{error}: {line}\n{said}"));
        assert!(event.is_object(), "{line}");
        event
    };
    said.lines().map(event).collect()
}

#[test]
fn json_logs_are_json_from_the_first_byte() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let mut service = serve(folder.path(), &["--log-format", "json"]).start();
    service.wait_for_log("serving");
    assert!(service.process.terminate().success());
    let events = events(&service.log());
    let serving = events.iter().find(|event| event["message"] == "serving");
    let serving = serving.expect("it says where it serves");
    for key in ["grpc", "http", "admin", "profile", "limits", "version"] {
        assert!(serving[key].is_string(), "{key}: {serving}");
    }
}

/// A service whose log goes to a pipe.
struct Piped(Child);

impl Piped {
    fn start(folder: &Path, log: PipeWriter, args: &str) -> Self {
        write(folder, "rules.yaml", RULES);
        let mut command = support::ratekeeper(folder, &format!("serve --rules rules.yaml {args}"));
        command.stderr(log).stdout(Stdio::null());
        Self(command.spawn().expect("the binary starts"))
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // It may have ended, which is no reason to panic in a test that does.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The reader of the log may have gone, as `head` does: that is no reason to stop.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let folder = tempdir().expect("a folder can be made");
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let socket = folder.path().join("admin");
    let url = format!("unix:{}", socket.display());
    let args = format!("--grpc 127.0.0.1:0 --http 127.0.0.1:0 --admin {url} --drain-delay 0s");
    let _service = Piped::start(folder.path(), writer, &args);
    eventually("it listens", || socket.exists());
    support::run(folder.path(), &["health", &url]).succeeded();
}

/// A pipe that is full, as its reader stands still: lines of the log wait, and decisions do not.
#[test]
fn a_log_whose_reader_stands_still_stops_no_decision() {
    let folder = tempdir().expect("a folder can be made");
    // Kept, and never read.
    let (_reader, writer) = std::io::pipe().expect("a pipe can be made");
    let socket = folder.path().join("http");
    let args = format!(
        "--http unix:{} --grpc 127.0.0.1:0 --admin 127.0.0.1:0 --denial-log 1000",
        socket.display()
    );
    let _service = Piped::start(folder.path(), writer, &args);
    eventually("it listens", || UnixStream::connect(&socket).is_ok());
    // Each denial is a line of some 300 bytes, and a pipe holds 65,536.
    let answers: Vec<_> = (0..600).map(|_| check_at(&socket)).collect();
    let denied = answers
        .iter()
        .filter(|answer| answer.contains(r#"{"decision":"deny""#));
    assert_eq!(denied.count(), 597, "{}", answers[0]);
}

/// The answer to one check at the Unix socket of a service.
fn check_at(socket: &Path) -> String {
    let body = r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}"#;
    let mut stream = UnixStream::connect(socket).expect("it listens");
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).expect("it can be set");
    write!(
        stream,
        "POST /v1/check HTTP/1.1\r\nHost: d\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn what_is_refused_at_start_is_json_too() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", "domain: d\ndescriptors: 3\n");
    write(folder.path(), "bad.yaml", "log_format: json\nhtpp: 1\n");
    write(folder.path(), "good.yaml", "log_format: json\n");
    for (args, code, part) in [
        (&["--config", "good.yaml"][..], 1, "rules.yaml:2"),
        (&["--config", "bad.yaml"], 1, "did you mean `http`?"),
        (
            &["--log-format=json", "--memory-limit", "much"],
            1,
            "is not a size",
        ),
        (&["--log-format", "json", "--bananas"], 2, "--bananas"),
    ] {
        let Said {
            code: told,
            out,
            err,
        } = serve(folder.path(), args).run();
        assert_eq!((told, &*out), (Some(code), ""), "{err}");
        let events = events(&err);
        let error = events.iter().find(|event| event["level"] == "ERROR");
        let error = error.unwrap_or_else(|| panic!("no error: {err}"));
        assert!(error["message"].to_string().contains(part), "{error}");
    }
}

#[test]
fn a_reload_says_which_rules_changed_and_how() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let service = serve(folder.path(), &[]).start();
    service.wait_for_log("serving");
    let changed = "domain: d\ndescriptors:\n- { key: user, rate_limit: { window: 1h, limit: 7 } }\n- { key: ip, rate_limit: { window: 1m, limit: 5 } }\n";
    write(folder.path(), "rules.yaml", changed);
    service.wait_for_log("d.ip: new, 5 per 1m");
    service.wait_for_log("d.user: 3 per 1h -> 7 per 1h");
    // However many there are.
    let many: String = (0..200)
        .map(|n| format!("- {{ key: k{n}, rate_limit: {{ window: 1m, limit: 5 }} }}\n"))
        .collect();
    write(
        folder.path(),
        "rules.yaml",
        &format!("domain: d\ndescriptors:\n{many}"),
    );
    service.wait_for_log("further changes");
    let said = service.log();
    assert!(said.matches(": new, 5 per 1m").count() < 60, "{said}");
}

#[test]
fn the_admin_api_tells_what_reloads_changed() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let service = serve(folder.path(), &[]).start();
    let loads = || {
        let (status, body) = http(service.admin, "GET", "/admin/v1/reloads", "");
        assert_eq!(status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).expect("it is JSON");
        body["reloads"].as_array().expect("a list").clone()
    };
    // What is there from the start is no change.
    assert_eq!(loads(), [] as [Value; 0]);
    let changed = "domain: d\ndescriptors:\n- { key: user, rate_limit: { window: 1h, limit: 7 } }\n- { key: ip, rate_limit: { window: 1m, limit: 5 } }\n";
    write(folder.path(), "rules.yaml", changed);
    eventually("the load is told", || loads().len() == 1);
    write(folder.path(), "rules.yaml", "domain: d\ndescriptors: 3\n");
    eventually("the refusal is told", || loads().len() == 2);
    let [refused, accepted] = &loads()[..] else {
        panic!("two loads: {:?}", loads())
    };
    assert_eq!(refused["result"], "refused", "{refused}");
    assert!(
        refused["error"].to_string().contains("rules.yaml:2"),
        "{refused}"
    );
    assert_eq!(accepted["result"], "accepted", "{accepted}");
    assert_eq!(accepted["changes_total"], 2, "{accepted}");
    let expected = serde_json::json!([
        { "rule": "d.ip", "change": "added", "to": "5 per 1m, sliding_window" },
        { "rule": "d.user", "change": "adjusted", "from": "3 per 1h", "to": "7 per 1h" },
    ]);
    assert_eq!(accepted["changes"], expected);
    assert!(service.stop().success());
}

#[test]
fn a_name_that_is_probably_misspelt_is_logged_once_without_values() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let service = serve(folder.path(), &[]).start();
    let body = r#"{"domain":"d","descriptors":[{"entries":[{"key":"usr","value":"geheim"}]}]}"#;
    // The first look is taken within a second of the start.
    eventually("it is logged", || {
        let (status, answer) = http(service.port, "POST", "/v1/check", body);
        assert_eq!(status, 200);
        assert!(!answer.contains("user"), "{answer}");
        service.log().contains("the key `user`")
    });
    let log = service.log();
    assert_eq!(log.matches("the key `user`").count(), 1, "{log}");
    assert!(!log.contains("geheim"), "{log}");
}
