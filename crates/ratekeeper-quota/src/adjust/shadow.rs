//! Steps in shadow mode: the audit trail alone tells of them, and how many a tenant would have.

use ratekeeper_core::Timestamp;
use ratekeeper_rules::RaisedSteps;
use serde_json::json;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::{AdjustStep, PAGE, Raised, editor};
use crate::audit::Entry;
use crate::rows::stored;
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

    /// The hashes of tenants that would have steps. One that went back to none is not looked at for ever.
    pub(super) async fn shadow_raised(&self, domain: &str) -> Result<Vec<String>, QuotaError> {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let rows = within(async {
                let query = sqlx::query(
                    "SELECT a.subject, a.state_after FROM quota_audit a JOIN (SELECT MAX(version) AS version \
                     FROM quota_audit WHERE domain = $1 AND action = 'adjust.shadow' AND subject > $2 \
                     GROUP BY subject ORDER BY subject LIMIT $3) AS newest ON newest.version = a.version \
                     ORDER BY a.subject",
                );
                let query = query.bind(domain.to_owned()).bind(after.clone());
                let query = query.bind(stored(PAGE as u64));
                Ok(query.fetch_all(&self.pool).await?)
            })
            .await?;
            for row in &rows {
                after = row.try_get("subject")?;
                if steps(row)?.steps > 0 {
                    found.push(after.clone());
                }
            }
            if rows.len() < PAGE {
                return Ok(found);
            }
        }
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
                "since": raised.times.wall.as_micros(),
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
            change.audit(&entry).await?;
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
    row.map_or_else(|| Ok(RaisedSteps::default()), |row| steps(&row))
}

/// The steps that a row of the audit trail tells of.
fn steps(row: &AnyRow) -> Result<RaisedSteps, QuotaError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DatabaseKind;
    use crate::query_plans::Filled;

    /// Tenants are looked at as long as their last noted step leaves some.
    async fn suite(kind: DatabaseKind) {
        let filled = Filled::new(kind).await;
        for (domain, subject, steps) in [
            ("d", "went back", 1),
            ("d", "raised", 0),
            ("d", "raised", 2),
            ("other", "elsewhere", 1),
            ("d", "went back", 0),
        ] {
            let after = json!({ "steps": steps, "since": 7 });
            let (states, by) = ((None, Some(after)), editor());
            let recorded = filled
                .store
                .record(SHADOW_ACTION, domain, subject, states, &by);
            recorded.await.expect("it can be recorded");
        }
        let found = filled.store.shadow_raised("d").await;
        assert_eq!(found.expect("it answers"), ["raised"]);
    }

    #[tokio::test]
    async fn sqlite_forgets_who_went_back_to_no_step() {
        suite(DatabaseKind::Sqlite).await;
    }

    #[tokio::test]
    async fn postgres_forgets_who_went_back_to_no_step() {
        suite(DatabaseKind::Postgres).await;
    }
}
