//! The fault campaign: a real server that fails in every way there is, under load from two nodes.
//!
//! `cargo xtask chaos` prints a table, a row for each fault: how many answers were given while it lasted, how many of them
//! by failure mode, how long they took, what passed of a limit of 1,000, and how long after the end of the fault every
//! node decided in Redis again.

mod faults;
mod node;

use std::time::Duration;

use faults::{FAULTS, Fault, Scene};
use node::{Node, Seen};

/// What the limited key may have in the hour, which no fault outlasts.
const LIMIT: u64 = 1_000;

const NODES: usize = 2;

/// Before a fault, so that every connection is there.
const WARM: Duration = Duration::from_secs(1);

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "| fault | answers | errors | by failure mode | p50 | p99 | p99.9 | slowest | passed of {LIMIT} | until shared again |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for fault in FAULTS {
        let is_wanted = wanted.is_empty() || wanted.iter().any(|name| fault.name.contains(&**name));
        if is_wanted {
            println!("{}", row(fault));
        }
    }
}

/// Lives through one fault.
fn row(fault: &Fault) -> String {
    let mut scene = Scene::new();
    let nodes: Vec<Node> = (0..NODES)
        .map(|_| Node::start(scene.url(), LIMIT))
        .collect();
    std::thread::sleep(WARM);
    nodes.iter().for_each(Node::forget);
    (fault.strike)(&mut scene);
    let during: Vec<Seen> = nodes.iter().map(Node::seen).collect();
    (fault.heal)(&mut scene);
    let recovered = nodes.iter().map(Node::until_shared).max();
    let admitted: u64 = nodes.into_iter().map(Node::stop).sum();
    let seen = Seen::all(during);
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {admitted} | {} |",
        fault.name,
        seen.answers(),
        seen.errors,
        seen.degraded,
        millis(seen.percentile(0.5)),
        millis(seen.percentile(0.99)),
        millis(seen.percentile(0.999)),
        millis(seen.percentile(1.0)),
        millis(recovered.unwrap_or_default()),
    )
}

fn millis(span: Duration) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1e3)
}
