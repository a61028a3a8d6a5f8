//! The export of the audit trail by the binary.

use crate::fleet::{Fleet, KEY, RULES};
use crate::support::{Ratekeeper, http, run, serve, url, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::keep_alive::HttpConnection;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Reply, Server};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use tempfile::tempdir;

#[test]
fn changes_are_exported_and_a_target_that_is_away_is_told() {
    let mut redis = Server::with(&["--appendonly", "yes"]);
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    let target = url(&redis);
    let flags = format!("--data-dir data --audit-export {target} --audit-export-stream audit");
    let setup = serve(folder).rules(RULES).args(&flags);
    let service = setup.variable("RATEKEEPER_TENANT_KEY", KEY).start();
    let put = |name: &str| {
        let path = format!("/admin/v1/quotas/{name}");
        let (status, answer) = http(service.admin, "PUT", &path, "{\"plan\":\"pro\"}");
        assert_eq!(status, 200, "{answer}");
    };
    let length = |redis: &Server| match redis.client().ask(&["XLEN", "audit"]) {
        Reply::Int(length) => length,
        // It is still loading what it had.
        _ => -1,
    };
    put("acme");
    let disable = "/admin/v1/rules/d.customer/disable";
    assert_eq!(http(service.admin, "POST", disable, "").0, 200);
    eventually("a change and a switch are exported", || length(&redis) == 2);
    let metrics = || service.metrics();
    eventually("the metrics say so", || {
        let metrics = metrics();
        metrics.contains("ratelimit_audit_exported_total 2\n")
            && metrics.contains("ratelimit_audit_export_up 1\n")
            && metrics.contains("ratelimit_audit_export_waiting 0\n")
    });

    redis.process().kill();
    put("bob");
    let ready = || http(service.admin, "GET", "/readyz", "");
    eventually("the fault is told", || {
        let (status, ready) = ready();
        assert_eq!(status, 200, "it serves all the same: {ready}");
        ready.contains("the audit trail has not been exported to redis://127.0.0.1")
            && ready.contains("1 changes wait in the database")
            && metrics().contains("ratelimit_audit_export_up 0\n")
    });
    let log = service.wait_for_log("the audit trail cannot be exported");
    assert_eq!(
        log.matches("the audit trail cannot be exported").count(),
        1,
        "once: {log}"
    );
    redis.restart();
    eventually("the rest is exported", || length(&redis) == 3);
    service.wait_for_log("the audit trail is exported again");
    assert!(service.stop().success());
}

#[test]
fn a_target_is_checked_at_the_start_and_its_password_is_not_shown() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    let started = |flags: &str| serve(folder).rules(RULES).args(flags).run();
    let wrong = started("--audit-export http://app:hunter2@host --data-dir data")
        .refused("nats://HOST:PORT");
    assert!(!wrong.contains("hunter2"), "{wrong}");
    started("--audit-export redis://host").refused("without a quota database");
    let shown = run(folder, "config show --audit-export nats://app:hunter2@host");
    assert_contains(&shown.out, "nats://app:****@host");
}

#[test]
fn files_of_an_export_are_read_at_the_start() {
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    write(folder, "rules.yaml", RULES);
    write(folder, "empty.creds", "");
    write(folder, "files/key", "");
    for (target, flag, file) in [
        ("rediss://127.0.0.1:1", "--audit-export-ca", "missing.pem"),
        ("rediss://127.0.0.1:1", "--audit-export-ca", "files"),
        (
            "nats://127.0.0.1:1",
            "--audit-export-credentials",
            "missing.creds",
        ),
        ("nats://127.0.0.1:1", "--audit-export-credentials", "files"),
        (
            "nats://127.0.0.1:1",
            "--audit-export-credentials",
            "empty.creds",
        ),
    ] {
        let export = format!("--data-dir data --audit-export {target} {flag} {file}");
        let setup = serve(folder).args("--rules rules.yaml").args(&export);
        let refused = setup.variable("RATEKEEPER_TENANT_KEY", KEY).run();
        assert_eq!(refused.code, Some(1), "{file}: {}", refused.err);
        let path = folder.join(file);
        let told = format!("{}", path.display());
        assert_contains(&refused.err, "audit_export");
        assert_contains(&refused.err, &told);
    }
}

