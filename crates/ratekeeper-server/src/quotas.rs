//! The database with tenants' quotas, as the admin API changes it.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_limiter::RuleSwitch;
use ratekeeper_quota::{Editor, Follower, QuotaStore};
use serde_json::json;
use tokio::time::timeout;
use tracing::warn;

/// The longest that the answer to a change waits until the change is in force on this node. The change itself
/// is made by then, and the node finds it by itself.
const IN_FORCE_MAX: Duration = Duration::from_secs(2);

/// The longest that a switch of a rule waits for its row of the audit trail.
const NOTE_MAX: Duration = Duration::from_secs(2);

/// The database with tenants' quotas, and this node's copy of it.
#[derive(Clone, Debug)]
pub struct QuotaAdmin {
    /// The database.
    pub store: QuotaStore,
    /// The copy.
    pub follower: Arc<Follower>,
}

impl QuotaAdmin {
    /// Waits, not long, until change number `version` is in force here, so that whoever made it sees its effect
    /// in the next answer of this node.
    pub(crate) async fn put_in_force(&self, version: u64) {
        self.follower.look();
        // If it takes longer, that is said elsewhere: the database is slow, or away again.
        let _ = timeout(IN_FORCE_MAX, self.follower.status().reached(version)).await;
    }

    /// Notes in the audit trail that a rule was switched; false if that fails. Does not wait long: a rule is
    /// switched off in emergencies, whether or not the database answers.
    pub(crate) async fn note_switch(
        &self,
        rule: &str,
        to: Option<RuleSwitch>,
        editor: &Editor,
    ) -> bool {
        let after = json!({ "switch": to.map(RuleSwitch::name) });
        let noted = self
            .store
            .record("rule.switch", "", rule, (None, Some(after)), editor);
        match timeout(NOTE_MAX, noted).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                warn!(%error, rule, "a rule was switched without an audit row");
                false
            }
            Err(_) => {
                warn!(
                    rule,
                    "a rule was switched without an audit row: the database does not answer"
                );
                false
            }
        }
    }
}
