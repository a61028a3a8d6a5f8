//! The state of a node as far as it is shown, and what follows from two states.

use super::stream::Event;
use anyhow::{Context, Result};
use ratekeeper_rules::time;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The seconds that are kept: as many as the widest screen has columns.
const SECONDS_MAX: usize = 600;

/// The figures of one second.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Second {
    #[serde(deserialize_with = "seconds")]
    pub(super) at: u64,
    span_ms: u64,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) shadow_denied: u64,
    pub(super) degraded: u64,
    pub(super) shed: u64,
    pub(super) unmatched: u64,
    pub(super) unknown_domain: u64,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
}

/// Reads a time as seconds since 1970.
fn seconds<'de, D: Deserializer<'de>>(reader: D) -> Result<u64, D::Error> {
    let text = String::deserialize(reader)?;
    let time = time::parse(&text).map_err(D::Error::custom)?;
    Ok(time.as_micros() / 1_000_000)
}

impl Second {
    /// Makes rates of the counts: a second is longer where the node was busy.
    fn per_second(self) -> Self {
        let rate = |count: u64| count.saturating_mul(1_000) / self.span_ms.max(1);
        Self {
            span_ms: 1_000,
            allowed: rate(self.allowed),
            denied: rate(self.denied),
            shadow_denied: rate(self.shadow_denied),
            degraded: rate(self.degraded),
            shed: rate(self.shed),
            unmatched: rate(self.unmatched),
            unknown_domain: rate(self.unknown_domain),
            ..self
        }
    }

    /// The same second of two nodes: rates add up, and the longer durations count.
    pub(super) fn plus(self, other: Self) -> Self {
        let longer = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        Self {
            at: self.at.max(other.at),
            span_ms: 1_000,
            allowed: self.allowed.saturating_add(other.allowed),
            denied: self.denied.saturating_add(other.denied),
            shadow_denied: self.shadow_denied.saturating_add(other.shadow_denied),
            degraded: self.degraded.saturating_add(other.degraded),
            shed: self.shed.saturating_add(other.shed),
            unmatched: self.unmatched.saturating_add(other.unmatched),
            unknown_domain: self.unknown_domain.saturating_add(other.unknown_domain),
            p50_us: longer(self.p50_us, other.p50_us),
            p99_us: longer(self.p99_us, other.p99_us),
        }
    }
}

/// The state of a node. Parts that it does not tell, because it is of another version, are empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeState {
    pub(super) second: Second,
    pub(super) node: Node,
    pub(super) config: Config,
    pub(super) top: Vec<Key>,
    pub(super) breakers: Vec<Breaker>,
    pub(super) store: Store,
    pub(super) owed: Owed,
    pub(super) leases: Leases,
    pub(super) faults: Vec<String>,
    pub(super) degraded_ratio: BTreeMap<String, f64>,
    pub(super) rules: Vec<Rule>,
    pub(super) rules_total: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) version: String,
    #[serde(deserialize_with = "seconds")]
    pub(super) started_at: u64,
    pub(super) state: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    pub(super) accepted: u64,
    pub(super) error: Option<String>,
}

/// A key that is denied often.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Key {
    pub(super) rule: String,
    pub(super) key: String,
    pub(super) count: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Breaker {
    pub(super) shard: String,
    pub(super) state: String,
    pub(super) errors: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Store {
    pub(super) counters: u64,
    pub(super) capacity: u64,
    pub(super) is_shared: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Owed {
    pub(super) owed: u64,
    pub(super) posted: u64,
    pub(super) dropped: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Leases {
    pub(super) leases: u64,
    pub(super) over_admission_bound: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rule {
    pub(super) id: String,
    pub(super) limit: String,
    pub(super) mode: String,
    pub(super) counts: Counts,
}

/// Answers of a rule.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(super) struct Counts {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) shadow_denied: u64,
}

impl Counts {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            allowed: self.allowed.saturating_add(other.allowed),
            denied: self.denied.saturating_add(other.denied),
            shadow_denied: self.shadow_denied.saturating_add(other.shadow_denied),
        }
    }

    fn sum(self) -> u64 {
        let denied = self.denied.saturating_add(self.shadow_denied);
        self.allowed.saturating_add(denied)
    }

    fn since(self, before: Self) -> Self {
        Self {
            allowed: self.allowed.saturating_sub(before.allowed),
            denied: self.denied.saturating_sub(before.denied),
            shadow_denied: self.shadow_denied.saturating_sub(before.shadow_denied),
        }
    }
}

/// A rule, with its answers in the last second.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) rule: Rule,
    pub(super) last: Counts,
}

