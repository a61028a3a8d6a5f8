//! `consistency: synced`, with three real nodes on a real Redis.

use crate::support::{Ratekeeper, run, serve};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::http1::ask;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Client, Server};
use serde_json::{Value, json};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::tempdir;

/// The tenants of the test in the article on coordinated rate limiting.
const TENANTS: usize = 25;

const RULES: &str = "domain: d
descriptors:
- key: tenant
  consistency: synced
  rate_limit: { window: 24h, limit: 1000000, algorithm: fixed_window }
- key: small
  consistency: synced
  sync_interval: 20ms
  on_store_failure: deny
  rate_limit: { window: 24h, limit: 60, algorithm: fixed_window }
";

fn nodes(folder: &Path, server: &Server) -> [Ratekeeper; 3] {
    let store = format!("redis://127.0.0.1:{}/", server.port());
    ["one", "two", "three"].map(|name| {
        let setup = serve(&folder.join(name)).rules(RULES);
        let patient = format!("--store {store} --store-deadline 1s --require-store");
        setup.args(&patient).start()
    })
}

fn allows(node: &Ratekeeper, key: &str, value: &str) -> bool {
    node.check(&[(key, value)])["decision"] == "allow"
}

/// Asks for each tenant a few times, in one request, and returns the number of checks, all of which pass.
fn all_tenants(node: &Ratekeeper) -> u32 {
    const TIMES: usize = 4;
    let check = |number: usize| {
        let entry = json!({ "key": "tenant", "value": (number % TENANTS).to_string() });
        json!({ "domain": "d", "descriptors": [{ "entries": [entry] }] })
    };
    let checks: Vec<Value> = (0..TIMES * TENANTS).map(check).collect();
    let body = json!({ "checks": checks }).to_string();
    let kind = "Content-Type: application/json\r\n";
    let answer = ask(node.port, "POST", "/v1/checks", kind, &body).expect("it answers");
    let answer: Value = serde_json::from_str(&answer.body).expect("it is JSON");
    let results = answer["results"].as_array().expect("there are results");
    assert_eq!(results.len(), checks.len());
    assert!(results.iter().all(|it| it["decision"] == "allow"));
    u32::try_from(results.len()).expect("they are a hundred")
}

fn increments(client: &mut Client) -> f64 {
    let calls = u32::try_from(client.calls("incrby")).expect("they are some thousands");
    f64::from(calls)
}

/// 25 tenants, 3 nodes, each second: 75 increments a second, whatever the traffic.
#[test]
fn the_number_of_increments_does_not_depend_on_the_traffic() {
    let server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let nodes = nodes(folder.path(), &server);
    let mut client = server.client();
    // With pauses in which nodes have time for what is due.
    let flood = |span: Duration| {
        let begun = Instant::now();
        let mut asked = 0_u32;
        while begun.elapsed() < span {
            sleep(Duration::from_millis(20));
            for node in &nodes {
                asked += all_tenants(node);
            }
        }
        asked
    };
    flood(Duration::from_secs(2));
    let (before, begun) = (increments(&mut client), Instant::now());
    let asked = flood(Duration::from_secs(5));
    let (calls, seconds) = (
        increments(&mut client) - before,
        begun.elapsed().as_secs_f64(),
    );
    println!("{calls} increments in {seconds:.2} s, of {asked} requests");
    // A node has so many whole intervals in that time, or one more; one may be late on a busy machine.
    let (least, most) = (75.0 * (seconds.floor() - 1.0), 75.0 * seconds.ceil());
    assert!(
        calls >= least && calls <= most * 1.02,
        "{calls} in {seconds} s"
    );
    assert!(
        f64::from(asked) > 2.0 * calls,
        "{asked} requests for {calls} calls"
    );
    for node in &nodes {
        assert_eq!(node.metric_sum(&["ratelimit_synced_counters{"]), 25.0);
        assert_eq!(node.metric_sum(&["ratelimit_syncs_total", "failed"]), 0.0);
        eventually("everything is added", || {
            node.metric_sum(&["ratelimit_synced_hits_pending"]) == 0.0
        });
    }
    let applied = ["ratelimit_synced_hits_total", "applied"];
    let applied: f64 = nodes.iter().map(|node| node.metric_sum(&applied)).sum();
    assert!(applied >= f64::from(asked));
}

/// The metrics are there from the start, and `rules explain` tells the mode, what is known and what a change does.
#[test]
fn nodes_know_of_each_other_and_go_on_without_redis() {
    let mut server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let nodes = nodes(folder.path(), &server);
    for name in [
        "ratelimit_synced_counters{",
        "ratelimit_synced_hits_pending{",
        "ratelimit_synced_hits_total{",
        "ratelimit_syncs_total{",
        "ratelimit_synced_refused_total{",
        "ratelimit_over_admission_bound{",
    ] {
        let text = nodes[0].metrics();
        assert!(text.contains(name), "{name}");
        assert_eq!(nodes[0].metric_sum(&[name]), 0.0, "{name}");
    }
    let mut admitted = 0;
    eventually("all nodes deny", || {
        let answers = nodes.each_ref().map(|node| allows(node, "small", "ada"));
        admitted += answers.iter().filter(|allowed| **allowed).count();
        answers == [false; 3]
    });
    assert!((60..=180).contains(&admitted), "{admitted}");
    let admin = format!("127.0.0.1:{}", nodes[0].admin);
    let said = run(
        folder.path(),
        &format!("rules explain --address {admin} d small=ada"),
    );
    for part in ["synced every 20 ms", "other nodes", "starts afresh"] {
        assert_contains(&said.out, part);
    }
    server.process().kill();
    // No failure mode: the rule's is to deny.
    assert!(allows(&nodes[0], "small", "bob"));
    let failed = ["ratelimit_syncs_total", "failed"];
    eventually("syncs fail", || nodes[0].metric_sum(&failed) > 0.0);
    assert!(allows(&nodes[0], "small", "bob"));
    assert_eq!(nodes[0].metric_sum(&["ratelimit_failopen_total"]), 0.0);
    server.restart();
    eventually("what was counted meanwhile is added", || {
        nodes[0].metric_sum(&["ratelimit_synced_hits_pending"]) == 0.0
    });
}
