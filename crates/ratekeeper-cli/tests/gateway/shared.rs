//! Gateways that share a Redis hold each tenant to its threshold together.

use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::redis::Server;
use serde_json::Value;

use crate::support::{Gateway, Upstream, ok, ran};

const LEVELS: &str = "
slas_base: /v1/organizations/{tenant}
slas:
  - id: put-product
    match: { methods: [ PUT ], pathPattern: /product/* }
    tiers: [ { period: 1, threshold: 10 } ]
";

/// Asks all of `gateways` by `ratekeeper bench gateway`, far above the threshold, and answers its JSON.
fn bench(gateways: &[Gateway], args: &[&str]) -> Value {
    let targets = gateways
        .iter()
        .map(|gateway| format!("127.0.0.1:{}", gateway.port));
    let targets: Vec<String> = targets.collect();
    let targets = targets.join(",");
    let own = ["bench", "gateway", "--json", "--warm-up", "0", "--target"];
    let said = ran(&[&own[..], &[&*targets], args].concat());
    assert!(said.code == Some(0), "{}", said.err);
    serde_json::from_str(&said.out).expect("it prints JSON")
}

#[test]
fn three_gateways_let_exactly_the_threshold_of_each_window_pass() {
    // A gateway that misses the longest deadline that there is lets ten pass by itself: then the machine was too slow.
    let is_seen = (0..10).any(|_| is_seen_to_be_exact());
    assert!(is_seen, "no gateway answered by Redis alone");
}

/// Asks three gateways with a Redis of their own, and checks what they let pass. False if some missed their deadline.
fn is_seen_to_be_exact() -> bool {
    let redis = Server::start();
    let upstream = Upstream::start(|_| ok("hello"));
    let store = format!("redis://127.0.0.1:{}/", redis.port());
    let args = [
        "--upstream",
        &upstream.url(),
        "--store",
        &store,
        "--store-deadline",
        "1s",
        "--require-store",
    ];
    let gateways = [(); 3].map(|()| Gateway::start_with(LEVELS, "", &args));
    let path = "/v1/organizations/{key}/product/7";
    let load = ["--rate", "300", "--duration", "4s", "--windows", "1s"];
    let keys = ["--method", "PUT", "--path", path, "--keys", "uniform:5"];
    let report = bench(&gateways, &[&load[..], &keys[..]].concat());
    let none = r#"ratelimit_gateway_held_total{what="degraded"} 0"#;
    let are_exact = gateways
        .iter()
        .all(|gateway| gateway.told("/metrics").contains(none));
    if !are_exact {
        return false;
    }
    let windows = &report["windows"];
    assert_eq!(windows["windows"], 3, "{report}");
    assert_eq!(report["errors"], serde_json::json!({}), "{report}");
    assert!(windows["passed_max"].as_u64() <= Some(10), "{report}");
    // On a machine that stands still no request is sent, and none passes.
    let asked = windows["asked_min"].as_u64().expect("a count");
    let passed = windows["passed_min"].as_u64().expect("a count");
    assert!(passed >= asked.min(10), "{report}");
    assert!(report["denied"].as_u64() > Some(0), "{report}");
    let forwarded = upstream.asked().len() as u64;
    assert_eq!(report["allowed"].as_u64(), Some(forwarded), "{report}");
    assert!(redis.client().calls("evalsha") > 0, "they counted there");
    true
}

#[test]
fn a_load_that_makes_no_sense_is_refused() {
    let refused = |args: &[&str], word: &str| {
        let said = ran(&[&["bench", "gateway"], args].concat());
        assert_ne!(said.code, Some(0));
        assert_contains(&said.err, word);
    };
    refused(&["--path", "orders"], "write one such as");
    refused(&["--keys", "uniform:2"], "/tenants/{key}");
    refused(&["--windows", "10ms"], "less than a second");
    let two = "127.0.0.1:1,127.0.0.1:2";
    refused(&["--target", two, "--connections", "1"], "too few");
    refused(
        &["--target", "127.0.0.1:1,here"],
        "`here` is not an address",
    );
}
