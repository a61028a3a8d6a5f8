//! Signals to stop that come during the start, and while the service waits for servers that say nothing.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::TcpListener;
use std::process::Command;

use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::{Process, Signal, eventually};
use tempfile::tempdir;

use crate::support::{ratekeeper, serve, write};

const RULES: &str = "domain: d
descriptors: [{ key: user, rate_limit: { window: 1h, limit: 3 } }]
";

/// A server that lets anyone connect, and says nothing.
struct Silent(TcpListener);

impl Silent {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("it can be asked");
        Self(listener)
    }

    fn address(&self) -> String {
        self.0.local_addr().expect("it has one").to_string()
    }
}

/// A process that does not listen to the signal ends by it, except where it is the first of its container: there it goes
/// on, until it is killed.
#[test]
fn a_signal_during_the_start_ends_it_in_good_order() {
    let keys = Silent::start();
    let folder = tempdir().expect("a folder can be made");
    write(folder.path(), "rules.yaml", RULES);
    let settings = format!(
        "identity: {{ from: ['claim:sub'], jwt: {{ jwks_url: 'http://{}/keys' }} }}\n",
        keys.address()
    );
    write(folder.path(), "ratekeeper.yaml", &settings);
    let listeners = "--http 127.0.0.1:0 --grpc 127.0.0.1:0 --admin 127.0.0.1:0";
    let service = format!("serve --rules rules.yaml {listeners}");
    let gateway = "gateway --upstream http://127.0.0.1:9 --service http://127.0.0.1:9 \
                   --listen 127.0.0.1:0 --admin 127.0.0.1:0";
    for args in [&service, gateway] {
        let mut process = Process::spawn("ratekeeper", ratekeeper(folder.path(), args));
        let mut connection = None;
        process.wait_until("it waits for the keys", || {
            connection = keys.0.accept().ok();
            connection.is_some()
        });
        let ended = process.terminate();
        let log = process.output();
        assert!(ended.success(), "{args}: {ended}: {log}");
        assert_contains(&log, "stopped before anything was served");
        assert!(!log.contains("serving"), "{args}: {log}");
    }
}

/// Rules that are being read and compiled are a start, too: nothing is to be served after them.
#[test]
fn a_signal_while_rules_are_read_ends_the_start_at_once() {
    let folder = tempdir().expect("a folder can be made");
    let rules = folder.path().join("rules.yaml");
    let made = Command::new("mkfifo").arg(&rules).status();
    assert!(made.expect("mkfifo starts").success());
    let listeners = "--http 127.0.0.1:0 --grpc 127.0.0.1:0 --admin 127.0.0.1:0";
    let args = format!("serve --rules rules.yaml {listeners}");
    let mut process = Process::spawn("ratekeeper", ratekeeper(folder.path(), &args));
    // It opens once the service reads, which it then does for as long as this is held.
    let mut writer = OpenOptions::new().write(true).open(&rules);
    let writer = writer.as_mut().expect("it can be written");
    let ended = process.terminate();
    let log = process.output();
    assert!(ended.success(), "{ended}: {log}");
    assert_contains(&log, "stopped before anything was served");
    assert!(!log.contains("serving"), "{log}");
    writer
        .write_all(RULES.as_bytes())
        .expect_err("nobody reads");
}

#[test]
fn another_signal_does_not_wait_for_a_database_that_says_nothing() {
    let lost = "the last usage for billing was not saved";
    // Where the machine takes longer from one signal to the next than the database is waited for, there is nothing to see.
    for _ in 0..10 {
        let database = Silent::start();
        let folder = tempdir().expect("a folder can be made");
        let at = format!("postgres://u@{}/d", database.address());
        let key = "0123456789abcdef0123456789abcdef";
        let mut service = serve(folder.path())
            .rules(RULES)
            .settings(&format!("tenant_key: {key}\n"))
            .args(&format!("--quotas {at} --data-dir data"))
            .start();
        service.process.signal(Signal::TERM);
        service.wait_for_log("stopped: every request was answered");
        service.process.signal(Signal::TERM);
        eventually("it ends", || service.process.ended().is_some());
        let log = service.log();
        if log.contains(lost) {
            continue;
        }
        assert_contains(&log, "another signal: ");
        // The counters are saved all the same.
        let saved = folder.path().join("data/counters.state");
        assert!(saved.exists(), "{log}");
        return;
    }
    panic!("signals come seconds apart all the time, or the second one changes nothing");
}
