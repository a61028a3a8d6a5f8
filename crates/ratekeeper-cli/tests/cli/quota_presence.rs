//! Nodes with one Redis and several quota databases.

use crate::fleet::RULES;
use crate::support::{FREE_PORTS, Service, http, ratekeeper, said, url, write};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Reply, Server};
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;

/// The command of a node with a data folder of its own, and its quota database in there.
fn node(folder: &Path, name: &str, store: &str) -> Command {
    let folder = folder.join(name);
    write(&folder, "rules.yaml", RULES);
    let flags = [
        "serve",
        "--rules",
        "rules.yaml",
        "--data-dir",
        "data",
        "--node-name",
        name,
    ];
    let store = ["--store", store, "--store-deadline", "1s"];
    ratekeeper(&folder, &[&flags[..], &store, &FREE_PORTS].concat())
}

fn start(folder: &Path, name: &str, store: &str) -> Service {
    Service::start(node(folder, name, store), &folder.join(name))
}

fn ready(node: &Service) -> String {
    http(node.admin, "GET", "/readyz", "").1
}

#[test]
fn a_second_database_is_a_fault_and_no_start_beside_tenants() {
    let server = Server::start();
    let (folder, store) = (tempdir().expect("a folder can be made"), url(&server));
    let a = start(folder.path(), "a", &store);
    let b = start(folder.path(), "b", &store);
    // Both are empty: no tenant gets another plan yet, and each says so.
    let fault =
        |other: &str| format!("node {other} shares these counters and uses another quota database");
    eventually("a sees b", || ready(&a).contains(&fault("b")));
    eventually("b sees a", || ready(&b).contains(&fault("a")));
    assert!(b.stop().success());
    eventually("b is forgotten", || {
        !ready(&a).contains("another quota database")
    });

    let put = http(a.admin, "PUT", "/admin/v1/quotas/acme", r#"{"plan":"pro"}"#);
    assert_eq!(put.0, 200, "{}", put.1);
    let mut client = server.client();
    eventually("a tells that it has tenants", || {
        let Reply::Array(keys) = client.ask(&["KEYS", "rk:{quotas}:*"]) else {
            panic!("KEYS is answered by a list");
        };
        let mut reports = keys
            .iter()
            .map(|key| client.ask(&["GET", &key.text()]).text());
        reports.any(|report| report.contains("\"has_changes\":true"))
    });
    let refused = said(
        node(folder.path(), "c", &store)
            .output()
            .expect("it starts"),
    );
    let why = "node a shares these counters and has tenants in another quota database";
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains(why), "{}", refused.err);
    // Another node on the same file is none of that.
    let shared = format!(
        "sqlite://{}",
        folder.path().join("a/data/quotas.db").display()
    );
    let mut same = node(folder.path(), "d", &store);
    same.args(["--quotas", &shared]);
    let d = Service::start(same, &folder.path().join("d"));
    // Once it stops, it is no reason any more.
    assert!(d.stop().success());
    assert!(a.stop().success());
    let c = start(folder.path(), "c", &store);
    assert!(
        !ready(&c).contains("another quota database"),
        "{}",
        ready(&c)
    );
}
