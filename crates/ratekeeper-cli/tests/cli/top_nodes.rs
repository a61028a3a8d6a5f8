//! The keys that are limited most, over all nodes with one Redis.

use crate::support::{Ratekeeper, http, serve, url};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::Server;
use serde_json::Value;
use std::path::Path;
use tempfile::tempdir;

const RULES: &str = "domain: d
descriptors:
- { key: customer, rate_limit: { window: 24h, limit: 1, algorithm: fixed_window } }
";

fn node(folder: &Path, name: &str, store: &[&str]) -> Ratekeeper {
    let setup = serve(&folder.join(name)).rules(RULES).args(store);
    setup
        .args(&format!("--node-name {name} --store-deadline 1s"))
        .start()
}

fn top(service: &Ratekeeper, query: &str) -> Value {
    let (status, body) = http(service.admin, "GET", &format!("/admin/v1/top{query}"), "");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("it is JSON")
}

fn names(top: &Value) -> Vec<String> {
    let nodes = top["nodes"].as_array().expect("a list");
    let names = nodes
        .iter()
        .map(|node| node["name"].as_str().expect("a name").to_owned());
    names.collect()
}

/// The count of the first key.
fn first(top: &Value) -> (String, u64) {
    let key = &top["keys"][0];
    let name = key["key"].as_str().unwrap_or_default().to_owned();
    (name, key["count"].as_u64().unwrap_or_default())
}

#[test]
fn the_top_keys_of_two_nodes_are_merged_until_one_is_killed_or_redis_goes_away() {
    let mut server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let url = url(&server);
    let store = ["--store", &url];
    let one = node(folder.path(), "one", &store);
    let mut two = node(folder.path(), "two", &store);
    // One of seven passes: which node denies the others does not matter.
    for _ in 0..4 {
        one.check(&[("customer", "acme")]);
    }
    for _ in 0..3 {
        two.check(&[("customer", "acme")]);
    }
    one.check(&[("customer", "beta")]);
    one.check(&[("customer", "beta")]);
    for service in [&one, &two] {
        eventually("both nodes' denials are told by each", || {
            first(&top(service, "")) == ("customer:acme".to_owned(), 6)
        });
    }
    let merged = top(&one, "");
    assert_eq!(names(&merged), ["one", "two"], "{merged}");
    assert_eq!(merged["unlisted_max"], 0, "{merged}");
    assert_eq!(merged["nodes_left_out"], 0, "{merged}");
    assert_eq!(merged["only_this_node"], Value::Null, "{merged}");
    assert_eq!(merged["keys"][1]["key"], "customer:beta");
    let hour = top(&two, "?window=hour&rule=d.customer&limit=1");
    assert_eq!(first(&hour).1, 6, "{hour}");
    assert_eq!(hour["keys"].as_array().map(Vec::len), Some(1));
    let own = top(&one, "?nodes=own");
    assert_eq!(first(&own), ("customer:acme".to_owned(), 3), "{own}");
    assert_eq!(names(&own), ["one"]);
    assert!(own["only_this_node"].is_string(), "{own}");

    two.process.kill();
    eventually("the list of a node that is gone expires", || {
        let left = top(&one, "");
        names(&left) == ["one"] && left["only_this_node"].is_null() && first(&left).1 == 3
    });

    server.process().kill();
    let alone = top(&one, "");
    let why = alone["only_this_node"].as_str().expect("it says why");
    assert_contains(&why, "the lists of other nodes are not known");
    assert_eq!(
        (names(&alone), first(&alone).1),
        (vec!["one".to_owned()], 3)
    );
    server.restart();
    eventually("the others are asked again", || {
        top(&one, "")["only_this_node"].is_null()
    });
    assert!(one.stop().success());
}

#[test]
fn a_node_with_its_counters_in_memory_says_that_it_stands_alone() {
    let folder = tempdir().expect("a folder can be made");
    let service = node(folder.path(), "one", &[]);
    let top = top(&service, "");
    let why = top["only_this_node"].as_str().expect("it says why");
    assert!(why.contains("no other"), "{why}");
    assert_eq!(names(&top), ["one"]);
    assert!(service.stop().success());
}
