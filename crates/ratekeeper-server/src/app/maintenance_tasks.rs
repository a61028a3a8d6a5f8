//! The tasks of a server that are begun again whenever they end.

use crate::maintenance_task::MaintenanceTask;

/// The state of a server's own maintenance tasks.
#[derive(Debug)]
pub(crate) struct MaintenanceTasks {
    pub(crate) reloading: MaintenanceTask,
    pub(crate) upkeep: MaintenanceTask,
    /// Tokens, switches and the report that nodes of one quota database share.
    pub(crate) fleet: MaintenanceTask,
    /// The keys that are limited most, for other nodes.
    pub(crate) top: MaintenanceTask,
    pub(crate) statsd: MaintenanceTask,
    pub(crate) breakers: MaintenanceTask,
    /// The gateway's own work.
    pub(crate) gateway: MaintenanceTask,
    /// Files other than the rules: certificates, and the gateway's.
    pub(crate) files: MaintenanceTask,
    /// The wait for SIGHUP.
    pub(crate) hangup: MaintenanceTask,
}

impl Default for MaintenanceTasks {
    fn default() -> Self {
        Self {
            reloading: MaintenanceTask::new("reloading"),
            upkeep: MaintenanceTask::new("upkeep"),
            fleet: MaintenanceTask::new("fleet"),
            top: MaintenanceTask::new("top"),
            statsd: MaintenanceTask::new("statsd"),
            breakers: MaintenanceTask::new("breakers"),
            gateway: MaintenanceTask::new("gateway"),
            files: MaintenanceTask::new("files"),
            hangup: MaintenanceTask::new("hangup"),
        }
    }
}

impl MaintenanceTasks {
    pub(crate) fn all(&self) -> [&MaintenanceTask; 9] {
        [
            &self.reloading,
            &self.upkeep,
            &self.fleet,
            &self.top,
            &self.statsd,
            &self.breakers,
            &self.gateway,
            &self.files,
            &self.hangup,
        ]
    }
}
