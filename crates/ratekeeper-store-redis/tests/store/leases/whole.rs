//! Leases give nothing of a limit up: several nodes that are asked in turn admit all of it, and not one hit more.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};
use ratekeeper_store::{Step, StepOutcome};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_testkit::redis::Server;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::leased;
use crate::support::{LASTING, decide, endpoint, home, patient, step};

/// The time of a lease: long, so that none ends unreported, and is charged in full, while a busy machine stands still.
const LEASE: Micros = Micros::from_secs(1);

/// A denial lasts if nothing is admitted for so long: three leases.
const LASTS: Duration = Duration::from_secs(3);

/// The part of a limit that has to be admitted before that, of a thousand.
const WHOLE: u64 = 995;

/// Limits, and the time between two requests.
const TURNS: [(u64, Duration); 5] = [
    (20, Duration::from_millis(15)),
    (40, Duration::from_millis(15)),
    (100, Duration::from_millis(15)),
    (1_000, Duration::from_millis(3)),
    (5_000, Duration::from_millis(1)),
];

#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    admitted: u64,
    from_leases: u64,
    denied: u64,
}

/// Asks the nodes in turn until nothing is admitted any more.
async fn ask(nodes: Arc<Vec<RedisStore>>, step: Step, gap: Duration) -> Seen {
    let mut ticks = interval(gap);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut seen, mut denied, mut last) = (Seen::default(), 0, Instant::now());
    for node in nodes.iter().cycle() {
        ticks.tick().await;
        let verdicts = decide(node, &[step]).await.expect("Redis is there");
        if verdicts.allowed {
            seen.admitted += 1;
            seen.from_leases += u64::from(matches!(verdicts.outcomes[0], StepOutcome::Leased(_)));
            seen.denied += std::mem::take(&mut denied);
            last = Instant::now();
        } else if last.elapsed() > LASTS {
            return seen;
        } else {
            denied += 1;
        }
    }
    seen
}

fn limits(quota: u64) -> Vec<(&'static str, Limit)> {
    let spec = |algorithm| LimitSpec::new(algorithm, quota, LASTING);
    let parts = LimitSpec {
        sub_windows: Some(12),
        ..spec(Algorithm::SlidingWindow)
    };
    let specs = [
        ("fixed_window", spec(Algorithm::FixedWindow)),
        ("sliding_window", spec(Algorithm::SlidingWindow)),
        ("sub_windows", parts),
        ("token_bucket", spec(Algorithm::TokenBucket)),
        ("gcra", spec(Algorithm::Gcra)),
    ];
    let limit = |(name, spec)| (name, Limit::try_new(spec).expect("a valid limit"));
    specs.into_iter().map(limit).collect()
}

/// A limit of which a lease would be too small is counted exactly.
fn leased_if_possible(step: &Step) -> Step {
    match step.limit.capacity() {
        0..64 => *step,
        _ => Step {
            lease: LEASE,
            ..leased(step)
        },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_in_turn_admit_a_whole_limit_from_leases() {
    let server = Server::start();
    let at = endpoint(&server);
    let node = |_| RedisStore::new(at.clone(), patient(), home());
    let nodes: Arc<Vec<RedisStore>> = Arc::new((0..3).map(node).collect());
    for node in nodes.iter() {
        node.greeted().await;
    }
    let mut tasks = JoinSet::new();
    let mut number = 0;
    for (quota, gap) in TURNS {
        for (name, limit) in limits(quota) {
            number += 1;
            let step = leased_if_possible(&step(&limit, number));
            let nodes = Arc::clone(&nodes);
            tasks.spawn(async move { (name, limit, gap, ask(nodes, step, gap).await) });
        }
    }
    for (name, limit, gap, seen) in tasks.join_all().await {
        let quota = limit.quota();
        println!("{name} {quota} every {gap:?}: {seen:?}");
        // The bound of groups; a bucket refills less than a hit meanwhile.
        let group = match limit.algorithm() {
            Algorithm::SlidingWindow => limit.most_in_any_window().unwrap_or(0) - quota,
            _ => 0,
        };
        let most = match name {
            "sliding_window" => quota + group,
            _ => quota,
        };
        assert!(seen.admitted <= most, "{name} {quota}: {seen:?}");
        assert!(
            seen.admitted * 1_000 >= quota * WHOLE,
            "{name} {quota}: {seen:?}"
        );
        if quota >= 1_000 {
            assert!(
                seen.from_leases * 2 > seen.admitted,
                "{name} {quota}: {seen:?}"
            );
        }
    }
}
