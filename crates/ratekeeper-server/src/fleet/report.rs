//! The report of a node about itself.

use std::sync::Arc;

use ratekeeper_quota::{FleetRecord, NodeReport, QuotaError, with_causes};
use ratekeeper_rules::{CUSTOM, Position, Rule, RuleSet};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use crate::app::App;

/// The hexadecimal digits of a revision of rules.
const REVISION_DIGITS: usize = 12;

/// The report of this node, in which `state` and rules of a revision are in force.
pub(super) fn of_node(app: &App, state: Option<&FleetRecord>, rules: &str) -> NodeReport {
    let quotas = app.config.quotas.as_ref();
    NodeReport {
        instance: app.instance.to_string(),
        node: app.config.denials.node().to_owned(),
        admin: app.config.admin.to_string(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        rules: rules.to_owned(),
        quotas_version: quotas.map_or(0, |quotas| quotas.follower.quota_status().version()),
        tokens_version: state.map_or(0, |state| state.tokens_version),
        switches_version: state.map_or(0, |state| state.switches_version),
        local_tokens: app.access.tokens().local_count() as u64,
        started_at: app.started_at,
    }
}

/// A short text that two nodes of one version have in common if their files have the same rules, wherever those stand.
pub(super) fn rules_revision(rules: &RuleSet) -> String {
    let of_files = |rule: &&Rule| rule.plan.as_deref() != Some(CUSTOM);
    let text = |rule: &Rule| {
        let mut rule = rule.clone();
        rule.place = Position {
            file: Arc::from(""),
            line: 0,
            column: 0,
        };
        format!("{rule:?}")
    };
    let mut all: Vec<_> = rules.rules().iter().filter(of_files).map(text).collect();
    all.sort_unstable();
    let mut digest = Sha256::new();
    for text in all {
        digest.update(text);
        digest.update([0]);
    }
    let mut revision = hex::encode(digest.finalize());
    revision.truncate(REVISION_DIGITS);
    revision
}

/// Logs when reports begin to fail, and when they are written again.
#[derive(Debug, Default)]
pub(super) struct ReportLog {
    is_failing: bool,
}

impl ReportLog {
    pub(super) fn record(&mut self, written: &Result<(), QuotaError>) {
        match (written, self.is_failing) {
            (Err(error), false) => {
                let why = with_causes(error);
                warn!(%why, "this node cannot report itself: `ratekeeper nodes` shows it as away");
            }
            (Ok(()), true) => info!("this node reports itself again"),
            _ => {}
        }
        self.is_failing = written.is_err();
    }
}
