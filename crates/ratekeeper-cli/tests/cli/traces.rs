//! Traces of a service, as a collector receives them.

use crate::collector::{Collector, Seen, named};
use crate::support::{FREE_PORTS, Service, http, ratekeeper, run, write};
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use ratekeeper_testkit::http1::{Answer, say};
use ratekeeper_testkit::process::{eventually, free_port};
use std::net::SocketAddr;
use std::path::Path;
use tempfile::tempdir;

const RULES: &str = "domain: d\ndescriptors:\n- { key: api_key, rate_limit: { window: 24h, limit: 1, algorithm: fixed_window } }\n";

/// A secret value, which no span may hold.
const SECRET: &str = "sk-0123456789";

fn serve(folder: &Path, collector: &str, ratio: &str) -> Service {
    write(folder, "rules.yaml", RULES);
    let flags = ["--rules", "rules.yaml", "--node-name", "node-1"];
    let traces = ["--otlp-endpoint", collector, "--trace-sample-ratio", ratio];
    let args = [&["serve"][..], &FREE_PORTS, &flags, &traces].concat();
    Service::start(ratekeeper(folder, &args), folder)
}

/// The `traceparent` of a trace whose id ends in these digits.
fn parent(trace: u8, is_sampled: bool) -> String {
    format!("00-{trace:032x}-00000000000000cd-0{}", u8::from(is_sampled))
}

fn trace_id(trace: u8) -> String {
    format!("{trace:032x}")
}

/// Posts a check over HTTP, with further lines of the head; the body of the answer.
fn check(address: SocketAddr, path: &str, lines: &str) -> String {
    let one = format!(
        r#"{{"domain":"d","descriptors":[{{"entries":[{{"key":"api_key","value":"{SECRET}"}}]}}]}}"#
    );
    let body = match path {
        "/v1/checks" => format!(r#"{{"checks":[{one},{one}]}}"#),
        _ => one,
    };
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{lines}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = Answer::read(&say(address.port(), request));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

/// Fails unless `stages` lie in `check`, one after the other.
fn assert_nested(check: &Seen, spans: &[Seen]) {
    let mut before = check.start;
    for name in ["match", "store", "combine"] {
        let all = spans.iter().filter(|span| span.name == name);
        let mut of_check = all.filter(|span| span.parent == check.id);
        let stage = of_check
            .next()
            .unwrap_or_else(|| panic!("no {name}: {spans:#?}"));
        assert!(
            before <= stage.start && stage.start <= stage.end,
            "{spans:#?}"
        );
        assert_eq!(stage.kind, 1, "{stage:?}");
        before = stage.end;
    }
    assert!(before <= check.end, "{spans:#?}");
}

#[test]
fn a_check_over_http_has_its_stages_and_its_callers_context() {
    let folder = tempdir().expect("a folder can be made");
    let collector = Collector::start();
    // Only those that callers want.
    let service = serve(folder.path(), &collector.url(), "0");
    check(service.http, "/v1/check", "");
    check(
        service.http,
        "/v1/check",
        &format!("traceparent: {}\r\n", parent(0xa1, false)),
    );
    check(
        service.http,
        "/v1/check",
        &format!("traceparent: {}\r\n", parent(0xa2, true)),
    );
    let spans = collector.trace(&trace_id(0xa2), 4);
    let check = named(&spans, "check");
    assert_eq!((check.parent.as_str(), check.kind), ("00000000000000cd", 2));
    assert_nested(check, &spans);
    for (key, value) in [
        ("ratekeeper.protocol", "v1"),
        ("ratekeeper.domain", "d"),
        ("ratekeeper.decision", "deny"),
        ("ratekeeper.rule", "d.api_key"),
        ("ratekeeper.limit", "1"),
        ("ratekeeper.remaining", "0"),
        ("ratekeeper.degraded", "false"),
    ] {
        assert_eq!(
            check.attributes.get(key).map(String::as_str),
            Some(value),
            "{key}"
        );
    }
    let scope = check.attributes.get("ratekeeper.scope");
    assert!(
        scope.is_some_and(|scope| scope.starts_with("api_key:~")),
        "{scope:?}"
    );
    let resource = &check.resource;
    assert_eq!(
        resource.get("service.name").map(String::as_str),
        Some("ratekeeper")
    );
    assert_eq!(
        resource.get("service.instance.id").map(String::as_str),
        Some("node-1")
    );
    assert!(service.stop().success());
    // Nothing else was traced, not even at the end.
    let all = collector.spans();
    assert_eq!(all.len(), 4, "{all:#?}");
    assert!(!format!("{all:?}").contains(SECRET), "{all:#?}");
}

#[test]
fn a_check_over_grpc_takes_the_context_from_its_metadata() {
    let folder = tempdir().expect("a folder can be made");
    let collector = Collector::start();
    let service = serve(folder.path(), &collector.url(), "0");
    let entry = Entry {
        key: "api_key".to_owned(),
        value: SECRET.to_owned(),
    };
    let descriptor = RateLimitDescriptor {
        entries: vec![entry],
        ..RateLimitDescriptor::default()
    };
    let asked = RateLimitRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor],
        ..RateLimitRequest::default()
    };
    let mut request = tonic::Request::new(asked);
    let context = parent(0xb1, true).parse().expect("it is ASCII");
    request.metadata_mut().insert("traceparent", context);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    let url = format!("http://{}", service.grpc);
    runtime.block_on(async {
        let client = RateLimitServiceClient::connect(url).await;
        let answer = client.expect("it listens").should_rate_limit(request).await;
        answer.expect("it answers");
    });
    let spans = collector.trace(&trace_id(0xb1), 4);
    let check = named(&spans, "check");
    assert_eq!((check.parent.as_str(), check.kind), ("00000000000000cd", 2));
    assert_eq!(check.attributes["ratekeeper.protocol"], "rls");
    assert_eq!(check.attributes["ratekeeper.decision"], "allow");
    assert_nested(check, &spans);
    assert!(service.stop().success());
}

