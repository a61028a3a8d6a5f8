//! NGINX, Caddy and HAProxy with their examples, which promise the same.

use crate::support::{self, Request, Service, with_changes};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::http1::Answer;
use ratekeeper_testkit::process::{Process, eventually, free_port, system};
use ratekeeper_testkit::ratekeeper::Ratekeeper;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A proxy between a client and the service.
struct Edge {
    port: u16,
    service: Service,
    ratekeeper: Ratekeeper,
    _proxy: Process,
    _folder: TempDir,
}

/// Returns the command that starts a proxy, and writes the example's files with the run's ports to `folder` for it.
type Start = fn(folder: &Path, run: &Run) -> Command;

/// The time a proxy waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// As shipped: 250 ms.
    Short,
    /// For tests of something else: machines that run tests are slow at times, and an unanswered request passes.
    Long,
}

struct Run {
    edge: u16,
    service: u16,
    ratekeeper: u16,
    patience: Patience,
}

impl Run {
    fn changes(&self) -> Vec<(&'static str, String)> {
        let mut changes = vec![
            ("127.0.0.1:9000", format!("127.0.0.1:{}", self.service)),
            ("127.0.0.1:8080", format!("127.0.0.1:{}", self.ratekeeper)),
            (":10000", format!(":{}", self.edge)),
        ];
        if self.patience == Patience::Long {
            changes.push(("250ms", "20s".to_owned()));
        }
        changes
    }
}

fn nginx(folder: &Path, run: &Run) -> Command {
    let config = with_changes("nginx/nginx.conf", folder, &run.changes());
    let mut command = system("nginx");
    command
        .arg("-p")
        .arg(folder)
        .arg("-c")
        .arg(config)
        .args(["-g", "daemon off;"]);
    command
}

fn caddy(folder: &Path, run: &Run) -> Command {
    let config = with_changes("caddy/Caddyfile", folder, &run.changes());
    let mut command = system("caddy");
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(config);
    // Where it keeps what it would otherwise keep in the home folder of whoever runs the test.
    command
        .env("XDG_CONFIG_HOME", folder)
        .env("XDG_DATA_HOME", folder);
    command
}

fn haproxy(folder: &Path, run: &Run) -> Command {
    let config = with_changes("haproxy/haproxy.cfg", folder, &run.changes());
    let patience = match run.patience {
        Patience::Short => "patience = 250",
        Patience::Long => "patience = 20000",
    };
    let changes = [("patience = 250", patience.to_owned())];
    with_changes("haproxy/ratekeeper.lua", folder, &changes);
    let mut command = system("haproxy");
    command.current_dir(folder).arg("-db").arg("-f").arg(config);
    command
}

impl Edge {
    fn start(name: &str, start: Start, patience: Patience) -> Edge {
        let service = Service::start();
        let ratekeeper = support::start(name, &[]);
        let folder = tempfile::tempdir().expect("a folder can be made");
        let run = Run {
            edge: free_port(),
            service: service.address.port(),
            ratekeeper: ratekeeper.port,
            patience,
        };
        let mut proxy = Process::spawn(name, start(folder.path(), &run));
        proxy.wait_for_port(run.edge);
        Edge {
            port: run.edge,
            service,
            ratekeeper,
            _proxy: proxy,
            _folder: folder,
        }
    }

    fn get<'a>(&self, path: &'a str) -> Request<'a> {
        Request::get(self.port, path)
    }

    fn order<'a>(&self, key: &'a str) -> Request<'a> {
        Request::new(self.port, "POST", "/orders").header("x-api-key", key)
    }
}

/// All headers that tell of a limit, in agreement with each other.
fn assert_limit(told: &Answer, name: &str, limit: u64, remaining: u64) {
    assert_eq!(told.number("x-ratelimit-limit"), limit);
    assert_eq!(told.number("x-ratelimit-remaining"), remaining);
    let reset = told.number("x-ratelimit-reset");
    assert_eq!(
        told.header("ratelimit").unwrap_or_default(),
        format!("\"{name}\";r={remaining};t={reset}")
    );
    let policy = format!("\"{name}\";q={limit};w=");
    assert!(
        told.header("ratelimit-policy")
            .unwrap_or_default()
            .contains(&policy),
        "{:?}",
        told.head
    );
}

fn assert_denied(told: &Answer, name: &str, limit: u64) {
    assert_eq!(told.status, 429, "{}", told.body);
    assert_limit(told, name, limit, 0);
    assert_eq!(told.number("retry-after"), told.number("x-ratelimit-reset"));
    assert!(told.number("retry-after") > 0);
    assert_eq!(
        told.header("content-type").unwrap_or_default(),
        "application/json"
    );
    assert_contains(&told.body, "\"RATE_LIMITED\"");
}

