//! Upstreams that are asked whether they are well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Act, Gateway, RULES, Upstream, ok};
use ratekeeper_testkit::process::eventually;

const FAST: &str = "interval: 20ms, timeout: 10s, unhealthy_threshold: 2, healthy_threshold: 2";

/// Answers with `name`, and at /healthz with 503 while it is not well.
fn upstream(name: &'static str) -> (Upstream, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(true));
    let now = Arc::clone(&is_well);
    let upstream = Upstream::start(move |asked| {
        let is_check = asked.head.starts_with("GET /healthz ");
        match is_check && !now.load(Ordering::SeqCst) {
            true => {
                Act::Say("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_owned())
            }
            false => ok(name),
        }
    });
    (upstream, is_well)
}

fn count(gateway: &Gateway, state: &str) -> usize {
    let name = "ratelimit_gateway_upstream_addresses";
    let series = format!("{name}{{upstream=\"app\",state=\"{state}\"}} ");
    let metrics = gateway.told("/metrics");
    let count = metrics.lines().find_map(|line| line.strip_prefix(&series));
    let count = count.unwrap_or_else(|| panic!("no {series}in {metrics}"));
    count.trim().parse().expect("it is a number")
}

#[test]
fn an_address_that_is_not_well_is_asked_last_until_it_is_again() {
    let ((one, one_is_well), (two, two_is_well)) = (upstream("one"), upstream("two"));
    let settings = format!(
        "upstreams:\n  app: {{ urls: [ '{}', '{}' ], health_check: {{ path: /healthz, {FAST} }} }}\n",
        one.url(),
        two.url()
    );
    let gateway = Gateway::start_with(RULES, &settings, &["--worker-threads", "1"]);
    eventually("both are well", || count(&gateway, "healthy") == 2);
    one_is_well.store(false, Ordering::SeqCst);
    eventually("one is not", || count(&gateway, "unhealthy") == 1);
    for _ in 0..6 {
        assert_eq!(gateway.get("/", &[]).body, "two");
    }
    let fault = format!("fails its health check at 127.0.0.1:{}", one.port);
    gateway.tells("/readyz", &fault);

    two_is_well.store(false, Ordering::SeqCst);
    eventually("none is", || count(&gateway, "unhealthy") == 2);
    eventually("all are asked nevertheless", || {
        let answer = gateway.get("/", &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body == "one"
    });

    one_is_well.store(true, Ordering::SeqCst);
    eventually("one is again", || count(&gateway, "healthy") == 1);
    for _ in 0..6 {
        assert_eq!(gateway.get("/", &[]).body, "one");
    }
}

/// Nothing but its checks says so: it would be connected to.
#[test]
fn an_address_that_does_not_answer_its_check_in_time_is_not_well() {
    let (one, _) = upstream("one");
    let stuck = Upstream::start(|_| Act::Hang);
    let settings = format!(
        "upstreams:\n  app: {{ urls: [ '{}', '{}' ], health_check: {{ path: /healthz, timeout: 5s }} }}\n",
        stuck.url(),
        one.url()
    );
    let gateway = Gateway::start_with(RULES, &settings, &["--worker-threads", "1"]);
    eventually("the first answer decides, or its absence", || {
        count(&gateway, "unhealthy") == 1 && count(&gateway, "healthy") == 1
    });
    for _ in 0..6 {
        assert_eq!(gateway.get("/", &[]).body, "one");
    }
}

/// The health of an address outlives a change of routes, as long as it is still checked.
#[test]
fn a_change_of_settings_asks_no_address_that_is_not_well() {
    let ((one, one_is_well), (two, _)) = (upstream("one"), upstream("two"));
    one_is_well.store(false, Ordering::SeqCst);
    let settings = |check: &str| {
        format!(
            "upstreams:\n  app: {{ urls: [ '{}', '{}' ]{check} }}\n",
            one.url(),
            two.url()
        )
    };
    let checked = |interval: &str| {
        settings(&format!(
            ", health_check: {{ path: /healthz, interval: {interval}, timeout: 10s }}"
        ))
    };
    let gateway = Gateway::start_with(RULES, &checked("1h"), &["--worker-threads", "1"]);
    eventually("one is not well", || count(&gateway, "unhealthy") == 1);
    let checks = |upstream: &Upstream| upstream.asked().len();
    let before = checks(&two);
    let file = gateway.folder().join("ratekeeper.yaml");
    std::fs::write(&file, checked("59m")).expect("a file can be written");
    eventually("the new routes in use", || {
        assert_eq!(count(&gateway, "unhealthy"), 1);
        checks(&two) > before
    });

    std::fs::write(file, settings("")).expect("a file can be written");
    eventually("one is asked again where there are no checks", || {
        gateway.get("/", &[]).body == "one"
    });
    gateway.no_longer_tells("/readyz", "health check");
}
