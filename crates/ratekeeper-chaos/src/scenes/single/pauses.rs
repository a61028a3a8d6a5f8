//! Processes that stand still for a moment, again and again: the server, a node, or everybody on a busy machine.

use std::time::{Duration, Instant};

use super::scene::{FAULT, Single};
use crate::fault::{Fault, Spares, Stage};
use crate::still::{crowd, pause_again};

pub(super) static FAULTS: &[Fault<Single>] = &[
    Fault {
        name: "stopped for 50 ms, again and again",
        strike: |scene, stage| pause_server(scene, stage, Duration::from_millis(50)),
        answers_late: true,
        ..FAULT
    },
    Fault {
        name: "stopped for 200 ms, again and again",
        strike: |scene, stage| pause_server(scene, stage, Duration::from_millis(200)),
        answers_late: true,
        ..FAULT
    },
    Fault {
        name: "stopped for 2,000 ms",
        strike: |scene, stage| pause_server(scene, stage, Duration::from_secs(2)),
        answers_late: true,
        ..FAULT
    },
    Fault {
        name: "a node stopped for 300 ms, again and again",
        strike: |_, stage| {
            let end = Instant::now() + stage.lasting;
            pause_again(&mut stage.nodes[0].process, Duration::from_millis(300), end);
        },
        spares: Spares::Everything,
        ..FAULT
    },
    Fault {
        name: "nodes and Redis on one processor beside two busy programs",
        strike: |scene, stage| {
            let nodes = stage.nodes.iter().map(|node| node.process.id());
            let mut ids: Vec<u32> = nodes.collect();
            ids.push(scene.server.process().id());
            crowd(&ids, || stage.last());
        },
        ..FAULT
    },
];

/// Stops the server for so long, at intervals, while the fault lasts; at least once.
fn pause_server(scene: &mut Single, stage: &Stage, pause: Duration) {
    pause_again(
        scene.server.process(),
        pause,
        Instant::now() + stage.lasting,
    );
}
