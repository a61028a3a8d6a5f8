//! A node that stands still for a while, as on a machine that is busy with something else, while its Redis is well.

use crate::support::{Ratekeeper, serve, url};
use ratekeeper_testkit::process::Signal;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::Server;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::tempdir;

const RULES: &str = "domain: d
descriptors:
- { key: k, rate_limit: { window: 24h, limit: 1000000 } }
";

/// Longer than the deadline.
const PAUSE: Duration = Duration::from_millis(950);

#[test]
fn no_failure_mode_answers_for_a_pause_of_the_node() {
    let server = Server::start();
    let folder = tempdir().expect("a folder can be made");
    // Far longer than a busy machine keeps Redis from answering, but for rare moments.
    let store = format!("--store {} --store-deadline 700ms", url(&server));
    let service = serve(folder.path()).rules(RULES).args(&store).start();
    eventually("Redis decides", || !is_degraded(&service));
    // Each pause alone is longer than the deadline, and in such a moment one of these rounds does not count.
    let mut degraded = Vec::new();
    while degraded.last() != Some(&0) {
        assert!(degraded.len() < 20, "{degraded:?}; {}", service.log());
        degraded.push(degraded_beside_pauses(&service));
    }
}

fn is_degraded(service: &Ratekeeper) -> bool {
    service.check(&[("k", "a")])["degraded"] == true
}

/// The number of answers by failure modes while the node stands still again and again.
fn degraded_beside_pauses(service: &Ratekeeper) -> u32 {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let caller = || {
            let mut degraded = 0;
            while !is_over.load(Ordering::Relaxed) {
                degraded += u32::from(is_degraded(service));
            }
            degraded
        };
        let callers: Vec<_> = (0..8).map(|_| scope.spawn(caller)).collect();
        for _ in 0..3 {
            thread::sleep(PAUSE / 2);
            service.process.signal(Signal::STOP);
            thread::sleep(PAUSE);
            service.process.resume();
        }
        is_over.store(true, Ordering::Relaxed);
        let answers = callers
            .into_iter()
            .map(|caller| caller.join().expect("it is answered"));
        answers.sum()
    })
}
