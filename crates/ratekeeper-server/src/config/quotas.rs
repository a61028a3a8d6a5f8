//! The database with tenants' quotas, as the admin API changes it.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_quota::{Follower, QuotaStore};
use tokio::time::timeout;

/// The longest that the answer to a change waits until the change is in force on this node. The change itself
/// is made by then, and the node finds it by itself.
const IN_FORCE_MAX: Duration = Duration::from_secs(2);

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
        let _ = timeout(IN_FORCE_MAX, self.follower.quota_status().reached(version)).await;
    }
}
