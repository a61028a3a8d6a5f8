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
                "Tenants that are known here",
                status.tenants(),
            ),
            (
                "ratelimit_quota_ignored",
                "Domains, plans and overrides in the quota database that mean nothing under the rules",
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
        let help = "Times that the quota database could not be read";
        encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter(&status.failures(), none)?;
        let name = "ratelimit_quota_adjustments";
        let help = "Steps by which the limits of tenants followed their usage, or would have in shadow mode";
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
