//! The hash key that nodes share: whoever does not know it yet counts nothing by another one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Reply, Sentinels, Server};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::support::{Ratekeeper, faults, http, node, run, url, write};

/// Nothing but the store lets anybody pass.
const RULES: &str = "domain: d
descriptors:
- key: strict
  on_store_failure: deny
  rate_limit: { window: 10000d, limit: 200, algorithm: fixed_window }
- { key: slots, concurrency: { limit: 5, timeout: 60s } }
- { key: jobs, rate_limit: { window: 10000d, limit: 100, algorithm: fixed_window } }
";

/// Every hit that the limit of `strict` has for one subject.
const LIMIT: usize = 200;

/// Asks all nodes without a pause while `meanwhile` runs, and then until each has denied by what
/// Redis counts; how many requests were allowed altogether.
fn admitted(nodes: &[Ratekeeper], subject: &str, meanwhile: impl FnOnce()) -> usize {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking = nodes.iter().map(|node| {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut allowed = 0;
                eventually("Redis denies", || {
                    let was_over = is_over.load(Ordering::Relaxed);
                    let answer = node.check(&[("strict", subject)]);
                    allowed += usize::from(answer["decision"] == "allow");
                    was_over && answer["decision"] == "deny" && answer["degraded"] == false
                });
                allowed
            })
        });
        let asking: Vec<_> = asking.collect();
        meanwhile();
        is_over.store(true, Ordering::Relaxed);
        let counts = asking.into_iter().map(|it| it.join().expect("it asks on"));
        counts.sum()
    })
}

/// Checks that the limit has passed. On a machine so slow that decisions miss the longest deadline that there is, hits of
/// those may have been taken for no request.
fn assert_all_admitted(nodes: &[Ratekeeper], passed: usize) {
    let late: usize = nodes.iter().map(late).sum();
    let is_all = passed <= LIMIT && passed + late >= LIMIT;
    assert!(is_all, "{passed} passed, and {late} were too late");
}

/// The decisions of a node that missed their deadline.
fn late(node: &Ratekeeper) -> usize {
    let metrics = node.metrics();
    let late = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix("ratelimit_redis_errors_total{")?;
        let (_, count) = rest.split_once("cause=\"timeout\"} ")?;
        count.trim().parse::<usize>().ok()
    });
    late.sum()
}

#[test]
fn nodes_that_start_before_their_redis_share_their_limits_from_the_first_hit_on() {
    let mut server = Server::start();
    server.process().kill();
    let folder = tempdir().expect("a folder can be made");
    let nodes = ["one", "two", "three"].map(|name| node(folder.path(), name, RULES, &url(&server)));
    for node in &nodes {
        let answer = node.check(&[("strict", "early")]);
        assert_eq!(
            (&answer["decision"], &answer["degraded"]),
            (&json!("deny"), &json!(true))
        );
        let said = faults(node);
        assert_contains(&said, "the key that counters are named by");
    }
    let passed = admitted(&nodes, "ada", || server.restart());
    assert_all_admitted(&nodes, passed);
    for node in &nodes {
        eventually("nothing is wrong", || faults(node) == "[]");
    }
}

#[test]
fn nodes_that_start_before_their_sentinels_share_their_limits_from_the_first_hit_on() {
    let mut set = Sentinels::with_down_after(Duration::from_secs(3_600));
    set.servers()[0].process().kill();
    let store = set.url();
    let folder = tempdir().expect("a folder can be made");
    let nodes = ["one", "two"].map(|name| node(folder.path(), name, RULES, &store));
    let passed = admitted(&nodes, "ada", || set.servers()[0].restart());
    assert_all_admitted(&nodes, passed);
}

