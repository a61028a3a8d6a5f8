//! Waiting until a change of tokens is in force on the nodes.

use crate::output::within_line;
use anyhow::Result;
use ratekeeper_quota::{KnownNode, QuotaStore};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The longest to wait for nodes that report: those that have missed the notification find the change by then.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The interval at which their reports are read.
const EVERY: Duration = Duration::from_millis(200);

/// The nodes on which a change is in force, and those of which that is not known.
pub(super) struct Confirmations {
    version: u64,
    nodes: Vec<KnownNode>,
}

/// A node, as far as the change is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NodeState {
    Confirmed,
    /// It reports, and has not heard of the change.
    Late,
    /// It has not reported for a while.
    Away,
}

impl Confirmations {
    /// Waits until the nodes that report know change number `version`.
    pub(super) async fn wait(store: &QuotaStore, version: u64) -> Result<Self> {
        let end = Instant::now() + WAIT_MAX;
        loop {
            let nodes = store.nodes().await?;
            let revoked = Self { version, nodes };
            if revoked.of(NodeState::Late).next().is_none() || Instant::now() >= end {
                return Ok(revoked);
            }
            sleep(EVERY).await;
        }
    }

    fn of(&self, state: NodeState) -> impl Iterator<Item = &KnownNode> {
        self.nodes.iter().filter(move |node| {
            let found = match node.report.tokens_version >= self.version {
                true => NodeState::Confirmed,
                false if node.is_live() => NodeState::Late,
                false => NodeState::Away,
            };
            found == state
        })
    }

    /// A failure, if a node that reports does not refuse the token.
    pub(super) fn code(&self) -> ExitCode {
        match self.of(NodeState::Late).next() {
            None => ExitCode::SUCCESS,
            Some(_) => ExitCode::FAILURE,
        }
    }

    pub(super) fn in_json(&self, name: &str) -> Value {
        let told = |state| {
            let told = |node: &KnownNode| {
                json!({
                    "node": node.report.node,
                    "admin": node.report.admin,
                    "reported_s_ago": node.age.as_secs(),
                })
            };
            self.of(state).map(told).collect::<Vec<_>>()
        };
        json!({
            "name": name,
            "scope": "fleet",
            "tokens_revision": self.version,
            "confirmed": told(NodeState::Confirmed),
            "unconfirmed": told(NodeState::Late),
            "away": told(NodeState::Away),
        })
    }

    /// The nodes that report and do not know the change yet.
    pub(super) fn late(&self) -> Vec<String> {
        self.of(NodeState::Late).map(named).collect()
    }

    pub(super) fn in_words(&self, name: &str) -> String {
        let mut text = format!("the token of {} is revoked\n", within_line(name));
        for (state, head) in [
            (NodeState::Confirmed, "refused by"),
            (
                NodeState::Late,
                "NOT YET refused by, though they report (`ratekeeper nodes` shows when they do)",
            ),
            (
                NodeState::Away,
                "NOT CONFIRMED by, as they have not reported (if they run without the database, they still accept it)",
            ),
        ] {
            let nodes: Vec<_> = self.of(state).map(named).collect();
            if !nodes.is_empty() {
                text.push_str(&format!("  {head}: {}\n", nodes.join(", ")));
            }
        }
        if self.nodes.is_empty() {
            text.push_str("  no node has reported: each that starts will refuse it\n");
        }
        text
    }
}

fn named(node: &KnownNode) -> String {
    let (name, admin) = (&*node.report.node, &*node.report.admin);
    let name = format!("{} ({})", within_line(name), within_line(admin));
    match node.is_live() {
        true => name,
        false => format!("{name}, last heard {} s ago", node.age.as_secs()),
    }
}
