//! What can go wrong where servers stand in for one another: in a cluster, and under sentinels.

use std::thread::sleep;
use std::time::Duration;

use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Client, Cluster, PRIMARY, Reply, Sentinels};

use super::faults::{Counters, Fault, Scene};

const SHARDS: usize = 3;

/// How long a primary has to be gone before another server takes over.
const GONE: Duration = Duration::from_secs(2);

/// What the names of all counters match, and of nothing else.
const COUNTERS: &str = "rk:{*";

/// Three shards, each with a replica.
pub(super) struct Shards {
    cluster: Cluster,
    lasting: Duration,
    /// Keys of the shard that has neither primary nor replica.
    lost: Option<u64>,
}

impl Scene for Shards {
    fn new(_: &[&str], lasting: Duration) -> Self {
        Self {
            cluster: Cluster::of(SHARDS, 1, GONE),
            lasting,
            lost: None,
        }
    }

    fn url(&self) -> String {
        format!("redis+cluster://{}/", hosts(&self.cluster.ports()))
    }

    fn lost(&self) -> Option<u64> {
        self.lost
    }
}

impl Shards {
    /// The shard of the limited key, whose counter lives longest, and how many counters lie there.
    fn limited(&self) -> (usize, u64) {
        let shards = (0..SHARDS).map(|shard| {
            let mut client = self.cluster.client(shard);
            let Reply::Array(keys) = client.ask(&["KEYS", COUNTERS]) else {
                panic!("keys are a list");
            };
            let lives = keys
                .iter()
                .map(|key| match client.ask(&["PTTL", &key.text()]) {
                    Reply::Int(millis) => millis,
                    other => panic!("{other:?} is no time to live"),
                });
            (lives.max(), shard, keys.len() as u64)
        });
        let (_, shard, keys) = shards.max().expect("there are shards");
        (shard, keys)
    }

    fn kill(&mut self, node: usize) {
        self.cluster.servers()[node].process().kill();
    }
}

/// A primary and two replicas under three sentinels.
pub(super) struct Watched(Sentinels);

impl Scene for Watched {
    fn new(_: &[&str], _: Duration) -> Self {
        Self(Sentinels::with_down_after(GONE))
    }

    fn url(&self) -> String {
        format!("redis+sentinel://{}/{PRIMARY}", hosts(self.0.ports()))
    }
}

impl Watched {
    /// Waits until another server than `before` is the primary.
    fn succeeded(&self, before: u16) {
        eventually("another primary is named", || self.0.primary() != before);
        let mut client = Client::connect(self.0.primary());
        eventually("it is one", || is_primary(&mut client));
    }
}

/// Those of a cluster.
pub(super) static OF_SHARDS: &[Fault<Shards>] = &[
    Fault {
        name: "a shard of three lost: primary and replica killed (kill -9), and started again",
        options: &[],
        counters: Counters::Lost,
        strike: |scene| {
            let (shard, keys) = scene.limited();
            scene.kill(shard + SHARDS);
            scene.kill(shard);
            scene.lost = Some(keys);
            sleep(scene.lasting);
        },
        heal: |scene| {
            for server in scene.cluster.servers() {
                if server.process().ended().is_some() {
                    server.restart();
                }
            }
            scene.cluster.wait();
        },
        is_brief: false,
    },
    Fault {
        name: "a primary of three killed (kill -9), until its replica has taken over",
        options: &[],
        counters: Counters::Kept,
        strike: |scene| {
            let (shard, _) = scene.limited();
            scene.kill(shard);
            let mut replica = scene.cluster.client(shard + SHARDS);
            eventually("the replica takes over", || is_primary(&mut replica));
        },
        heal: |_| {},
        is_brief: false,
    },
];

/// Those of a set under sentinels.
pub(super) static OF_SENTINELS: &[Fault<Watched>] = &[
    Fault {
        name: "the primary under sentinels killed (kill -9), until another is named",
        options: &[],
        counters: Counters::Kept,
        strike: |scene| {
            let before = scene.0.primary();
            scene.0.servers()[0].process().kill();
            scene.succeeded(before);
        },
        heal: |_| {},
        is_brief: false,
    },
    Fault {
        name: "the primary under sentinels replaced (SENTINEL FAILOVER)",
        options: &[],
        // The old one counts on until it is told, and what it counts then is forgotten.
        counters: Counters::Lost,
        strike: |scene| {
            let before = scene.0.primary();
            let mut sentinel = Client::connect(scene.0.ports()[0]);
            let told = sentinel.ask(&["SENTINEL", "FAILOVER", PRIMARY]);
            assert!(!told.is_error(), "{told:?}");
            scene.succeeded(before);
        },
        heal: |_| {},
        is_brief: true,
    },
];

fn is_primary(client: &mut Client) -> bool {
    match client.ask(&["ROLE"]) {
        Reply::Array(role) => role[0].text() == "master",
        other => panic!("{other:?} is no role"),
    }
}

fn hosts(ports: &[u16]) -> String {
    let hosts: Vec<String> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    hosts.join(",")
}
