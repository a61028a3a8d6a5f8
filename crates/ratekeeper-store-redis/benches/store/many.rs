//! Many keys: beside redis-benchmark with the same script, and each mechanism on and off.

use std::process::Command;
use std::time::Duration;

use ratekeeper_core::Algorithm;
use ratekeeper_store_redis::RedisConfig;
use ratekeeper_store_redis::script::{Call, Clock, Group, KeyName, Script};
use ratekeeper_testkit::paired::try_paired;

use crate::flood::{Flood, Tally};
use crate::scene::{Scene, config, limit, request, step};
use crate::{Plan, row, table};

const KEYS: u64 = 200_000;

/// Decisions under way at once: what a pipeline of 16 on 50 connections has, as redis-benchmark is run.
const UNDER_WAY: usize = 800;

/// Beside redis-benchmark with pipelines of 16: one decision a call, and several.
pub(crate) fn beside_redis_benchmark(plan: &Plan) {
    table(
        "Many keys (200 k, uniform): decisions a second beside redis-benchmark -P 16 -c 50 with the same script",
        &[
            "store",
            "algorithm",
            "k/s",
            "redis-benchmark, k/s",
            "ratio [95 %]",
            "target",
        ],
    );
    for algorithm in [
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
        Algorithm::Gcra,
    ] {
        for (name, config, target) in [
            ("one decision a call", alone(), 0.9),
            ("up to 64 a call, as it is", config(), 1.3),
            ("up to 128 a call", of_128(), 1.3),
        ] {
            compare(plan, name, algorithm, config, target);
        }
    }
}

/// Calls of one decision each, as many under way as redis-benchmark has.
fn alone() -> RedisConfig {
    let mut config = config();
    config.groups_max = 1;
    config.pipelines_max = UNDER_WAY;
    config.merges = false;
    config
}

/// A configuration for few worker threads and one server.
fn of_128() -> RedisConfig {
    let mut config = config();
    config.groups_max = 128;
    config
}

fn compare(plan: &Plan, name: &str, algorithm: Algorithm, config: RedisConfig, target: f64) {
    let scene = Scene::new();
    let store = scene.store(config);
    let flood = Flood {
        tasks: UNDER_WAY,
        keys: KEYS,
        limits: 1,
        limit: limit(algorithm, 1_000_000),
        run: plan.run,
    };
    let peer = Peer::new(&scene, &flood);
    // Both sides find nearly all counters there.
    peer.run(2 * KEYS);
    let filling = Flood {
        run: Duration::from_secs(4),
        ..flood
    };
    filling.run(&scene.runtime, &store);
    let calls = (peer.run(20_000) * plan.run.as_secs_f64()) as u64;
    let result = try_paired::<std::convert::Infallible>(
        plan.patience,
        || Ok(flood.run(&scene.runtime, &store).rate() / 1e3),
        || Ok(peer.run(calls) / 1e3),
    );
    let Ok(result) = result;
    let (low, high) = result.interval;
    row(&[
        name.to_owned(),
        algorithm.name().to_owned(),
        format!("{:.0}", result.ours),
        format!("{:.0}", result.theirs),
        format!(
            "{:.2} [{low:.2}, {high:.2}] n={}",
            result.ratio, result.pairs
        ),
        format!(">= {target}"),
    ]);
}

/// redis-benchmark, which asks by the same script for counters of the same kind. It ends an argument at its first zero
/// byte, so what the store passes stands in the script itself: less work for Redis, if anything.
struct Peer {
    port: String,
    script: String,
}

impl Peer {
    fn new(scene: &Scene, flood: &Flood) -> Self {
        let steps = [step(&flood.limit, 0)];
        let mut call = Call::new();
        call.push(&Group::new(&request(&steps)), &KeyName::default());
        let bytes = call.plan().iter().map(|byte| format!("\\{byte:03}"));
        let literal = format!("'{}'", bytes.collect::<String>());
        let text = Script::new(Clock::Server).text().to_owned();
        assert!(text.contains("ARGV[1]"), "the script has its argument");
        let text = text.replace("ARGV[1]", &literal);
        let mut client = scene.server.client();
        Self {
            port: scene.server.port().to_string(),
            script: client.ask(&["SCRIPT", "LOAD", &text]).text(),
        }
    }

    /// Calls a second, of so many.
    fn run(&self, calls: u64) -> f64 {
        let (calls, keys) = (calls.to_string(), KEYS.to_string());
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &self.port, "-P", "16", "-c", "50", "--csv"]);
        command.args(["-n", &calls, "-r", &keys]);
        command.args(["EVALSHA", &self.script, "1"]);
        command.arg("rk:{__rand_int__}BBBBBBBBBBB");
        let output = command.output().expect("redis-benchmark can be started");
        let text = String::from_utf8_lossy(&output.stdout);
        // The command, the rate, six latencies.
        let rate = text.rsplit("\",\"").nth(6);
        rate.and_then(|rate| rate.parse().ok())
            .unwrap_or_else(|| panic!("{text:?} has no rate"))
    }
}

/// Measures the gain from each of the three mechanisms.
pub(crate) fn mechanisms(plan: &Plan) {
    table(
        "Each mechanism on and off (256 decisions under way, sliding_window)",
        &[
            "load",
            "mechanisms",
            "k decisions/s",
            "calls/s seen by Redis",
            "Redis, CPU us a decision",
            "ours, CPU us a decision",
        ],
    );
    let quota = 1_000_000_000;
    for (load, keys, quota) in [
        ("100 k keys, admitting", 100_000, quota),
        ("one key, admitting", 1, quota),
        ("one key, denying", 1, 1),
    ] {
        for (name, config) in switched() {
            mechanism(plan, load, name, keys, quota, config);
        }
    }
}

fn switched() -> [(&'static str, RedisConfig); 5] {
    let with = |change: fn(&mut RedisConfig)| {
        let mut config = config();
        change(&mut config);
        config
    };
    let no_batches: fn(&mut RedisConfig) = |config| {
        config.groups_max = 1;
        config.pipelines_max = 256;
    };
    [
        ("all on", config()),
        ("no batching", with(no_batches)),
        ("no merging", with(|config| config.merges = false)),
        (
            "no memory of denials",
            with(|config| config.deny_cache_max = Duration::ZERO),
        ),
        (
            "all off",
            with(|config| {
                config.groups_max = 1;
                config.pipelines_max = 256;
                config.merges = false;
                config.deny_cache_max = Duration::ZERO;
            }),
        ),
    ]
}

fn mechanism(plan: &Plan, load: &str, name: &str, keys: u64, quota: u64, config: RedisConfig) {
    let mut scene = Scene::new();
    let store = scene.store(config);
    let mut flood = Flood {
        tasks: 256,
        keys,
        limits: 1,
        limit: limit(Algorithm::SlidingWindow, quota),
        run: plan.alone / 4,
    };
    flood.run(&scene.runtime, &store);
    flood.run = plan.alone;
    let before = scene.seen();
    let tally: Tally = flood.run(&scene.runtime, &store);
    let after = scene.seen();
    assert!(tally.failed == 0.0, "{tally:?}");
    row(&[
        load.to_owned(),
        name.to_owned(),
        format!("{:.0}", tally.rate() / 1e3),
        format!("{:.0}", (after.calls - before.calls) / tally.seconds),
        format!("{:.2}", (after.cpu_us - before.cpu_us) / tally.decisions),
        format!("{:.2}", tally.cpu_us / tally.decisions),
    ]);
}