/// 200s, then 429s, with all headers; and no address of a client's choice.
fn addresses_are_limited(name: &str, start: Start) {
    let edge = Edge::start(name, start, Patience::Long);
    for remaining in (0..10).rev() {
        let told = edge.get("/").send();
        assert_eq!((told.status, &*told.body), (200, "served"));
        assert_limit(&told, "per-address", 10, remaining);
        assert!(!told.has("retry-after"));
    }
    assert_denied(&edge.get("/").send(), "per-address", 10);
    for (header, value) in [
        ("X-Forwarded-For", "203.0.113.7"),
        ("X-Forwarded-For", "203.0.113.7, 127.0.0.1"),
        ("X-Forwarded-For", "no address"),
        ("X-Real-IP", "203.0.113.7"),
        ("Forwarded", "for=203.0.113.7"),
        ("X-Original-Forwarded-For", "203.0.113.7"),
    ] {
        let told = edge.get("/").header(header, value).send();
        assert_denied(&told, "per-address", 10);
    }
    assert_eq!(
        edge.service.requests(),
        10,
        "a denied request does not reach the service"
    );
}

/// The mapping in ratekeeper.yaml: a key's writes by themselves, whatever else a client claims.
fn keys_are_limited(name: &str, start: Start) {
    let edge = Edge::start(name, start, Patience::Long);
    for remaining in [1, 0] {
        let told = edge.order("ada").send();
        assert_eq!(told.status, 200);
        assert_limit(&told, "writes", 2, remaining);
        let policies = told.header("ratelimit-policy").unwrap_or_default();
        assert_eq!(policies, "\"writes\";q=2;w=3600, \"per-address\";q=10;w=60");
    }
    assert_denied(&edge.order("ada").send(), "writes", 2);
    for (header, value) in [
        ("X-Forwarded-Uri", "/cheap"),
        ("X-Original-URI", "/cheap"),
        ("X-Forwarded-Method", "GET"),
        ("X-Original-Method", "GET"),
    ] {
        assert_denied(&edge.order("ada").header(header, value).send(), "writes", 2);
    }
    for path in ["/%6frders", "/orders?again"] {
        let other = Request::new(edge.port, "POST", path).header("x-api-key", "ada");
        assert_denied(&other.send(), "writes", 2);
    }
    // Services read these in different ways.
    for path in ["//orders", "/x/../orders", "/orders%2F", "/orders;x"] {
        let other = Request::new(edge.port, "POST", path).header("x-api-key", "ada");
        assert_eq!(other.send().status, 400, "{path}");
    }
    assert_eq!(edge.order("bob").status(), 200);
    // What was denied took nothing of the address either.
    let read = edge.get("/orders").header("x-api-key", "ada").send();
    assert_eq!(read.status, 200);
    assert_limit(&read, "per-address", 10, 6);
}

/// A key sent twice names no caller.
fn two_keys_are_refused(name: &str, start: Start) {
    let edge = Edge::start(name, start, Patience::Long);
    let told = edge.order("ada").header("x-api-key", "bob").send();
    assert_eq!(told.status, 400, "{}", told.body);
    assert_contains(&told.body, "INVALID_ARGUMENT");
    assert_eq!(edge.service.requests(), 0);
    assert_limit(&edge.order("ada").send(), "writes", 2, 1);
}

/// Without Ratekeeper requests pass, and limits are back with it.
fn an_outage_of_ours_is_none_of_yours(name: &str, start: Start) {
    let mut edge = Edge::start(name, start, Patience::Short);
    assert_eq!(edge.order("ada").status(), 200);
    edge.ratekeeper.process.kill();
    for number in 2..12 {
        let told = edge.order("ada").send();
        assert_eq!((told.status, &*told.body), (200, "served"));
        assert!(!told.has("x-ratelimit-limit"), "{:?}", told.head);
        assert_eq!(edge.service.requests(), number, "each is served once");
    }
    edge.ratekeeper.restart();
    eventually("limits are back", || edge.order("ada").status() == 429);

    // It is there and does not answer.
    edge.ratekeeper.process.pause();
    let told = edge.order("ada").send();
    assert_eq!((told.status, &*told.body), (200, "served"));
    edge.ratekeeper.process.resume();
    eventually("limits are back", || edge.order("ada").status() == 429);
}

macro_rules! tests_of {
    ($($proxy:ident),+) => {$(
        mod $proxy {
            #[test]
            fn addresses_are_limited() {
                super::addresses_are_limited(stringify!($proxy), super::$proxy);
            }

            #[test]
            fn keys_are_limited() {
                super::keys_are_limited(stringify!($proxy), super::$proxy);
            }

            #[test]
            fn two_keys_are_refused() {
                super::two_keys_are_refused(stringify!($proxy), super::$proxy);
            }

            #[test]
            fn an_outage_of_ours_is_none_of_yours() {
                super::an_outage_of_ours_is_none_of_yours(stringify!($proxy), super::$proxy);
            }
        }
    )+};
}

tests_of!(nginx, caddy, haproxy);
