//! The state of the background work on the database with tenants' quotas.

use ratekeeper_server::MaintenanceTask;
use std::sync::Arc;

/// The state of all background work, for operators.
#[derive(Debug)]
pub(super) struct QuotaTasks {
    pub(super) usage: Arc<MaintenanceTask>,
    pub(super) adjust: Arc<MaintenanceTask>,
    pub(super) presence: Arc<MaintenanceTask>,
}

impl Default for QuotaTasks {
    fn default() -> Self {
        let task = |name| Arc::new(MaintenanceTask::new(name));
        Self {
            usage: task("usage"),
            adjust: task("adjust"),
            presence: task("presence"),
        }
    }
}

impl QuotaTasks {
    pub(super) fn failures(&self) -> Vec<(&'static str, u64)> {
        let all = [&self.usage, &self.adjust, &self.presence];
        all.map(|task| (task.name(), task.failures())).into()
    }
}
