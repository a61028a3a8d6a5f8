//! Traces of a service, as a collector receives them.

use crate::collector::{Collector, Seen, named};
use crate::support::{self, Ratekeeper, http, run, write};
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use ratekeeper_testkit::certificates::{Authority, Validity};
use ratekeeper_testkit::http1::ask;
use ratekeeper_testkit::process::{eventually, free_port};
use std::path::Path;
use tempfile::tempdir;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

const RULES: &str = "domain: d\ndescriptors:\n- { key: api_key, rate_limit: { window: 24h, limit: 1, algorithm: fixed_window } }\n";

/// A secret value, which no span may hold.
const SECRET: &str = "sk-0123456789";

fn serve(folder: &Path, collector: &str, ratio: &str) -> Ratekeeper {
    serve_with(folder, collector, ratio, &[])
}

fn serve_with(folder: &Path, collector: &str, ratio: &str, more: &[&str]) -> Ratekeeper {
    let traces = format!("--otlp-endpoint {collector} --trace-sample-ratio {ratio}");
    let setup = support::serve(folder)
        .rules(RULES)
        .args("--node-name node-1");
    setup.args(&traces).args(more).start()
}

/// The `traceparent` of a trace whose id ends in these digits.
fn parent(trace: u8, is_sampled: bool) -> String {
    format!("00-{trace:032x}-00000000000000cd-0{}", u8::from(is_sampled))
}

fn trace_id(trace: u8) -> String {
    format!("{trace:032x}")
}

