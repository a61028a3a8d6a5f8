//! The truth of readiness, metrics and logs, and the traffic over the links.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::NAMES;
use super::scenario::{Event, Events, RegionPlan, Scenario};
use super::watch::Look;

/// The time within which a node has to tell of a region that is away: seven seconds to notice, and five of patience.
const TOLD_IN: Duration = Duration::from_secs(13);

/// The text of a log line for a link that is lost.
const DOWN: &str = "the link to a region is down";

/// The traffic over the links.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Link {
    /// Asks of all nodes during the scenario; each has an answer.
    pub(super) asks: u64,
    pub(super) asks_per_second: f64,
    /// The most hits that a node said to have borrowed.
    pub(super) borrowed_max: u64,
    /// The time from the end of a partition until all links were back; None if there was none, or they were not.
    pub(super) back: Option<Duration>,
}

/// Reads what went over the links, and finds signals that did not tell the truth.
pub(super) fn judge(
    (plan, scenario): (&RegionPlan, &Scenario),
    (looks, events): (&[Look], &Events),
    (degraded, logs): (u64, &[(usize, String)]),
) -> (Link, Vec<String>) {
    let during = || looks.iter().filter(|look| look.at >= events.began);
    let asks = during().fold(BTreeMap::new(), |mut nodes, look| {
        let (_, last) = nodes.entry(look.node).or_insert((look.asks, look.asks));
        *last = look.asks.max(*last);
        nodes
    });
    let asks: u64 = asks.values().map(|(first, last)| last - first).sum();
    let mut link = Link {
        asks,
        asks_per_second: asks as f64 / plan.lasting.as_secs_f64(),
        borrowed_max: during().map(|look| look.borrowed).max().unwrap_or(0),
        back: None,
    };
    let mut lies = Vec::new();
    let is_lent = during().any(|look| look.lent > 0);
    if link.borrowed_max > 0 && !is_lent {
        lies.push("borrowed of no one, by the metrics".to_owned());
    }
    // A node that died was last looked at before its last answers.
    let failopen = failopen(looks);
    if (failopen > 0) != (degraded > 0) || failopen < degraded / 2 {
        lies.push(format!(
            "{degraded} answers of failure modes, {failopen} by the metric"
        ));
    }
    let struck = events.began + events.struck;
    if let Some(look) = during().find(|look| look.at < struck && !look.faults.is_empty()) {
        lies.push(format!("a fault where there is none: {}", look.faults[0]));
    }
    match scenario.event {
        Event::Nothing | Event::Failover(_) => {}
        Event::Partition(region) => {
            let healed = events.began + events.healed;
            lies.extend(untold((looks, logs), region, (struck, healed)));
            link.back = back(looks, healed);
            if link.back.is_none() {
                lies.push("links that did not come back".to_owned());
            }
        }
        Event::Death(region) => {
            let end = events.began + plan.lasting;
            lies.extend(untold((looks, logs), region, (struck, end)));
        }
    }
    (link, lies)
}

/// The answers of failure modes that all nodes told, each by its last look.
fn failopen(looks: &[Look]) -> u64 {
    let mut nodes = BTreeMap::new();
    for look in looks {
        nodes.insert(look.node, look.failopen);
    }
    nodes.values().sum()
}

/// The nodes that did not tell of a region that was away meanwhile: in readiness, in metrics, in the log.
fn untold(
    (looks, logs): (&[Look], &[(usize, String)]),
    away: usize,
    (struck, end): (Instant, Instant),
) -> Vec<String> {
    let mut untold = Vec::new();
    let text = format!("region {}: no link", NAMES[away]);
    for (node, (region, log)) in logs.iter().enumerate() {
        if *region == away {
            continue;
        }
        let name = NAMES[*region];
        let late = || {
            let after = struck + TOLD_IN;
            let looks = looks.iter().filter(move |look| look.node == node);
            looks.filter(move |look| (after..end).contains(&look.at))
        };
        if late().next().is_none() {
            untold.push(format!("a node of {name} was not looked at"));
        }
        let tells = |look: &Look| look.faults.iter().any(|fault| fault.contains(&text));
        if late().any(|look| !tells(look)) {
            untold.push(format!("readyz of {name} does not tell of {}", NAMES[away]));
        }
        if late().any(|look| look.reached != NAMES.len() as u64 - 2) {
            untold.push(format!("metrics of {name} count a link that is none"));
        }
        if !log.contains(DOWN) {
            untold.push(format!("the log of {name} does not tell of a link"));
        }
    }
    untold
}

/// The time from `healed` until every node had all links.
fn back(looks: &[Look], healed: Instant) -> Option<Duration> {
    let nodes = looks.iter().map(|look| look.node).max()? + 1;
    let whole = (0..nodes).map(|node| {
        let mut looks = looks
            .iter()
            .filter(|look| look.node == node && look.at > healed);
        let whole = looks.find(|look| look.reached == NAMES.len() as u64 - 1)?;
        Some(whole.at - healed)
    });
    whole.collect::<Option<Vec<_>>>()?.into_iter().max()
}
