//! Envoy with examples/envoy.

use crate::support::{Request, Service, start, with_changes};
use ratekeeper_proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use ratekeeper_testkit::control_plane::ControlPlane;
use ratekeeper_testkit::http1::Answer;
use ratekeeper_testkit::process::{Process, eventually, free_port};
use ratekeeper_testkit::ratekeeper::Ratekeeper;
use ratekeeper_testkit::redis::{Cluster, Server};
use std::time::Duration;
use tempfile::TempDir;

/// The example's timeout for an answer; tests of something else replace it with [`PATIENT`]: machines that run tests
/// are slow at times, and without an answer no limit applies.
const SHIPPED: &str = "timeout: 0.02s";
const PATIENT: &str = "timeout: 20s";

struct Edge {
    port: u16,
    service: Service,
    ratekeeper: Ratekeeper,
    _envoy: Process,
    _folder: TempDir,
}

impl Edge {
    fn start(timeout: &str) -> Edge {
        Edge::start_with(&[(SHIPPED, timeout.to_owned())])
    }

    /// Starts the example with some changes.
    fn start_with(others: &[(&str, String)]) -> Edge {
        Edge::before(start("envoy", &[]), others)
    }

    /// Starts Envoy with some changes, before a Ratekeeper that runs.
    fn before(ratekeeper: Ratekeeper, others: &[(&str, String)]) -> Edge {
        let service = Service::start();
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (port, admin) = (free_port(), free_port());
        let mut changes = vec![
            ("port_value: 10000", format!("port_value: {port}")),
            ("port_value: 9901", format!("port_value: {admin}")),
            (
                "port_value: 9000",
                format!("port_value: {}", service.address.port()),
            ),
            (
                "port_value: 8081",
                format!("port_value: {}", ratekeeper.grpc),
            ),
        ];
        changes.extend_from_slice(others);
        let config = with_changes("envoy/envoy.yaml", folder.path(), &changes);
        Edge {
            port,
            service,
            ratekeeper,
            _envoy: Process::envoy(&config, &[port]),
            _folder: folder,
        }
    }

    fn get<'a>(&self, path: &'a str) -> Request<'a> {
        Request::get(self.port, path)
    }

    fn statuses(&self, request: &Request<'_>, count: usize) -> Vec<u16> {
        (0..count).map(|_| request.status()).collect()
    }
}

/// The limit in Envoy's header: the binding one's quota, then each policy.
fn limit(told: &Answer) -> (&str, &str) {
    let value = told.header("x-ratelimit-limit").unwrap_or_default();
    value.split_once(", ").unwrap_or((value, ""))
}

/// Within the window of a minute, and the twelfth of it by which a sliding window's answer may be late.
fn assert_reset(told: &Answer) {
    let reset = told.number("x-ratelimit-reset");
    assert!((1..=65).contains(&reset), "{reset}: {:?}", told.head);
}