/// The connection to the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Link {
    Connecting,
    Live,
    /// The node has said that it shuts down.
    Ended,
    /// It is not connected, because of this; the next try is this many seconds away.
    Lost(String, u64),
}

/// The state to show.
#[derive(Debug)]
pub(super) struct View {
    pub(super) address: String,
    pub(super) link: Link,
    /// The oldest first.
    pub(super) seconds: VecDeque<Second>,
    /// [`None`] until the first second has ended.
    pub(super) state: Option<NodeState>,
    /// The rules: those with the most answers in the last second first, then by their answers since the start.
    pub(super) rows: Vec<Row>,
    before: HashMap<String, Counts>,
}

impl View {
    pub(super) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            link: Link::Connecting,
            seconds: VecDeque::new(),
            state: None,
            rows: Vec::new(),
            before: HashMap::new(),
        }
    }

    /// Takes an event.
    ///
    /// # Errors
    /// Its data is not what this version understands.
    pub(super) fn apply(&mut self, event: Event) -> Result<()> {
        #[derive(Deserialize)]
        struct History {
            seconds: Vec<Second>,
        }
        let unknown = "the service answers what this version does not understand";
        match event {
            Event::History(text) => {
                let history: History = serde_json::from_str(&text).context(unknown)?;
                self.seconds = history
                    .seconds
                    .into_iter()
                    .map(Second::per_second)
                    .collect();
                // A node that was restarted counts from zero.
                self.before.clear();
                self.link = Link::Live;
            }
            Event::State(text) => {
                let mut state: NodeState = serde_json::from_str(&text).context(unknown)?;
                state.second = state.second.per_second();
                self.link = Link::Live;
                self.seconds.push_back(state.second);
                self.take_rules(state);
            }
            Event::End => self.link = Link::Ended,
        }
        let too_many = self.seconds.len().saturating_sub(SECONDS_MAX);
        self.seconds.drain(..too_many);
        Ok(())
    }

    fn take_rules(&mut self, mut state: NodeState) {
        let rules = std::mem::take(&mut state.rules);
        let before = std::mem::take(&mut self.before);
        self.before = rules
            .iter()
            .map(|rule| (rule.id.clone(), rule.counts))
            .collect();
        let row = |rule: Rule| {
            // A rule that is seen for the first time has answered nobody knows when.
            let last = before.get(&rule.id).copied().unwrap_or(rule.counts);
            let last = rule.counts.since(last);
            Row { rule, last }
        };
        self.rows = rules.into_iter().map(row).collect();
        sort(&mut self.rows);
        self.state = Some(state);
    }

    /// The name of the node, or its address if it has none or is not known yet.
    pub(super) fn name(&self) -> &str {
        let state = self.state.as_ref();
        let name = state.map_or("", |state| &state.node.name);
        match name.is_empty() {
            true => &self.address,
            false => name,
        }
    }

    /// The state of a node that answers.
    pub(super) fn live(&self) -> Option<&NodeState> {
        self.state.as_ref().filter(|_| self.link == Link::Live)
    }
}

/// Puts those with the most answers in the last second first, then those with the most since the start.
pub(super) fn sort(rows: &mut [Row]) {
    rows.sort_by_cached_key(|row| std::cmp::Reverse((row.last.sum(), row.rule.counts.sum())));
}
