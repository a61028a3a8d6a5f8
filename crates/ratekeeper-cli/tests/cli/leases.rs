//! `consistency: leased` and `local`, with real nodes on a real Redis.

use crate::support::{Ratekeeper, http, node, run, url};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::Signal;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Cluster, Server};
use std::path::Path;
use tempfile::tempdir;

/// The hits that both nodes together may admit.
const LIMIT: u64 = 400;

const RULES: &str = "domain: d
on_store_failure: deny
descriptors:
- { key: hot, rate_limit: { window: 24h, limit: 400, algorithm: fixed_window, consistency: leased } }
- { key: sliding, rate_limit: { window: 24h, limit: 400, consistency: leased } }
- { key: own, rate_limit: { window: 24h, limit: 3, consistency: local } }
";

fn allows(node: &Ratekeeper, key: &str) -> bool {
    node.check(&[(key, "ada")])["decision"] == "allow"
}

/// The nodes that lease, as `/readyz` says.
fn lease_nodes(node: &Ratekeeper) -> Option<u64> {
    let (_, text) = http(node.admin, "GET", "/readyz", "");
    let said: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    said["lease_nodes"]["default"].as_u64()
}

#[test]
fn two_nodes_admit_from_leases_and_never_more_than_the_limit() {
    let server = Server::start();
    let store = url(&server);
    let folder = tempdir().expect("a folder can be made");
    let nodes = ["one", "two"].map(|name| node(folder.path(), name, RULES, &store));
    for key in ["hot", "sliding"] {
        let mut admitted = 0;
        // In turns, so that both hold leases; until nothing is left that either could admit or free.
        let mut denied = 0;
        while denied < 2_000 && admitted <= LIMIT {
            for node in &nodes {
                match allows(node, key) {
                    true => (admitted, denied) = (admitted + 1, 0),
                    false => denied += 1,
                }
            }
        }
        assert!(admitted <= LIMIT, "{key}: {admitted} of {LIMIT}");
        // One that was lost on a busy machine is charged in full: a sixteenth.
        assert!(
            admitted >= LIMIT - LIMIT / 16,
            "{key}: {admitted} of {LIMIT}"
        );
    }
    for node in &nodes {
        let spent = ["ratelimit_lease_hits_total", "fate=\"spent\""];
        eventually("hits were admitted from leases", || {
            node.metric_sum(&spent) > 0.0
        });
        assert!(node.metric_sum(&["ratelimit_lease_nodes"]) <= 2.0);
        eventually("each knows of the other", || lease_nodes(node) == Some(2));
    }
    let admin = format!("127.0.0.1:{}", nodes[0].admin);
    let said = run(
        folder.path(),
        &format!("rules explain --address {admin} d hot=ada"),
    );
    assert_contains(&said.out, "leased: this node holds");
}

/// The others can admit the hits that a node frees when it is told to stop.
#[test]
fn a_node_that_is_told_to_stop_gives_its_leases_back() {
    let server = Server::start();
    let store = url(&server);
    let folder = tempdir().expect("a folder can be made");
    let [first, second] = ["one", "two"].map(|name| node(folder.path(), name, RULES, &store));
    let mut admitted = 0;
    eventually("a lease was granted", || {
        admitted += u64::from(allows(&first, "hot"));
        first.metric_sum(&["ratelimit_lease_hits_total", "granted"]) > 0.0
    });
    let _ = first.stop();
    eventually("the rest is admitted by the other node", || {
        admitted += u64::from(allows(&second, "hot"));
        // A lease whose answer came too late on a busy machine is charged.
        admitted >= LIMIT * 9 / 10
    });
    assert!(admitted <= LIMIT, "{admitted} of {LIMIT}");
}

#[test]
fn local_counters_are_each_nodes_own() {
    let server = Server::start();
    let store = url(&server);
    let folder = tempdir().expect("a folder can be made");
    for node in ["one", "two"].map(|name| node(folder.path(), name, RULES, &store)) {
        let answers = [(); 4].map(|()| allows(&node, "own"));
        assert_eq!(answers, [true, true, true, false]);
    }
}

const SHARED: &str = "domain: d
descriptors:
- { key: whole, value: api, rate_limit: { window: 24h, limit: 1000 } }
- { key: exact, value: api, rate_limit: { window: 24h, limit: 1000, consistency: exact } }
- { key: log, value: api, rate_limit: { window: 24h, limit: 1000, algorithm: sliding_log } }
- { key: user, rate_limit: { window: 24h, limit: 1000 } }
";

