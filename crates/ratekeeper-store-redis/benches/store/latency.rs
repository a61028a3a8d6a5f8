//! An open loop: decisions are due at a rate, answered or not, and latencies count from when they were due.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper_core::Algorithm;
use ratekeeper_store::{Answer, Store};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_testkit::paired::median;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::scene::{Scene, config, limit, request, step};
use crate::{Plan, row, table};

const KEYS: u64 = 100_000;

/// The rate of the seed's figure.
const RATE: f64 = 10_000.0;

/// Pairs of runs of which the median is told.
const PAIRS: usize = 9;

/// Latencies, the shortest first.
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn new(mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self(latencies)
    }

    /// Microseconds that such a share does not exceed.
    pub(crate) fn us(&self, share: f64) -> f64 {
        let place = (self.0.len() as f64 * share) as usize;
        let place = place.min(self.0.len().saturating_sub(1));
        self.0.get(place).copied().unwrap_or_default().as_secs_f64() * 1e6
    }

    fn count(&self) -> usize {
        self.0.len()
    }
}

/// At 10 k/s, beside INCR on a connection of its own at the same rate.
pub(crate) fn beside_a_bare_round_trip(plan: &Plan) {
    table(
        "Latency at 10 k decisions/s, open loop, 100 k keys, beside INCR over a bare socket",
        &["", "p50 us", "p99 us", "target"],
    );
    let scene = Scene::new();
    let store = scene.store(config());
    let mut runs = Vec::new();
    for _ in 0..PAIRS {
        let bare = scene.runtime.block_on(bare(&scene, plan.alone / 2));
        let ours = scene
            .runtime
            .block_on(decisions(&store, RATE, plan.alone / 2));
        runs.push((ours, bare));
    }
    let told = |name: &str, of: fn(&(Latencies, Latencies), f64) -> f64, target: &str| {
        let of = |share| format!("{:.0}", median(runs.iter().map(|run| of(run, share))));
        row(&[name, &of(0.5), &of(0.99), target]);
    };
    told("bare round trip", |run, share| run.1.us(share), "");
    told("decision", |run, share| run.0.us(share), "");
    let more: fn(&(Latencies, Latencies), f64) -> f64 =
        |run, share| run.0.us(share) - run.1.us(share);
    told("more, median of pairs", more, "p50 <= 53");
    let counts = store.shards().remove(0);
    let waited = counts.queued_seconds / counts.decisions as f64 * 1e6;
    let called = counts.duration_seconds / counts.pipelines as f64 * 1e6;
    println!(
        "\nOf a decision, on average: {waited:.0} us waiting for a turn, {called:.0} us from a call's sending to its answer."
    );
}

/// Measures the latency of one server under rising load.
pub(crate) fn by_offered_load(plan: &Plan) {
    table(
        "Offered load to one server, 100 k keys, sliding_window",
        &[
            "decisions/s offered",
            "answered",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "Redis, share of its core",
            "decisions a call",
        ],
    );
    for thousands in [10, 25, 50, 75, 100, 125, 150, 200] {
        let mut scene = Scene::new();
        let store = scene.store(config());
        let rate = f64::from(thousands) * 1e3;
        let load = decisions(&store, rate, plan.alone / 4);
        scene.runtime.block_on(load);
        let (before, begun) = (scene.seen(), Instant::now());
        let counts = store.shards().remove(0);
        let load = decisions(&store, rate, plan.alone);
        let latencies = scene.runtime.block_on(load);
        let (after, seconds) = (scene.seen(), begun.elapsed().as_secs_f64());
        let now = store.shards().remove(0);
        let a_call =
            (now.decisions - counts.decisions) as f64 / (now.pipelines - counts.pipelines) as f64;
        row(&[
            format!("{thousands} k"),
            format!("{:.1} k/s", latencies.count() as f64 / seconds / 1e3),
            format!("{:.0}", latencies.us(0.5)),
            format!("{:.0}", latencies.us(0.99)),
            format!("{:.0}", latencies.us(0.999)),
            format!("{:.2}", (after.cpu_us - before.cpu_us) / seconds / 1e6),
            format!("{a_call:.1}"),
        ]);
    }
}

/// Decisions about keys in turn, due at `rate`.
pub(crate) async fn decisions(store: &Arc<RedisStore>, rate: f64, run: Duration) -> Latencies {
    let limit = limit(Algorithm::SlidingWindow, 1_000_000);
    let mut waiting = JoinSet::new();
    let mut latencies = Vec::new();
    let begun = Instant::now();
    let total = (rate * run.as_secs_f64()) as u64;
    let mut next = 0;
    while next < total {
        // The first is due at once.
        let due_by_now = (begun.elapsed().as_secs_f64() * rate) as u64 + 1;
        while next < due_by_now.min(total) {
            let due = begun + Duration::from_secs_f64(next as f64 / rate);
            let steps = [step(&limit, next % KEYS)];
            match store.decide(&request(&steps)) {
                Answer::Decided(_) => latencies.push(due.elapsed()),
                Answer::Pending(ticket) => {
                    waiting.spawn(async move { ticket.await.is_ok().then(|| due.elapsed()) });
                }
            }
            next += 1;
        }
        while let Some(done) = waiting.try_join_next() {
            latencies.extend(done.ok().flatten());
        }
        // Timers are a millisecond wide: the wait for the next is spent on what is under way.
        tokio::task::yield_now().await;
    }
    while let Some(done) = waiting.join_next().await {
        latencies.extend(done.ok().flatten());
    }
    Latencies::new(latencies)
}

/// INCR at the same rate, one at a time. Its latencies count from when it was sent: what is late waits for no other's
/// answer, so that a pause of the machine is not counted against the bare round trip again and again.
async fn bare(scene: &Scene, run: Duration) -> Latencies {
    let address = ("127.0.0.1", scene.server.port());
    let stream = TcpStream::connect(address).await.expect("it listens");
    stream.set_nodelay(true).expect("a socket of ours");
    let mut latencies = Vec::new();
    let begun = Instant::now();
    let total = (RATE * run.as_secs_f64()) as u64;
    let mut answer = [0; 64];
    for number in 0..total {
        let due = begun + Duration::from_secs_f64(number as f64 / RATE);
        while Instant::now() < due {
            tokio::task::yield_now().await;
        }
        let command = format!("*2\r\n$4\r\nINCR\r\n$9\r\nbare{:05}\r\n", number % KEYS);
        let begun = Instant::now();
        let written = stream.try_write(command.as_bytes());
        assert_eq!(written.ok(), Some(command.len()), "there is room for it");
        let mut read = 0;
        while !answer[..read].ends_with(b"\r\n") {
            stream.readable().await.expect("it answers");
            read += stream.try_read(&mut answer[read..]).unwrap_or(0);
        }
        latencies.push(begun.elapsed());
    }
    Latencies::new(latencies)
}
