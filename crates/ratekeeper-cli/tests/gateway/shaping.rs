//! A leaky bucket holds requests back, and lets them go one by one.

use std::net::TcpStream;

use ratekeeper_testkit::process::eventually;

use crate::support::{Gateway, Upstream, ok};

fn start(upstream: &Upstream, bucket: &str) -> Gateway {
    let rules = format!(
        "
domain: api
descriptors:
  - key: api_key
    rate_limit: {{ {bucket}, algorithm: leaky_bucket }}
"
    );
    let args = ["--upstream", &upstream.url(), "--wait-max", "1h"];
    Gateway::start_with(&rules, "", &args)
}

/// Asks for `path` and does not wait for the answer.
fn ask(gateway: &Gateway, path: &str) -> TcpStream {
    gateway.open(&format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\r\n\r\n"
    ))
}

/// The number of held requests that the metrics count under `what`.
fn held(gateway: &Gateway, what: &str) -> u64 {
    let name = format!("ratelimit_gateway_held_total{{what=\"{what}\"}} ");
    let metrics = gateway.told("/metrics");
    let count = metrics.lines().find_map(|line| line.strip_prefix(&name));
    count.map_or(0, |count| count.trim().parse().expect("a number"))
}

fn paths(upstream: &Upstream) -> Vec<String> {
    let asked = upstream.asked();
    let paths = asked
        .iter()
        .filter_map(|asked| asked.head.split(' ').nth(1));
    paths.map(str::to_owned).collect()
}

#[test]
fn who_waits_does_not_reach_the_upstream_and_who_goes_gives_the_turn_back() {
    let upstream = Upstream::start(|_| ok(""));
    // A turn comes every ten minutes; two can wait for one.
    let gateway = start(&upstream, "window: 100m, limit: 10, burst: 3");
    assert_eq!(gateway.get("/at-once", &["X-Api-Key: k"]).status, 200);
    let _second = ask(&gateway, "/second");
    eventually("the second waits", || held(&gateway, "waited") == 1);
    let third = ask(&gateway, "/third");
    eventually("the third waits", || held(&gateway, "waited") == 2);
    let denied = gateway.get("/fourth", &["X-Api-Key: k"]);
    assert_eq!(denied.status, 429, "{denied:?}");
    drop(third);
    let decided = || held(&gateway, "waited") + held(&gateway, "denied");
    eventually("the turn of the third is free", || {
        let before = decided();
        let _next = ask(&gateway, "/next");
        eventually("the next one is decided", || decided() > before);
        held(&gateway, "waited") == 3
    });
    assert_eq!(paths(&upstream), ["/at-once"]);
}

#[test]
fn who_waits_reaches_the_upstream_in_the_order_of_asking() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = start(&upstream, "window: 20s, limit: 10, burst: 4");
    assert_eq!(gateway.get("/0", &["X-Api-Key: k"]).status, 200);
    let mut waiting = Vec::new();
    for number in 1..4 {
        let path = format!("/{number}");
        waiting.push(ask(&gateway, &path));
        // Where the machine is slow, its turn may have come before this one.
        eventually("it is decided", || {
            held(&gateway, "waited") == number || paths(&upstream).contains(&path)
        });
    }
    eventually("all reach the upstream", || paths(&upstream).len() == 4);
    assert_eq!(paths(&upstream), ["/0", "/1", "/2", "/3"]);
    assert_eq!(held(&gateway, "denied"), 0);
}
