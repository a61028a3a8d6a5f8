//! Several nodes as one: the states of each, and their sum.

use super::view::{Link, Row, View, sort};
use ratekeeper_server::admin_json::{
    BreakerFigures, CounterFigures, LeaseFigures, NodeFacts, NodeState, OwedFigures, ReloadFigures,
    SecondFigures,
};
use ratekeeper_server::{KeyList, merge_keys};
use std::collections::{BTreeMap, BTreeSet};

/// The most keys that are shown: as many as a node tells.
const KEYS_MAX: usize = 10;

/// The nodes that are watched, at least one.
#[derive(Debug)]
pub(super) struct Nodes {
    views: Vec<View>,
}

impl Nodes {
    /// Nodes at these addresses, of which nothing is known yet.
    pub(super) fn new<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            views: addresses.into_iter().map(View::new).collect(),
        }
    }

    pub(super) fn are_many(&self) -> bool {
        self.views.len() > 1
    }

    /// The node of that number, in the order of the addresses.
    pub(super) fn view(&mut self, number: usize) -> Option<&mut View> {
        self.views.get_mut(number)
    }

    /// Calls `read` with the only node, or with the sum of all.
    pub(super) fn with_shown<T>(&self, read: impl FnOnce(&View) -> T) -> T {
        match &self.views[..] {
            [only] => read(only),
            _ => read(&self.sum()),
        }
    }

    /// The nodes: those that do not answer first, then by their faults and denials.
    pub(super) fn ordered(&self) -> Vec<&View> {
        let mut views: Vec<&View> = self.views.iter().collect();
        views.sort_by_cached_key(|view| {
            let state = view.live();
            let trouble = state.map(|state| (state.faults.len(), state.second.denied));
            (state.is_some(), std::cmp::Reverse(trouble))
        });
        views
    }

    /// All nodes as one: counts and rates of those that answer add up, and the longest durations count.
    fn sum(&self) -> View {
        let states: Vec<_> = self.views.iter().filter_map(View::live).collect();
        let mut sum = View::new(&format!("{} nodes", self.views.len()));
        // The first that is not as it should be.
        let links = self.views.iter().map(|view| &view.link);
        let is_broken = |link: &&Link| matches!(link, Link::Lost(..) | Link::Refused(..));
        let link = links.clone().find(is_broken);
        let link = link.or_else(|| links.clone().find(|link| **link != Link::Live));
        sum.link = link.cloned().unwrap_or(Link::Live);
        if states.is_empty() {
            return sum;
        }
        sum.seconds = self.seconds().into_values().collect();
        sum.rows = self.rows();
        let top = keys(&states);
        let shadowed = states.iter().map(|state| KeyList {
            keys: state.top_shadowed.clone(),
            unlisted_max: 0,
        });
        let shadowed: Vec<_> = shadowed.collect();
        sum.state = Some(NodeState {
            second: states.iter().fold(SecondFigures::default(), |sum, state| {
                sum.plus(state.second)
            }),
            node: self.node(&states),
            config: ReloadFigures {
                accepted: most(&states, |state| state.config.accepted),
                ..ReloadFigures::default()
            },
            top: top.keys,
            top_unlisted_max: top.unlisted_max,
            top_shadowed: merged(&shadowed).keys,
            breakers: self.breakers(),
            store: store(&states),
            owed: owed(&states),
            leases: leases(&states),
            faults: self.faults(),
            degraded_ratio: degraded(&states),
            rules_total: most(&states, |state| state.rules_total),
            ..NodeState::default()
        });
        sum
    }

    /// The seconds that every node that answers has told, by their time.
    fn seconds(&self) -> BTreeMap<u64, SecondFigures> {
        let live = || self.views.iter().filter(|view| view.live().is_some());
        let latest = |view: &View| view.seconds.back().map_or(0, |second| second.at);
        let told = live().map(latest).min().unwrap_or_default();
        let mut seconds: BTreeMap<u64, SecondFigures> = BTreeMap::new();
        for second in live().flat_map(|view| &view.seconds) {
            if second.at <= told {
                let sum = seconds.entry(second.at).or_default();
                *sum = sum.plus(*second);
            }
        }
        seconds
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
        let live = self.views.iter().filter(|view| view.live().is_some());
        for row in live.flat_map(|view| &view.rows) {
            match rows.get_mut(&*row.rule.id) {
                Some(sum) => {
                    sum.last = sum.last.plus(row.last);
                    sum.rule.counts = sum.rule.counts.plus(row.rule.counts);
                }
                None => _ = rows.insert(&row.rule.id, row.clone()),
            }
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        sort(&mut rows);
        rows
    }

    fn node(&self, states: &[&NodeState]) -> NodeFacts {
        let versions: BTreeSet<&str> = states.iter().map(|state| &*state.node.version).collect();
        let mut by_state: BTreeMap<&str, usize> = BTreeMap::new();
        for state in states {
            *by_state.entry(&state.node.state).or_default() += 1;
        }
        let refuses = |view: &&View| matches!(view.link, Link::Refused(..));
        let refused = self.views.iter().filter(refuses).count();
        let away = self.views.len() - states.len() - refused;
        for (state, count) in [("away", away), ("refused", refused)] {
            if count > 0 {
                by_state.insert(state, count);
            }
        }
        let told = by_state
            .iter()
            .map(|(state, count)| format!("{count} {state}"));
        NodeFacts {
            name: format!("{} nodes", self.views.len()),
            version: versions.into_iter().collect::<Vec<_>>().join(", "),
            state: told.collect::<Vec<_>>().join(", "),
            ..NodeFacts::default()
        }
    }

    /// The faults of all nodes, with their names in front.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for view in &self.views {
            let name = view.name();
            if let Link::Lost(why, _) | Link::Refused(why, _) = &view.link {
                faults.push(format!("{name}: {why}"));
            }
            let Some(state) = view.live() else { continue };
            faults.extend(state.faults.iter().map(|fault| format!("{name}: {fault}")));
            let refused = state.config.error.iter();
            faults.extend(refused.map(|error| format!("{name}: rules refused: {error}")));
        }
        faults
    }

    /// The breakers that are not closed, with the names of their nodes in front.
    fn breakers(&self) -> Vec<BreakerFigures> {
        let of = |view: &'_ View| {
            let state = view.live();
            let breakers = state.into_iter().flat_map(|state| &state.breakers);
            let tripped = breakers.filter(|breaker| breaker.state != "closed");
            let told = tripped.map(|breaker| BreakerFigures {
                shard: format!("{}: {}", view.name(), breaker.shard).into(),
                ..breaker.clone()
            });
            told.collect::<Vec<_>>()
        };
        self.views.iter().flat_map(of).collect()
    }
}

