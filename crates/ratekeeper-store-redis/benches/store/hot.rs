//! One key, flooded: what Redis sees of it, and what passes.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};
use ratekeeper_store::{MemoryConfig, MemoryStore};

use crate::flood::Flood;
use crate::scene::{Scene, config, limit};
use crate::{Plan, row, table};

/// Decisions under way at once.
const TASKS: usize = 256;

/// The rate beside the memory store's, calls beside round trips, and admissions beside the limit.
pub(crate) fn beside_memory(plan: &Plan) {
    table(
        "One key, flooded by 256 at once",
        &[
            "load",
            "k decisions/s",
            "memory store, k/s",
            "calls/s",
            "round trips/s (two under way)",
            "passed, of",
        ],
    );
    let long = |quota| limit(Algorithm::SlidingWindow, quota);
    let quick = LimitSpec::new(Algorithm::Gcra, 10, Micros::from_secs(1));
    let quick = Limit::try_new(quick).expect("a valid limit");
    let max = config().deny_cache_max;
    one(plan, "admitting", long(1_000_000_000), max);
    one(plan, "denying for a long time", long(1_000), max);
    one(plan, "denying, 10 pass a second", quick, max);
    one(
        plan,
        "denying, no memory of denials",
        long(1_000),
        Duration::ZERO,
    );
}

fn one(plan: &Plan, name: &str, limit: Limit, deny_cache_max: Duration) {
    let mut scene = Scene::new();
    let mut config = config();
    config.deny_cache_max = deny_cache_max;
    let store = scene.store(config);
    let flood = Flood {
        tasks: TASKS,
        keys: 1,
        limits: 1,
        limit,
        run: plan.alone,
    };
    let before = scene.seen();
    let tally = flood.run(&scene.runtime, &store);
    let calls = scene.seen().calls - before.calls;
    let counts = store.shards().remove(0);
    assert!(tally.failed == 0.0, "{tally:?}");
    let memory = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
    let memory = flood.run(&scene.runtime, &Arc::new(memory));
    let round_trip = counts.duration_seconds / counts.pipelines.max(1) as f64;
    row(&[
        name.to_owned(),
        format!("{:.0}", tally.rate() / 1e3),
        format!("{:.0}", memory.rate() / 1e3),
        format!("{:.0}", calls / tally.seconds),
        format!("{:.0}", 2.0 / round_trip),
        format!("{:.0}, {}", tally.allowed, limit.quota()),
    ]);
}
