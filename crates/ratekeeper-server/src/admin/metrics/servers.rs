//! The servers of stores that nodes share, each by its name.

use ratekeeper_stores::{Agreement, ServerGauges};
use std::collections::BTreeMap;
use std::fmt;

use crate::figures::families::{Families, by};

/// The names of these metrics begin so, whatever the kind of store: dashboards and alerts know them.
const PREFIX: &str = "ratelimit_redis";

pub(super) fn encode(
    servers: &[ServerGauges],
    agreement: Option<Agreement>,
    families: &mut Families<'_>,
) -> fmt::Result {
    if let Some(agreement) = agreement {
        families.gauge(
            &format!("{PREFIX}_hash_key_agreed"),
            "1 if this node is known to use the hash key of all nodes, else 0",
            u64::from(agreement.is_agreed),
        )?;
        families.counter(
            &format!("{PREFIX}_hash_key_conflicts"),
            "Times that a different hash key was found, under which some nodes had counted",
            agreement.conflicts,
        )?;
    }
    // Without such stores, dashboards and alerts still find the names, at zero.
    let none = [ServerGauges {
        circuit: Some(0),
        errors: vec![("", 0)],
        durations: vec![(f64::INFINITY, 0)],
        ..ServerGauges::default()
    }];
    let servers = if servers.is_empty() { &none } else { servers };
    let errors = servers.iter().flat_map(|server| {
        let errors = server.errors.iter();
        errors.map(|(cause, count)| ([("shard", &*server.shard), ("cause", cause)], *count))
    });
    let help = "Decisions that a server of a store failed to make, by cause";
    families.counters(&format!("{PREFIX}_errors"), help, errors)?;
    let states = servers.iter();
    let states = states.filter_map(|it| Some((&*it.shard, i64::from(it.circuit?))));
    let help = "State of the circuit breaker of a store's server: 0 closed, 1 half-open, 2 open";
    families.gauges("ratelimit_circuit_state", help, by("shard", states))?;
    let durations = servers.iter().map(|it| {
        let buckets = it.durations.clone();
        (&*it.shard, (it.duration_seconds, buckets))
    });
    families.histograms(
        &format!("{PREFIX}_command_duration_seconds"),
        "Duration of calls to a server of a store",
        by("shard", durations),
    )?;
    counts(servers, families)
}

fn counts(servers: &[ServerGauges], families: &mut Families<'_>) -> fmt::Result {
    /// The help of a family, and a count for each server.
    type Counts<'a> = (&'a str, Vec<(&'a str, f64)>);

    let mut by_name: BTreeMap<&str, Counts<'_>> = BTreeMap::new();
    for server in servers {
        for (name, help, count) in &server.counts {
            let (_, rows) = by_name.entry(name).or_insert((help, Vec::new()));
            rows.push((&*server.shard, *count));
        }
    }
    for (name, (help, rows)) in by_name {
        families.counters(&format!("{PREFIX}_{name}"), help, by("shard", rows))?;
    }
    Ok(())
}