fn sum(states: &[&NodeState], count: impl Fn(&NodeState) -> u64) -> u64 {
    states
        .iter()
        .map(|state| count(state))
        .fold(0, u64::saturating_add)
}

fn most<T: Ord + Default>(states: &[&NodeState], count: impl Fn(&NodeState) -> T) -> T {
    states
        .iter()
        .map(|state| count(state))
        .max()
        .unwrap_or_default()
}

/// The keys that are denied most on all nodes together.
fn keys(states: &[&NodeState]) -> KeyList {
    let list = |state: &&NodeState| KeyList {
        keys: state.top.clone(),
        unlisted_max: state.top_unlisted_max,
    };
    merged(&states.iter().map(list).collect::<Vec<_>>())
}

fn merged(lists: &[KeyList]) -> KeyList {
    let mut merged = merge_keys(lists.iter());
    merged.keys.truncate(KEYS_MAX);
    merged
}

fn store(states: &[&NodeState]) -> CounterFigures {
    let sum = |count: fn(&CounterFigures) -> u64| sum(states, |state| count(&state.store));
    CounterFigures {
        counters: sum(|store| store.counters),
        capacity: sum(|store| store.capacity),
        bytes: sum(|store| store.bytes),
        is_shared: states.iter().any(|state| state.store.is_shared),
    }
}

fn owed(states: &[&NodeState]) -> OwedFigures {
    let sum = |count: fn(&OwedFigures) -> u64| sum(states, |state| count(&state.owed));
    OwedFigures {
        owed: sum(|owed| owed.owed),
        posted: sum(|owed| owed.posted),
        dropped: sum(|owed| owed.dropped),
        unknown: sum(|owed| owed.unknown),
    }
}

