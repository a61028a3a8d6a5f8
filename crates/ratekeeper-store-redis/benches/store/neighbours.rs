//! One tenant floods; what do the others notice?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};
use ratekeeper_store::{Answer, Store};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_testkit::paired::median;
use tokio::task::{JoinSet, yield_now};

use crate::latency::Latencies;
use crate::scene::{Scene, config, limit, request, step};
use crate::{Plan, row, table};

/// The other tenants, and how often all of them together ask. Each asks for twice what it may have.
const TENANTS: u64 = 50;
const RATE: f64 = 2_000.0;

/// Decisions under way at once of the tenant who floods.
const FLOOD: usize = 64;

/// Pairs of a quiet run and a flooded one, of which the median is told.
const PAIRS: usize = 7;

/// The answers that the other tenants got.
struct Others {
    latencies: Latencies,
    allowed: u64,
}

/// With the memory of denials, and without it.
pub(crate) fn beside_a_flood(plan: &Plan) {
    table(
        "Neighbours: 50 tenants at 2 k/s, each asking for twice its limit, while another one floods one key",
        &[
            "",
            "flood, k/s",
            "p99 quiet, us",
            "p99 flooded, us",
            "ratio",
            "passed quiet",
            "passed flooded",
            "target",
        ],
    );
    one(plan, "memory of denials", config().deny_cache_max);
    one(plan, "no memory of denials", Duration::ZERO);
}

fn one(plan: &Plan, name: &str, deny_cache_max: Duration) {
    let scene = Scene::new();
    let mut config = config();
    config.deny_cache_max = deny_cache_max;
    let store = scene.store(config);
    let mut runs = Vec::new();
    let mut flooded = 0;
    for pair in 0..PAIRS {
        let quiet = scene
            .runtime
            .block_on(others(&store, pair as u64 * 2, plan.alone));
        let (busy, flood) = scene.runtime.block_on(async {
            let is_over = Arc::new(AtomicBool::new(false));
            let flood = tokio::spawn(flood(Arc::clone(&store), Arc::clone(&is_over)));
            let busy = others(&store, pair as u64 * 2 + 1, plan.alone).await;
            is_over.store(true, Ordering::Relaxed);
            (busy, flood.await.expect("a flood ends"))
        });
        flooded += flood;
        runs.push((quiet, busy));
    }
    let told = |of: fn(&(Others, Others)) -> f64| median(runs.iter().map(of));
    let sum = |of: fn(&(Others, Others)) -> u64| runs.iter().map(of).sum::<u64>();
    let seconds = plan.alone.as_secs_f64() * PAIRS as f64;
    row(&[
        name.to_owned(),
        format!("{:.0}", flooded as f64 / seconds / 1e3),
        format!("{:.0}", told(|run| run.0.latencies.us(0.99))),
        format!("{:.0}", told(|run| run.1.latencies.us(0.99))),
        format!(
            "{:.2}",
            told(|run| run.1.latencies.us(0.99) / run.0.latencies.us(0.99))
        ),
        sum(|run| run.0.allowed).to_string(),
        sum(|run| run.1.allowed).to_string(),
        "<= 1.2, the same pass".to_owned(),
    ]);
}

/// The limit of each other tenant: half of the requests that it makes in a run.
fn share(plan_run: Duration) -> Limit {
    let asked = RATE * plan_run.as_secs_f64() / TENANTS as f64;
    let spec = LimitSpec::new(
        Algorithm::FixedWindow,
        (asked / 2.0) as u64,
        Micros::from_secs(365 * 86_400),
    );
    Limit::try_new(spec).expect("a valid limit")
}

/// The other tenants, with counters of their own in each run.
async fn others(store: &Arc<RedisStore>, run_number: u64, run: Duration) -> Others {
    let limit = share(run);
    let begun = Instant::now();
    let total = (RATE * run.as_secs_f64()) as u64;
    let mut waiting = JoinSet::new();
    let (mut latencies, mut allowed) = (Vec::new(), 0);
    for number in 0..total {
        let due = begun + Duration::from_secs_f64(number as f64 / RATE);
        while Instant::now() < due {
            yield_now().await;
        }
        let tenant = 1_000 + run_number * TENANTS + number % TENANTS;
        let steps = [step(&limit, tenant)];
        match store.decide(&request(&steps)) {
            Answer::Decided(verdicts) => {
                latencies.push(due.elapsed());
                allowed += u64::from(verdicts.allowed);
            }
            Answer::Pending(ticket) => {
                waiting.spawn(async move {
                    let verdicts = ticket.await.expect("the server answers");
                    (due.elapsed(), verdicts.allowed)
                });
            }
        }
    }
    for (latency, is_allowed) in waiting.join_all().await {
        latencies.push(latency);
        allowed += u64::from(is_allowed);
    }
    Others {
        latencies: Latencies::new(latencies),
        allowed,
    }
}

/// Asks for one key as often as it is answered, until it is over; how often that was.
async fn flood(store: Arc<RedisStore>, is_over: Arc<AtomicBool>) -> u64 {
    let mut tasks = JoinSet::new();
    for _ in 0..FLOOD {
        let (store, is_over) = (Arc::clone(&store), Arc::clone(&is_over));
        tasks.spawn(async move {
            let limit = limit(Algorithm::SlidingWindow, 1_000);
            let mut asked = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let steps = [step(&limit, 0)];
                match store.decide(&request(&steps)) {
                    Answer::Decided(_) => {}
                    Answer::Pending(ticket) => {
                        ticket.await.expect("the server answers");
                    }
                }
                asked += 1;
                yield_now().await;
            }
            asked
        });
    }
    tasks.join_all().await.into_iter().sum()
}
