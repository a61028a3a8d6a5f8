//! Shedding in the gateway, with a real upstream that is as slow as a test wants.

use std::net::TcpStream;
use std::sync::{Condvar, Mutex};

use ratekeeper_testkit::process::eventually;

use crate::support::{Answer, Gateway, Upstream, ok};

const LIMITS: &str = "
domain: api
descriptors:
  - key: api_key
    rate_limit: { window: 10000d, limit: 10 }
";

/// Holds back the answers to `/slow` until it is opened.
#[derive(Default)]
struct Latch {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Latch {
    fn open(&self) {
        *self.is_open.lock().expect("no panic") = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let is_open = self.is_open.lock().expect("no panic");
        let opened = self.opened.wait_while(is_open, |is_open| !*is_open);
        drop(opened.expect("no panic"));
    }
}

/// A gateway with one request in flight, and what keeps it there.
struct Busy {
    gateway: Gateway,
    latch: std::sync::Arc<Latch>,
    slow: TcpStream,
}

impl Busy {
    fn start(shed: &str) -> Self {
        let latch = std::sync::Arc::new(Latch::default());
        let held = std::sync::Arc::clone(&latch);
        let upstream = Upstream::start(move |asked| {
            if asked.head.starts_with("GET /slow") {
                held.wait();
            }
            ok("done")
        });
        let rules = format!("{LIMITS}{shed}");
        let args = ["--upstream", &upstream.url(), "--access-log", "access.log"];
        let gateway = Gateway::start_with(&rules, "", &args);
        let slow = gateway.open("GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        eventually("it is in flight", || upstream.asked().len() == 1);
        Self {
            gateway,
            latch,
            slow,
        }
    }

    fn get(&self, lines: &[&str]) -> Answer {
        let mut all = vec!["X-Api-Key: ada"];
        all.extend(lines);
        self.gateway.get("/orders", &all)
    }

    /// Lets the slow request end, and waits until it is no longer in flight.
    fn finish(&mut self) {
        self.latch.open();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.slow, &mut text).expect("it is answered");
        assert!(text.ends_with("done"), "{text}");
        let idle = "ratelimit_shed_in_flight{class=\"read\"} 0";
        self.gateway.tells("/metrics", idle);
    }
}

fn is_shed_by(answer: &Answer, layer: &str) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("x-ratelimit-remaining"), None);
    assert!(answer.body.contains("\"code\":\"SHED\""), "{answer:?}");
    let told = format!("\"layer\":\"{layer}\"");
    assert!(answer.body.contains(&told), "{answer:?}");
}

#[test]
fn a_shed_request_is_told_so_and_keeps_its_hits() {
    let mut busy = Busy::start("shed: { adaptive: { min: 1, max: 1 } }\n");
    for _ in 0..20 {
        is_shed_by(&busy.get(&[]), "adaptive");
    }
    let problem = busy.get(&["Accept: application/problem+json"]);
    assert!(
        problem.body.contains("#temporary-reduced-capacity"),
        "{problem:?}"
    );
    busy.gateway.tells(
        "/metrics",
        "ratelimit_shed_requests_total{layer=\"adaptive\",class=\"read\",mode=\"on\"} 21",
    );
    busy.gateway
        .tells("/metrics", "ratelimit_shed_limit{upstream=\"upstream\"} 1");
    busy.finish();
    let answer = busy.get(&[]);
    assert_eq!(
        answer.header("x-ratelimit-remaining"),
        Some("9"),
        "{answer:?}"
    );
    let file = busy.gateway.folder.path().join("access.log");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    let line = "\"decision\":\"shed\",\"shed\":\"adaptive\"";
    eventually("all are logged", || read().matches(line).count() == 21);
}

#[test]
fn shadow_mode_counts_and_lets_everything_pass() {
    let mut busy = Busy::start("shed: { adaptive: { min: 1, max: 1 }, mode: shadow }\n");
    assert_eq!(busy.get(&[]).status, 200);
    busy.gateway.tells(
        "/metrics",
        "ratelimit_shed_requests_total{layer=\"adaptive\",class=\"read\",mode=\"shadow\"} 1",
    );
    busy.finish();
}

#[test]
fn a_reload_switches_shedding() {
    let shed = "shed: { adaptive: { min: 1, max: 1 } }\n";
    let mut busy = Busy::start(shed);
    is_shed_by(&busy.get(&[]), "adaptive");
    let rules = busy.gateway.folder.path().join("rules.yaml");
    let off = format!("{LIMITS}{}", shed.replace("max: 1", "max: 1, mode: off"));
    std::fs::write(&rules, off).expect("a file can be written");
    eventually("it is off", || busy.get(&[]).status != 503);
    std::fs::write(&rules, LIMITS).expect("a file can be written");
    busy.gateway.tells(
        "/metrics",
        "ratelimit_config_reload_total{result=\"success\"} 3",
    );
    assert_ne!(busy.get(&[]).status, 503);
    busy.finish();
}

#[test]
fn a_share_of_the_fleet_is_kept_for_critical_requests() {
    let shed = "
shed:
  classify: [ { class: critical, header: x-tier, value: gold } ]
  fleet: { capacity: 2, reserve: 50% }
";
    let mut busy = Busy::start(shed);
    is_shed_by(&busy.get(&[]), "fleet");
    assert_eq!(busy.get(&["X-Tier: gold"]).status, 200);
    busy.finish();
    assert_eq!(busy.get(&[]).status, 200);
}

#[test]
fn a_request_whose_client_has_given_up_is_dropped() {
    let mut busy = Busy::start("shed: { workers: {} }\n");
    let late = busy.get(&["X-Envoy-Expected-Rq-Timeout-Ms: 0"]);
    is_shed_by(&late, "deadline");
    assert_eq!(
        busy.get(&["X-Envoy-Expected-Rq-Timeout-Ms: 60000"]).status,
        200
    );
    busy.finish();
}

#[test]
fn metrics_of_shedding_are_there_from_the_start() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let told = gateway.told("/metrics");
    for layer in ["deadline", "fleet", "workers", "adaptive"] {
        for class in ["test", "read", "write", "critical"] {
            let line = format!(
                "ratelimit_shed_requests_total{{layer=\"{layer}\",class=\"{class}\",mode=\"on\"}} 0"
            );
            assert!(told.contains(&line), "{line}\n{told}");
        }
    }
    for gauge in ["limit", "utilisation", "share", "upstream_in_flight"] {
        let name = format!("ratelimit_shed_{gauge}{{upstream=\"upstream\"}}");
        assert!(told.contains(&name), "{name}\n{told}");
    }
}