fn leases(states: &[&NodeState]) -> LeaseFigures {
    let sum = |count: fn(&LeaseFigures) -> u64| sum(states, |state| count(&state.leases));
    LeaseFigures {
        leases: sum(|leases| leases.leases),
        held: sum(|leases| leases.held),
        unsynced: sum(|leases| leases.unsynced),
        over_admission_bound: sum(|leases| leases.over_admission_bound),
    }
}

/// The largest share of each store.
fn degraded(states: &[&NodeState]) -> BTreeMap<Box<str>, f64> {
    let mut shares: BTreeMap<Box<str>, f64> = BTreeMap::new();
    for (store, share) in states.iter().flat_map(|state| &state.degraded_ratio) {
        let most = shares.entry(store.clone()).or_default();
        *most = most.max(*share);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::super::plain;
    use super::super::stream::Event;
    use super::*;
    use ratekeeper_core::Timestamp;
    use ratekeeper_rules::time;

    /// A state with so many answers in the last second, and a key that is denied.
    fn state(name: &str, at: u64, allowed: u64, denied: u64) -> Event {
        let moment = |seconds| time::rfc3339(Timestamp::from_secs(seconds)).to_string();
        let state = serde_json::json!({
            "second": { "at": moment(at), "span_ms": 1000, "allowed": allowed, "denied": denied, "p99_us": allowed },
            "node": { "name": name, "version": "1.0", "state": "serving", "started_at": moment(7) },
            "top": [{ "rule": "d.user", "key": "user:ann", "count": denied }, { "rule": "d.user", "key": name, "count": 2 }],
            "top_unlisted_max": 1,
            "rules": [{ "id": "d.user", "limit": "1 per 1d", "counts": { "allowed": allowed, "denied": denied } }],
            "rules_total": 1,
            "store": { "counters": 2, "capacity": 10 },
        });
        Event::State(state.to_string())
    }

    fn two() -> Nodes {
        let mut nodes = Nodes::new(["http://a:1", "http://b:1"]);
        for (number, name, allowed) in [(0, "one", 100), (1, "two", 20)] {
            let view = nodes.view(number).expect("there are two");
            view.apply(state(name, 50, allowed, 3))
                .expect("it is understood");
        }
        nodes
    }

    #[test]
    fn nodes_add_up() {
        let text = plain::text(&two());
        for part in [
            "2 nodes  1.0  2 serving",
            "120 allowed/s, 6 denied/s",
            "p99 100 us",
            "6     user:ann  d.user",
            // The other node may have denied it as often as the first key that it does not list.
            "2 ±1  one       d.user",
            "counters  4 of 20",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert!(
            lines.contains(&vec!["two", "serving", "20", "3", "20", "us", "0"]),
            "{text}"
        );
        assert!(
            lines.iter().any(|line| line.ends_with(&["120", "6"])),
            "{text}"
        );
    }

    #[test]
    fn a_node_that_is_away_counts_no_more_and_is_named() {
        let mut nodes = two();
        let view = nodes.view(0).expect("there are two");
        view.link = Link::Lost("cannot connect to http://a:1".to_owned(), 4);
        let text = plain::text(&nodes);
        for part in [
            "1 away, 1 serving",
            "20 allowed/s, 3 denied/s",
            "FAULT  one: cannot connect",
            "3  user:ann",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        assert_eq!(nodes.ordered()[0].name(), "one");
    }

    /// A second that one node has not told yet would look like a dip.
    #[test]
    fn seconds_are_summed_once_all_have_told_them() {
        let mut nodes = two();
        let view = nodes.view(0).expect("there are two");
        view.apply(state("one", 51, 500, 0))
            .expect("it is understood");
        let seconds = nodes.seconds();
        assert_eq!(seconds.keys().copied().collect::<Vec<_>>(), [50]);
        assert_eq!(seconds[&50].allowed, 120);
    }

    #[test]
    fn one_node_is_shown_as_it_is() {
        let mut nodes = Nodes::new(["http://a:1"]);
        let view = nodes.view(0).expect("there is one");
        view.apply(state("one", 50, 100, 3))
            .expect("it is understood");
        let text = plain::text(&nodes);
        assert!(text.starts_with("one  1.0  serving  up 43s"), "{text}");
        assert!(!text.contains("Nodes"), "{text}");
    }
}