#[test]
fn it_serves_then_denies_with_envoys_headers() {
    let edge = Edge::start(PATIENT);
    for remaining in (0..5).rev() {
        let told = edge.get("/").send();
        assert_eq!((told.status, &*told.body), (200, "served"));
        assert_eq!(told.number("x-ratelimit-remaining"), remaining);
        assert_eq!(limit(&told), ("5", r#"5;w=60;name="per-address""#));
        assert_reset(&told);
        assert!(!told.has("x-envoy-ratelimited"));
    }
    // Another address is not had by writing one.
    let told = edge
        .get("/")
        .header("x-forwarded-for", "203.0.113.7")
        .send();
    assert_eq!(told.status, 429);
    assert_eq!(
        told.header("x-envoy-ratelimited").unwrap_or_default(),
        "true"
    );
    assert_eq!(told.number("x-ratelimit-remaining"), 0);
    assert_reset(&told);
    assert_eq!(
        edge.service.requests(),
        5,
        "a denied request does not reach the service"
    );
}

#[test]
fn of_several_limits_the_closest_is_told() {
    let edge = Edge::start(PATIENT);
    let told = edge.get("/").header("x-api-key", "ada").send();
    assert_eq!(told.status, 200);
    let (closest, policies) = limit(&told);
    assert_eq!(closest, "5");
    assert_eq!(
        policies,
        r#"5;w=60;name="per-address", 100;w=60;name="per-key""#
    );
}

#[test]
fn routes_have_descriptors_of_their_own() {
    let edge = Edge::start(PATIENT);
    let ada = Request::new(edge.port, "POST", "/orders").header("x-api-key", "ada");
    assert_eq!(edge.statuses(&ada, 4), [200, 200, 429, 429]);
    let told = ada.send();
    assert_eq!(limit(&told), ("2", r#"2;w=3600;name="writes""#));
    let bob = Request::new(edge.port, "POST", "/orders").header("x-api-key", "bob");
    assert_eq!(bob.status(), 200);
    // Reads are another route, and the address has not been counted yet.
    let read = edge.get("/orders").header("x-api-key", "ada").send();
    assert_eq!(
        (read.status, read.number("x-ratelimit-remaining")),
        (200, 4)
    );
    // Without a key there is no descriptor.
    let anonymous = Request::new(edge.port, "POST", "/orders");
    assert_eq!(edge.statuses(&anonymous, 4), [200; 4]);
}

/// Envoy forwards headers that are no text, and lets a request pass that gets no decision.
#[test]
fn a_key_that_is_no_text_is_limited() {
    let edge = Edge::start(PATIENT);
    let odd = edge.get("/").raw_header("x-api-key", b"\xff");
    let expected: Vec<u16> = [[200; 5], [429; 5]].concat();
    assert_eq!(edge.statuses(&odd, 10), expected);
    assert_eq!(edge.service.requests(), 5);
    // Such a key has a counter of its own.
    let orders = |key| Request::new(edge.port, "POST", "/orders").raw_header("x-api-key", key);
    assert_eq!(edge.statuses(&orders(b"\xff"), 3), [200, 200, 429]);
    assert_eq!(edge.statuses(&orders(b"\xfe"), 3), [200, 200, 429]);
}

#[test]
fn a_key_of_34_kilobytes_in_three_descriptors_is_limited() {
    let edge = Edge::start(PATIENT);
    let long = "k".repeat(34_000);
    let odd = edge.get("/").header("x-api-key", &long);
    let expected: Vec<u16> = [[200; 5], [429; 5]].concat();
    assert_eq!(edge.statuses(&odd, 10), expected);
    // The shipped example has two descriptors with the key at most; three are 102 KB.
    let thrice = Edge::start_with(&[(SHIPPED, PATIENT.to_owned()), (
        "- request_headers: { header_name: x-api-key, descriptor_key: api_key }\n                      routes:",
        [
            "- request_headers: { header_name: x-api-key, descriptor_key: api_key }",
            "- actions: [{ request_headers: { header_name: x-api-key, descriptor_key: second } }]",
            "- actions: [{ request_headers: { header_name: x-api-key, descriptor_key: third } }]",
        ].join("\n                        ") + "\n                      routes:",
    )]);
    let odd = thrice.get("/").header("x-api-key", &long);
    assert_eq!(thrice.statuses(&odd, 10), expected);
}

#[test]
fn a_shadow_rule_denies_no_request_and_is_counted() {
    let edge = Edge::start(PATIENT);
    assert_eq!(edge.statuses(&edge.get("/search?q=a"), 8), [200; 8]);
    let rule = r#"{domain="edge",rule="edge.remote_address.endpoint_search""#;
    let shadow = format!("ratelimit_decisions_total{rule},decision=\"shadow_deny\"}}");
    assert_eq!(edge.ratekeeper.metric(&shadow), 6, "{shadow}");
    assert_eq!(edge.get("/").send().number("x-ratelimit-remaining"), 4);
}

#[test]
fn a_route_brings_its_own_limit() {
    let edge = Edge::start(PATIENT);
    let ada = edge.get("/premium").header("x-api-key", "ada");
    assert_eq!(edge.statuses(&ada, 7), [200, 200, 200, 200, 200, 429, 429]);
    let told = ada.send();
    assert!(
        told.header("x-ratelimit-limit")
            .unwrap_or_default()
            .starts_with("5, 5;w=3600"),
        "{:?}",
        told.head
    );
    assert_eq!(
        edge.get("/premium").header("x-api-key", "bob").status(),
        200
    );
}

#[test]
fn costs_are_counted_at_the_end_of_the_stream() {
    let edge = Edge::start(PATIENT);
    let spend = |path, key| edge.get(path).header("x-api-key", key).send();
    let told = spend("/generate?tokens=60", "ada");
    assert_eq!(
        (told.status, told.number("x-ratelimit-remaining")),
        (200, 100)
    );
    // The answer is there before its cost is counted. To ask costs nothing.
    let left = || spend("/generate?tokens=0", "ada").number("x-ratelimit-remaining");
    eventually("60 tokens are counted", || left() == 40);
    assert_eq!(
        spend("/generate?tokens=60", "ada").status,
        200,
        "some are left"
    );
    let is_denied = || spend("/generate?tokens=0", "ada").status == 429;
    eventually("more is spent than there was", is_denied);
    assert_eq!(spend("/generate?tokens=1", "bob").status, 200);
}

/// Budgets by each algorithm that has them, and the one limit without `post_paid` that remembers what it is overdrawn by.
const BUDGETS: &str = "domain: edge
descriptors:
- key: api_key
  descriptors:
  - { key: budget, value: sliding, rate_limit: { window: 24h, limit: 100, post_paid: true } }
  - { key: budget, value: window, rate_limit: { window: 10000d, limit: 100, post_paid: true, algorithm: fixed_window } }
  - { key: budget, value: log, rate_limit: { window: 24h, limit: 100, post_paid: true, algorithm: sliding_log } }
  - { key: budget, value: bucket, rate_limit: { window: 24h, limit: 100, post_paid: true, algorithm: token_bucket } }
  - { key: budget, value: gcra, rate_limit: { window: 24h, limit: 100, post_paid: true, algorithm: gcra } }
  - { key: budget, value: counted, rate_limit: { window: 10000d, limit: 100, count_denied: true, algorithm: fixed_window } }
";

/// Envoy looks with 0 hits, and charges 500 of 100 when the stream is done.
fn a_look_is_denied_after_a_stream_of_500_of_100(store: &str) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, BUDGETS).expect("files can be written");
    let rules = rules.to_str().expect("it is text");
    let flags = ["--rules", rules, "--store", store, "--store-deadline", "1s"];
    let ratekeeper = start("envoy", &flags);
    let ready = Request::get(ratekeeper.port, "/readyz");
    eventually("the store answers", || {
        ready.send().body.contains("\"faults\":[]")
    });
    let named = "request_headers: { header_name: x-budget, descriptor_key: budget }";
    let edge = Edge::before(
        ratekeeper,
        &[
            (SHIPPED, PATIENT.to_owned()),
            (
                "generic_key: { descriptor_key: budget, descriptor_value: tokens }",
                named.to_owned(),
            ),
        ],
    );
    for budget in ["sliding", "window", "log", "bucket", "gcra", "counted"] {
        let spend = |path, key| {
            let request = edge.get(path).header("x-api-key", key);
            request.header("x-budget", budget).status()
        };
        assert_eq!(spend("/generate?tokens=500", "ada"), 200, "{budget}");
        // The answer is there before its cost is counted.
        eventually(budget, || spend("/generate?tokens=0", "ada") == 429);
        assert_eq!(spend("/generate?tokens=0", "bob"), 200, "{budget}");
    }
}

#[test]
fn budgets_hold_behind_envoy_in_memory() {
    a_look_is_denied_after_a_stream_of_500_of_100("memory");
}

#[test]
fn budgets_hold_behind_envoy_on_redis() {
    let server = Server::start();
    a_look_is_denied_after_a_stream_of_500_of_100(&format!("redis://127.0.0.1:{}/", server.port()));
}

#[test]
fn budgets_hold_behind_envoy_on_a_cluster() {
    let cluster = Cluster::of(3, 0, Duration::from_secs(15));
    let port = cluster.ports()[0];
    a_look_is_denied_after_a_stream_of_500_of_100(&format!("redis+cluster://127.0.0.1:{port}/"));
}

/// Resources of a control plane have no field for budgets: `xds_defaults` makes one of each of its limits.
#[test]
fn budgets_of_a_control_plane_hold_behind_envoy() {
    let limit = RateLimitPolicy {
        unit: RateLimitUnit::Year.into(),
        requests_per_unit: 100,
        ..RateLimitPolicy::default()
    };
    let budget = RateLimitDescriptor {
        key: "budget".to_owned(),
        value: "tokens".to_owned(),
        rate_limit: Some(limit),
        ..RateLimitDescriptor::default()
    };
    let by_key = RateLimitDescriptor {
        key: "api_key".to_owned(),
        descriptors: vec![budget],
        ..RateLimitDescriptor::default()
    };
    let rules = RateLimitConfig {
        name: "edge".to_owned(),
        domain: "edge".to_owned(),
        descriptors: vec![by_key],
    };
    for algorithm in ["token_bucket", "sliding_window"] {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let data = folder.path().to_str().expect("it is text");
        let plane = ControlPlane::start(0, None);
        let version = plane.send(std::slice::from_ref(&rules));
        let from = format!("xds://{}", plane.address());
        let defaults = format!("{{algorithm: {algorithm}, post_paid: true}}");
        let ratekeeper = start(
            "envoy",
            &[
                "--rules",
                &from,
                "--xds-defaults",
                &defaults,
                "--data-dir",
                data,
            ],
        );
        assert_eq!(
            plane.answer(version),
            None,
            "{algorithm}: the rules are in force"
        );
        let edge = Edge::before(ratekeeper, &[(SHIPPED, PATIENT.to_owned())]);
        let spend = |path, key| edge.get(path).header("x-api-key", key).send();
        let look = |key| spend("/generate?tokens=0", key);
        let told = look("ada");
        assert_eq!(
            (told.status, told.number("x-ratelimit-remaining")),
            (200, 100),
            "{algorithm}: a look takes nothing"
        );
        // It passes while anything is left, and is charged in full when its stream is done.
        assert_eq!(
            spend("/generate?tokens=60", "ada").status,
            200,
            "{algorithm}"
        );
        eventually("60 tokens are charged", || {
            look("ada").number("x-ratelimit-remaining") == 40
        });
        assert_eq!(
            spend("/generate?tokens=500", "ada").status,
            200,
            "{algorithm}"
        );
        eventually("the budget is overdrawn", || look("ada").status == 429);
        let served = edge.service.requests();
        assert_eq!(
            spend("/generate?tokens=1", "ada").status,
            429,
            "{algorithm}"
        );
        assert_eq!(edge.service.requests(), served, "the service is not asked");
        assert_eq!(look("bob").status, 200, "{algorithm}: others have theirs");
    }
}

#[test]
fn without_ratekeeper_requests_pass_and_limits_return_with_it() {
    let mut edge = Edge::start(PATIENT);
    assert_eq!(
        edge.statuses(&edge.get("/"), 6),
        [200, 200, 200, 200, 200, 429]
    );
    edge.ratekeeper.process.kill();
    for _ in 0..10 {
        let told = edge.get("/").send();
        assert_eq!(told.status, 200, "{:?}", told.head);
        assert!(
            !told.has("x-ratelimit-limit"),
            "it was not counted: {:?}",
            told.head
        );
    }
    edge.ratekeeper.restart();
    eventually("limits are back", || edge.get("/").status() == 429);
}

#[test]
fn a_hung_ratekeeper_is_not_waited_for() {
    let mut edge = Edge::start(SHIPPED);
    eventually("it limits", || edge.get("/").status() == 429);
    edge.ratekeeper.process.pause();
    for _ in 0..10 {
        let told = edge.get("/").send();
        assert_eq!(told.status, 200);
        assert!(
            !told.has("x-ratelimit-limit"),
            "it was not counted: {:?}",
            told.head
        );
    }
    edge.ratekeeper.process.resume();
    eventually("limits are back", || edge.get("/").status() == 429);
}
