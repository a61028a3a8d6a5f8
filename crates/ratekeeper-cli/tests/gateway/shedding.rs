//! Shedding in the gateway, with a real upstream that is as slow as a test wants.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::Server;

use crate::support::{Answer, Gateway, RULES, Upstream, ok, ran};

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
        Self::start_with(shed, &[])
    }

    fn start_with(shed: &str, more: &[&str]) -> Self {
        Self::start_in(shed, "", more)
    }

    fn start_in(shed: &str, settings: &str, more: &[&str]) -> Self {
        let latch = std::sync::Arc::new(Latch::default());
        let held = std::sync::Arc::clone(&latch);
        let upstream = Upstream::start(move |asked| {
            if asked.head.starts_with("GET /slow") {
                held.wait();
            }
            ok("done")
        });
        let rules = format!("{LIMITS}{shed}");
        let url = upstream.url();
        let args = ["--upstream", &url, "--access-log", "access.log"];
        let gateway = Gateway::start_with(&rules, settings, &[&args[..], more].concat());
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
        self.slow.read_to_string(&mut text).expect("it is answered");
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
    let file = busy.gateway.folder().join("access.log");
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
    let rules = busy.gateway.folder().join("rules.yaml");
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

/// Without a single request: the rules that requests bring along are not the ones in force any more, or not yet.
#[test]
fn rules_without_requests_are_followed_too() {
    let upstream = Upstream::start(|_| ok(""));
    let shed = "shed: { priorities: [batch, read, write, critical], workers: {} }\n";
    let rules = format!("{LIMITS}{shed}");
    let gateway = Gateway::start_with(&rules, "", &["--upstream", &upstream.url()]);
    let batch = "ratelimit_shed_in_flight{class=\"batch\"}";
    gateway.tells("/metrics", batch);
    let file = gateway.folder().join("rules.yaml");
    std::fs::write(&file, LIMITS).expect("a file can be written");
    gateway.no_longer_tells("/metrics", batch);
}

/// A healthy upstream gets only calls that may stream, of twice as many clients as the limit begins with.
#[test]
fn an_upstream_of_streams_is_not_shed_while_it_is_healthy() {
    for shed in ["workers: {}", "adaptive: {}"] {
        let upstream = Upstream::start(|_| {
            std::thread::sleep(Duration::from_millis(50));
            ok("")
        });
        let rules = format!("{RULES}shed: {{ {shed} }}\n");
        let gateway = Gateway::start_with(&rules, "", &["--upstream", &upstream.url()]);
        let ask = || {
            let grpc = ["Content-Type: application/grpc"];
            gateway.get("/a.B/C", &grpc)
        };
        // A shed call is answered with a status in its head.
        let is_shed = |answer: &Answer| answer.header("grpc-status") == Some("14");
        let round = || {
            std::thread::scope(|scope| {
                let clients: Vec<_> = (0..40)
                    .map(|_| scope.spawn(|| (0..10).filter(|_| is_shed(&ask())).count()))
                    .collect();
                let shed = clients.into_iter().map(|it| it.join().expect("no panic"));
                shed.sum::<usize>()
            })
        };
        match shed {
            "workers: {}" => assert_eq!([round(), round()], [0, 0]),
            _ => eventually("the limit has grown", || round() == 0),
        }
    }
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
fn a_client_waits_from_the_arrival_of_its_request_though_its_body_is_slow() {
    let upstream = Upstream::start(|_| ok("done"));
    let settings =
        "auth: { descriptors: [ [ { key: model, from: body:/model, default: none } ] ] }\n";
    let rules = format!("{LIMITS}shed: {{ workers: {{}} }}\n");
    let gateway = Gateway::start_with(&rules, settings, &["--upstream", &upstream.url()]);
    let mut client = gateway.open(
        "POST /ask HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\n\
         X-Envoy-Expected-Rq-Timeout-Ms: 20\r\nContent-Length: 13\r\n\r\n",
    );
    let mut told = [0; 25];
    client.read_exact(&mut told).expect("it is asked to go on");
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    // It takes longer than it waits.
    std::thread::sleep(Duration::from_millis(30));
    client.write_all(br#"{"model":"m"}"#).expect("it is read");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("\"layer\":\"deadline\""), "{answer}");
    assert_eq!(upstream.asked().len(), 0);
}

#[test]
fn metrics_of_shedding_are_there_from_the_start() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let told = gateway.told("/metrics");
    for layer in ["deadline", "fleet", "workers", "adaptive", "queue"] {
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
    for line in [
        "ratelimit_shed_fleet_in_flight{nodes=\"own\"} 0",
        "ratelimit_shed_fleet_in_flight{nodes=\"others\"} 0",
        "ratelimit_shed_fleet_stale 0",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
}

/// Runs `ratekeeper` with these arguments, and returns what it prints.
fn said(args: &[&str]) -> String {
    let said = ran(args);
    assert!(said.code == Some(0), "{}", said.err);
    said.out + &said.err
}

#[test]
fn a_switch_turns_a_shedder_off_while_the_gateway_runs() {
    let mut busy = Busy::start("shed: { adaptive: { min: 1, max: 1 } }\n");
    is_shed_by(&busy.get(&[]), "adaptive");
    let address = format!("http://127.0.0.1:{}", busy.gateway.admin);
    let switch = |how: &str| said(&["rules", how, "shed/adaptive", "--admin", &address]);
    let told = switch("disable");
    assert_contains(&told, "shed/adaptive is off");
    assert_eq!(busy.get(&[]).status, 200);
    let told = switch("shadow");
    assert_contains(&told, "shed/adaptive is shadow");
    assert_eq!(busy.get(&[]).status, 200);
    busy.gateway.tells(
        "/metrics",
        "ratelimit_shed_requests_total{layer=\"adaptive\",class=\"read\",mode=\"shadow\"} 1",
    );
    let told = switch("restore");
    assert_contains(&told, "shed/adaptive is on, as its file says");
    is_shed_by(&busy.get(&[]), "adaptive");
    let unknown = busy.gateway.told("/admin/v1/shed");
    assert!(!unknown.contains("shed/workers"), "{unknown}");
    busy.finish();
}

#[test]
fn explain_says_the_class_and_what_each_shedder_would_do_now() {
    let shed = "
shed:
  classify: [ { class: critical, header: x-tier, value: gold } ]
  fleet: { capacity: 2, reserve: 50% }
  workers: { mode: shadow }
  adaptive: { min: 4, max: 4 }
";
    let mut busy = Busy::start(shed);
    let address = format!("http://127.0.0.1:{}", busy.gateway.admin);
    let explain = |more: &[&str]| {
        let args = [
            "rules",
            "explain",
            "--address",
            &address,
            "--request",
            "GET /orders",
        ];
        said(&[&args[..], more].concat())
    };
    let told = explain(&[]);
    for line in [
        "shedding: class read, by its method, GET",
        "shed/fleet is on: capacity 2, reserve 50%",
        "sheds 100% of such now: 1 of 1 requests that are not critical are in flight",
        "shed/workers is shadow: good 70%, bad 80%",
        "shed/adaptive is on: min 4, max 4",
        "upstream upstream: passes it now: 1 of 4 places for this class are taken, of 4 for all",
        "limits: not asked; name a domain and descriptors",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
    let told = explain(&["--header", "X-Tier: gold"]);
    for line in [
        "shedding: class critical, by item 1 of `classify`",
        "passes it now: the most important class may use the whole fleet",
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
    let rules = busy.gateway.folder().join("rules.yaml");
    let rules = rules.to_str().expect("a path of ours");
    let told = said(&[
        "rules",
        "explain",
        "--rules",
        rules,
        "--request",
        "PUT /orders",
    ]);
    assert_contains(&told, "shedding: class write, by its method, PUT");
    assert_contains(&told, "shed/workers is shadow");
    busy.finish();
}

#[test]
fn explain_goes_by_the_plan_of_the_caller_and_by_who_sent_its_headers() {
    let rules = "
domain: api
tenant: api_key
plans: [pro, free]
secrets: []
descriptors:
  - key: api_key
    rate_limit: { window: 10000d, limit: 10 }
tenants: [ { tenant: abc, plan: free } ]
shed:
  classify:
    - { class: critical, header: x-tier, value: gold }
    - { class: test, plan: free }
  workers: {}
";
    let upstream = Upstream::start(|_| ok("done"));
    let gateway = Gateway::start_with(rules, "", &["--upstream", &upstream.url()]);
    let address = format!("http://127.0.0.1:{}", gateway.admin);
    let file = gateway.folder().join("rules.yaml");
    let file = file.to_str().expect("a path of ours");
    let gold = ["--header", "x-tier: gold"];
    let abc = ["--header", "x-api-key: abc"];
    for by in [["--address", &address], ["--rules", file]] {
        let told = |more: &[&str]| {
            let ask = ["rules", "explain", "--request", "GET /orders"];
            said(&[&ask[..], &by, more].concat())
        };
        assert_contains(&told(&[]), "shedding: class read, by its method, GET\n");
        assert_contains(&told(&abc), "class test, by item 2 of `classify`\n");
        assert_contains(&told(&gold), "class critical, by item 1 of `classify`\n");
        let stranger = told(&[&gold[..], &["--client", "203.0.113.9"]].concat());
        let why = "class read, by its method, GET: no trusted proxy sent its headers";
        assert_contains(&stranger, why);
    }
}

#[test]
fn gateways_that_share_a_redis_share_the_fleet() {
    let mut redis = Server::start();
    let store = format!("redis://127.0.0.1:{}/", redis.port());
    let shed = "
shed:
  classify: [ { class: critical, header: x-tier, value: gold } ]
  fleet: { capacity: 4, reserve: 50% }
";
    let with_store = ["--store", &store, "--store-deadline", "1s"];
    let mut first = Busy::start_with(shed, &with_store);
    let mut second = Busy::start_with(shed, &with_store);
    let others = "ratelimit_shed_fleet_in_flight{nodes=\"others\"} 1";
    first.gateway.tells("/metrics", others);
    second.gateway.tells("/metrics", others);
    // One of its own, one of the other's: the two that are not reserved.
    is_shed_by(&first.get(&[]), "fleet");
    is_shed_by(&second.get(&[]), "fleet");
    assert_eq!(first.get(&["X-Tier: gold"]).status, 200);
    redis.process().kill();
    first
        .gateway
        .tells("/metrics", "ratelimit_shed_fleet_stale 1");
    first
        .gateway
        .tells("/readyz", "the usage of the rest of the fleet is not known");
    first.gateway.tells("/metrics", others);
    let shed = first.get(&[]);
    assert!(shed.body.contains("\"layer\":\"fleet\""), "{shed:?}");
    redis.restart();
    first
        .gateway
        .tells("/metrics", "ratelimit_shed_fleet_stale 0");
    second.finish();
    let none = "ratelimit_shed_fleet_in_flight{nodes=\"others\"} 0";
    first.gateway.tells("/metrics", none);
    first.finish();
}

#[test]
fn no_request_waits_long_for_a_slot_while_shedding() {
    let settings = "upstream_requests_max: 1\nupstream_connect_timeout: 50s\n";
    let mut busy = Busy::start_in("shed: { workers: {} }\n", settings, &[]);
    is_shed_by(&busy.get(&[]), "queue");
    busy.gateway.tells(
        "/metrics",
        "ratelimit_shed_requests_total{layer=\"queue\",class=\"read\",mode=\"on\"} 1",
    );
    busy.finish();
    assert_eq!(busy.get(&[]).header("x-ratelimit-remaining"), Some("9"));
}
