//! The store beside a bare Redis: how many decisions a second, how long they take, what Redis sees of them, and what one
//! tenant's flood costs the others.
//!
//! `cargo bench -p ratekeeper-store-redis --bench store -- [--quick] [many] [hot] [mechanisms] [latency] [load] [neighbours] [cluster]`
//!
//! Redis gets the first processor, and everything else the second. Speeds of a shared machine wander, so runs of both
//! sides alternate (see `ratekeeper_testkit::paired`); processor time is told beside every rate.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

mod cluster;
mod flood;
mod hot;
mod latency;
mod many;
mod neighbours;
mod scene;

use std::fmt::Display;
use std::time::Duration;

use ratekeeper_testkit::paired::Patience;

/// The length and number of runs.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// One run of a pair.
    pub(crate) run: Duration,
    /// One run that is compared with nothing.
    pub(crate) alone: Duration,
    pub(crate) patience: Patience,
}

/// A part of the benchmark.
type Part = fn(&Plan);

const FULL: Plan = Plan {
    run: Duration::from_millis(500),
    alone: Duration::from_secs(4),
    patience: Patience {
        pairs_min: 15,
        pairs_max: 45,
    },
};

const QUICK: Plan = Plan {
    run: Duration::from_millis(300),
    alone: Duration::from_secs(1),
    patience: Patience {
        pairs_min: 5,
        pairs_max: 7,
    },
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --all-targets` runs this too, and wants no measurements.
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("measures only under cargo bench, or with --bench");
        return;
    }
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    let plan = if is_quick { QUICK } else { FULL };
    let chosen: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    scene::pin_this_process();
    let parts: [(&str, Part); 7] = [
        ("many", many::beside_redis_benchmark),
        ("hot", hot::beside_memory),
        ("mechanisms", many::mechanisms),
        ("latency", latency::beside_a_bare_round_trip),
        ("load", latency::by_offered_load),
        ("neighbours", neighbours::beside_a_flood),
        ("cluster", cluster::by_slots),
    ];
    for (name, part) in parts {
        if chosen.is_empty() || chosen.contains(&name) {
            part(&plan);
        }
    }
}

/// Begins a table.
pub(crate) fn table(title: &str, columns: &[&str]) {
    println!("\n{title}\n");
    row(columns);
    row(&vec!["---"; columns.len()]);
}

/// One of its rows.
pub(crate) fn row<T: Display>(cells: &[T]) {
    let cells: Vec<String> = cells.iter().map(ToString::to_string).collect();
    println!("| {} |", cells.join(" | "));
}