/// One server would have to decide every request of all nodes.
#[test]
fn a_limit_that_all_requests_share_is_leased_by_default_in_a_cluster_only() {
    let (cluster, server) = (
        Cluster::of(3, 0, std::time::Duration::from_secs(60)),
        Server::start(),
    );
    let single = url(&server);
    let many = format!("redis+cluster://127.0.0.1:{}/", cluster.ports()[0]);
    let folder = tempdir().expect("a folder can be made");
    for (name, store, expected) in [("single", single, false), ("cluster", many, true)] {
        let node = node(folder.path(), name, SHARED, &store);
        let admin = format!("127.0.0.1:{}", node.admin);
        for (entry, is_default) in [
            ("whole=api", expected),
            ("exact=api", false),
            ("log=api", false),
            ("user=api", false),
        ] {
            let said = run(
                folder.path(),
                &["rules", "explain", "--address", &admin, "d", entry],
            );
            let is_said = said.out.contains("leased by default");
            assert_eq!(is_said, is_default, "{name}, {entry}: {}", said.out);
        }
        let log = node.log();
        assert_eq!(log.contains("leased by default"), expected, "{name}: {log}");
    }
}

const OWED: &str = "domain: d
on_store_failure: local
descriptors:
- { key: k, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window } }
";

/// The limit of [`OWED`].
const OWED_LIMIT: f64 = 1_000.0;

/// Makes the failure mode of `node` let hits pass, until it does so without asking and owes most of them; returns how
/// many it owes, and how many were let pass in all.
fn owe(node: &Ratekeeper) -> (f64, f64) {
    let owed = || node.metric_sum(&["ratelimit_owed_hits_total", "state=\"owed\""]);
    let mut passed = 0.0;
    eventually("the failure mode answers without asking", || {
        assert!(allows(node, "k"));
        passed += 1.0;
        let is_open = node.metric_sum(&["ratelimit_circuit_state"]) > 0.0;
        is_open && owed() >= 10.0 && owed() > passed / 2.0
    });
    (owed(), passed)
}

/// The hits that a new node admits until it denies.
fn left(folder: &Path, store: &str) -> f64 {
    let node = node(folder, "two", OWED, store);
    eventually("it decides in Redis", || {
        let (_, ready) = http(node.admin, "GET", "/readyz", "");
        ready.contains("\"faults\":[]")
    });
    let mut admitted = 0.0;
    while allows(&node, "k") {
        admitted += 1.0;
    }
    admitted
}

/// No other node knows of these hits once the node has stopped.
#[test]
fn a_node_that_is_told_to_stop_posts_what_its_failure_mode_let_pass() {
    let mut server = Server::start();
    let store = url(&server);
    let folder = tempdir().expect("a folder can be made");
    let mut first = node(folder.path(), "one", OWED, &store);
    assert!(allows(&first, "k"));
    server.process().kill();
    let (owed, _) = owe(&first);
    server.restart();
    eventually("Redis is asked again", || {
        first.metric_sum(&["ratelimit_circuit_state"]) == 0.0
    });
    assert!(first.process.terminate().success());
    let log = first.log();
    // The server has forgotten the hits that it had counted itself.
    assert_eq!(left(folder.path(), &store), OWED_LIMIT - owed, "{log}");
}

/// The store may be back a moment after the node was told to stop, or only its breaker not closed yet.
#[test]
fn a_node_that_is_told_to_stop_waits_a_moment_for_a_store_that_is_away() {
    let mut server = Server::start();
    let store = url(&server);
    let folder = tempdir().expect("a folder can be made");
    let mut first = node(folder.path(), "one", OWED, &store);
    server.process().pause();
    let (owed, passed) = owe(&first);
    first.process.signal(Signal::TERM);
    first.wait_for_log("waiting for the store to count hits");
    server.process().resume();
    assert!(first.process.end().success());
    // Those that were sent to the server before its breaker opened may be counted as well, and are not owed: fewer than
    // the others, so that it shows if those are not.
    let left = left(folder.path(), &store);
    assert!(
        (OWED_LIMIT - passed..=OWED_LIMIT - owed).contains(&left),
        "{left} left, {owed} owed of {passed}"
    );
}

/// A store that stays away is not waited for longer, and what it does not count is told.
#[test]
fn hits_that_no_store_counts_are_told_at_the_end() {
    let mut server = Server::start();
    let store = url(&server);
    let folder = tempdir().expect("a folder can be made");
    let mut first = node(folder.path(), "one", OWED, &store);
    server.process().kill();
    let (owed, _) = owe(&first);
    first.process.signal(Signal::TERM);
    let log = first.wait_for_log("does not count hits that failure modes let pass");
    let line = log
        .lines()
        .find(|line| line.contains("does not count hits"));
    assert!(
        line.is_some_and(|line| line.contains(&format!("hits={owed}"))),
        "{log}"
    );
    assert!(first.process.end().success());
}
