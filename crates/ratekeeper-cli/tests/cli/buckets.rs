//! Buckets under two limits at once: nodes with different rules, and rules that are changed and changed back.

use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::Server;
use serde_json::Value;
use tempfile::tempdir;

use crate::support::{Ratekeeper, http, serve, url, write};

/// A limit of each kind; a bucket of 60 has room for 60 whatever the rest.
const KEYS: [&str; 4] = ["tokens", "cells", "slower", "queue"];

/// The rules with this many a day at once. No decision depends on how long the test takes.
fn rules(most: u64) -> String {
    format!(
        "domain: d
descriptors:
- {{ key: tokens, rate_limit: {{ window: 24h, limit: {most}, algorithm: token_bucket }} }}
- {{ key: cells, rate_limit: {{ window: 24h, limit: 60, burst: {most}, algorithm: gcra }} }}
- {{ key: slower, rate_limit: {{ window: 24h, limit: {most}, burst: 60, algorithm: gcra }} }}
- key: queue
  leaky_over_rls: allow
  rate_limit: {{ window: 24h, limit: 60, burst: {most}, algorithm: leaky_bucket }}
"
    )
}

/// A node that asks its store again after each denial. Slow machines are no failure of Redis.
fn node(folder: &std::path::Path, name: &str, most: u64, store: &str) -> Ratekeeper {
    let setup = serve(&folder.join(name)).rules(&rules(most));
    let store = format!("--store {store} --store-deadline 1s --deny-cache-max 0s");
    setup.args(&store).start()
}

/// Asks so often, and returns how many were allowed, and the last answer that came from where it should.
fn ask(node: &Ratekeeper, key: &str, subject: &str, times: usize) -> (usize, Value) {
    let mut allowed = 0;
    let mut last = Value::Null;
    for _ in 0..times {
        eventually("the answer is the store's", || {
            last = node.check(&[(key, subject)]);
            last["degraded"] == false
        });
        allowed += usize::from(last["decision"] == "allow");
    }
    (allowed, last)
}

#[test]
fn a_node_with_a_lower_limit_gives_nothing_back_to_the_others() {
    let server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let high = node(folder.path(), "high", 60, &url(&server));
    let low = node(folder.path(), "low", 20, &url(&server));
    for key in KEYS {
        // A decision that was too late may have been counted; then another subject is asked.
        let admitted = (0..20).find_map(|subject| {
            let subject = subject.to_string();
            let first = ask(&high, key, &subject, 70).0;
            (first == 60).then(|| {
                let of_low = ask(&low, key, &subject, 3);
                assert_eq!(of_low.1["decision"], "deny", "{key}: {}", of_low.1);
                let again = ask(&high, key, &subject, 70).0 + ask(&low, key, &subject, 3).0;
                first + of_low.0 + again + ask(&high, key, &subject, 70).0
            })
        });
        assert_eq!(admitted, Some(60), "{key}");
    }
}

#[test]
fn rules_that_are_lowered_and_raised_again_give_nothing_back() {
    let folder = tempdir().expect("a folder can be made");
    let node = serve(folder.path()).rules(&rules(60)).start();
    let reload = |most, loads: usize| {
        write(folder.path(), "rules.yaml", &rules(most));
        eventually("the rules are in force", || {
            let (_, body) = http(node.admin, "GET", "/admin/v1/reloads", "");
            let body: Value = serde_json::from_str(&body).expect("it is JSON");
            body["reloads"].as_array().map(Vec::len) == Some(loads)
        });
    };
    for key in KEYS {
        assert_eq!(ask(&node, key, "ada", 70).0, 60, "{key}");
    }
    reload(20, 1);
    let waits = KEYS.map(|key| {
        let (allowed, denied) = ask(&node, key, "ada", 1);
        assert_eq!(allowed, 0, "{key}: {denied}");
        denied["retry_after_ms"].as_u64().expect("a wait")
    });
    // 41 of 60 have to come back until one of 20 is there, at 24 or 72 minutes each: 16.4 hours, or 49.2.
    let hours = waits.map(|millis| millis.div_ceil(3_600_000));
    assert_eq!(hours, [50, 17, 2, 17]);
    reload(60, 2);
    for key in KEYS {
        assert_eq!(ask(&node, key, "ada", 70).0, 0, "{key}");
    }
}
