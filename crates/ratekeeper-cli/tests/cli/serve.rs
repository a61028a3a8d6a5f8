//! `ratekeeper serve`.

use crate::support::{Ratekeeper, banner, http, ratekeeper, run, serve, write};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::Signal;
use ratekeeper_testkit::process::{Process, eventually, free_port};
use std::net::TcpListener;
use std::path::Path;
use tempfile::tempdir;

const RULES: &str =
    "domain: d\ndescriptors:\n- { key: user, rate_limit: { window: 1h, limit: 3 } }\n";

fn start(folder: &Path, flags: &str) -> Ratekeeper {
    serve(folder).args("--rules rules.yaml").args(flags).start()
}

#[test]
fn it_limits_over_http_and_stops_when_asked() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let service = start(folder.path(), "");
    for remaining in [2, 1, 0] {
        let answer = service.check(&[("user", "ada")]);
        assert_eq!(answer["decision"], "allow", "{answer}");
        assert_eq!(answer["remaining"], remaining, "{answer}");
    }
    let denied = service.check(&[("user", "ada")]);
    assert_eq!(denied["decision"], "deny", "{denied}");
    assert_eq!(denied["rule"], "d.user", "{denied}");
    assert_eq!(service.check(&[("user", "bob")])["decision"], "allow");
    assert_eq!(http(service.port, "GET", "/healthcheck", "").0, 200);
    let (status, metrics) = http(service.admin, "GET", "/metrics", "");
    assert_eq!(status, 200);
    assert_contains(&metrics, "ratelimit_decisions_total");
    assert!(service.grpc > 0);
    assert!(service.stop().success(), "SIGTERM is an orderly end");
}

#[test]
fn an_interrupt_is_an_orderly_end_too() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let mut service = start(folder.path(), "");
    service.process.signal(Signal::INT);
    assert!(service.process.end().success());
}

#[test]
fn counters_outlive_a_restart() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let flags = "--data-dir data";
    let service = start(folder.path(), flags);
    assert_eq!(service.check(&[("user", "ada")])["remaining"], 2);
    assert!(service.stop().success());
    assert!(folder.path().join("data/counters.state").is_file());

    let service = start(folder.path(), flags);
    assert_eq!(
        service.check(&[("user", "ada")])["remaining"],
        1,
        "{}",
        service.log()
    );
}

#[test]
fn two_services_do_not_share_a_state_file() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let flags = "--state counters.state";
    let service = start(folder.path(), flags);
    let second = serve(folder.path()).args("--rules rules.yaml").args(flags);
    second.run().refused("another ratekeeper");
    assert!(service.stop().success());
    assert!(start(folder.path(), flags).stop().success());
}

#[test]
fn kept_counters_that_are_damaged_are_put_aside() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let flags = "--state counters.state";
    assert!(start(folder.path(), flags).stop().success());
    let state = folder.path().join("counters.state");
    let mut bytes = std::fs::read(&state).expect("it was saved");
    bytes.truncate(bytes.len() - 1);
    std::fs::write(&state, bytes).expect("it can be damaged");

    let service = start(folder.path(), flags);
    assert_eq!(service.check(&[("user", "ada")])["remaining"], 2);
    assert!(
        folder.path().join("counters.state.damaged").is_file(),
        "{}",
        service.log()
    );
}

#[test]
fn a_file_that_is_no_state_is_not_overwritten() {
    let folder = tempdir().expect("a folder can be made");
    let rules = write(folder.path(), "rules.yaml", RULES);
    let args = "serve --rules rules.yaml --state rules.yaml --http 127.0.0.1:0";
    run(folder.path(), args).refused("is not a state file");
    assert_eq!(
        std::fs::read_to_string(rules).expect("it is still there"),
        RULES
    );
}

#[test]
fn bad_rules_are_refused_with_their_place() {
    let folder = tempdir().expect("a folder can be made");
    write(
        folder.path(),
        "rules.yaml",
        "domain: d\ndescriptors:\n- key: a\n  rate_limitt: {}\n",
    );
    let said = run(folder.path(), &["serve", "--rules", "rules.yaml"]);
    assert_eq!(said.code, Some(1));
    assert_contains(&said.err, "rules.yaml:4:3");
    assert_contains(&said.err, "cannot load the rules in");
    assert_eq!(said.out, "");
}

#[test]
fn without_rules_it_says_what_to_do() {
    let folder = tempdir().expect("a folder can be made");
    let said = run(folder.path(), &[]);
    // Where the package is installed there are rules, and this folder has no part in it.
    if !Path::new("/etc/ratekeeper").exists() {
        assert_eq!(said.code, Some(1));
        assert_contains(&said.err, "name a file or a folder with --rules PATH");
    }
}

#[test]
fn an_address_that_is_taken_is_named_with_its_flag() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has an address").to_string();
    let args = format!("serve --rules rules.yaml --grpc 127.0.0.1:0 --http {address}");
    let said = run(folder.path(), &args).refused(&format!("cannot listen on {address}"));
    assert_contains(&said, "--http HOST:PORT");
}

/// A domain without rules is easily taken for one that limits.
#[test]
fn rules_that_limit_nothing_are_told_wherever_the_node_tells_its_state() {
    let folder = tempdir().expect("a folder can be made");
    let rules = "domain: d\ndescriptors: []\n";
    let service = serve(folder.path()).rules(rules).start();
    let banner = banner(&service);
    let first = banner.lines().next().unwrap_or_default();
    assert!(
        first.contains("no rules in rules.yaml: every request passes"),
        "{banner}"
    );
    let readiness = |address| {
        let (status, body) = http(address, "GET", "/readyz", "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<serde_json::Value>(&body).expect("it is JSON")
    };
    let fault = serde_json::json!(["no rules: every request passes"]);
    for address in [service.admin, service.port] {
        assert_eq!(readiness(address)["faults"], fault);
    }
    let rules = "domain: d\ndescriptors: [ { key: a, rate_limit: { window: 1m, limit: 1 } } ]\n";
    write(folder.path(), "rules.yaml", rules);
    eventually("the fault is over", || {
        readiness(service.admin)["faults"] == serde_json::json!([])
    });
    assert!(service.stop().success());
}

#[test]
fn a_hangup_during_the_start_does_not_end_it() {
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    // It is asked while the service starts, and answers nothing.
    let redis = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let store = redis.local_addr().expect("it has an address");
    let [port, admin, grpc] = [free_port(), free_port(), free_port()];
    let flags = format!(
        "serve --rules rules.yaml --store redis://{store}/ --http 127.0.0.1:{port} --admin 127.0.0.1:{admin} \
         --grpc 127.0.0.1:{grpc} --drain-delay 0s"
    );
    let mut process = Process::spawn("ratekeeper", ratekeeper(folder.path(), &flags));
    let silent = redis.accept().expect("the service connects");
    process.signal(Signal::HUP);
    process.wait_for_port(port);
    drop(silent);
    assert!(process.terminate().success());
}
