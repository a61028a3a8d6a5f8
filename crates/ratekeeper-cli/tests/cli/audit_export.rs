//! The export of the audit trail by the binary.

use crate::fleet::{KEY, RULES};
use crate::support::{FREE_PORTS, Service, http, ratekeeper, run, url, write};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Reply, Server};
use tempfile::tempdir;

#[test]
fn changes_are_exported_and_a_target_that_is_away_is_told() {
    let mut redis = Server::with(&["--appendonly", "yes"]);
    let folder = tempdir().expect("a folder can be made");
    let folder = folder.path();
    write(folder, "rules.yaml", RULES);
    let target = url(&redis);
    let flags = [
        "--rules",
        "rules.yaml",
        "--data-dir",
        "data",
        "--audit-export",
        &target,
    ];
    let args = [
        &["serve"][..],
        &FREE_PORTS,
        &flags,
        &["--audit-export-stream", "audit"],
    ]
    .concat();
    let mut command = ratekeeper(folder, &args);
    command.env("RATEKEEPER_TENANT_KEY", KEY);
    let service = Service::start(command, folder);
    let put = |name: &str| {
        let path = format!("/admin/v1/quotas/{name}");
        let (status, answer) = http(service.admin, "PUT", &path, "{\"tier\":\"pro\"}");
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
    let metrics = || http(service.admin, "GET", "/metrics", "").1;
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
    write(folder, "rules.yaml", RULES);
    let serve = |target: &str, more: &[&str]| {
        let args = ["serve", "--rules", "rules.yaml", "--audit-export", target];
        run(folder, &[&args[..], &FREE_PORTS, more].concat())
    };
    let wrong = serve("http://app:hunter2@host", &["--data-dir", "data"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.err.contains("nats://HOST:PORT"), "{}", wrong.err);
    assert!(!wrong.err.contains("hunter2"), "{}", wrong.err);
    let nowhere = serve("redis://host", &[]);
    assert_eq!(nowhere.code, Some(1));
    assert!(
        nowhere.err.contains("without a quota database"),
        "{}",
        nowhere.err
    );
    let shown = run(
        folder,
        &[
            "config",
            "show",
            "--audit-export",
            "nats://app:hunter2@host",
        ],
    );
    assert!(shown.out.contains("nats://app:****@host"), "{}", shown.out);
}
