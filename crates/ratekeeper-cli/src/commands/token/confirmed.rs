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
    /// The reason why it is not known on which nodes it is in force.
    unknown: Option<String>,
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
            let revoked = Self {
                version,
                nodes,
                unknown: None,
            };
            if revoked.of(NodeState::Late).next().is_none() || Instant::now() >= end {
                return Ok(revoked);
            }
            sleep(EVERY).await;
        }
    }

    /// Change number `version`, of which the nodes cannot be asked.
    pub(super) fn unknown(version: u64, why: &anyhow::Error) -> Self {
        Self {
            version,
            nodes: Vec::new(),
            unknown: Some(format!("{why:#}")),
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

    /// A failure, if a node that reports does not refuse the token, or may not.
    pub(super) fn code(&self) -> ExitCode {
        match self.unknown.is_none() && self.of(NodeState::Late).next().is_none() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
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
        let mut answer = json!({
            "name": name,
            "scope": "fleet",
            "tokens_revision": self.version,
            "confirmed": told(NodeState::Confirmed),
            "unconfirmed": told(NodeState::Late),
            "away": told(NodeState::Away),
        });
        if let Some(why) = &self.unknown {
            answer["warning"] = why.as_str().into();
        }
        answer
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
        if let Some(why) = &self.unknown {
            let why = within_line(why);
            text.push_str(&format!(
                "  NOT CONFIRMED by any node, as the database cannot be asked: {why}\n"
            ));
        } else if self.nodes.is_empty() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_revoked_is_told_so_if_nodes_cannot_be_asked() {
        let why = anyhow::anyhow!("the database is away");
        let revoked = Confirmations::unknown(7, &why);
        let words = revoked.in_words("ann");
        assert!(
            words.starts_with("the token of ann is revoked\n"),
            "{words}"
        );
        assert!(words.contains("NOT CONFIRMED by any node"), "{words}");
        let told = revoked.in_json("ann");
        assert_eq!(
            (&told["tokens_revision"], &told["warning"]),
            (&json!(7), &json!("the database is away"))
        );
        assert_eq!(revoked.code(), ExitCode::FAILURE);
    }
}
