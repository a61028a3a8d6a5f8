//! Circuit breakers in the live stream.

use crate::support::{serve, url};
use ratekeeper_testkit::events::{EventStream, ServerEvent};
use ratekeeper_testkit::redis::Server;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::tempdir;

const RULES: &str = "domain: d
descriptors:
- { key: customer, rate_limit: { window: 24h, limit: 1000000, algorithm: fixed_window } }
";

/// The state of the first breaker in an event, and its kind.
fn breaker(event: &ServerEvent) -> Option<(String, String)> {
    let data: Value = serde_json::from_str(&event.data).expect("it is JSON");
    let breakers = match event.name.as_str() {
        "state" => &data["breakers"],
        "breakers" => &data,
        _ => return None,
    };
    let state = breakers[0]["state"].as_str().expect("a breaker").to_owned();
    Some((event.name.clone(), state))
}

/// Reads until the first breaker is in `state`; returns the kind of event that tells it.
fn until(stream: &mut EventStream, state: &str) -> String {
    stream.until(&format!("the breaker is {state}"), |event| {
        let (kind, told) = breaker(event)?;
        (told == state).then_some(kind)
    })
}

/// Redis stops in the middle of traffic. What is told once a second would be up to a second late.
#[test]
fn a_breaker_that_turns_is_told_at_once() {
    let mut server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    let store = format!("--store {} --store-deadline 100ms", url(&server));
    let service = serve(folder.path()).rules(RULES).args(&store).start();
    let mut stream = EventStream::open(service.admin, "/admin/v1/live");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                service.check(&[("customer", "acme")]);
            }
        });
        // Other programs may hold this machine up now and then, but not each time.
        let took = (0..5).map(|_| {
            until(&mut stream, "closed");
            server.process().pause();
            let hung = Instant::now();
            let kind = until(&mut stream, "open");
            let took = hung.elapsed();
            server.process().resume();
            (took, kind)
        });
        let is_good = |(took, kind): &(Duration, String)| {
            *took < Duration::from_secs(2) && kind == "breakers"
        };
        let took: Vec<_> = took.take_while(|it| !is_good(it)).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(took.len() < 5, "{took:?}");
    });
    assert!(service.stop().success());
}
