//! `post_paid`: budgets whose costs are charged afterwards, over every protocol and on every store.

use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use ratekeeper_proto::ratekeeper::v1;
use ratekeeper_proto::ratekeeper::v1::rate_limiter_service_client::RateLimiterServiceClient;
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Cluster, Server};
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::tempdir;
use tokio::runtime::Runtime;

use crate::support::{Ratekeeper, http, node, url};

const RULES: &str = "domain: d
descriptors:
- { key: sliding, rate_limit: { window: 24h, limit: 100, post_paid: true } }
- { key: window, rate_limit: { window: 10000d, limit: 100, post_paid: true, algorithm: fixed_window } }
- { key: log, rate_limit: { window: 24h, limit: 100, post_paid: true, algorithm: sliding_log } }
- { key: bucket, rate_limit: { window: 24h, limit: 100, post_paid: true, algorithm: token_bucket } }
- { key: gcra, rate_limit: { window: 24h, limit: 100, post_paid: true, algorithm: gcra, max_debt: 450 } }
- { key: counted, rate_limit: { window: 10000d, limit: 100, count_denied: true, algorithm: fixed_window } }
- { key: requests, rate_limit: { window: 10000d, limit: 5, algorithm: fixed_window } }
- { key: paid, rate_limit: { window: 10000d, limit: 100, algorithm: fixed_window } }
";

const BUDGETS: [&str; 5] = ["sliding", "window", "log", "bucket", "gcra"];

/// The ways to ask.
#[derive(Clone, Copy, Debug)]
enum Protocol {
    Json,
    V1,
    Rls,
    V1Grpc,
}

impl Protocol {
    const ALL: [Self; 4] = [Self::Json, Self::V1, Self::Rls, Self::V1Grpc];

    /// Returns true if `hits` of the descriptor `key` are allowed.
    fn allows(self, runtime: &Runtime, service: &Ratekeeper, key: &str, hits: u64) -> bool {
        let value = format!("{self:?}");
        match self {
            Self::Json => {
                let answer = post(
                    service,
                    "/json",
                    &json!({ "domain": "d", "descriptors": [
                        { "entries": [{ "key": key, "value": value }], "hits_addend": hits.to_string() }
                    ]}),
                );
                answer.1["overallCode"] == "OK"
            }
            Self::V1 => {
                let answer = post(
                    service,
                    "/v1/check",
                    &json!({ "domain": "d", "descriptors": [
                        { "entries": [{ "key": key, "value": value }], "hits": hits }
                    ]}),
                );
                answer.1["decision"] == "allow"
            }
            Self::Rls => runtime.block_on(rls(service, key, value, hits)),
            Self::V1Grpc => runtime.block_on(v1_grpc(service, key, value, hits)),
        }
    }
}

async fn rls(service: &Ratekeeper, key: &str, value: String, hits: u64) -> bool {
    let client =
        RateLimitServiceClient::connect(format!("http://127.0.0.1:{}", service.grpc)).await;
    let descriptor = RateLimitDescriptor {
        entries: vec![entry(key, value)],
        hits_addend: Some(hits),
        ..RateLimitDescriptor::default()
    };
    let request = RateLimitRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor],
        hits_addend: 0,
    };
    let answer = client.expect("it listens").should_rate_limit(request).await;
    answer.expect("it answers").into_inner().overall_code() == Code::Ok
}

async fn v1_grpc(service: &Ratekeeper, key: &str, value: String, hits: u64) -> bool {
    let client =
        RateLimiterServiceClient::connect(format!("http://127.0.0.1:{}", service.grpc)).await;
    let request = v1::CheckRequest {
        domain: "d".to_owned(),
        descriptors: vec![v1::Descriptor {
            entries: vec![entry(key, value)],
            hits: Some(hits),
            ..v1::Descriptor::default()
        }],
        ..v1::CheckRequest::default()
    };
    let answer = client.expect("it listens").check(request).await;
    answer.expect("it answers").into_inner().decision() == v1::Decision::Allow
}

fn entry(key: &str, value: String) -> WireEntry {
    WireEntry {
        key: key.to_owned(),
        value,
    }
}

