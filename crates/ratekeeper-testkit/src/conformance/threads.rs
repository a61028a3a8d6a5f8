//! Many threads at once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ratekeeper_core::Algorithm;
use ratekeeper_store::{Step, Store};

use super::{NOW, at, every_limit, hourly, name, one, remaining, step};
use crate::random::Random;

/// Sixty-four threads on one key admit exactly the limit.
pub fn one_counter_admits_its_limit_to_many_threads<S: Store>(make: impl Fn() -> S) {
    const THREADS: usize = 64;
    let store = make();
    for (number, limit) in (0..).zip(every_limit(500)) {
        let barrier = Barrier::new(THREADS);
        let admitted = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    for _ in 0..20 {
                        let allowed = one(&store, NOW, step(&limit, number)).0;
                        admitted.fetch_add(u64::from(allowed), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 500, "{}", name(&limit));
    }
}

/// Requests over several subjects, in any order, neither deadlock nor charge a part: each counter
/// loses exactly the hits admitted through it.
pub fn several_counters_are_taken_together_or_not_at_all<S: Store>(make: impl Fn() -> S) {
    const THREADS: u64 = 16;
    const COUNTERS: u64 = 12;
    let store = make();
    let limit = hourly(Algorithm::SlidingWindow, 400);
    let admitted: Vec<AtomicU64> = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, limit, admitted) = (&store, &limit, &admitted);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..400 {
                    let steps = [0; 3].map(|_| step(limit, random.below(COUNTERS)));
                    if at(store, NOW, &steps).allowed {
                        count(admitted, &steps, limit);
                    }
                }
            });
        }
    });
    let mut used = 0;
    for (number, admitted) in (0..).zip(admitted) {
        let admitted = admitted.into_inner();
        assert_eq!(remaining(&store, NOW, step(&limit, number)), 400 - admitted);
        used += admitted;
    }
    assert!(used > 400 * COUNTERS / 2, "only {used} were admitted");
}

fn count(admitted: &[AtomicU64], steps: &[Step], limit: &ratekeeper_core::Limit) {
    for (number, admitted) in (0..).zip(admitted) {
        let key = step(limit, number).key;
        let hits = steps.iter().filter(|step| step.key == key).count();
        admitted.fetch_add(hits as u64, Ordering::Relaxed);
    }
}
