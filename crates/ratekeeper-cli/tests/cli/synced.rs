//! `consistency: synced`, with three real nodes on a real Redis.

use crate::support::{FREE_PORTS, Service, http, ratekeeper, run, write};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Client, Server};
use std::path::Path;
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

fn nodes(folder: &Path, server: &Server) -> [Service; 3] {
    let store = format!("redis://127.0.0.1:{}/", server.port());
    ["one", "two", "three"].map(|name| {
        let folder = folder.join(name);
        std::fs::create_dir(&folder).expect("a folder can be made");
        write(&folder, "rules.yaml", RULES);
        let args = ["serve", "--rules", "rules.yaml", "--store", &store];
        let patient = ["--store-deadline", "1s", "--require-store"];
        let args: Vec<&str> = args
            .iter()
            .chain(&FREE_PORTS)
            .chain(&patient)
            .copied()
            .collect();
        Service::start(ratekeeper(&folder, &args), &folder)
    })
}

fn allows(node: &Service, key: &str, value: &str) -> bool {
    node.check(&[(key, value)])["decision"] == "allow"
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

fn increments(client: &mut Client) -> f64 {
    let text = client.ask(&["INFO", "commandstats"]).text();
    let line = text
        .lines()
        .find(|line| line.starts_with("cmdstat_incrby:"));
    let calls = line.and_then(|line| line.split("calls=").nth(1)?.split(',').next()?.parse().ok());
    calls.unwrap_or(0.0)
}

/// 25 tenants, 3 nodes, each second: 75 increments a second, whatever the traffic.
#[test]
fn the_number_of_increments_does_not_depend_on_the_traffic() {
    let server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let nodes = nodes(folder.path(), &server);
    let mut client = server.client();
    let flood = |span: Duration| {
        let begun = Instant::now();
        let mut asked = 0_u32;
        while begun.elapsed() < span {
            for tenant in 0..TENANTS {
                for node in &nodes {
                    assert!(allows(node, "tenant", &tenant.to_string()));
                    asked += 1;
                }
            }
        }
        asked
    };
    flood(Duration::from_secs(2));
    let (before, begun) = (increments(&mut client), Instant::now());
    let asked = flood(Duration::from_secs(12));
    let (calls, seconds) = (
        increments(&mut client) - before,
        begun.elapsed().as_secs_f64(),
    );
    println!("{calls} increments in {seconds:.2} s, of {asked} requests");
    // A node has between so many whole intervals in that time and one more.
    let (least, most) = (75.0 * seconds.floor(), 75.0 * seconds.ceil());
    assert!(
        calls >= least * 0.98 && calls <= most * 1.02,
        "{calls} in {seconds} s"
    );
    assert!(
        f64::from(asked) > 2.0 * calls,
        "{asked} requests for {calls} calls"
    );
    for node in &nodes {
        assert_eq!(metric(node, &["ratelimit_synced_counters{"]), 25.0);
        assert_eq!(metric(node, &["ratelimit_syncs_total", "failed"]), 0.0);
        eventually("everything is added", || {
            metric(node, &["ratelimit_synced_hits_pending"]) == 0.0
        });
    }
    let applied = ["ratelimit_synced_hits_total", "applied"];
    let applied: f64 = nodes.iter().map(|node| metric(node, &applied)).sum();
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
        let (_, text) = http(nodes[0].admin, "GET", "/metrics", "");
        assert!(text.contains(name), "{name}");
        assert_eq!(metric(&nodes[0], &[name]), 0.0, "{name}");
    }
    let mut admitted = 0;
    eventually("all nodes deny", || {
        let answers = nodes.each_ref().map(|node| allows(node, "small", "ada"));
        admitted += answers.iter().filter(|allowed| **allowed).count();
        answers == [false; 3]
    });
    assert!((60..=180).contains(&admitted), "{admitted}");
    let admin = nodes[0].admin.to_string();
    let said = run(
        folder.path(),
        &["rules", "explain", "--address", &admin, "d", "small=ada"],
    );
    for part in ["synced every 20 ms", "other nodes", "starts afresh"] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
    server.process().kill();
    // No failure mode: the rule's is to deny.
    assert!(allows(&nodes[0], "small", "bob"));
    let failed = ["ratelimit_syncs_total", "failed"];
    eventually("syncs fail", || metric(&nodes[0], &failed) > 0.0);
    assert!(allows(&nodes[0], "small", "bob"));
    assert_eq!(metric(&nodes[0], &["ratelimit_failopen_total"]), 0.0);
    server.restart();
    eventually("what was counted meanwhile is added", || {
        metric(&nodes[0], &["ratelimit_synced_hits_pending"]) == 0.0
    });
}
