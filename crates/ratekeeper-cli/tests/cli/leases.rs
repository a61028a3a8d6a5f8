//! `consistency: leased` and `local`, with real nodes on a real Redis.

use crate::support::{Service, http, node, run, url};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::Server;
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

fn allows(node: &Service, key: &str) -> bool {
    node.check(&[(key, "ada")])["decision"] == "allow"
}

/// The sum of a metric's samples with these words.
fn metric(node: &Service, words: &[&str]) -> f64 {
    let (_, text) = http(node.admin, "GET", "/metrics", "");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.filter(|line| words.iter().all(|word| line.contains(word)));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

#[test]
fn two_nodes_admit_from_leases_and_never_more_than_the_limit() {
    let server = Server::start();
    let store = url(&server);
    let folder = tempdir().expect("a folder can be made");
    let nodes = ["one", "two"].map(|name| node(folder.path(), name, RULES, &store));
    for key in ["hot", "sliding"] {
        let mut admitted = 0;
        // In turns, so that both hold leases; until nothing is left that either could admit or give back.
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
        assert!(admitted > LIMIT / 2, "{key}: {admitted} of {LIMIT}");
    }
    for node in &nodes {
        let spent = ["ratelimit_lease_hits_total", "fate=\"spent\""];
        eventually("hits were admitted from leases", || {
            metric(node, &spent) > 0.0
        });
        assert!(metric(node, &["ratelimit_lease_nodes"]) <= 2.0);
    }
    let admin = nodes[0].admin.to_string();
    let said = run(
        folder.path(),
        &["rules", "explain", "--address", &admin, "d", "hot=ada"],
    );
    assert!(said.out.contains("leased: this node holds"), "{}", said.out);
}

/// The others can admit the hits that a node gives back when it is told to stop.
#[test]
fn a_node_that_is_told_to_stop_gives_its_leases_back() {
    let server = Server::start();
    let store = url(&server);
    let folder = tempdir().expect("a folder can be made");
    let [first, second] = ["one", "two"].map(|name| node(folder.path(), name, RULES, &store));
    let mut admitted = 0;
    eventually("a lease was granted", || {
        admitted += u64::from(allows(&first, "hot"));
        metric(&first, &["ratelimit_lease_hits_total", "granted"]) > 0.0
    });
    let _ = first.stop();
    eventually("the rest is admitted by the other node", || {
        admitted += u64::from(allows(&second, "hot"));
        // A grant whose answer came too late on a busy machine stays charged.
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
