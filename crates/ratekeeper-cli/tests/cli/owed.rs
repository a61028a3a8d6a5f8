//! Hits that passed while Redis was away count there once it is back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Ratekeeper, http, node, serve, url};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::Server;
use tempfile::tempdir;

/// Limits of a day, which no test sees end, of every algorithm that counts.
const RULES: &str = "domain: d
descriptors:
- { key: warm, rate_limit: { window: 24h, limit: 1000000 } }
- { key: fixed, rate_limit: { window: 24h, limit: 100, algorithm: fixed_window } }
- { key: sliding, rate_limit: { window: 24h, limit: 100 } }
- { key: parts, rate_limit: { window: 24h, limit: 100, sub_windows: 12 } }
- { key: log, rate_limit: { window: 24h, limit: 100, algorithm: sliding_log } }
- { key: bucket, rate_limit: { window: 24h, limit: 100, algorithm: token_bucket } }
- { key: gcra, rate_limit: { window: 24h, limit: 100, algorithm: gcra } }
- { key: open, rate_limit: { window: 24h, limit: 100, algorithm: fixed_window }, on_store_failure: allow }
- { key: shut, rate_limit: { window: 24h, limit: 100, algorithm: fixed_window }, on_store_failure: deny }
- { key: ample, rate_limit: { window: 24h, limit: 1000000, algorithm: fixed_window }, on_store_failure: deny }
";

/// The limit of each.
const LIMIT: u64 = 100;

/// Checks of each limit that pass on each node while Redis is away.
const AWAY: u64 = 30;

/// Asks once; returns true if the check passed.
fn passes(service: &Ratekeeper, key: &str) -> bool {
    service.check(&[(key, "a")])["decision"] == "allow"
}

fn is_degraded(service: &Ratekeeper) -> bool {
    service.check(&[("warm", "a")])["degraded"] == true
}

/// The count of hits in `state`: `owed`, or what became of those.
pub(crate) fn owed(service: &Ratekeeper, state: &str) -> u64 {
    count(
        service,
        &format!("ratelimit_owed_hits_total{{state=\"{state}\"}}"),
    )
}

/// The value of the only series that begins like this.
fn count(service: &Ratekeeper, series: &str) -> u64 {
    let metrics = service.metrics();
    let line = metrics.lines().find(|line| line.starts_with(series));
    let value = line.and_then(|line| line.rsplit(' ').next());
    // Some whole numbers are written with a fraction.
    let value = value.and_then(|value| value.strip_suffix(".0").unwrap_or(value).parse().ok());
    value.unwrap_or_else(|| panic!("no {series} in {metrics}"))
}

/// Asks both nodes in turn until one check is denied; returns how many passed.
fn left(nodes: &[Ratekeeper; 2], key: &str) -> u64 {
    (0..3 * LIMIT)
        .take_while(|number| passes(&nodes[(number % 2) as usize], key))
        .count() as u64
}

#[test]
fn what_passed_while_redis_hung_counts_once_it_goes_on() {
    let mut server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let nodes = ["one", "two"].map(|name| node(folder.path(), name, RULES, &url(&server)));
    eventually("Redis decides", || !nodes.iter().any(is_degraded));
    server.process().pause();
    // Calls that are sent to a server that hangs may be carried out later: none of the limits below has any.
    eventually("the nodes leave it alone", || {
        nodes.iter().all(|node| {
            let (_, ready) = http(node.admin, "GET", "/readyz", "");
            is_degraded(node) && ready.contains("does not serve")
        })
    });
    let keys = ["fixed", "sliding", "parts", "log", "bucket", "gcra", "open"];
    for node in &nodes {
        for key in keys {
            let passed = (0..AWAY).filter(|_| passes(node, key)).count() as u64;
            assert_eq!(passed, AWAY, "{key}");
        }
        assert!(!passes(node, "shut"));
        assert!(owed(node, "owed") >= AWAY * keys.len() as u64);
    }
    server.process().resume();
    eventually("everything is posted", || {
        let is_posted = |node: &Ratekeeper| owed(node, "posted") == owed(node, "owed");
        nodes.iter().all(is_posted)
    });
    for key in keys {
        assert_eq!(left(&nodes, key), LIMIT - 2 * AWAY, "{key}");
    }
    assert_eq!(left(&nodes, "shut"), LIMIT, "a denial owes nothing");
}

/// However many nodes post, no caller waits longer than for one full counter.
#[test]
fn a_post_fills_a_counter_to_its_limit_at_most() {
    let mut server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let nodes = ["one", "two"].map(|name| node(folder.path(), name, RULES, &url(&server)));
    eventually("Redis decides", || !nodes.iter().any(is_degraded));
    server.process().kill();
    eventually("failure modes answer", || nodes.iter().all(is_degraded));
    for node in &nodes {
        assert_eq!(
            (0..LIMIT + 10).filter(|_| passes(node, "fixed")).count() as u64,
            LIMIT
        );
        assert!((0..2 * LIMIT).all(|_| passes(node, "open")));
    }
    server.restart();
    eventually("everything is posted", || {
        let is_posted = |node: &Ratekeeper| owed(node, "posted") == owed(node, "owed");
        nodes
            .iter()
            .all(|node| is_posted(node) && !is_degraded(node))
    });
    for key in ["fixed", "open"] {
        let counter = nodes[0].check(&[(key, "a")]);
        assert_eq!(counter["decision"], "deny", "{key}");
        assert_eq!(counter["remaining"], 0, "{counter}");
    }
}

