//! A bare increment of Redis, for as long as the load runs: what any coordination takes at least.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ratekeeper_testkit::redis::Client;

/// As many as the article's three instances made, for 25 tenants once a second.
pub(crate) const PER_SECOND: u32 = 75;

/// A thread that asks.
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
            // Relaxed: nothing else is handed over with it.
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

    /// How long each took, in microseconds, the shortest first.
    pub(crate) fn end(self) -> Result<Vec<f64>> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(mut took) => {
                took.sort_by(f64::total_cmp);
                Ok(took)
            }
            Err(_) => bail!("the connection for increments was lost"),
        }
    }
}
