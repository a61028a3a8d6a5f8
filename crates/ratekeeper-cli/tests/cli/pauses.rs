//! A node that stands still for a while, as on a machine that is busy with something else, while its Redis is well.

use crate::support::{FREE_PORTS, Service, ratekeeper, write};
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
    write(folder.path(), "rules.yaml", RULES);
    let url = format!("redis://127.0.0.1:{}/", server.port());
    // Far longer than a busy machine keeps Redis from answering.
    let args = [
        "serve",
        "--rules",
        "rules.yaml",
        "--store",
        &url,
        "--store-deadline",
        "700ms",
    ];
    let args: Vec<&str> = args.iter().chain(&FREE_PORTS).copied().collect();
    let service = Service::start(ratekeeper(folder.path(), &args), folder.path());
    let is_degraded = |service: &Service| service.check(&[("k", "a")])["degraded"] == true;
    eventually("Redis decides", || !is_degraded(&service));
    let is_over = AtomicBool::new(false);
    let (asked, degraded) = thread::scope(|scope| {
        let caller = || {
            let (mut asked, mut degraded) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                asked += 1;
                degraded += u32::from(is_degraded(&service));
            }
            (asked, degraded)
        };
        let callers: Vec<_> = (0..8).map(|_| scope.spawn(caller)).collect();
        for _ in 0..5 {
            thread::sleep(PAUSE / 2);
            service.signal("STOP");
            thread::sleep(PAUSE);
            service.signal("CONT");
        }
        is_over.store(true, Ordering::Relaxed);
        let answers = callers
            .into_iter()
            .map(|caller| caller.join().expect("it is answered"));
        answers.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    assert_eq!(degraded, 0, "of {asked} answers; {}", service.log());
}
