//! Metrics of shedding.

use std::fmt;

use ratekeeper_server::{Families, by};
use ratekeeper_tower::{Shedder, Site, SiteState};

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
    shedder: &Shedder,
    sites: impl Iterator<Item = (&'a str, &'a Site)>,
    families: &mut Families<'_>,
) -> fmt::Result {
    let (counts, fleet) = (shedder.counts(), shedder.fleet_usage());
    let classes = || counts.rules.priorities.iter().map(|class| &**class);
    let modes = [("on", &counts.shed), ("shadow", &counts.shadow)];
    let shed = modes.into_iter().flat_map(|(mode, rows)| {
        rows.iter().flat_map(move |(layer, row)| {
            classes().zip(row).map(move |(class, count)| {
                let labels = [("layer", layer.name()), ("class", class), ("mode", mode)];
                (labels, *count)
            })
        })
    });
    let help = "Requests shed, or, in shadow mode, that would have been";
    families.counters("ratelimit_shed_requests", help, shed)?;
    let in_flight = classes().zip(counts.in_flight.iter().map(|count| i64::from(*count)));
    let help = "Requests in flight by class";
    families.gauges("ratelimit_shed_in_flight", help, by("class", in_flight))?;
    families.gauges(
        "ratelimit_shed_fleet_in_flight",
        "Non-critical requests in flight: on this node, and on all others by their last report",
        by(
            "nodes",
            [
                ("own", i64::from(fleet.own)),
                ("others", i64::from(fleet.others)),
            ],
        ),
    )?;
    families.gauge(
        "ratelimit_shed_fleet_stale",
        "1 while the last report of the rest of the fleet is stale and stays in force",
        i64::from(fleet.is_stale),
    )?;
    let sites: Vec<_> = sites
        .map(|(name, site)| (name, site.state(shedder)))
        .collect();
    for (name, help, of) in GAUGES {
        let states = sites.iter().map(|(upstream, state)| (*upstream, of(state)));
        families.gauges(name, help, by("upstream", states))?;
    }
    let times = sites.iter().flat_map(|(upstream, state)| {
        let times = [("unloaded", state.unloaded), ("average", state.average)];
        times.map(|(kind, took)| {
            (
                [("upstream", *upstream), ("kind", kind)],
                took.as_secs_f64(),
            )
        })
    });
    let help = "Round-trip time of an upstream: without load, and the average of the last window";
    families.gauges("ratelimit_shed_round_trip_seconds", help, times)
}
