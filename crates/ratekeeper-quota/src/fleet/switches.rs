//! Switching rules on all nodes.

use ratekeeper_core::Timestamp;
use ratekeeper_rules::time::rfc3339;
use serde_json::{Value, json};
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use crate::audit::Entry;
use crate::change::Change;
use crate::rows::{self, stored};
use crate::store::within;
use crate::{Editor, QuotaError, QuotaStore};

/// A switch that could not be written when it was made.
#[derive(Clone, Copy, Debug)]
pub struct LateSwitch<'a> {
    /// The rule.
    pub rule: &'a str,
    /// The position; [`None`] takes the switch away.
    pub to: Option<&'a str>,
    /// The time at which it was made, by the clock of its node.
    pub made_at: Timestamp,
    /// The number of the last change of switches that its node knew of then.
    pub seen: u64,
}

/// The fate of a switch that is written late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwitchedLate {
    /// It is in force on all nodes, by the change of this number.
    Written(u64),
    /// It is not written: the rule was switched after it was made, last by the change of this number.
    Overtaken(u64),
}

/// The kind of change of a switch in the audit trail.
const ACTION: &str = "rule.switch";

impl QuotaStore {
    /// Puts the switch of a rule into a position on every node, unless somebody has switched the rule since that was wanted.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn switch_rule_late(
        &self,
        late: &LateSwitch<'_>,
        editor: &Editor,
    ) -> Result<SwitchedLate, QuotaError> {
        self.prepare().await?;
        within(async {
            let mut change = self.begin().await?;
            change.go_by_database();
            if let Some((version, position)) = change.switched_since(late).await? {
                // It may be this switch itself, if the answer to it was lost.
                return Ok(match position.as_deref() == late.to {
                    true => SwitchedLate::Written(version),
                    false => SwitchedLate::Overtaken(version),
                });
            }
            let after = json!({ "switch": late.to, "made_at": rfc3339(late.made_at) });
            change
                .set_switch(late.rule, late.to, (after, editor))
                .await?;
            let version = change.version;
            self.commit(change).await?;
            Ok(SwitchedLate::Written(version))
        })
        .await
    }

    /// Puts the switch of a rule into a position on every node; [`None`] takes it away. Returns the number of the change.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn switch_rule(
        &self,
        rule: &str,
        to: Option<&str>,
        editor: &Editor,
    ) -> Result<u64, QuotaError> {
        self.prepare().await?;
        within(async {
            let mut change = self.begin().await?;
            change.go_by_database();
            let after = json!({ "switch": to });
            change.set_switch(rule, to, (after, editor)).await?;
            let version = change.version;
            self.commit(change).await?;
            Ok(version)
        })
        .await
    }

    /// Adds the switches that a node has kept in its file, of rules that are not switched here. Returns how many are new.
    ///
    /// # Errors
    /// The database cannot be used; then none is added.
    pub async fn import_switches(
        &self,
        of_node: &[(Box<str>, Box<str>)],
        editor: &Editor,
    ) -> Result<usize, QuotaError> {
        self.prepare().await?;
        within(async {
            let mut change = self.begin().await?;
            change.go_by_database();
            let known = all(&mut change.transaction).await?;
            let is_new = |rule: &str| known.iter().all(|(known, _)| **known != *rule);
            let new = of_node.iter().filter(|(rule, _)| is_new(rule));
            let mut count = 0;
            for (rule, position) in new {
                let after = json!({ "switch": position });
                change
                    .set_switch(rule, Some(position), (after, editor))
                    .await?;
                count += 1;
            }
            if count > 0 {
                self.commit(change).await?;
            }
            Ok(count)
        })
        .await
    }
}

impl Change {
    /// Takes place at the time of the database: the order of switches must not depend on the clocks of several hosts.
    fn go_by_database(&mut self) {
        self.now = Timestamp::from_micros(self.database_now.max(0).unsigned_abs());
    }

    /// The last switch of the rule that came after this one was made: the number of the change, and the position.
    async fn switched_since(
        &mut self,
        late: &LateSwitch<'_>,
    ) -> Result<Option<(u64, Option<String>)>, QuotaError> {
        // A change that its node had not heard of may still be the older one.
        let age = rows::now()
            .as_micros()
            .saturating_sub(late.made_at.as_micros());
        let made_at = self.now.as_micros().saturating_sub(age);
        let row = sqlx::query(
            "SELECT version, state_after FROM quota_audit WHERE domain = '' AND subject = $1 AND version > $2 \
             AND action = $3 AND changed_at >= $4 ORDER BY version DESC LIMIT 1",
        )
        .bind(rows::key_text(late.rule))
        .bind(stored(late.seen))
        .bind(ACTION)
        .bind(stored(made_at))
        .fetch_optional(&mut *self.transaction)
        .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let version = rows::whole(row.try_get("version")?, "quota_audit")?;
        let after: Option<String> = row.try_get("state_after")?;
        let after: Value =
            serde_json::from_str(after.as_deref().unwrap_or("null")).unwrap_or_default();
        let position = after["switch"].as_str().map(str::to_owned);
        Ok(Some((version, position)))
    }

    async fn set_switch(
        &mut self,
        rule: &str,
        to: Option<&str>,
        (after, editor): (Value, &Editor),
    ) -> Result<(), QuotaError> {
        let key = rows::key_text(rule);
        let before = sqlx::query("SELECT position FROM rule_switch WHERE rule_key = $1")
            .bind(key.clone())
            .fetch_optional(&mut *self.transaction)
            .await?;
        let before: Option<String> = before.map(|row| row.try_get("position")).transpose()?;
        match to {
            Some(position) => {
                sqlx::query(
                    "INSERT INTO rule_switch (rule_key, rule, position) VALUES ($1, $2, $3) \
                     ON CONFLICT (rule_key) DO UPDATE SET position = excluded.position",
                )
                .bind(key)
                .bind(rule.to_owned())
                .bind(position.to_owned())
                .execute(&mut *self.transaction)
                .await?;
            }
            None => {
                sqlx::query("DELETE FROM rule_switch WHERE rule_key = $1")
                    .bind(key)
                    .execute(&mut *self.transaction)
                    .await?;
            }
        }
        let entry = Entry {
            action: ACTION,
            domain: "",
            subject: rule.into(),
            before: before.map(|position| json!({ "switch": position })),
            after: Some(after),
            editor,
        };
        self.audit(&entry).await?;
        self.mark("switches_version").await
    }
}

/// All switches, by rule.
pub(super) async fn all(
    transaction: &mut Transaction<'_, Any>,
) -> Result<Vec<(Box<str>, Box<str>)>, QuotaError> {
    let rows = sqlx::query("SELECT rule, position FROM rule_switch ORDER BY rule");
    let rows = rows.fetch_all(&mut **transaction).await?;
    let text = |row: &AnyRow, column: &str| {
        Ok::<Box<str>, QuotaError>(row.try_get::<String, _>(column)?.into())
    };
    let read = |row: &AnyRow| Ok((text(row, "rule")?, text(row, "position")?));
    rows.iter().map(read).collect()
}
