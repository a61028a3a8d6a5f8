//! Faults of a cluster.

use std::time::Duration;

use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Cluster, Reply};

use super::is_primary;
use crate::fault::{Counters, Fault, Scene, Spares, Start};

const SHARDS: usize = 3;

/// The time that a primary has to be gone before its replica takes over.
const GONE: Duration = Duration::from_secs(2);

/// The most slots that are moved while they are in use: those of the first shard that have keys.
const MOVED_MAX: usize = 30;

/// Three shards, each with a replica.
pub(crate) struct Shards {
    cluster: Cluster,
}

impl Scene for Shards {
    fn url(&self) -> String {
        self.cluster.url()
    }
}

impl Shards {
    fn kill(&mut self, node: usize) {
        self.cluster.servers()[node].process().kill();
    }

    fn hold(&mut self, is_held: bool) {
        for server in self.cluster.servers() {
            match is_held {
                true => server.process().pause(),
                false => server.process().resume(),
            }
        }
    }

    /// Waits until the replica of the first shard has taken over.
    fn succeeded(&self) {
        let mut replica = self.cluster.client(SHARDS);
        eventually("the replica takes over", || is_primary(&mut replica));
    }

    /// Slots of the first shard that have keys.
    fn slots(&self) -> Vec<u16> {
        let mut client = self.cluster.client(0);
        let Reply::Array(keys) = client.ask(&["KEYS", "rk:{*"]) else {
            panic!("keys are a list");
        };
        let slots =
            keys.iter().filter_map(
                |key| match client.ask(&["CLUSTER", "KEYSLOT", &key.text()]) {
                    Reply::Int(slot) => u16::try_from(slot).ok(),
                    _ => None,
                },
            );
        let mut slots: Vec<u16> = slots.collect();
        slots.sort_unstable();
        slots.dedup();
        slots.truncate(MOVED_MAX);
        slots
    }
}

const FAULT: Fault<Shards> = Fault {
    spares: Spares::OtherShards,
    ..Fault::none(|| Shards {
        cluster: Cluster::of(SHARDS, 1, GONE),
    })
};

/// All of them.
pub(crate) static FAULTS: &[Fault<Shards>] = &[
    Fault {
        name: "cluster: nodes start before it",
        before: |scene| scene.hold(true),
        heal: |scene, _| {
            scene.hold(false);
            scene.cluster.wait();
        },
        start: Start::Faulty,
        counters: Counters::Copied(1),
        spares: Spares::Nothing,
        told: Some(""),
        ..FAULT
    },
    Fault {
        name: "cluster: a shard of three lost, primary and replica, and back empty",
        counters: Counters::Lost,
        begin: |scene| {
            scene.kill(SHARDS);
            scene.kill(0);
        },
        heal: |scene, _| {
            for server in scene.cluster.servers() {
                if server.process().ended().is_some() {
                    server.restart();
                }
            }
            scene.cluster.wait();
        },
        told: Some(""),
        ..FAULT
    },
    Fault {
        name: "cluster: a primary of three killed, until its replica has taken over",
        counters: Counters::Copied(1),
        strike: |scene, _| {
            scene.kill(0);
            scene.succeeded();
        },
        told: Some(""),
        ..FAULT
    },
    Fault {
        name: "cluster: a primary of three paused until its replica has taken over, then resumed",
        counters: Counters::Copied(1),
        begin: |scene| {
            scene.cluster.servers()[0].process().pause();
            scene.succeeded();
            scene.cluster.servers()[0].process().resume();
        },
        told: Some(""),
        ..FAULT
    },
    Fault {
        name: "cluster: slots moved while they are asked for, there and back",
        // No replica takes over: a busy machine takes longer to answer than a lost primary is waited for.
        scene: || Shards {
            cluster: Cluster::of(SHARDS, 1, Duration::from_secs(60)),
        },
        strike: |scene, _| {
            let slots = scene.slots();
            assert!(!slots.is_empty(), "the first shard has keys");
            for slot in &slots {
                scene.cluster.move_slot(*slot, 0, 1);
            }
            for slot in &slots {
                scene.cluster.move_slot(*slot, 1, 0);
            }
        },
        is_tested: true,
        ..FAULT
    },
];
