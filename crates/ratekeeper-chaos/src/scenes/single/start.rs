//! Faults before and during the start of nodes, and faults of the secret that counters are named by.

use std::time::Duration;

use ratekeeper_testkit::redis::Reply;

use super::scene::{FAULT, Single};
use crate::fault::{Counters, Fault, Spares, Start};

/// The key under which nodes keep the secret that counters are named by.
const SEED: &str = "rk:hash-key";

pub(super) static FAULTS: &[Fault<Single>] = &[
    Fault {
        spares: Spares::Everything,
        is_tested: true,
        ..FAULT
    },
    Fault {
        name: "none, and no requests",
        is_idle: true,
        ..FAULT
    },
    Fault {
        name: "nodes start before Redis",
        before: |scene| scene.server.process().kill(),
        heal: |scene, _| scene.server.restart(),
        start: Start::Faulty,
        told: Some(""),
        is_tested: true,
        ..FAULT
    },
    Fault {
        name: "Redis back empty, and another node first to use it",
        counters: Counters::Lost,
        is_tested: true,
        told: Some(""),
        strike: |scene, stage| {
            scene.proxy.swallow(true);
            scene.proxy.cut_all();
            scene.server.restart();
            stage.join(scene.directly());
            stage.last();
        },
        heal: |scene, _| {
            let key = scene.ask(&["EXISTS", SEED]);
            assert_eq!(key, Reply::Int(1), "the other node has made a secret");
            scene.proxy.swallow(false);
            scene.proxy.cut_all();
        },
        ..FAULT
    },
    Fault {
        name: "garbage as the hash key, before nodes start",
        before: |scene| drop(scene.ask(&["SET", SEED, "garbage"])),
        start: Start::Faulty,
        ..FAULT
    },
    Fault {
        name: "garbage as the hash key, and a node restarted",
        spares: Spares::Everything,
        strike: |scene, stage| {
            scene.ask(&["SET", SEED, "garbage"]);
            stage.restart(2);
            stage.last();
        },
        ..FAULT
    },
    Fault {
        name: "the hash key of the wrong type, and a node restarted",
        spares: Spares::Everything,
        strike: |scene, stage| {
            // In one step, since nodes that know the key put it back at once.
            let replace =
                "redis.call('DEL', KEYS[1]) return redis.call('LPUSH', KEYS[1], 'garbage')";
            scene.ask(&["EVAL", replace, "1", SEED]);
            stage.restart(2);
            stage.last();
        },
        ..FAULT
    },
    Fault {
        name: "nodes restarted one after the other",
        spares: Spares::Everything,
        strike: |_, stage| {
            for node in 0..stage.nodes.len() {
                stage.restart(node);
                std::thread::sleep(Duration::from_millis(200));
            }
        },
        ..FAULT
    },
];
