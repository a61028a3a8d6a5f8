//! Processes that stand still for a moment, again and again: the server, a node, or everybody on a busy machine.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ratekeeper_testkit::process::{Process, system};

use super::{FAULT, Single};
use crate::fault::{Fault, Spares, Stage};

/// The time between two pauses.
const BETWEEN: Duration = Duration::from_millis(700);

/// Programs that never wait, beside which nodes and Redis share one processor.
const BUSY: usize = 2;

pub(super) static FAULTS: &[Fault<Single>] = &[
    Fault {
        name: "stopped for 50 ms, again and again",
        strike: |scene, stage| pause_server(scene, stage, Duration::from_millis(50)),
        ..FAULT
    },
    Fault {
        name: "stopped for 200 ms, again and again",
        strike: |scene, stage| pause_server(scene, stage, Duration::from_millis(200)),
        ..FAULT
    },
    Fault {
        name: "stopped for 2,000 ms",
        strike: |scene, stage| pause_server(scene, stage, Duration::from_secs(2)),
        ..FAULT
    },
    Fault {
        name: "a node stopped for 300 ms, again and again",
        strike: |_, stage| {
            let end = Instant::now() + stage.lasting;
            while Instant::now() < end {
                stage.nodes[0].pause();
                sleep(Duration::from_millis(300));
                stage.nodes[0].resume();
                sleep(BETWEEN);
            }
        },
        spares: Spares::Everything,
        ..FAULT
    },
    Fault {
        name: "nodes and Redis on one processor beside two busy programs",
        strike: |scene, stage| {
            let nodes = stage.nodes.iter().map(|node| node.id());
            let mut ids: Vec<u32> = nodes.collect();
            ids.push(scene.server.process().id());
            ids.iter().for_each(|id| pin(*id, "0"));
            let busy: Vec<Process> = (0..BUSY).map(|_| busy()).collect();
            stage.last();
            drop(busy);
            let all = std::thread::available_parallelism().map_or(1, usize::from);
            ids.iter()
                .for_each(|id| pin(*id, &format!("0-{}", all - 1)));
        },
        ..FAULT
    },
];

/// Stops the server for so long, at intervals, while the fault lasts; at least once.
fn pause_server(scene: &mut Single, stage: &Stage, pause: Duration) {
    let end = Instant::now() + stage.lasting;
    loop {
        scene.server.process().pause();
        sleep(pause);
        scene.server.process().resume();
        sleep(BETWEEN);
        if Instant::now() + pause > end {
            return;
        }
    }
}

/// Keeps all threads of a process on `processors`.
///
/// # Panics
/// If that fails: the row would show nothing.
fn pin(id: u32, processors: &str) {
    let mut taskset = system("taskset");
    taskset.args(["-apc", processors, &id.to_string()]);
    let done = taskset.output().expect("taskset runs");
    assert!(done.status.success(), "{done:?}");
}

/// A program that never waits, on the first processor.
fn busy() -> Process {
    let mut command = Command::new("taskset");
    command.args(["-c", "0", "sh", "-c", "while :; do :; done"]);
    Process::spawn("busy program", command)
}
