//! Faults, one after the other, and what two nodes under load make of each.
//!
//! A row says how long the fault lasted, how many answers were given meanwhile, how many of them by failure mode, how long
//! they took, what passed of a limit, and how long after the end of the fault every caller was answered by Redis again.

mod faults;
mod load;
mod node;
mod sets;
mod single;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use faults::{Fault, Scene};
use node::{Node, Seen};

/// How the campaign is led.
pub(crate) struct Plan {
    /// How long a fault lasts.
    pub(crate) lasting: Duration,
    /// What the limited key may have in the year.
    pub(crate) limit: u64,
    /// The deadline of a decision.
    pub(crate) deadline: Duration,
    /// What no caller would wait for.
    pub(crate) patience: Duration,
    /// Whether latencies are held to the deadline.
    pub(crate) is_timed: bool,
    /// Whether faults that need much time are left out.
    pub(crate) is_brief: bool,
}

/// As `docs/reliability.md` shows it, with the product's own deadline.
#[allow(dead_code, reason = "the example leads this one, the test the other")]
pub(crate) const FULL: Plan = Plan {
    lasting: Duration::from_secs(5),
    limit: 1_000,
    deadline: Duration::from_millis(10),
    patience: Duration::from_secs(1),
    is_timed: true,
    is_brief: false,
};

/// For machines that are slow and busy.
#[allow(dead_code, reason = "the example leads this one, the test the other")]
pub(crate) const SHORT: Plan = Plan {
    lasting: Duration::from_millis(400),
    limit: 100,
    deadline: Duration::from_millis(100),
    patience: Duration::from_secs(30),
    is_timed: false,
    is_brief: true,
};

const NODES: u64 = 2;

/// What a node is told to be one.
const NODE: &str = "--node";

/// Leads the campaign, or is one of its nodes.
pub(crate) fn main(plan: &Plan) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, orders @ ..] = arguments.as_slice()
        && first == NODE
    {
        load::run(orders);
        return ExitCode::SUCCESS;
    }
    // Whatever else `cargo test` hands on are names.
    let names: Vec<String> = arguments
        .into_iter()
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    println!(
        "| fault | lasted | answers | errors | by failure mode | p50 | p99 | p99.9 | slowest | passed of {} (at most) | until shared again | |",
        plan.limit
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|");
    let broken = broken(plan, &names, single::FAULTS)
        + broken(plan, &names, sets::OF_SHARDS)
        + broken(plan, &names, sets::OF_SENTINELS);
    match broken {
        0 => ExitCode::SUCCESS,
        _ => {
            eprintln!("{broken} rows miss a bar");
            ExitCode::FAILURE
        }
    }
}

/// Lives through those of `faults` that are wanted; how many rows miss a bar.
fn broken<S: Scene>(plan: &Plan, names: &[String], faults: &[Fault<S>]) -> usize {
    let is_named = |fault: &Fault<S>| names.iter().any(|name| fault.name.contains(&**name));
    faults
        .iter()
        .filter(|fault| fault.is_brief || !plan.is_brief)
        .filter(|fault| names.is_empty() || is_named(fault))
        .filter(|fault| !live_through(plan, fault))
        .count()
}

/// Prints the row of one fault; whether every bar was kept.
fn live_through<S: Scene>(plan: &Plan, fault: &Fault<S>) -> bool {
    let mut scene = S::new(fault.options, plan.lasting);
    let mut nodes: Vec<Node> = (0..NODES)
        .map(|_| Node::start(&scene.url(), plan))
        .collect();
    nodes.iter_mut().for_each(|node| {
        node.until_shared();
    });
    nodes.iter_mut().for_each(|node| {
        node.seen();
    });
    let start = Instant::now();
    (fault.strike)(&mut scene);
    let lasted = start.elapsed();
    let during = Seen::all(nodes.iter_mut().map(Node::seen));
    (fault.heal)(&mut scene);
    let recovered = nodes.iter_mut().map(Node::until_shared).max();
    // Whatever is left of the limit passes now, and no more.
    std::thread::sleep(plan.lasting / 4);
    let (mut admitted, mut alone) = (0, 0);
    for node in nodes {
        let end = node.stop();
        admitted += end.admitted;
        alone += u64::from(end.degraded > 0);
    }
    let most = fault.admits_at_most(plan.limit, alone);
    let mut missed = Vec::new();
    if during.errors > 0 || during.answers() == 0 {
        missed.push("unanswered");
    }
    if let Some(lost) = scene.lost()
        && during.away != lost * NODES
    {
        missed.push("not what was lost alone");
    }
    if admitted > most {
        missed.push("too many passed");
    }
    if plan.is_timed && during.percentile(0.999) > plan.deadline * 2 {
        missed.push("late");
    }
    println!(
        "| {} | {:.1} s | {} | {} | {} | {} | {} | {} | {} | {admitted} ({most}) | {} | {} |",
        fault.name,
        lasted.as_secs_f64(),
        during.answers(),
        during.errors,
        during.degraded,
        millis(during.percentile(0.5)),
        millis(during.percentile(0.99)),
        millis(during.percentile(0.999)),
        millis(during.percentile(1.0)),
        millis(recovered.unwrap_or_default()),
        missed.join(", "),
    );
    missed.is_empty()
}

fn millis(span: Duration) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1e3)
}
