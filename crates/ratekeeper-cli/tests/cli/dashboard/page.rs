//! The page in Chromium, and load on the node that it shows.

use crate::support::Ratekeeper;
pub(crate) use ratekeeper_testkit::page::Page;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sends checks in the background while `work` runs.
pub(crate) fn under_load<T>(service: &Ratekeeper, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                let customer = ["acme", "acme", "beta", "gamma"][(number % 4) as usize];
                service.check(&[("customer", customer), ("endpoint", "POST /orders")]);
                service.check(&[("ip", "192.0.2.1")]);
            }
        });
        // Also if `work` fails: the thread would never end.
        let over = Over(&is_over);
        let result = work();
        drop(over);
        result
    })
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