/// Redis carries out what was sent, however late: that is neither owed nor kept from anybody.
#[test]
fn a_charge_that_comes_late_is_not_owed_and_given_back_if_the_failure_mode_denied() {
    let mut server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let nodes = ["one", "two"].map(|name| node(folder.path(), name, RULES, &url(&server)));
    eventually("Redis decides", || !nodes.iter().any(is_degraded));
    for (key, passes_now, charged) in [("shut", false, 0), ("fixed", true, 1)] {
        server.process().pause();
        let answer = nodes[0].check(&[(key, "a")]);
        server.process().resume();
        assert_eq!(answer["degraded"], true, "{answer}");
        assert_eq!(answer["decision"] == "allow", passes_now, "{answer}");
        for _ in 0..10 {
            eventually("Redis decides again", || !nodes.iter().any(is_degraded));
        }
        assert_eq!(left(&nodes, key), LIMIT - charged, "{key}");
    }
    assert_eq!(owed(&nodes[0], "owed"), 0);
}

/// Counters have no name that other nodes know before Redis has told the hash key.
#[test]
fn what_passed_before_redis_was_first_reached_counts_as_of_when_it_passed() {
    let mut server = Server::start();
    server.process().kill();
    let folder = tempdir().expect("a folder can be made");
    let nodes = ["one", "two"].map(|name| node(folder.path(), name, RULES, &url(&server)));
    let keys = ["fixed", "sliding", "parts", "log", "bucket", "gcra", "open"];
    for node in &nodes {
        for key in keys {
            let passed = (0..AWAY).filter(|_| passes(node, key)).count() as u64;
            assert_eq!(passed, AWAY, "{key}");
        }
    }
    let passed_by = Instant::now();
    // The age of the hits is to be told from the time at which Redis came.
    thread::sleep(Duration::from_millis(1_500));
    server.restart();
    eventually("everything is posted", || {
        let is_posted = |node: &Ratekeeper| owed(node, "posted") == AWAY * keys.len() as u64;
        let shares = |node: &Ratekeeper| is_posted(node) && !is_degraded(node);
        nodes.iter().all(shares)
    });
    let age_ms = passed_by.elapsed().as_millis();
    for state in ["dropped", "unknown"] {
        assert!(nodes.iter().all(|node| owed(node, state) == 0), "{state}");
    }
    let log = nodes[0].check(&[("log", "a")]);
    let resets_in = log["reset_after_ms"].as_u64().expect("a time");
    let day_ms = 24 * 60 * 60 * 1_000;
    assert!(resets_in + 1_500 <= day_ms, "{log}, {age_ms} ms later");
    for key in keys {
        let asked = u64::from(key == "log");
        assert_eq!(left(&nodes, key), LIMIT - 2 * AWAY - asked, "{key}");
    }
}

/// Calls that Redis carries out when it goes on are answered then, though the breaker has opened: what was denied meanwhile
/// is given back, and nothing stays charged.
#[test]
fn pauses_of_redis_under_load_charge_nothing_that_was_denied() {
    let mut server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let node = short_node(folder.path(), &url(&server));
    eventually("Redis decides", || !is_degraded(&node));
    let (allowed, denied, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let count = if passes(&node, "ample") {
                        &allowed
                    } else {
                        &denied
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
        for _ in 0..3 {
            let before = denied.load(Ordering::Relaxed);
            server.process().pause();
            eventually("the breaker is open", || {
                count(&node, "ratelimit_circuit_state") == 2
            });
            eventually("the failure mode denies", || {
                denied.load(Ordering::Relaxed) > before
            });
            server.process().resume();
            eventually("Redis decides again", || !is_degraded(&node));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let stranded = count(&node, "ratelimit_redis_stranded_hits_total");
    assert_eq!(stranded, 0, "every call was answered");
    eventually("nothing but what passed is charged", || {
        let (_, left) = http(node.port, "POST", "/v1/peek", &body("ample"));
        let left: serde_json::Value = serde_json::from_str(&left).expect("JSON");
        left["remaining"] == 1_000_000 - allowed.load(Ordering::Relaxed)
    });
}

/// A node with the deadline that a slow machine keeps only now and then: what comes late is what the test is about.
fn short_node(folder: &std::path::Path, store: &str) -> Ratekeeper {
    let short = format!("--store {store} --store-deadline 50ms");
    serve(folder).rules(RULES).args(&short).start()
}

fn body(key: &str) -> String {
    let entry = serde_json::json!({ "key": key, "value": "a" });
    serde_json::json!({ "domain": "d", "descriptors": [{ "entries": [entry] }] }).to_string()
}
