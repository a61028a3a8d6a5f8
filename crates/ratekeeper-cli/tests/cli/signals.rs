//! Signs for operators of a Redis that fails now and then, or answers without deciding anything.

use std::path::Path;
use std::thread;
use std::time::Duration;

use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::proxy::Proxy;
use ratekeeper_testkit::redis::Server;
use serde_json::Value;
use tempfile::tempdir;

use crate::support::{Ratekeeper, http, serve};

const RULES: &str = "domain: d
descriptors: [{ key: user, rate_limit: { window: 24h, limit: 1000000 } }]
";

/// The most lines that a state and its end may take: that it fails, that it is not asked, that who
/// looks after it cannot ask either, that it is unsteady, and that this is over.
const LINES_MAX: usize = 6;

fn node(folder: &Path, port: u16, deadline: &str) -> Ratekeeper {
    let store = format!("--store redis://127.0.0.1:{port}/ --store-deadline {deadline}");
    serve(folder).rules(RULES).args(&store).start()
}

fn readyz(service: &Ratekeeper) -> Value {
    let (status, body) = http(service.port, "GET", "/readyz", "");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("it is JSON")
}

fn degraded_ratio(service: &Ratekeeper) -> f64 {
    let ready = readyz(service);
    let ratio = ready["degraded_ratio"]["default"].as_f64();
    let metrics = service.metrics();
    let name = "ratelimit_degraded_ratio{store=\"default\"} ";
    assert_contains(&metrics, name);
    ratio.unwrap_or(0.0)
}

/// Lines of the log about Redis itself.
fn lines(service: &Ratekeeper) -> usize {
    let log = service.log();
    let of_redis = |line: &&str| line.contains("shard=");
    log.lines().filter(of_redis).count()
}

#[test]
fn a_redis_that_answers_and_decides_nothing_is_said_all_the_time_and_logged_once() {
    let server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let service = node(folder.path(), server.port(), "1s");
    eventually("it counts in Redis", || {
        service.check(&[("user", "ada")])["degraded"] == false
    });
    let before = lines(&service);
    let mut client = server.client();
    client.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let is_said = |ready: &Value| ready["faults"].to_string().contains("does not serve");
    eventually("it is said", || {
        service.check(&[("user", "ada")]);
        is_said(&readyz(&service))
    });
    // Three seconds of traffic, in which a breaker that believes PING closes some twenty times.
    for _ in 0..300 {
        let answer = service.check(&[("user", "ada")]);
        assert_eq!(answer["degraded"], true, "{answer}");
        let ready = readyz(&service);
        assert!(is_said(&ready), "{ready}");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(degraded_ratio(&service) > 0.5);
    let by_modes = "failure modes gave";
    let ready = readyz(&service)["faults"].to_string();
    assert_contains(&ready, by_modes);
    let said = lines(&service) - before;
    assert!((1..=LINES_MAX).contains(&said), "{}", service.log());
    client.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("it serves again", || {
        service.check(&[("user", "ada")])["degraded"] == false
    });
    // Also while Redis serves: answers by failure modes are reported for as long as they are recent.
    let ready = readyz(&service)["faults"].to_string();
    assert_contains(&ready, by_modes);
    eventually("that is old news", || degraded_ratio(&service) == 0.0);
    eventually("and not said any more", || {
        readyz(&service)["faults"] == serde_json::json!([])
    });
    assert!(
        lines(&service) - before <= 2 * LINES_MAX,
        "{}",
        service.log()
    );
}

/// A round trip of most of the deadline: some decisions miss it, whatever else the machine does.
#[test]
fn a_redis_that_is_nearly_too_far_away_is_warned_of_and_logged_once() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    proxy.delay(Duration::from_millis(8));
    let folder = tempdir().expect("a folder can be made");
    let service = node(folder.path(), proxy.port(), "20ms");
    let warning = "the round trip to Redis";
    eventually("it is said in both places", || {
        let ready = readyz(&service)["faults"].to_string();
        ready.contains(warning) && service.log().contains(warning)
    });
    let before = lines(&service);
    thread::scope(|scope| {
        for caller in 0..4 {
            let service = &service;
            scope.spawn(move || {
                for round in 0..100 {
                    let user = format!("{caller} {}", round % 7);
                    service.check(&[("user", &user)]);
                }
            });
        }
    });
    let said = lines(&service) - before;
    assert!(said <= LINES_MAX, "{said}: {}", service.log());
}
