//! Rules that are switched on every node of a quota database.

use crate::fleet::{Fleet, on_each_database};
use crate::support::{Ratekeeper, http};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use serde_json::{Value, json};
use std::fs;

const RULE: &str = "d.customer";

fn node(fleet: &Fleet, name: &str) -> Ratekeeper {
    fleet.node_with(name, &["--node-name", name])
}

/// The switched rules, by the node's own account.
fn switched(node: &Ratekeeper) -> Value {
    let (_, ready) = http(node.admin, "GET", "/readyz", "");
    let ready: Value = serde_json::from_str(&ready).expect("it is JSON");
    ready["rules"]["switched"].clone()
}

fn wait_for(node: &Ratekeeper, wanted: &Value) {
    let what = format!("the node has these switches: {wanted}");
    eventually(&what, || match wanted.is_null() {
        true => switched(node).is_null(),
        false => switched(node) == *wanted,
    });
}

fn switch(node: &Ratekeeper, to: &str) -> Value {
    let (method, end) = match to {
        "restore" => ("DELETE", "switch"),
        to => ("POST", to),
    };
    let (status, body) = http(
        node.admin,
        method,
        &format!("/admin/v1/rules/{RULE}/{end}"),
        "",
    );
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("it is JSON")
}

on_each_database!(switches_are_on_every_node);

fn switches_are_on_every_node(fleet: &mut Fleet) {
    let (a, b) = (node(fleet, "a"), node(fleet, "b"));
    let told = fleet.done(&a, &["rules", "disable", RULE]);
    assert_eq!(
        told,
        "d.customer is disabled, on all nodes that use the quota database, within seconds\n"
    );
    // At once on the node that was told.
    assert_eq!(switched(&a), json!({ RULE: "disabled" }));
    wait_for(&b, &json!({ RULE: "disabled" }));
    let answer = switch(&b, "shadow");
    assert_eq!(
        (
            &answer["scope"],
            &answer["audited"],
            &answer["survives_restart"]
        ),
        (&json!("fleet"), &json!(true), &json!(true))
    );
    wait_for(&a, &json!({ RULE: "shadow" }));
    let copy = fleet.folder.path().join("b/data/fleet.saved.json");
    eventually("the node has saved its copy", || {
        fs::read_to_string(&copy).is_ok_and(|text| text.contains("\"shadow\""))
    });

    // The database goes: the copy decides at a start, and a switch is on this node until it is back.
    assert!(b.stop().success());
    fleet.database.leave();
    let b = node(fleet, "b");
    assert_eq!(switched(&b), json!({ RULE: "shadow" }));
    let answer = switch(&b, "disable");
    assert_eq!(
        (
            &answer["scope"],
            &answer["audited"],
            &answer["survives_restart"]
        ),
        (&json!("node"), &json!(false), &json!(true))
    );
    let warning = answer["warning"].as_str().expect("there is one");
    assert_contains(&warning, "other nodes follow");
    let (_, ready) = http(b.admin, "GET", "/readyz", "");
    assert_contains(&ready, "switched on this node alone");
    assert_eq!(switched(&a), json!({ RULE: "shadow" }));
    fleet.database.come_back();
    wait_for(&a, &json!({ RULE: "disabled" }));
    assert_eq!(switched(&b), json!({ RULE: "disabled" }));
    eventually("nothing waits any more", || {
        !http(b.admin, "GET", "/readyz", "")
            .1
            .contains("switched on this node alone")
    });
    switch(&a, "restore");
    wait_for(&b, &Value::Null);
    assert!(
        !fleet
            .folder
            .path()
            .join("b/data/switches.waiting.json")
            .exists()
    );
}

#[test]
fn an_emergency_outlives_a_restart_without_the_database() {
    let mut fleet = Fleet::sqlite();
    let a = node(&fleet, "a");
    switch(&a, "shadow");
    fleet.database.leave();
    switch(&a, "disable");
    assert!(a.stop().success());
    let a = node(&fleet, "a");
    assert_eq!(switched(&a), json!({ RULE: "disabled" }));
    fleet.database.come_back();
    let b = node(&fleet, "b");
    wait_for(&b, &json!({ RULE: "disabled" }));

    // Taking a switch away is kept as well.
    assert!(b.stop().success());
    fleet.database.leave();
    assert_eq!(switch(&a, "restore")["scope"], "node");
    assert!(a.stop().success());
    let a = node(&fleet, "a");
    assert!(switched(&a).is_null());
    fleet.database.come_back();
    let b = node(&fleet, "b");
    wait_for(&b, &Value::Null);
    assert!(switched(&a).is_null());
}

#[test]
fn a_switch_that_waited_gives_way_to_later_ones() {
    let mut fleet = Fleet::sqlite();
    let a = node(&fleet, "a");
    fleet.database.leave();
    assert_eq!(switch(&a, "disable")["scope"], "node");
    assert!(a.stop().success());
    fleet.database.come_back();
    let b = node(&fleet, "b");
    switch(&b, "shadow");
    switch(&b, "restore");
    let a = node(&fleet, "a");
    let log = a.wait_for_log("does not count any more");
    assert_contains(&log, "the rule was switched again since");
    eventually("a follows", || switched(&a).is_null());
    assert!(switched(&b).is_null());
    let trail = fleet.json(&b, &["audit", "list"]);
    assert!(!trail.to_string().contains("disabled"), "{trail}");
    let waiting = fleet.folder.path().join("a/data/switches.waiting.json");
    eventually("nothing waits", || !waiting.exists());

    // Without a later one it is written, with the time at which it was made.
    fleet.database.leave();
    assert_eq!(switch(&a, "disable")["scope"], "node");
    fleet.database.come_back();
    wait_for(&b, &json!({ RULE: "disabled" }));
    let trail = fleet.json(&b, &["audit", "list"]).to_string();
    assert_contains(&trail, "made_at");
}

#[test]
fn switches_of_files_are_joined_and_stay_with_a_node_that_leaves() {
    let fleet = Fleet::sqlite();
    let a = fleet.node_at("off", "a", &[]);
    let told = fleet.done(&a, &["rules", "shadow", RULE]);
    assert_eq!(told, "d.customer is shadow, on this node alone\n");
    assert_eq!(switch(&a, "shadow")["scope"], "node");
    assert!(a.stop().success());
    let (a, b) = (node(&fleet, "a"), node(&fleet, "b"));
    assert_eq!(switched(&a), json!({ RULE: "shadow" }));
    assert_eq!(switched(&b), json!({ RULE: "shadow" }));
    switch(&b, "disable");
    wait_for(&a, &json!({ RULE: "disabled" }));
    let copy = fleet.folder.path().join("a/data/fleet.saved.json");
    eventually("the node has saved its copy", || {
        fs::read_to_string(&copy).is_ok_and(|text| text.contains("\"disabled\""))
    });
    assert!(a.stop().success());
    let a = fleet.node_at("off", "a", &[]);
    assert_eq!(switched(&a), json!({ RULE: "disabled" }));
    assert!(a.stop().success());
}
