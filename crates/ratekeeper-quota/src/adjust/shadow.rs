//! Steps in shadow mode: the audit trail alone tells of them, and how many a tenant would have.

use ratekeeper_core::Timestamp;
use ratekeeper_rules::RaisedSteps;
use serde_json::json;
use sqlx::Row;

use super::{AdjustStep, Raised, editor};
use crate::audit::Entry;
use crate::store::within;
use crate::{QuotaError, QuotaStore, TenantId};

/// The kind of a step in the audit trail that is only told.
const SHADOW_ACTION: &str = "adjust.shadow";

impl QuotaStore {
    /// The steps that a tenant would have by the audit trail.
    pub(super) async fn shadow_steps(&self, id: &TenantId) -> Result<RaisedSteps, QuotaError> {
        within(async {
            let mut connection = self.pool.acquire().await?;
            shadow_steps(&mut connection, &id.domain, &id.hash.to_string()).await
        })
        .await
    }

    /// Records a step that was not taken; false if another node has recorded one meanwhile.
    pub(super) async fn record_shadow(
        &self,
        raised: &Raised<'_>,
        step: &AdjustStep,
    ) -> Result<bool, QuotaError> {
        let subject = step.tenant.hash.to_string();
        within(async {
            let mut change = self.begin().await?;
            let domain = raised.domain.name();
            let known = shadow_steps(&mut change.transaction, domain, &subject).await?;
            if known.steps != step.from {
                return Ok(false);
            }
            let editor = editor();
            let after = json!({
                "steps": step.to,
                "since": raised.now.as_micros(),
                "plan": step.plan,
                "requests_per_unit": step.limit,
                "shown": step.tenant.shown,
            });
            let entry = Entry {
                action: SHADOW_ACTION,
                domain,
                subject: subject.into(),
                before: Some(json!({ "steps": step.from })),
                after: Some(after),
                editor: &editor,
            };
            change.record(&entry).await?;
            self.commit(change).await?;
            Ok(true)
        })
        .await
    }
}

/// The steps that a tenant would have by its last row of the audit trail in shadow mode.
async fn shadow_steps(
    connection: &mut sqlx::AnyConnection,
    domain: &str,
    subject: &str,
) -> Result<RaisedSteps, QuotaError> {
    let row = sqlx::query(
        "SELECT state_after FROM quota_audit WHERE domain = $1 AND subject = $2 AND action = 'adjust.shadow' \
         ORDER BY version DESC LIMIT 1",
    )
    .bind(domain.to_owned())
    .bind(subject.to_owned())
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else {
        return Ok(RaisedSteps::default());
    };
    let after: Option<String> = row.try_get("state_after")?;
    let after = after.and_then(|after| serde_json::from_str::<serde_json::Value>(&after).ok());
    let corrupt = || QuotaError::Corrupt {
        table: "quota_audit",
    };
    let after = after.ok_or_else(corrupt)?;
    let steps = after["steps"]
        .as_u64()
        .and_then(|steps| u16::try_from(steps).ok());
    Ok(RaisedSteps {
        steps: steps.ok_or_else(corrupt)?,
        since: Timestamp::from_micros(after["since"].as_u64().ok_or_else(corrupt)?),
    })
}
