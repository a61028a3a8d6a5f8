//! The choice of a service's quota database, and the fault of one that was needed too late.

use crate::settings::{QuotaSettings, Settings};
use ratekeeper_limiter::Limiter;
use ratekeeper_quota::DatabaseAddress;
use ratekeeper_rules::RuleSet;
use ratekeeper_server::{Families, MaintenanceTask, Monitored, ReloadStatus};
use ratekeeper_stores::Stores;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::warn;

/// The database that is named, else the one for rules that have tenants.
pub(crate) fn address(settings: &QuotaSettings, rules: &RuleSet) -> Option<DatabaseAddress> {
    let unnamed = settings.unnamed.clone().filter(|_| has_tenants(rules));
    settings.named.clone().or(unnamed)
}

/// The database of a service that starts with `rules`. The one in the data folder is also opened if it is there already, or
/// if the rules are fetched: the first ones, which say whether there are tenants, come once the service runs.
pub(super) fn of_service(settings: &Settings, rules: &RuleSet) -> Option<DatabaseAddress> {
    let is_made = |address: &DatabaseAddress| address.path().is_some_and(|file| file.exists());
    let quotas = &settings.quotas;
    let unnamed = quotas.unnamed.clone();
    let unnamed = unnamed.filter(|address| settings.rules.fetched.is_some() || is_made(address));
    address(quotas, rules).or(unnamed)
}

/// Returns true if the rules have tenants, who may be in a database.
pub(super) fn has_tenants(rules: &RuleSet) -> bool {
    rules.domains().any(|domain| domain.tenant().is_some())
}

/// A database that is not open, for rules that had no tenants when the service started.
#[derive(Debug)]
pub(crate) struct Unopened {
    address: DatabaseAddress,
    limiter: Arc<Limiter<Stores>>,
    task: Arc<MaintenanceTask>,
}

impl Unopened {
    /// The database that the service would open at its next start, if the rules had tenants then.
    pub(crate) fn of(settings: &Settings, limiter: &Arc<Limiter<Stores>>) -> Option<Arc<Self>> {
        let address = settings.quotas.unnamed.clone()?;
        Some(Arc::new(Self {
            address,
            limiter: Arc::clone(limiter),
            task: Arc::new(MaintenanceTask::new("unopened quota database")),
        }))
    }

    pub(crate) const fn task(&self) -> &Arc<MaintenanceTask> {
        &self.task
    }

    /// The fault of rules that have tenants by now.
    fn fault(&self) -> Option<String> {
        let is_needed = has_tenants(self.limiter.snapshot().rules());
        is_needed.then(|| {
            format!(
                "the rules had no `tenant:` when this node started, so {} is not open: no plans of it are in force, and \
                 no calls are counted for bills; restart this node",
                self.address
            )
        })
    }

    /// Warns when rules with tenants come, until the server ends.
    pub(crate) async fn keep_warning(self: Arc<Self>, mut reloads: watch::Receiver<ReloadStatus>) {
        let mut is_told = false;
        while reloads.changed().await.is_ok() {
            let fault = self.fault();
            if let Some(why) = fault.as_ref().filter(|_| !is_told) {
                warn!("{why}");
            }
            is_told = fault.is_some();
        }
    }
}

impl Monitored for Unopened {
    fn subject(&self) -> &'static str {
        "quota database"
    }

    fn encode(&self, _: &mut Families<'_>) -> fmt::Result {
        Ok(())
    }

    fn faults(&self) -> Vec<String> {
        self.fault().into_iter().collect()
    }

    fn tasks(&self) -> Vec<(&'static str, u64)> {
        vec![(self.task.name(), self.task.failures())]
    }
}
