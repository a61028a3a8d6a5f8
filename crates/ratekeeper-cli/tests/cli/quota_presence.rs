//! Nodes with one Redis and several quota databases.

use crate::fleet::RULES;
use crate::support::{Ratekeeper, http, serve, url};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::ratekeeper::Setup;
use ratekeeper_testkit::redis::{Reply, Server};
use std::path::Path;
use tempfile::tempdir;

/// A node with a data folder of its own, and its quota database in there.
fn node(folder: &Path, name: &str, store: &str) -> Setup {
    let setup = serve(&folder.join(name)).rules(RULES);
    setup.args(&format!(
        "--data-dir data --node-name {name} --store {store} --store-deadline 1s"
    ))
}

fn ready(node: &Ratekeeper) -> String {
    node.readyz().to_string()
}

#[test]
fn a_second_database_is_a_fault_and_no_start_beside_tenants() {
    let server = Server::start();
    let (folder, store) = (tempdir().expect("a folder can be made"), url(&server));
    let a = node(folder.path(), "a", &store).start();
    let b = node(folder.path(), "b", &store).start();
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
    let why = "node a shares these counters and has tenants in another quota database";
    node(folder.path(), "c", &store).run().refused(why);
    // Another node on the same file is none of that.
    let shared = format!(
        "sqlite://{}",
        folder.path().join("a/data/quotas.db").display()
    );
    let same = node(folder.path(), "d", &store);
    let d = same.args(&["--quotas", &shared]).start();
    // Once it stops, it is no reason any more.
    assert!(d.stop().success());
    assert!(a.stop().success());
    let c = node(folder.path(), "c", &store).start();
    assert!(
        !ready(&c).contains("another quota database"),
        "{}",
        ready(&c)
    );
}
