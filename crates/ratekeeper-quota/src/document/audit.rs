//! Changes as documents: the JSON of the admin API, of files, and of exports.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::Rfc3339;
use crate::AuditRow;

/// A change.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct AuditDocument {
    /// The number of the change.
    pub version: u64,
    /// The time of the change, by the clock of the node that made it.
    pub changed_at: Rfc3339,
    /// The name of the caller who made it.
    pub editor: String,
    /// The address from which it came.
    pub source: String,
    /// The `x-request-id` of the request that made it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// `put`, `delete`, `reset`, or `rule.…` for a switch of a rule.
    pub action: String,
    /// The domain.
    pub domain: String,
    /// The keyed hash of the tenant, or the id of the rule.
    pub subject: String,
    /// The state before.
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// The state after.
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
    /// The hash of the row and of all rows before it.
    pub hash: String,
}

impl From<AuditRow> for AuditDocument {
    fn from(row: AuditRow) -> Self {
        // The store writes JSON; what somebody else wrote is shown as it stands.
        let state = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self {
            version: row.version,
            changed_at: Rfc3339(row.changed_at),
            editor: row.editor.name,
            source: row.editor.source,
            request_id: row.editor.request_id,
            action: row.action,
            domain: row.domain,
            subject: row.subject,
            before: row.before.map(state),
            after: row.after.map(state),
            hash: row.hash,
        }
    }
}
