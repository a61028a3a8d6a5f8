//! Traces of requests through the gateway, and the context that upstreams are told.

use ratekeeper_testkit::recorder::Recorder;

use crate::collector::{Collector, named};
use crate::support::{Gateway, ok};

const PARENT: &str = "traceparent: 00-000000000000000000000000000000a1-00000000000000cd-01";
const TRACE: &str = "000000000000000000000000000000a1";

fn gateway(upstream: &Recorder, collector: &Collector, ratio: &str) -> Gateway {
    let url = collector.url();
    let args = ["--otlp-endpoint", &url, "--trace-sample-ratio", ratio];
    Gateway::start(&upstream.url(), &args)
}

#[test]
fn an_upstream_is_told_the_span_that_waits_for_it() {
    let (upstream, collector) = (Recorder::start(|_| ok("fine")), Collector::start());
    let mut gateway = gateway(&upstream, &collector, "0");
    let answer = gateway.get(
        "/orders?secret=1",
        &[PARENT, "tracestate: a=1", "x-api-key: abc"],
    );
    assert_eq!(answer.status, 200);
    let spans = collector.trace(TRACE, 6);
    let request = named(&spans, "GET");
    assert_eq!(
        (request.parent.as_str(), request.kind),
        ("00000000000000cd", 2)
    );
    assert_eq!(request.attributes["url.path"], "/orders");
    assert_eq!(request.attributes["http.response.status_code"], "200");
    let check = named(&spans, "check");
    assert_eq!((&check.parent, check.kind), (&request.id, 1));
    assert_eq!(check.attributes["ratekeeper.decision"], "allow");
    for stage in ["match", "store", "combine"] {
        assert_eq!(named(&spans, stage).parent, check.id);
    }
    let waiting = named(&spans, "upstream");
    assert_eq!((&waiting.parent, waiting.kind), (&request.id, 3));
    let within = request.start <= waiting.start && waiting.end <= request.end;
    assert!(within, "{spans:#?}");
    assert_eq!(request.resource["service.name"], "ratekeeper");
    let [asked] = &upstream.asked()[..] else {
        panic!("one request reaches the upstream")
    };
    let told = format!("00-{TRACE}-{}-01", waiting.id);
    assert_eq!(asked.header("traceparent"), Some(&*told));
    assert_eq!(asked.header("tracestate"), Some("a=1"));
    assert!(gateway.process.terminate().success());
}

#[test]
fn a_denied_request_has_no_part_of_the_upstream() {
    let (upstream, collector) = (Recorder::start(|_| ok("fine")), Collector::start());
    let mut gateway = gateway(&upstream, &collector, "0");
    for _ in 0..3 {
        assert_eq!(gateway.get("/", &["x-api-key: few"]).status, 200);
    }
    assert_eq!(gateway.get("/", &["x-api-key: few", PARENT]).status, 429);
    let spans = collector.trace(TRACE, 5);
    let check = named(&spans, "check");
    assert_eq!(check.attributes["ratekeeper.decision"], "deny");
    let request = named(&spans, "GET");
    assert_eq!(request.attributes["http.response.status_code"], "429");
    assert!(gateway.process.terminate().success());
    assert_eq!(collector.spans().len(), 5);
}

#[test]
fn a_context_that_is_not_recorded_passes_as_it_is() {
    let (upstream, collector) = (Recorder::start(|_| ok("fine")), Collector::start());
    let mut gateway = gateway(&upstream, &collector, "1");
    let context = "00-000000000000000000000000000000a1-00000000000000cd-00";
    let line = format!("traceparent: {context}");
    assert_eq!(gateway.get("/", &[&line]).status, 200);
    assert_eq!(gateway.get("/", &[]).status, 200);
    assert!(gateway.process.terminate().success());
    let [first, second] = &upstream.asked()[..] else {
        panic!("both reach the upstream")
    };
    assert_eq!(first.header("traceparent"), Some(context));
    let spans = collector.spans();
    let trace = &named(&spans, "GET").trace;
    let told = second.header("traceparent").unwrap_or_default();
    assert!(told.starts_with(&format!("00-{trace}-")), "{told}");
    assert!(spans.iter().all(|span| span.trace == *trace), "{spans:#?}");
}
