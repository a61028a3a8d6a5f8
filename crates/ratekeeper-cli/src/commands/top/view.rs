//! The state of a node as far as it is shown, and what follows from two states.

use super::stream::Event;
use crate::commands::admin::Refusal;
use anyhow::{Context, Result};
use ratekeeper_server::admin_json::{
    CountsEntry, NodeState, RuleEntry, SecondFigures, SecondsHistory,
};
use std::collections::{HashMap, VecDeque};

/// The seconds that are kept: as many as the widest screen has columns.
const SECONDS_MAX: usize = 600;

/// A rule, with its answers in the last second.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) rule: RuleEntry,
    pub(super) last: CountsEntry,
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
    /// It answers, and refuses to tell its state, because of this: the token, most likely. The next try is this many
    /// seconds away.
    Refused(String, u64),
}

impl Link {
    /// The link that broke off, or was never made, because of `why`.
    pub(super) fn broken(why: &anyhow::Error, pause: u64) -> Self {
        let text = format!("{why:#}");
        let refusal = why.downcast_ref::<Refusal>();
        match refusal.is_some_and(Refusal::is_about_the_sender) {
            true => Self::Refused(text, pause),
            false => Self::Lost(text, pause),
        }
    }
}

/// The state to show.
#[derive(Debug)]
pub(super) struct View {
    pub(super) address: String,
    pub(super) link: Link,
    /// The oldest first.
    pub(super) seconds: VecDeque<SecondFigures>,
    /// [`None`] until the first second has ended.
    pub(super) state: Option<NodeState>,
    /// The rules: those with the most answers in the last second first, then by their answers since the start.
    pub(super) rows: Vec<Row>,
    before: HashMap<String, CountsEntry>,
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
        let unknown = "the service answers what this version does not understand";
        match event {
            Event::History(text) => {
                let history: SecondsHistory = serde_json::from_str(&text).context(unknown)?;
                self.seconds = history
                    .seconds
                    .into_iter()
                    .map(SecondFigures::per_second)
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
        let row = |rule: RuleEntry| {
            // When a rule that is seen for the first time answered is unknown.
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