#[test]
fn a_new_node_does_not_take_an_empty_redis_from_those_that_were_there_before() {
    let mut server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let mut nodes = vec![];
    nodes.extend(["one", "two"].map(|name| node(folder.path(), name, RULES, &url(&server))));
    for round in 0..3 {
        for node in &nodes {
            eventually("it counts in Redis", || {
                node.check(&[("strict", "warm")])["degraded"] == false
            });
        }
        let before = server.client().ask(&["GET", "rk:hash-key"]);
        assert!(matches!(before, Reply::Bytes(_)), "{before:?}");
        server.process().kill();
        nodes.push(node(
            folder.path(),
            &format!("new {round}"),
            RULES,
            &url(&server),
        ));
        let passed = admitted(&nodes, &format!("user {round}"), || server.restart());
        assert_all_admitted(&nodes, passed);
        assert_eq!(server.client().ask(&["GET", "rk:hash-key"]), before);
        nodes.pop();
    }
}

#[test]
fn what_lies_in_the_place_of_the_hash_key_parts_no_node_from_the_others() {
    for garbage in [
        ["SET", "rk:hash-key", "garbage"],
        ["LPUSH", "rk:hash-key", "0123456789abcdef"],
    ] {
        let server = Server::start();
        server.client().ask(&garbage);
        let folder = tempdir().expect("a folder can be made");
        let nodes = ["one", "two"].map(|name| node(folder.path(), name, RULES, &url(&server)));
        assert_all_admitted(&nodes, admitted(&nodes, "ada", || {}));
        // And where it is overwritten under way.
        server.client().ask(&["DEL", "rk:hash-key"]);
        server.client().ask(&garbage);
        eventually(
            "the key is put back",
            || matches!(server.client().ask(&["GET", "rk:hash-key"]), Reply::Bytes(key) if key != b"garbage"),
        );
        assert_all_admitted(&nodes, admitted(&nodes, "bob", || {}));
    }
}

/// A permit or a reservation of that time is settled as any other, whoever is asked.
#[test]
fn what_is_held_before_the_hash_key_is_known_can_be_settled_afterwards() {
    let mut server = Server::start();
    server.process().kill();
    let folder = tempdir().expect("a folder can be made");
    let nodes = ["one", "two"].map(|name| node(folder.path(), name, RULES, &url(&server)));
    let ask = |node: &Ratekeeper, path: &str, body: Value| {
        let (status, answer) = http(node.port, "POST", path, &body.to_string());
        let answer: Value = serde_json::from_str(&answer).expect("it is JSON");
        assert_eq!(status, 200, "{path} {answer}");
        answer
    };
    let of = |key: &str| json!([{ "entries": [{ "key": key, "value": "ada" }] }]);
    let reserved = ask(
        &nodes[0],
        "/v1/reserve",
        json!({ "domain": "d", "descriptors": of("jobs"), "hits": 10, "ttl_ms": 600_000 }),
    );
    assert_eq!(reserved["degraded"], true, "{reserved}");
    let acquired = ask(
        &nodes[0],
        "/v1/acquire",
        json!({ "domain": "d", "descriptors": of("slots") }),
    );
    assert!(
        acquired["permit"].is_null(),
        "nothing was counted: {acquired}"
    );
    server.restart();
    for node in &nodes {
        eventually("it counts in Redis", || {
            node.check(&[("strict", "warm")])["degraded"] == false
        });
    }
    for node in &nodes {
        let done = json!({ "reservation": reserved["reservation"], "hits": 4 });
        let settled = ask(node, "/v1/commit", done);
        assert_eq!(settled["given_back"], 0, "{settled}");
    }
}

#[test]
fn without_redis_a_hash_key_still_names_callers_alike() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let caller = |settings: &str| {
        write(folder.path(), "ratekeeper.yaml", settings);
        let args = [
            "rules",
            "explain",
            "--config",
            "ratekeeper.yaml",
            "--rules",
            "rules.yaml",
            "--request",
            "GET /",
            "--header",
            "x-api-key: 0123456789abcdef",
        ];
        let told = run(folder.path(), &args);
        let line = told.out.lines().find(|line| line.starts_with("caller: "));
        line.unwrap_or_else(|| panic!("{}{}", told.out, told.err))
            .to_owned()
    };
    let key = "store_hash_key: 00112233445566778899aabbccddeeff\n";
    assert_eq!(caller(key), caller(key));
    assert_ne!(caller(""), caller(""));
}
