//! Requests that the gateway denies, as operators are told about them.

use ratekeeper_testkit::events::EventStream;
use ratekeeper_testkit::http1::ask;
use ratekeeper_testkit::process::eventually;
use serde_json::Value;

use crate::support::{Gateway, Upstream, ok};

const KEY: &str = "X-Api-Key: few";

/// The JSON in the answer of the admin listener.
fn told(gateway: &Gateway, path: &str) -> Value {
    let answer = gateway.told(path);
    let (_, body) = answer.split_once("\r\n\r\n").expect("it has a head");
    let (from, until) = (body.find('{'), body.rfind('}'));
    let json = from
        .zip(until)
        .and_then(|(from, until)| body.get(from..=until));
    serde_json::from_str(json.unwrap_or_default()).expect("it is JSON")
}

fn admin(gateway: &Gateway, method: &str, path: &str, body: &str) -> String {
    let kind = "Content-Type: application/json\r\n";
    let answer = ask(gateway.admin, method, path, kind, body);
    let answer = answer.expect("it answers in HTTP");
    format!("{}\r\n\r\n{}", answer.head, answer.body)
}

#[test]
fn the_list_the_top_keys_and_the_stream_have_them() {
    let upstream = Upstream::start(|_| ok("hello"));
    let gateway = Gateway::start(&upstream.url(), &["--node-name", "edge-1"]);
    for _ in 0..4 {
        gateway.get("/orders?card=4711", &[KEY, "X-Request-Id: abc-1"]);
    }
    gateway.get("/orders/2", &[KEY]);
    let denials = told(&gateway, "/admin/v1/denials")["denials"].clone();
    let denials = denials.as_array().expect("a list");
    assert_eq!(denials.len(), 2, "{denials:?}");
    // The last comes first.
    let (made, brought) = (&denials[0], &denials[1]);
    assert_eq!(brought["request_id"], "abc-1");
    assert_eq!(brought["protocol"], "gateway");
    assert_eq!(brought["domain"], "api");
    assert_eq!(brought["limit"], "3 per 10000d");
    assert_eq!(
        (&brought["method"], &brought["path"]),
        (&"GET".into(), &"/orders".into())
    );
    assert_eq!(brought["enforced"], true);
    assert!(brought["retry_after_ms"].as_u64() > Some(0), "{brought}");
    let rule = brought["rule"].as_str().expect("a rule");
    assert!(rule.starts_with("api.api_key_~"), "{rule}");
    let scope = brought["scope"].as_str().expect("a descriptor");
    assert!(scope.starts_with("api_key:~"), "{scope}");
    assert_eq!(
        made["request_id"].as_str().map(str::len),
        Some(16),
        "{made}"
    );
    eventually("it is a top key", || {
        let top = told(&gateway, "/admin/v1/top");
        top["keys"][0]["key"] == scope && top["keys"][0]["count"] == 2
    });
    let mut stream = EventStream::open(gateway.admin, "/admin/v1/live");
    stream.until("the stream shows it", |event| {
        let state: Value = serde_json::from_str(&event.data).expect("it is JSON");
        let first = &state["top"][0];
        (first["key"] == scope && first["count"] == 2).then_some(())
    });
    eventually("a line is logged", || {
        let output = gateway.process.output();
        output.contains("request over its limit")
            && output.contains("abc-1")
            && output.contains("edge-1")
    });
    assert!(
        !gateway.process.output().contains("4711"),
        "queries are left out"
    );
}

#[test]
fn each_line_of_the_access_log_names_the_caller_and_the_request() {
    let upstream = Upstream::start(|_| ok("hello"));
    let gateway = Gateway::start(&upstream.url(), &["--access-log", "access.log"]);
    for _ in 0..3 {
        gateway.get("/", &[KEY]);
    }
    gateway.get("/", &[KEY]);
    gateway.get("/", &["X-Request-Id: abc-2"]);
    let file = gateway.folder().join("access.log");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually("every line is written", || {
        read().matches('\n').count() == 5
    });
    let lines: Vec<Value> = read()
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let denials = told(&gateway, "/admin/v1/denials");
    let denied = lines.iter().find(|line| line["decision"] == "deny");
    let denied = denied.expect("one is denied");
    // One id is made for each request, whoever tells of it.
    assert_eq!(denied["request_id"], denials["denials"][0]["request_id"]);
    let caller = denied["caller"].as_str().expect("a caller");
    assert!(
        caller.starts_with("api_key:~"),
        "a secret is a fingerprint: {caller}"
    );
    assert_eq!(denials["denials"][0]["scope"], caller);
    let allowed = lines.iter().filter(|line| line["decision"] == "allow");
    let callers: Vec<_> = allowed.map(|line| line["caller"].clone()).collect();
    assert_eq!(
        callers.iter().filter(|it| *it == caller).count(),
        3,
        "{callers:?}"
    );
    let other = lines.iter().find(|line| line["request_id"] == "abc-2");
    assert_eq!(
        other.expect("its id is kept")["caller"],
        "remote_address:127.0.0.1"
    );
}

#[test]
fn every_denial_of_one_key_is_logged_while_that_is_asked_for() {
    let upstream = Upstream::start(|_| ok("hello"));
    let gateway = Gateway::start(&upstream.url(), &["--denial-log", "0"]);
    for _ in 0..4 {
        gateway.get("/before", &[KEY]);
    }
    let denials = told(&gateway, "/admin/v1/denials");
    let scope = denials["denials"][0]["scope"].as_str().expect("a key");
    let path: String = scope.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let path = format!("/admin/v1/denials/log/{path}");
    for (body, field) in [
        ("{\"minutes\":0}", "minutes"),
        ("{\"minutes\":61}", "minutes"),
        ("{}", "body"),
    ] {
        let refused = admin(&gateway, "PUT", &path, body);
        assert!(
            refused.starts_with("HTTP/1.1 400") && refused.contains(field),
            "{refused}"
        );
    }
    let followed = admin(&gateway, "PUT", &path, "{\"minutes\":10}");
    assert!(followed.starts_with("HTTP/1.1 200"), "{followed}");
    for number in 0..30 {
        gateway.get(&format!("/while/{number}"), &[KEY]);
    }
    let lines = |text: &str| {
        let output = gateway.process.output();
        let lines = output.lines();
        lines
            .filter(|line| line.contains("request over its limit") && line.contains(text))
            .count()
    };
    eventually("all are logged", || lines("/while/") == 30);
    let listed = told(&gateway, "/admin/v1/denials/log");
    assert_eq!(listed["keys"][0]["logged"], 30, "{listed}");
    let ended = admin(&gateway, "DELETE", &path, "");
    assert!(ended.starts_with("HTTP/1.1 204"), "{ended}");
    let again = admin(&gateway, "DELETE", &path, "");
    assert!(again.starts_with("HTTP/1.1 404"), "{again}");
    gateway.get("/after", &[KEY]);
    eventually("the denial is kept", || {
        told(&gateway, "/admin/v1/denials")["denials"][0]["path"] == "/after"
    });
    assert_eq!((lines("/before"), lines("/after")), (0, 0));
}
