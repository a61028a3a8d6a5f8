//! Traces of requests through the gateway, and the context that upstreams are told.

use std::sync::{Mutex, mpsc};

use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::recorder::Recorder;

use crate::collector::{Collector, Seen, named};
use crate::service::{PATIENT, Service};
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

/// The upstream was told the span that waits for it, and works on: its own spans must not lack their parent.
#[test]
fn a_client_that_goes_away_leaves_the_part_of_the_upstream() {
    let (finish, told) = mpsc::channel::<()>();
    let told = Mutex::new(told);
    let upstream = Recorder::start(move |_| {
        // An error says so, too: the test is over.
        let _ = told.lock().expect("no thread panics with it").recv();
        ok("fine")
    });
    let collector = Collector::start();
    let mut gateway = gateway(&upstream, &collector, "0");
    let client = gateway.open(&format!("GET / HTTP/1.1\r\nHost: a\r\n{PARENT}\r\n\r\n"));
    eventually("the upstream is asked", || upstream.asked().len() == 1);
    drop(client);
    let spans = collector.trace(TRACE, 6);
    let request = named(&spans, "GET");
    let waiting = named(&spans, "upstream");
    assert_eq!(waiting.parent, request.id);
    let told = format!("00-{TRACE}-{}-01", waiting.id);
    assert_eq!(upstream.asked()[0].header("traceparent"), Some(&*told));
    finish.send(()).expect("the upstream waits");
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

/// The gateway asks a service: one trace has the spans of both, the service's stages inside the check of the gateway.
#[test]
fn a_service_that_decides_continues_the_trace() {
    for permits in ["--service-permits=false", "--service-permits=true"] {
        let (upstream, collector) = (Recorder::start(|_| ok("fine")), Collector::start());
        let url = collector.url();
        let traces = ["--otlp-endpoint", &url, "--trace-sample-ratio", "0"];
        let service = Service::new();
        let args = [&traces[..], &["--trace-service-name", "limits"]].concat();
        let mut running = service.start_with(&args);
        let (upstream_url, service_url) = (upstream.url(), service.url());
        let asking = ["--upstream", &upstream_url, "--service", &service_url];
        let asking = [&asking[..], &PATIENT, &[permits]].concat();
        let args = [&asking[..], &traces].concat();
        let mut gateway = Gateway::asking("auth: { domain: api }", &args);
        let answer = gateway.get("/", &[PARENT, "x-api-key: few"]);
        assert_eq!(answer.status, 200);
        let spans = collector.trace(TRACE, 7);
        let request = named(&spans, "GET");
        let method = if permits.ends_with("true") {
            "acquire"
        } else {
            "check"
        };
        let is_of = |span: &&Seen, service: &str| span.resource["service.name"] == service;
        let [asking, deciding] = ["ratekeeper", "limits"].map(|service| {
            let mut all = spans.iter().filter(|span| is_of(span, service));
            let found = all.find(|span| span.attributes.contains_key("ratekeeper.decision"));
            found.unwrap_or_else(|| panic!("no check of {service}: {spans:#?}"))
        });
        assert_eq!(
            (&*asking.name, &asking.parent, asking.kind),
            ("check", &request.id, 3)
        );
        assert_eq!(
            (&*deciding.name, &deciding.parent, deciding.kind),
            (method, &asking.id, 2)
        );
        for span in [asking, deciding] {
            assert_eq!(span.attributes["ratekeeper.decision"], "allow");
            let rule = &span.attributes["ratekeeper.rule"];
            assert!(rule.starts_with("api.api_key_~"), "{rule}");
            assert_eq!(span.attributes["ratekeeper.remaining"], "2");
        }
        for stage in ["match", "store", "combine"] {
            let stage = named(&spans, stage);
            assert_eq!(stage.parent, deciding.id);
            assert!(is_of(&stage, "limits"));
        }
        assert_eq!(named(&spans, "upstream").parent, request.id);
        // A request that is not recorded is not recorded by the service either.
        assert_eq!(gateway.get("/", &["x-api-key: few"]).status, 200);
        assert!(gateway.process.terminate().success());
        assert!(running.process.terminate().success());
        assert_eq!(collector.spans().len(), 7);
    }
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
