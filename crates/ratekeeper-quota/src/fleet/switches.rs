//! Switching rules on all nodes.

use serde_json::json;
use sqlx::any::AnyRow;
use sqlx::{Any, Row, Transaction};

use crate::audit::Entry;
use crate::change::Change;
use crate::rows;
use crate::store::within;
use crate::{Editor, QuotaError, QuotaStore};

impl QuotaStore {
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
            change.set_switch(rule, to, editor).await?;
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
            let known = all(&mut change.transaction).await?;
            let is_new = |rule: &str| known.iter().all(|(known, _)| **known != *rule);
            let new = of_node.iter().filter(|(rule, _)| is_new(rule));
            let mut count = 0;
            for (rule, position) in new {
                change.set_switch(rule, Some(position), editor).await?;
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
    async fn set_switch(
        &mut self,
        rule: &str,
        to: Option<&str>,
        editor: &Editor,
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
            action: "rule.switch",
            domain: "",
            subject: rule.into(),
            before: before.map(|position| json!({ "switch": position })),
            after: Some(json!({ "switch": to })),
            editor,
        };
        self.record(&entry).await?;
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
