//! A cluster of three shards, all of them on one processor: what requests of one slot and of several cost, and how evenly
//! the shards are asked. No measure of what three shards bear that have a processor each.

use ratekeeper_core::Algorithm;
use ratekeeper_store_redis::Endpoint;
use ratekeeper_testkit::process::DEADLINE;
use ratekeeper_testkit::redis::{Client, Cluster};
use tokio::runtime::Builder;

use crate::flood::Flood;
use crate::scene::{Seen, config, connected, limit, pin_redis};
use crate::{Plan, row, table};

const SHARDS: usize = 3;

/// Subjects, each in a slot of its own choice.
const KEYS: u64 = 200_000;

/// Decisions under way at once.
const UNDER_WAY: usize = 800;

/// Requests whose limits lie in one slot, and in two and three.
pub(crate) fn by_slots(plan: &Plan) {
    table(
        "Three shards on one processor, 200 k keys, 800 under way, sliding_window",
        &[
            "limits of a request",
            "k decisions/s",
            "k steps/s",
            "calls/s",
            "calls a decision, by shard",
            "shards, CPU us a decision",
            "ours, CPU us a decision",
        ],
    );
    for limits in 1..=SHARDS {
        one(plan, limits);
    }
}

fn one(plan: &Plan, limits: usize) {
    let mut cluster = Cluster::of(SHARDS, 0, DEADLINE);
    for server in cluster.servers() {
        pin_redis(server.process().id());
    }
    let endpoint = Endpoint::parse(&cluster.url()).expect("a good URL");
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    let store = connected(&runtime, endpoint, config());
    let mut flood = Flood {
        tasks: UNDER_WAY,
        keys: KEYS,
        limits,
        limit: limit(Algorithm::SlidingWindow, 1_000_000),
        run: plan.alone / 4,
    };
    flood.run(&runtime, &store);
    flood.run = plan.alone;
    let mut clients: Vec<Client> = (0..SHARDS).map(|shard| cluster.client(shard)).collect();
    let mut seen = || -> Vec<Seen> { clients.iter_mut().map(Seen::by).collect() };
    let before = seen();
    let tally = flood.run(&runtime, &store);
    let after = seen();
    assert!(tally.failed == 0.0, "{tally:?}");
    let calls: Vec<f64> = (after.iter().zip(&before))
        .map(|(after, before)| after.calls - before.calls)
        .collect();
    let cpu_us: f64 = (after.iter().zip(&before))
        .map(|(after, before)| after.cpu_us - before.cpu_us)
        .sum();
    let shares = calls
        .iter()
        .map(|calls| format!("{:.3}", calls / tally.decisions));
    row(&[
        limits.to_string(),
        format!("{:.1}", tally.rate() / 1e3),
        format!("{:.1}", tally.rate() * limits as f64 / 1e3),
        format!("{:.0}", calls.iter().sum::<f64>() / tally.seconds),
        shares.collect::<Vec<_>>().join(", "),
        format!("{:.2}", cpu_us / tally.decisions),
        format!("{:.2}", tally.cpu_us / tally.decisions),
    ]);
}