/// Posts a check over HTTP, with further lines of the head; the body of the answer.
fn check(port: u16, path: &str, lines: &str) -> String {
    let descriptor = format!(r#"{{"entries":[{{"key":"api_key","value":"{SECRET}"}}]}}"#);
    let one = format!(r#"{{"domain":"d","descriptors":[{descriptor}]}}"#);
    let body = match path {
        "/v1/checks" => format!(r#"{{"checks":[{one},{one}]}}"#),
        "/v1/reserve" => format!(r#"{{"domain":"d","descriptors":[{descriptor}],"hits":1}}"#),
        _ => one,
    };
    let lines = format!("Content-Type: application/json\r\n{lines}");
    let answer = ask(port, "POST", path, &lines, body);
    let answer = answer.expect("it answers in HTTP");
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
    check(service.port, "/v1/check", "");
    check(
        service.port,
        "/v1/check",
        &format!("traceparent: {}\r\n", parent(0xa1, false)),
    );
    check(
        service.port,
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
fn spans_go_over_http_where_the_standard_variables_say_so() {
    let folder = tempdir().expect("a folder can be made");
    let collector = Collector::over_http("/v1/traces", b"key,1");
    let mut service = support::serve(folder.path())
        .rules(RULES)
        .variable("TRACING_ENABLED", "true")
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())
        .variable("OTEL_EXPORTER_OTLP_HEADERS", "api-key=key%2C1")
        .start();
    for trace in [0xb1, 0xb2] {
        let traced = format!("traceparent: {}\r\n", parent(trace, true));
        check(service.port, "/v1/check", &traced);
        let spans = collector.trace(&trace_id(trace), 4);
        let check = named(&spans, "check");
        assert_nested(check, &spans);
        let name = check.resource.get("service.name").map(String::as_str);
        assert_eq!(name, Some("RateLimit"));
    }
    assert!(service.process.terminate().success());
    assert!(!service.log().contains("does not take spans"));
}

#[test]
fn a_check_over_grpc_takes_the_context_from_its_metadata() {
    let folder = tempdir().expect("a folder can be made");
    let collector = Collector::start();
    let service = serve(folder.path(), &collector.url(), "0");
    let entry = WireEntry {
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
    let url = format!("http://127.0.0.1:{}", service.grpc);
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
    check(service.port, "/v1/checks", "");
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

/// Each call that decides has a span with its stages inside; those that only settle have none.
#[test]
fn permits_reservations_and_looks_are_traced_as_checks_are() {
    let folder = tempdir().expect("a folder can be made");
    let collector = Collector::start();
    let service = serve(folder.path(), &collector.url(), "0");
    for (trace, path, name, verdict) in [
        (0xc1, "/v1/peek", "peek", "allow"),
        (0xc2, "/v1/acquire", "acquire", "allow"),
        (0xc3, "/v1/reserve", "reserve", "deny"),
        (0xc4, "/v1/peek", "peek", "allow"),
    ] {
        let context = format!("traceparent: {}\r\n", parent(trace, true));
        check(service.port, path, &context);
        let spans = collector.trace(&trace_id(trace), 4);
        let whole = named(&spans, name);
        assert_eq!((whole.parent.as_str(), whole.kind), ("00000000000000cd", 2));
        assert_eq!(whole.attributes["ratekeeper.protocol"], "v1");
        assert_eq!(whole.attributes["ratekeeper.decision"], verdict, "{path}");
        assert_eq!(whole.attributes["ratekeeper.rule"], "d.api_key");
        assert_nested(whole, &spans);
    }
    check(service.port, "/v1/peek", "");
    assert!(service.stop().success());
    assert_eq!(collector.spans().len(), 16);
}

#[test]
fn without_its_collector_a_service_decides_and_counts_what_is_lost() {
    let folder = tempdir().expect("a folder can be made");
    let closed = format!("http://127.0.0.1:{}", free_port());
    let service = serve(folder.path(), &closed, "1");
    check(service.port, "/v1/check", "");
    check(service.port, "/v1/check", "");
    eventually("the lost spans are counted", || {
        let metrics = service.metrics();
        metrics.contains("ratelimit_trace_spans_total{result=\"failed\"} 8")
    });
    let (status, ready) = http(service.admin, "GET", "/readyz", "");
    assert_eq!(status, 200, "{ready}");
    service.wait_for_log("does not take spans");
    assert!(service.stop().success());
}

/// The key that the collector below wants.
const API_KEY: &str = "key-8d1f,2";

/// A collector as vendors run them: it encrypts, and wants a key; this one wants a client certificate as well.
fn vendor(authority: &Authority) -> Collector {
    let own = authority.issue("127.0.0.1", Validity::Valid);
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(&own.certificate, &own.key))
        .client_ca_root(Certificate::from_pem(authority.pem()));
    let server = Server::builder().tls_config(tls).expect("it can be used");
    Collector::start_by("https", server, |message: tonic::Request<()>| {
        let has = |name, value| message.metadata().get(name).is_some_and(|it| it == value);
        match has("x-api-key", API_KEY) && has("x-team", "shop") {
            true => Ok(message),
            false => Err(tonic::Status::unauthenticated("no key")),
        }
    })
}

#[test]
fn a_collector_over_tls_gets_spans_with_its_key() {
    let folder = tempdir().expect("a folder can be made");
    let authority = Authority::new();
    let collector = vendor(&authority);
    write(folder.path(), "ca.pem", &authority.pem());
    let own = authority.issue("ratekeeper.example", Validity::Valid);
    own.write(folder.path());
    write(folder.path(), "key.txt", "x-api-key=key-8d1f%2C2\n");
    let trust = ["--otlp-ca", "ca.pem", "--otlp-headers", "x-team=shop"];
    let identity = ["--otlp-cert", "tls.crt", "--otlp-key", "tls.key"];
    let file = ["--otlp-headers-file", "key.txt"];
    let more = [&trust[..], &identity, &file].concat();
    let service = serve_with(folder.path(), &collector.url(), "0", &more);
    let context = format!("traceparent: {}\r\n", parent(0xd1, true));
    check(service.port, "/v1/check", &context);
    let spans = collector.trace(&trace_id(0xd1), 4);
    assert_nested(named(&spans, "check"), &spans);
    assert!(!service.log().contains("key-8d1f"), "{}", service.log());
    assert!(service.stop().success());
}

/// Spans do not go to a server whose certificate is not trusted, nor pass one that refuses them; decisions go on.
#[test]
fn a_collector_that_is_not_trusted_or_refuses_gets_no_spans() {
    let authority = Authority::new();
    let collector = vendor(&authority);
    let own = authority.issue("ratekeeper.example", Validity::Valid);
    for (trusted, key) in [
        (false, "x-api-key=key-8d1f%2C2,x-team=shop"),
        (true, "x-team=shop"),
    ] {
        let folder = tempdir().expect("a folder can be made");
        let pem = match trusted {
            true => authority.pem(),
            false => Authority::new().pem(),
        };
        write(folder.path(), "ca.pem", &pem);
        own.write(folder.path());
        let trust = ["--otlp-ca", "ca.pem", "--otlp-headers", key];
        let identity = ["--otlp-cert", "tls.crt", "--otlp-key", "tls.key"];
        let more = [trust, identity].concat();
        let service = serve_with(folder.path(), &collector.url(), "1", &more);
        check(service.port, "/v1/check", "");
        let log = service.wait_for_log("does not take spans");
        assert!(!log.contains("key-8d1f"), "{log}");
        check(service.port, "/v1/check", "");
        let _ = service.stop();
    }
    assert!(collector.spans().is_empty(), "{:#?}", collector.spans());
}

#[test]
fn settings_of_the_collector_that_cannot_be_used_stop_the_start() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    write(folder.path(), "bad.txt", "secret\n");
    let collector = ["--otlp-endpoint", "https://127.0.0.1:4317"];
    let plain = ["--otlp-endpoint", "http://127.0.0.1:4317"];
    for (collector, more, words) in [
        (&collector[..], ["--otlp-ca", "missing.pem"], "otlp_ca: "),
        (&collector, ["--otlp-cert", "tls.crt"], "otlp_key"),
        (&collector, ["--otlp-headers", "secret"], "NAME=VALUE"),
        (&collector, ["--otlp-headers-file", "bad.txt"], "NAME=VALUE"),
        (&collector, ["--otlp-headers-file", "none.txt"], "none.txt"),
        (&plain, ["--otlp-ca", "ca.pem"], "https://"),
        (&[], ["--otlp-headers", "a=b"], "otlp_endpoint"),
    ] {
        let args = [&["serve", "--rules", "rules.yaml"][..], collector, &more].concat();
        let said = run(folder.path(), &args);
        assert_eq!(said.code, Some(1), "{more:?}: {}", said.err);
        assert!(said.err.contains(words), "{more:?}: {}", said.err);
        assert!(!said.err.contains("secret"), "{more:?}: {}", said.err);
    }
}

#[test]
fn an_address_that_is_no_collector_stops_the_start() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    for (bad, words) in [
        ("127.0.0.1:4317", "is not a collector"),
        ("https://collector", "is not a collector"),
        ("http://collector:4317/v1/traces", "otlp_protocol"),
    ] {
        let args = ["serve", "--rules", "rules.yaml", "--otlp-endpoint", bad];
        run(folder.path(), &args).refused(words);
    }
}
