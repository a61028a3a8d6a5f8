//! Changes as documents: the JSON of the admin API, of files, and of exports.

use ratekeeper_rules::time::Rfc3339;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::QuotaDocument;
use crate::AuditRow;
use crate::audited::AuditedTenant;

/// A change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
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
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// `put`, `delete`, `reset`, or `rule.…` for a switch of a rule.
    pub action: String,
    /// The domain.
    pub domain: String,
    /// The keyed hash of the tenant, or the id of the rule.
    pub subject: String,
    /// The tenant; of a secret value only the end. Absent for a rule.
    #[serde(alias = "api_key", default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The number of times that the tenant's usage was reset, this change included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// The state before: of a tenant its plans and overrides, as a PUT sets them. Null if there was none.
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
        let [before, after] = [row.before, row.after].map(|text| text.map(State::of));
        let latest = after.as_ref().or(before.as_ref());
        let (tenant, epoch) = match latest {
            Some(State::Tenant(tenant, _)) => (Some(tenant.shown.clone()), Some(tenant.epoch)),
            _ => (None, None),
        };
        Self {
            version: row.version,
            changed_at: Rfc3339(row.changed_at),
            editor: row.editor.name,
            source: row.editor.source,
            request_id: row.editor.request_id,
            action: row.action,
            domain: row.domain,
            subject: row.subject,
            tenant,
            epoch,
            before: before.map(State::shown),
            after: after.map(State::shown),
            hash: row.hash,
        }
    }
}

/// A state in a row.
enum State {
    /// A tenant, and its quotas as a document.
    Tenant(AuditedTenant, Value),
    Other(Value),
}

impl State {
    fn of(text: String) -> Self {
        let tenant = serde_json::from_str::<AuditedTenant>(&text);
        let document = tenant.map(|tenant| {
            let document = QuotaDocument::of(&tenant.quotas());
            (tenant, serde_json::to_value(document))
        });
        match document {
            Ok((tenant, Ok(document))) => Self::Tenant(tenant, document),
            // The store writes JSON; what somebody else wrote is shown as it stands.
            _ => Self::Other(serde_json::from_str(&text).unwrap_or(Value::String(text))),
        }
    }

    fn shown(self) -> Value {
        match self {
            Self::Tenant(_, value) | Self::Other(value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Editor;
    use ratekeeper_core::Timestamp;
    use serde_json::json;

    #[test]
    fn a_state_is_told_as_a_put_takes_it() {
        let stored = r#"{"epoch":2,"overrides":[{"effective_at":1801353600000000,"expires_at":null,
            "limit":{"descriptor":["a:b"],"requests_per_unit":5,"unit":"minute"}}],
            "plans":[{"effective_at":0,"expires_at":null,"plan":"pro"}],"shown":"acme","version":3}"#;
        let row = AuditRow {
            version: 4,
            changed_at: Timestamp::from_secs(1),
            editor: Editor::default(),
            action: "put".to_owned(),
            domain: "d".to_owned(),
            subject: "x".to_owned(),
            before: Some(stored.to_owned()),
            after: Some(r#"{"switch":"shadow"}"#.to_owned()),
            hash: String::new(),
        };
        let told = AuditDocument::from(row.clone());
        let before = json!({
            "plan": "pro",
            "overrides": [{
                "descriptor": "a:b", "requests_per_unit": 5, "unit": "minute", "effective_at": "2027-01-31T00:00:00Z",
            }],
        });
        assert_eq!(told.before, Some(before.clone()));
        assert_eq!(told.after, Some(json!({ "switch": "shadow" })));
        let put = serde_json::from_value::<QuotaDocument>(before);
        assert!(put.is_ok_and(|put| put.quotas().is_ok()));
        let gone = AuditDocument::from(AuditRow { after: None, ..row });
        assert_eq!(
            (gone.tenant.as_deref(), gone.epoch),
            (Some("acme"), Some(2))
        );
    }
}
