//! Metrics and messages about tenants' quotas, for operators.

use super::adjust::StepCounts;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use ratekeeper_quota::QuotaStatus;
use ratekeeper_server::Monitored;
use std::fmt;
use std::sync::Arc;

/// The state of this node's copy of the quotas.
#[derive(Debug)]
pub(crate) struct Report {
    status: QuotaStatus,
    steps: Arc<StepCounts>,
}

impl Report {
    pub(super) const fn new(status: QuotaStatus, steps: Arc<StepCounts>) -> Self {
        Self { status, steps }
    }
}

impl Monitored for Report {
    fn subject(&self) -> &'static str {
        "quota database"
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let status = &self.status;
        let gauges = [
            (
                "ratelimit_quota_database_up",
                "1 if the quota database answers",
                u64::from(status.away().is_none()),
            ),
            (
                "ratelimit_quota_version",
                "The number of the last change of quotas that is in force here",
                status.version(),
            ),
            (
                "ratelimit_quota_tenants",
                "Tenants known to this node",
                status.tenants(),
            ),
            (
                "ratelimit_quota_ignored",
                "Domains, plans and overrides in the quota database that the rules do not know",
                status.unknown(),
            ),
        ];
        for (name, help, value) in gauges {
            // No count here comes near the end of the gauge's range.
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)?;
        }
        let none: Option<&Exemplar<[(&str, &str); 0], u64>> = None;
        let name = "ratelimit_quota_database_errors";
        let help = "Failed reads of the quota database";
        encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter(&status.failures(), none)?;
        let name = "ratelimit_quota_adjustments";
        let help = "Adjustments of tenants' limits to their usage; in shadow mode, those that would have been made";
        let mut steps = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (mode, direction, count) in self.steps.all() {
            steps
                .encode_family(&[("mode", mode), ("direction", direction)])?
                .encode_counter(&count, none)?;
        }
        Ok(())
    }

    fn faults(&self) -> Vec<String> {
        self.status.faults()
    }
}