/// With a share of 1 all are traced, and a shutdown sends what has not been sent yet.
#[test]
fn checks_of_a_batch_lie_in_one_span_and_are_sent_before_the_end() {
    let folder = tempdir().expect("a folder can be made");
    let collector = Collector::start();
    let service = serve(folder.path(), &collector.url(), "1");
    check(service.http, "/v1/checks", "");
    assert!(service.stop().success());
    let spans = collector.spans();
    assert_eq!(spans.len(), 9, "{spans:#?}");
    let batch = named(&spans, "checks");
    assert_eq!((batch.parent.as_str(), batch.kind), ("", 2));
    let checks: Vec<_> = spans.iter().filter(|span| span.name == "check").collect();
    let verdicts: Vec<_> = checks
        .iter()
        .map(|it| &*it.attributes["ratekeeper.decision"])
        .collect();
    assert_eq!(verdicts, ["allow", "deny"]);
    for check in checks {
        assert_eq!((&check.parent, check.kind), (&batch.id, 1));
        assert_nested(check, &spans);
    }
    assert!(
        spans.iter().all(|span| span.trace == batch.trace),
        "{spans:#?}"
    );
}

#[test]
fn without_its_collector_a_service_decides_and_counts_what_is_lost() {
    let folder = tempdir().expect("a folder can be made");
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let service = serve(folder.path(), &nobody, "1");
    check(service.http, "/v1/check", "");
    check(service.http, "/v1/check", "");
    eventually("the lost spans are counted", || {
        let (_, metrics) = http(service.admin, "GET", "/metrics", "");
        metrics.contains("ratelimit_trace_spans_total{result=\"failed\"} 8")
    });
    let (status, ready) = http(service.admin, "GET", "/readyz", "");
    assert_eq!(status, 200, "{ready}");
    service.wait_for_log("does not take spans");
    assert!(service.stop().success());
}

#[test]
fn an_address_that_is_no_collector_stops_the_start() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    for bad in [
        "127.0.0.1:4317",
        "https://collector:4317",
        "http://collector:4317/v1/traces",
    ] {
        let args = ["serve", "--rules", "rules.yaml", "--otlp-endpoint", bad];
        let said = run(folder.path(), &args);
        assert_eq!(said.code, Some(1), "{}", said.err);
        assert!(said.err.contains("is not a collector"), "{}", said.err);
    }
}
