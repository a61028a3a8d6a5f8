//! A row of the audit trail as it is exported.

use ratekeeper_quota::{AuditDocument, AuditRow};

/// A row of the audit trail as it is exported.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The number of the row.
    pub(crate) version: u64,
    /// The hash of the row and of all rows before it.
    pub(crate) hash: String,
    /// The whole row, the hash included, as the JSON that the admin API shows.
    pub(crate) json: String,
}

impl From<AuditRow> for Record {
    fn from(row: AuditRow) -> Self {
        let (version, hash) = (row.version, row.hash.clone());
        Self {
            version,
            hash,
            // Texts and numbers, into memory: nothing can fail.
            json: serde_json::to_string(&AuditDocument::from(row)).unwrap_or_default(),
        }
    }
}
