//! Plain increments in Redis while the load runs: the lower bound of any coordination.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use ratekeeper_testkit::redis::Client;

/// The rate of the article's three instances with 25 tenants, each once a second.
pub(crate) const PER_SECOND: u32 = 75;

/// A thread that sends increments.
pub(crate) struct Increments {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<f64>>,
}

impl Increments {
    pub(crate) fn start(mut client: Client) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut took = Vec::new();
            // Relaxed: no other data depends on it.
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_secs(1) / PER_SECOND);
                let begun = Instant::now();
                client.ask(&["INCR", "bench"]);
                took.push(begun.elapsed().as_secs_f64() * 1e6);
            }
            took
        });
        Self { stop, thread }
    }

    /// Ends the thread; returns all latencies in microseconds.
    pub(crate) fn end(self) -> Result<Vec<f64>> {
        self.stop.store(true, Ordering::Relaxed);
        let took = self.thread.join();
        took.map_err(|_| anyhow!("the connection for increments was lost"))
    }
}
