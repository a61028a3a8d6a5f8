//! The servers of a store, each by its name.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use super::family::{Label, count_of, counter};
use crate::store::{Agreement, ServerGauges};

pub(super) fn encode(
    servers: &[ServerGauges],
    agreement: Option<Agreement>,
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    if let Some(agreement) = agreement {
        let help = "1 if this node is known to use the hash key of all nodes, else 0";
        let name = "ratelimit_redis_hash_key_agreed";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        metric.encode_gauge(&u64::from(agreement.is_agreed))?;
        let help = "Times that a different hash key was found, under which some nodes had counted";
        let none: Option<&Exemplar<[Label<'_>; 0], u64>> = None;
        counter(encoder, "ratelimit_redis_hash_key_conflicts", help)?
            .encode_counter(&agreement.conflicts, none)?;
    }
    // Without Redis, dashboards and alerts still find the names, at zero.
    let none = [ServerGauges {
        circuit: Some(0),
        errors: vec![("", 0)],
        durations: vec![(f64::INFINITY, 0)],
        ..ServerGauges::default()
    }];
    let servers = if servers.is_empty() { &none } else { servers };
    let help = "Decisions that a Redis server failed to make, by cause";
    let mut metric = counter(encoder, "ratelimit_redis_errors", help)?;
    for server in servers {
        for (cause, count) in &server.errors {
            count_of(
                &mut metric,
                [("shard", &server.shard), ("cause", cause)],
                *count,
            )?;
        }
    }
    let help = "State of a Redis server's circuit breaker: 0 closed, 1 half-open, 2 open";
    let name = "ratelimit_circuit_state";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for server in servers {
        let labels = [("shard", &*server.shard)];
        if let Some(circuit) = server.circuit.map(i64::from) {
            metric.encode_family(&labels)?.encode_gauge(&circuit)?;
        }
    }
    let help = "Duration of calls to a Redis server";
    let name = "ratelimit_redis_command_duration_seconds";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for server in servers {
        let labels = [("shard", &*server.shard)];
        let count = server.durations.iter().map(|(_, count)| count).sum();
        metric
            .encode_family(&labels)?
            .encode_histogram::<[Label<'_>; 0]>(
                server.duration_seconds,
                count,
                &server.durations,
                None,
            )?;
    }
    counts(servers, encoder)
}

fn counts(servers: &[ServerGauges], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let mut by_name: BTreeMap<&str, Vec<(&str, &str, f64)>> = BTreeMap::new();
    for server in servers {
        for (name, help, count) in &server.counts {
            let row = (*help, &*server.shard, *count);
            by_name.entry(name).or_default().push(row);
        }
    }
    for (name, rows) in by_name {
        let name = format!("ratelimit_redis_{name}");
        let help = rows.first().map_or("", |(help, ..)| help);
        let mut metric = counter(encoder, &name, help)?;
        for (_, shard, count) in rows {
            let labels = [("shard", shard)];
            let none: Option<&Exemplar<[Label<'_>; 0], f64>> = None;
            metric
                .encode_family(&labels)?
                .encode_counter(&count, none)?;
        }
    }
    Ok(())
}
