//! The database with tenants' quotas.

use super::checks::Checks;
use super::layer::RawValue;
use super::value_error::ValueError;
use ratekeeper_audit::{ExportFiles, ExportTarget};
use ratekeeper_quota::DatabaseAddress;
use std::path::PathBuf;
use std::str::FromStr;

/// The place of tenants' quotas, and what to do without it.
#[derive(Debug)]
pub(crate) struct QuotaSettings {
    /// The database that was named.
    pub(crate) named: Option<DatabaseAddress>,
    /// The database where none was named, and none refused: for rules that have tenants.
    pub(crate) unnamed: Option<DatabaseAddress>,
    /// The file with its saved copy.
    pub(crate) saved: Option<PathBuf>,
    /// The target of the audit trail's export.
    pub(crate) export: Option<ExportTarget>,
}

/// The limits of tenants as long as nothing is known of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnQuotaFailure {
    /// Those of the plan `default`.
    Default,
    /// None.
    Allow,
}

impl FromStr for OnQuotaFailure {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "default" => Ok(Self::Default),
            "allow" => Ok(Self::Allow),
            _ => Err(ValueError::QuotaFailure),
        }
    }
}

impl Checks<'_> {
    pub(super) fn quotas(&mut self) -> QuotaSettings {
        let values = self.values;
        let in_data = |name| Some(values.data_dir.as_ref()?.join(name));
        let unnamed = in_data("quotas.db").filter(|_| values.quotas.said.text.is_empty());
        QuotaSettings {
            named: values.quotas.clone(),
            unnamed: unnamed.map(|path| DatabaseAddress::sqlite(&path)),
            saved: in_data("quotas.saved"),
            export: self.audit_export(),
        }
    }

    fn audit_export(&mut self) -> Option<ExportTarget> {
        let values = self.values;
        let files = ExportFiles {
            tls: self.client_tls(
                &values.audit_export_ca,
                &values.audit_export_cert,
                &values.audit_export_key,
            ),
            credentials: values.audit_export_credentials.clone(),
        };
        let url = values.audit_export.as_deref()?;
        let target = ExportTarget::new(url, &values.audit_export_stream, files);
        let refused = |error| self.refuse(&values.audit_export.said, ToString::to_string(&error));
        target.map_err(refused).ok()
    }
}

/// The database; [`None`] if there is none. A path in a settings file counts from that file's folder.
pub(super) fn database(said: &RawValue) -> Result<Option<DatabaseAddress>, ValueError> {
    let text = said.text.as_str();
    if matches!(text, "" | "off") {
        return Ok(None);
    }
    let path = text
        .strip_prefix("sqlite://")
        .filter(|path| !path.is_empty());
    let address = match path {
        Some(path) => Ok(DatabaseAddress::sqlite(&said.origin.path(path))),
        None => text.parse(),
    };
    address.map(Some).map_err(|_| ValueError::Database)
}
