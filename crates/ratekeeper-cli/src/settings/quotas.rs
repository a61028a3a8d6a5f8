//! The database with tenants' quotas.

use super::layer::Origin;
use super::typed::Typed;
use super::value_error::ValueError;
use ratekeeper_audit::{ExportFiles, ExportTarget};
use ratekeeper_quota::DatabaseAddress;
use std::convert::Infallible;
use std::path::PathBuf;

/// The place of tenants' quotas, and what to do without it.
#[derive(Debug)]
pub(crate) struct QuotaSettings {
    /// The database that was named.
    pub(crate) named: Option<DatabaseAddress>,
    /// The database where none was named, and none refused: for rules that have tenants.
    pub(crate) unnamed: Option<DatabaseAddress>,
    /// The file with its saved copy.
    pub(crate) saved: Option<PathBuf>,
    /// True if tenants are not limited as long as nothing is known of them.
    pub(crate) allows_unknown: bool,
    /// The target of the audit trail's export.
    pub(crate) export: Option<ExportTarget>,
}

impl Typed<'_> {
    pub(super) fn quotas(&mut self) -> QuotaSettings {
        let data_dir = self.path("data_dir");
        let said = self.layers.said("quotas");
        let beside = data_dir.as_ref().map(|folder| folder.join("quotas.db"));
        QuotaSettings {
            named: self.get("quotas", |text| address(text, &said.origin)),
            unnamed: beside
                .filter(|_| said.text.is_empty())
                .map(|path| DatabaseAddress::sqlite(&path)),
            saved: data_dir.map(|folder| folder.join("quotas.saved")),
            allows_unknown: self.get("on_quota_failure", |text| match text {
                "default" => Ok(false),
                "allow" => Ok(true),
                _ => Err(ValueError::QuotaFailure),
            }),
            export: self.audit_export(),
        }
    }

    fn audit_export(&mut self) -> Option<ExportTarget> {
        let stream = self.get("audit_export_stream", |text| {
            Ok::<_, Infallible>(text.to_owned())
        });
        let files = ExportFiles {
            tls: self.client_tls("audit_export_"),
            credentials: self.full_path("audit_export_credentials"),
        };
        self.get("audit_export", |url| match url {
            "" => Ok(None),
            url => ExportTarget::new(url, &stream, files.clone()).map(Some),
        })
    }
}

/// The database; [`None`] if there is none. A path in a settings file counts from that file's folder.
fn address(text: &str, origin: &Origin) -> Result<Option<DatabaseAddress>, ValueError> {
    if matches!(text, "" | "off") {
        return Ok(None);
    }
    let path = text
        .strip_prefix("sqlite://")
        .filter(|path| !path.is_empty());
    let address = match path {
        Some(path) => Ok(DatabaseAddress::sqlite(&origin.path(path))),
        None => text.parse(),
    };
    address.map(Some).map_err(|_| ValueError::Database)
}