#[test]
fn another_node_goes_on_when_the_one_that_exports_is_killed() {
    let redis = Server::start();
    let fleet = Fleet::postgres();
    let flags = ["--audit-export", &url(&redis)];
    let mut first = fleet.node_with("a", &flags);
    let is_active = |node: &Ratekeeper| {
        let metrics = node.metrics();
        metrics.contains("ratelimit_audit_export_active 1\n")
    };
    eventually("the first node exports", || is_active(&first));
    let second = fleet.node_with("b", &flags);
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let rows = thread::scope(|scope| {
        // Changes do not stop for the death of a node.
        let editor = scope.spawn(|| keep_changing(&second, &stop, &made));
        let exported = || match redis.client().ask(&["XLEN", "ratekeeper.audit"]) {
            Reply::Int(length) => u64::try_from(length).unwrap_or(0),
            _ => 0,
        };
        eventually("changes are exported", || exported() > 50);
        assert!(!is_active(&second));
        first.process.kill();
        let at_death = exported();
        eventually("the other node exports", || exported() > at_death + 150);
        assert!(is_active(&second));
        stop.store(true, Ordering::Relaxed);
        editor.join().expect("no change is refused");
        let rows = made.load(Ordering::Relaxed);
        eventually("all changes are exported", || {
            exported() >= rows && exported_by_version(&redis).len() as u64 == rows
        });
        rows
    });

    // Without a gap, in order, and the same if one came twice: a row with its hash.
    let trail = fleet.done(&second, &["audit", "export"]);
    let hash_of = |line: &str| {
        let row: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
        row["hash"].as_str().expect("a row has a hash").to_owned()
    };
    let expected: BTreeMap<u64, String> = (1..).zip(trail.lines().map(hash_of)).collect();
    assert_eq!(expected.len() as u64, rows);
    assert_eq!(exported_by_version(&redis), expected);
    let mut last = 0;
    let mut repeated = 0;
    for (version, hash) in exported(&redis) {
        assert_eq!(expected.get(&version), Some(&hash), "row {version}");
        assert!(version <= last + 1, "row {version} came after row {last}");
        repeated += u64::from(version <= last);
        last = last.max(version);
    }
    assert!(repeated <= 100, "{repeated} rows came twice");
    println!("{rows} rows, {repeated} of them twice");
}

/// Changes a tenant again and again, through `node`.
fn keep_changing(node: &Ratekeeper, stop: &AtomicBool, made: &AtomicU64) {
    let mut connection = HttpConnection::open(node.admin);
    while !stop.load(Ordering::Relaxed) {
        let next = made.load(Ordering::Relaxed) + 1;
        let body = format!("{{\"overrides\":[{{\"requests_per_unit\":{next},\"unit\":\"day\"}}]}}");
        let answer = connection.ask("PUT", "/admin/v1/quotas/acme", "", &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        made.store(next, Ordering::Relaxed);
        // So that the rows of a minute are not too many to compare.
        thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// The numbers and hashes in the stream, as they came.
fn exported(redis: &Server) -> Vec<(u64, String)> {
    let Reply::Array(entries) = redis
        .client()
        .ask(&["XRANGE", "ratekeeper.audit", "-", "+"])
    else {
        return Vec::new();
    };
    let row = |entry: &Reply| {
        let Reply::Array(parts) = entry else {
            panic!("not an entry: {entry:?}");
        };
        let Some(Reply::Array(fields)) = parts.last() else {
            panic!("no fields: {entry:?}");
        };
        let version = fields[1].text().parse().expect("a version is a number");
        (version, fields[3].text())
    };
    entries.iter().map(row).collect()
}

fn exported_by_version(redis: &Server) -> BTreeMap<u64, String> {
    exported(redis).into_iter().collect()
}
