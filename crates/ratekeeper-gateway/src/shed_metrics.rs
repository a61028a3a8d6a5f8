//! Metrics of shedding.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use ratekeeper_tower::{FleetState, ShedCounts, Site, SiteState};

use crate::metrics::count_of;

/// A gauge of an upstream: its name, its help text, and the value it reads.
type GaugeOf = (&'static str, &'static str, fn(&SiteState) -> f64);

const GAUGES: [GaugeOf; 4] = [
    (
        "ratelimit_shed_limit",
        "Adaptive limit on requests in flight to an upstream",
        |state| state.limit.into(),
    ),
    (
        "ratelimit_shed_upstream_in_flight",
        "Requests in flight to an upstream, until its response begins",
        |state| state.in_flight.into(),
    ),
    (
        "ratelimit_shed_utilisation",
        "Demand as a share of the adaptive limit",
        |state| state.utilisation,
    ),
    (
        "ratelimit_shed_share",
        "Share of requests that the worker-utilisation controller sheds",
        |state| state.share_shed,
    ),
];

/// Encodes the counts by class, and the state of the controllers of each upstream.
pub(crate) fn encode<'a>(
    counts: &ShedCounts,
    fleet: FleetState,
    sites: impl Iterator<Item = (&'a str, &'a Site)>,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let classes = || counts.rules.priorities.iter().enumerate();
    let help = "Requests shed, or, in shadow mode, that would have been";
    let name = "ratelimit_shed_requests";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (mode, rows) in [("on", &counts.shed), ("shadow", &counts.shadow)] {
        for (layer, row) in rows {
            for ((_, class), count) in classes().zip(row) {
                let labels = [("layer", layer.name()), ("class", class), ("mode", mode)];
                count_of(&mut metric, labels, *count)?;
            }
        }
    }
    let help = "Requests in flight by class";
    let name = "ratelimit_shed_in_flight";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for ((_, class), count) in classes().zip(counts.in_flight) {
        let labels = [("class", &**class)];
        metric
            .encode_family(&labels)?
            .encode_gauge(&i64::from(count))?;
    }
    let help =
        "Non-critical requests in flight: on this node, and on all others by their last report";
    let name = "ratelimit_shed_fleet_in_flight";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (nodes, count) in [("own", fleet.own), ("others", fleet.others)] {
        let labels = [("nodes", nodes)];
        metric
            .encode_family(&labels)?
            .encode_gauge(&i64::from(count))?;
    }
    let help = "1 while the last report of the rest of the fleet is stale and stays in force";
    encoder
        .encode_descriptor("ratelimit_shed_fleet_stale", help, None, MetricType::Gauge)?
        .encode_gauge(&i64::from(fleet.is_stale))?;
    encode_sites(
        &sites
            .map(|(name, site)| (name, site.state()))
            .collect::<Vec<_>>(),
        encoder,
    )
}

fn encode_sites(sites: &[(&str, SiteState)], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, of) in GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (upstream, state) in sites {
            let labels = [("upstream", *upstream)];
            metric.encode_family(&labels)?.encode_gauge(&of(state))?;
        }
    }
    let help = "Round-trip time of an upstream: without load, and the average of the last window";
    let name = "ratelimit_shed_round_trip_seconds";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (upstream, state) in sites {
        for (kind, took) in [("unloaded", state.unloaded), ("average", state.average)] {
            let labels = [("upstream", *upstream), ("kind", kind)];
            metric
                .encode_family(&labels)?
                .encode_gauge(&took.as_secs_f64())?;
        }
    }
    Ok(())
}
