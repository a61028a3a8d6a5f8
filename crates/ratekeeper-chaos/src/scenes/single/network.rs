//! Faults on the way to a server.

use std::time::Duration;

use super::scene::{FAULT, Single};
use crate::fault::{Fault, Stage};

/// Makes each round trip longer by `tenths` tenths of the deadline while the fault lasts.
fn slow(scene: &mut Single, stage: &mut Stage, tenths: u32) {
    scene.proxy.delay(stage.settings.deadline * tenths / 20);
    stage.last();
}

fn fast(scene: &mut Single, _: &mut Stage) {
    scene.proxy.delay(Duration::ZERO);
}

pub(super) static FAULTS: &[Fault<Single>] = &[
    Fault {
        name: "round trips longer by half the deadline",
        strike: |scene, stage| slow(scene, stage, 5),
        heal: fast,
        ..FAULT
    },
    Fault {
        name: "round trips longer by 80 % of the deadline",
        strike: |scene, stage| slow(scene, stage, 8),
        heal: fast,
        ..FAULT
    },
    Fault {
        name: "round trips longer by ten times the deadline",
        strike: |scene, stage| slow(scene, stage, 100),
        heal: fast,
        opens: true,
        ..FAULT
    },
    Fault {
        name: "network swallows everything",
        begin: |scene| scene.proxy.swallow(true),
        heal: |scene, _| {
            scene.proxy.swallow(false);
            scene.proxy.cut_all();
        },
        opens: true,
        ..FAULT
    },
    Fault {
        name: "replies lost, requests carried out",
        begin: |scene| scene.proxy.swallow_replies(true),
        heal: |scene, _| {
            scene.proxy.swallow_replies(false);
            scene.proxy.cut_all();
        },
        opens: true,
        is_tested: true,
        ..FAULT
    },
    Fault {
        name: "connections cut one by one, each 100 ms",
        strike: |scene, stage| {
            let proxy = &scene.proxy;
            stage.keep(Duration::from_millis(100), || {
                proxy.cut_one();
            });
        },
        ..FAULT
    },
    Fault {
        name: "all connections cut, each second",
        strike: |scene, stage| {
            let proxy = &scene.proxy;
            stage.keep(Duration::from_secs(1), || proxy.cut_all());
        },
        ..FAULT
    },
];
