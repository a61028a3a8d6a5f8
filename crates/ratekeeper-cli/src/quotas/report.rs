//! Metrics and messages about tenants' quotas, for operators.

use super::adjust::StepCounts;
use super::presence::Dispute;
use super::tasks::QuotaTasks;
use ratekeeper_quota::QuotaStatus;
use ratekeeper_server::{Families, Monitored};
use std::fmt;
use std::sync::Arc;

/// The state of this node's copy of the quotas.
#[derive(Debug)]
pub(crate) struct Report {
    status: QuotaStatus,
    steps: Arc<StepCounts>,
    dispute: Dispute,
    tasks: QuotaTasks,
}

impl Report {
    pub(super) const fn new(
        status: QuotaStatus,
        steps: Arc<StepCounts>,
        dispute: Dispute,
        tasks: QuotaTasks,
    ) -> Self {
        Self {
            status,
            steps,
            dispute,
            tasks,
        }
    }
}

impl Monitored for Report {
    fn subject(&self) -> &'static str {
        "quota database"
    }

    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let status = &self.status;
        families.gauge(
            "ratelimit_quota_database_up",
            "1 if the quota database answers",
            u64::from(status.away().is_none()),
        )?;
        families.gauge(
            "ratelimit_quota_version",
            "The number of the last change of quotas that is in force here",
            status.version(),
        )?;
        families.gauge(
            "ratelimit_admin_tokens_version",
            "The number of the last change of tokens for the admin API that is in force here",
            status.fleet().map_or(0, |state| state.tokens_version),
        )?;
        families.gauge(
            "ratelimit_quota_tenants",
            "Tenants known to this node",
            status.tenants(),
        )?;
        families.gauge(
            "ratelimit_quota_ignored",
            "Domains, plans and overrides in the quota database that the rules do not know",
            status.unknown(),
        )?;
        families.counter(
            "ratelimit_quota_database_errors",
            "Failed reads of the quota database",
            status.failures(),
        )?;
        let steps = self.steps.all().into_iter();
        let steps = steps
            .map(|(mode, direction, count)| ([("mode", mode), ("direction", direction)], count));
        let help = "Adjustments of tenants' limits to their usage; in shadow mode, those that would have been made";
        families.counters("ratelimit_quota_adjustments", help, steps)?;
        families.counter(
            "ratelimit_quota_adjustments_refused",
            "Looks at tenants whose limit was to follow their usage, and whose other quotas the rules refuse",
            self.steps.refused(),
        )
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.status.faults();
        if self.status.fleet().is_none() {
            let why = "neither the quota database nor a copy of its tokens is there: the admin API accepts only tokens of \
                       this node alone (`ratekeeper token create --local`)";
            faults.push(why.to_owned());
        }
        faults.extend(self.dispute.lock().clone());
        faults
    }

    fn tasks(&self) -> Vec<(&'static str, u64)> {
        self.tasks.failures()
    }
}
