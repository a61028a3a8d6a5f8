//! Metrics and messages about the audit trail's export, for operators.

use ratekeeper_audit::ExportStatus;
use ratekeeper_server::{Families, Monitored};
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

    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let status = &self.0;
        families.gauge(
            "ratelimit_audit_export_up",
            "1 if the last attempt of this node to export the audit trail did not fail",
            u64::from(status.failing_for().is_none()),
        )?;
        families.gauge(
            "ratelimit_audit_export_active",
            "1 on the node that exports the audit trail",
            u64::from(status.is_active()),
        )?;
        families.gauge(
            "ratelimit_audit_export_waiting",
            "Changes not yet exported, on the exporting node",
            status.waiting(),
        )?;
        families.counter(
            "ratelimit_audit_exported",
            "Changes exported by this node",
            status.exported(),
        )?;
        families.counter(
            "ratelimit_audit_export_errors",
            "Failed attempts to export",
            status.failures(),
        )
    }

    fn faults(&self) -> Vec<String> {
        self.0.faults()
    }
}
