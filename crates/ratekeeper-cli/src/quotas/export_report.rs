//! Metrics and messages about the audit trail's export, for operators.

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use ratekeeper_audit::ExportStatus;
use ratekeeper_server::Monitored;
use std::fmt;

/// The state of the audit trail's export.
#[derive(Debug)]
pub(crate) struct ExportReport(ExportStatus);

impl ExportReport {
    pub(super) const fn new(status: ExportStatus) -> Self {
        Self(status)
    }
}

impl Monitored for ExportReport {
    fn subject(&self) -> &'static str {
        "audit export"
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let status = &self.0;
        let gauges = [
            (
                "ratelimit_audit_export_up",
                "1 if the last attempt of this node to export the audit trail did not fail",
                u64::from(status.failing_for().is_none()),
            ),
            (
                "ratelimit_audit_export_active",
                "1 on the node that exports the audit trail",
                u64::from(status.is_active()),
            ),
            (
                "ratelimit_audit_export_waiting",
                "Changes not yet exported, on the exporting node",
                status.waiting(),
            ),
        ];
        for (name, help, value) in gauges {
            // No count here comes near the end of the gauge's range.
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)?;
        }
        let counters = [
            (
                "ratelimit_audit_exported",
                "Changes exported by this node",
                status.exported(),
            ),
            (
                "ratelimit_audit_export_errors",
                "Failed attempts to export",
                status.failures(),
            ),
        ];
        let none: Option<&Exemplar<[(&str, &str); 0], u64>> = None;
        for (name, help, value) in counters {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter(&value, none)?;
        }
        Ok(())
    }

    fn faults(&self) -> Vec<String> {
        self.0.faults()
    }
}