fn post(service: &Ratekeeper, path: &str, body: &Value) -> (u16, Value) {
    let (status, body) = http(service.port, "POST", path, &body.to_string());
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

/// A check of one descriptor.
fn check(key: &str, value: &str, hits: impl Into<Value>) -> Value {
    json!({ "domain": "d", "descriptors": [
        { "entries": [{ "key": key, "value": value }], "hits": hits.into() }
    ]})
}

fn looks_at(service: &Ratekeeper, key: &str, value: &str) -> (bool, u64) {
    let (_, answer) = post(service, "/v1/check", &check(key, value, 0));
    let left = answer["remaining"].as_u64().expect("a limit answered");
    (answer["decision"] == "allow", left)
}

/// An AI gateway asks with 0 hits before a request, and charges its tokens when the stream is done.
fn a_look_is_denied_after_a_charge_of_500_of_100(store: &str) {
    let folder = tempdir().expect("a folder can be made");
    let service = node(folder.path(), "one", RULES, store);
    let runtime = Runtime::new().expect("a runtime can be made");
    eventually("the store answers", || {
        service.check(&[("requests", "probe")])["degraded"] == false
    });
    for protocol in Protocol::ALL {
        let allows = |key, hits| protocol.allows(&runtime, &service, key, hits);
        for key in BUDGETS {
            assert!(allows(key, 0), "{protocol:?} {key}: nothing is used");
            assert!(allows(key, 500), "{protocol:?} {key}: it was let in");
            assert!(!allows(key, 0), "{protocol:?} {key}: nothing is left");
            assert!(!allows(key, 1), "{protocol:?} {key}: nor for a hit");
        }
        assert!(!allows("counted", 500), "{protocol:?}");
        assert!(!allows("counted", 0), "{protocol:?}");
    }
    assert!(service.stop().success());
}

#[test]
fn budgets_hold_in_memory() {
    a_look_is_denied_after_a_charge_of_500_of_100("memory");
}

#[test]
fn budgets_hold_on_redis() {
    let server = Server::start();
    a_look_is_denied_after_a_charge_of_500_of_100(&url(&server));
}

#[test]
fn budgets_hold_on_a_cluster() {
    let cluster = Cluster::of(3, 0, Duration::from_secs(15));
    a_look_is_denied_after_a_charge_of_500_of_100(&cluster.url());
}

/// Two nodes share one budget; a debt is told, and no charge with a key counts twice.
#[test]
fn nodes_share_a_debt_and_charge_a_key_once() {
    let server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let [one, two] = ["one", "two"].map(|name| node(folder.path(), name, RULES, &url(&server)));
    for service in [&one, &two] {
        eventually("the store answers", || {
            service.check(&[("requests", "probe")])["degraded"] == false
        });
    }
    let mut charge = check("gcra", "team", 70);
    charge["idempotency_key"] = json!("stream-1");
    for service in [&one, &two, &one] {
        let (status, answer) = post(service, "/v1/check", &charge);
        assert_eq!(
            (status, &answer["remaining"]),
            (200, &json!(30)),
            "{answer}"
        );
    }
    charge["descriptors"][0]["hits"] = json!(71);
    assert_eq!(post(&two, "/v1/check", &charge).0, 409);
    // Denied charges count once, too.
    charge = check("gcra", "team", 1_000);
    charge["idempotency_key"] = json!("stream-2");
    let (_, answer) = post(&two, "/v1/check", &charge);
    assert_eq!(
        (&answer["decision"], &answer["debt"]),
        (&json!("allow"), &json!(450))
    );
    charge = check("gcra", "team", 1);
    charge["idempotency_key"] = json!("stream-3");
    for service in [&one, &two] {
        let (_, answer) = post(service, "/v1/check", &charge);
        assert_eq!(answer["decision"], "deny", "{answer}");
    }
    let (_, answer) = post(&one, "/v1/check", &check("gcra", "team", 0));
    assert_eq!(
        (&answer["remaining"], &answer["debt"]),
        (&json!(0), &json!(450))
    );
    let batch = json!({ "checks": [charge] });
    assert_eq!(post(&one, "/v1/checks", &batch).0, 400);
    assert!(one.stop().success() && two.stop().success());
}

/// A cost above the reservation goes to the budget, once; a limit paid in advance refuses it.
#[test]
fn a_commit_above_the_reservation_is_charged_to_the_budget() {
    let folder = tempdir().expect("a folder can be made");
    let service = node(folder.path(), "one", RULES, "memory");
    let reserve = |key: &str| {
        let body = json!({ "domain": "d", "hits": 40, "descriptors": [
            { "entries": [{ "key": key, "value": "a" }] }
        ]});
        post(&service, "/v1/reserve", &body).1
    };
    for key in BUDGETS {
        let token = reserve(key)["reservation"].clone();
        assert!(token.is_string(), "{key}");
        assert_eq!(looks_at(&service, key, "a"), (true, 60), "{key}");
        let commit = json!({ "reservation": token, "hits": 90 });
        for repeated in [false, true] {
            let (status, settled) = post(&service, "/v1/commit", &commit);
            assert_eq!(status, 200, "{key}: {settled}");
            assert_eq!(settled["repeated_before"], repeated, "{key}");
            assert_eq!(looks_at(&service, key, "a"), (true, 10), "{key}");
        }
        // Reserved as long as anything is left, and never committed: it stays charged.
        assert!(reserve(key)["reservation"].is_string(), "{key}");
        assert_eq!(looks_at(&service, key, "a"), (false, 0), "{key}");
        // A reservation that is denied costs nothing.
        let before = looks_at(&service, key, "a");
        assert_eq!(reserve(key)["decision"], "deny", "{key}");
        assert_eq!(looks_at(&service, key, "a"), before, "{key}");
    }
    let token = reserve("paid")["reservation"].clone();
    let commit = json!({ "reservation": token, "hits": 41 });
    assert_eq!(post(&service, "/v1/commit", &commit).0, 400);
    assert!(service.stop().success());
}

/// A charge of anything else than a number of hits changes nothing; a thousand of them count each.
#[test]
fn charges_that_make_no_sense_cost_nothing() {
    let folder = tempdir().expect("a folder can be made");
    let service = node(folder.path(), "one", RULES, "memory");
    for key in BUDGETS {
        for hits in [
            json!(9_223_372_036_854_775_808_u64),
            json!(-1),
            json!("1"),
            json!(0.5),
        ] {
            let (_, answer) = post(&service, "/v1/check", &check(key, "bad", hits.clone()));
            assert_ne!(answer["decision"], "allow", "{key} {hits}: {answer}");
        }
        assert_eq!(looks_at(&service, key, "bad"), (true, 100), "{key}");
        // A charge is given back by a refund, down to nothing.
        post(&service, "/v1/check", &check(key, "bad", 30));
        for left in [90, 100, 100] {
            let refund = check(key, "bad", 20);
            assert_eq!(post(&service, "/v1/refund", &refund).0, 200, "{key}");
            assert_eq!(looks_at(&service, key, "bad"), (true, left), "{key}");
        }
        let charges: Vec<Value> = (0..1_000).map(|_| check(key, "many", 1)).collect();
        let (status, answer) = post(&service, "/v1/checks", &json!({ "checks": charges }));
        assert_eq!(status, 200, "{answer}");
        let results = answer["results"].as_array().expect("a list");
        let let_in = results
            .iter()
            .filter(|answer| answer["decision"] == "allow");
        assert_eq!(let_in.count(), 100, "{key}");
        assert_eq!(looks_at(&service, key, "many"), (false, 0), "{key}");
    }
    // One request looks at a budget and takes from a limit of requests, which is charged only if both let it pass.
    let both = |hits: u64| {
        let entries = |key: &str| json!([{ "key": key, "value": "both" }]);
        json!({ "domain": "d", "descriptors": [
            { "entries": entries("bucket"), "hits": hits },
            { "entries": entries("requests"), "hits": 1 }
        ]})
    };
    assert_eq!(post(&service, "/v1/check", &both(0)).1["decision"], "allow");
    assert!(post(&service, "/v1/check", &check("bucket", "both", 150)).1["debt"] == 50);
    for _ in 0..3 {
        assert_eq!(post(&service, "/v1/check", &both(0)).1["decision"], "deny");
    }
    assert_eq!(looks_at(&service, "requests", "both"), (true, 4));
    assert!(service.stop().success());
}

/// A debt is told wherever the state of a limit is; what is beyond the largest one is counted and logged.
fn a_debt_is_told_and_what_exceeds_it_is_counted(store: &str) {
    let folder = tempdir().expect("a folder can be made");
    let service = node(folder.path(), "one", RULES, store);
    eventually("the store answers", || {
        service.check(&[("requests", "probe")])["degraded"] == false
    });
    let mut charge = check("gcra", "team", 160);
    charge["standing"] = json!(true);
    let (_, answer) = post(&service, "/v1/check", &charge);
    assert_eq!(answer["debt"], 60, "{answer}");
    assert_eq!(answer["standing"]["binding"]["debt"], 60, "{answer}");
    let body = check("gcra", "team", 0).to_string();
    let (_, explained) = http(service.admin, "POST", "/admin/v1/explain", &body);
    let explained: Value = serde_json::from_str(&explained).expect("JSON");
    let limit = &explained["descriptors"][0]["nodes"][0]["limits"][0];
    assert_eq!(
        (&limit["remaining"], &limit["debt"]),
        (&json!(0), &json!(60)),
        "{explained}"
    );
    let cut = || {
        let text = service.metrics();
        let mut lines = text.lines();
        let line = lines.find(|line| {
            line.starts_with("ratelimit_debt_cut_hits_total{") && line.contains("\"d.gcra\"")
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    assert_eq!(cut(), Some(0));
    // 390 more are charged until 450 are missing; 610 are cut, and then each of a denied charge.
    post(&service, "/v1/check", &check("gcra", "team", 1_000));
    assert_eq!(cut(), Some(610));
    let (_, answer) = post(&service, "/v1/check", &check("gcra", "team", 7));
    assert_eq!(
        (&answer["decision"], &answer["debt"]),
        (&json!("deny"), &json!(450))
    );
    assert_eq!(cut(), Some(617));
    // A look takes nothing, and so is not cut.
    assert_eq!(looks_at(&service, "gcra", "team"), (false, 0));
    assert_eq!(cut(), Some(617));
    // A commit of more than was reserved owes as much, and is counted once.
    let body = json!({ "domain": "d", "hits": 40, "descriptors": [
        { "entries": [{ "key": "gcra", "value": "reserves" }] }
    ]});
    let (_, reserved) = post(&service, "/v1/reserve", &body);
    let commit = json!({ "reservation": reserved["reservation"], "hits": 1_040 });
    for repeated in [false, true] {
        let (_, settled) = post(&service, "/v1/commit", &commit);
        assert_eq!(settled["repeated_before"], repeated, "{settled}");
        assert_eq!(cut(), Some(617 + 490), "40 reserved, 510 charged");
    }
    let log = service.wait_for_log("hits beyond `max_debt` were not charged");
    assert_contains(&log, "d.gcra");
    assert!(service.stop().success());
}

#[test]
fn a_debt_is_told_in_memory() {
    a_debt_is_told_and_what_exceeds_it_is_counted("memory");
}

#[test]
fn a_debt_is_told_on_redis() {
    let server = Server::start();
    a_debt_is_told_and_what_exceeds_it_is_counted(&url(&server));
}

const SYNCED: &str = "domain: d
descriptors:
- { key: window, rate_limit: { window: 10000d, limit: 100, post_paid: true, algorithm: fixed_window, consistency: synced, sync_interval: 50ms } }
- { key: sliding, rate_limit: { window: 24h, limit: 100, post_paid: true, consistency: synced, sync_interval: 50ms } }
";

/// Each node charges its synced budget in full and at once; the others know of it an interval later.
#[test]
fn nodes_tell_each_other_what_a_synced_budget_was_charged() {
    let server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let nodes = ["one", "two", "looks"];
    let [one, two, looks] = nodes.map(|name| node(folder.path(), name, SYNCED, &url(&server)));
    for key in ["window", "sliding"] {
        assert_eq!(looks_at(&one, key, "team"), (true, 100), "{key}");
        // Less than the budget on each, more than it together.
        for service in [&one, &two] {
            let (_, answer) = post(service, "/v1/check", &check(key, "team", 60));
            assert_eq!(answer["decision"], "allow", "{key}: {answer}");
        }
        for service in [&one, &two, &looks] {
            eventually("a node knows what the others charged", || {
                looks_at(service, key, "team") == (false, 0)
            });
        }
        // A charge after that is taken all the same, and told as a denial.
        let (_, answer) = post(&two, "/v1/check", &check(key, "team", 500));
        assert_eq!(answer["decision"], "deny", "{key}: {answer}");
        let mut keyed = check(key, "team", 1);
        keyed["idempotency_key"] = json!("stream-1");
        assert_eq!(post(&one, "/v1/check", &keyed).0, 400, "{key}");
    }
    for service in [one, two, looks] {
        assert!(service.stop().success());
    }
}
