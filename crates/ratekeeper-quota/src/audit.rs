//! The audit trail: a row for each change, written with it, and chained to the row before by a hash.

use std::borrow::Cow;

use ratekeeper_core::Timestamp;
use ratekeeper_rules::TenantHash;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use crate::change::Change;
use crate::database::{CHANNEL, DatabaseKind, reading};
use crate::record::printable;
use crate::rows::{self, Cell, stored};
use crate::store::within;
use crate::{Editor, QuotaError, QuotaStore};

/// A change, as the audit trail is told of it.
pub(crate) struct Entry<'a> {
    pub(crate) action: &'a str,
    pub(crate) domain: &'a str,
    pub(crate) subject: Cow<'a, str>,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
    pub(crate) editor: &'a Editor,
}

/// A row of the audit trail.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AuditRow {
    /// The number of the change; the first one is 1, and none is left out.
    pub version: u64,
    /// The time of the change, by the clock of the node that made it.
    pub changed_at: Timestamp,
    /// The one who made it.
    pub editor: Editor,
    /// The kind of change: `put`, `delete`, `reset`, or another of the caller's.
    pub action: String,
    /// The domain.
    pub domain: String,
    /// The keyed hash of the tenant, or another subject of the caller's.
    pub subject: String,
    /// The state before, as JSON.
    pub before: Option<String>,
    /// The state after, as JSON.
    pub after: Option<String>,
    /// The hash of the row and of all rows before it.
    pub hash: String,
}

/// The rows of the audit trail to read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuditFilter {
    /// Only rows after this one.
    pub after: u64,
    /// Only rows before this one.
    pub before: Option<u64>,
    /// Only changes of this tenant and its domain.
    pub tenant: Option<(String, TenantHash)>,
    /// True for the newest rows first.
    pub newest_first: bool,
}

/// The result of reading the whole audit trail.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AuditVerdict {
    /// Every row is as it was written.
    Intact {
        /// The number of rows.
        rows: u64,
        /// The hash of the last one: kept elsewhere, it proves that they were not all rewritten since.
        head: String,
    },
    /// A row was changed or put in.
    Altered {
        /// The number of the first such change.
        version: u64,
    },
    /// A row is missing.
    Missing {
        /// The number of the first such change.
        version: u64,
    },
    /// The rows are whole by themselves, but none of them is the known head: rows were cut off at the end, or all were
    /// rewritten.
    OtherTrail,
}

/// The rows that are read at once.
const PAGE: u64 = 1_000;

impl AuditRow {
    /// The hash of this row after one with the hash `previous`.
    fn chained(&self, previous: &str) -> String {
        let fields = json!([
            previous,
            self.version,
            self.changed_at.as_micros(),
            self.editor.name,
            self.editor.source,
            self.editor.request_id,
            self.action,
            self.domain,
            self.subject,
            self.before,
            self.after,
        ]);
        hex::encode(Sha256::digest(fields.to_string()))
    }

    fn cells(self) -> [Cell; 11] {
        [
            Cell::Number(Some(stored(self.version))),
            Cell::Number(Some(stored(self.changed_at.as_micros()))),
            self.editor.name.into(),
            self.editor.source.into(),
            self.editor.request_id.into(),
            self.action.into(),
            self.domain.into(),
            self.subject.into(),
            self.before.into(),
            self.after.into(),
            self.hash.into(),
        ]
    }

    fn read(row: &AnyRow) -> Result<Self, QuotaError> {
        Ok(Self {
            version: rows::whole(row.try_get("version")?, "quota_audit")?,
            changed_at: rows::time(row.try_get("changed_at")?),
            editor: Editor {
                name: row.try_get("editor")?,
                source: row.try_get("source")?,
                request_id: row.try_get("request_id")?,
            },
            action: row.try_get("action")?,
            domain: row.try_get("domain")?,
            subject: row.try_get("subject")?,
            before: row.try_get("state_before")?,
            after: row.try_get("state_after")?,
            hash: row.try_get("hash")?,
        })
    }
}

impl Change {
    /// Takes the next number and writes the row of the audit trail that has it.
    pub(crate) async fn audit(&mut self, entry: &Entry<'_>) -> Result<(), QuotaError> {
        let row = self.next_row(entry);
        self.write_rows(vec![row]).await
    }

    /// Takes the next number and makes the row of the audit trail that has it.
    pub(crate) fn next_row(&mut self, entry: &Entry<'_>) -> AuditRow {
        let mut row = AuditRow {
            version: self.version + 1,
            changed_at: self.now,
            editor: Editor {
                name: printable(&entry.editor.name),
                source: printable(&entry.editor.source),
                request_id: printable(&entry.editor.request_id),
            },
            action: entry.action.to_owned(),
            domain: entry.domain.to_owned(),
            subject: rows::key_text(&entry.subject),
            before: entry.before.as_ref().map(Value::to_string),
            after: entry.after.as_ref().map(Value::to_string),
            hash: String::new(),
        };
        row.hash = row.chained(&self.audit_hash);
        (self.version, self.audit_hash) = (row.version, row.hash.clone());
        row
    }

    /// Writes rows of the audit trail.
    pub(crate) async fn write_rows(&mut self, rows: Vec<AuditRow>) -> Result<(), QuotaError> {
        let head = "INSERT INTO quota_audit (version, changed_at, editor, source, request_id, action, domain, \
                    subject, state_before, state_after, hash)";
        let rows = rows.into_iter().map(AuditRow::cells).collect();
        rows::insert(&mut self.transaction, head, "", rows).await?;
        Ok(())
    }
}

impl QuotaStore {
    /// Commits a change, and tells other nodes of it.
    pub(crate) async fn commit(&self, mut change: Change) -> Result<(), QuotaError> {
        self.check_file()?;
        sqlx::query("UPDATE quota_version SET version = $1, audit_hash = $2 WHERE id = 1")
            .bind(stored(change.version))
            .bind(change.audit_hash)
            .execute(&mut *change.transaction)
            .await?;
        if self.address.kind() == DatabaseKind::Postgres {
            // Sent when the transaction commits. A node that misses it polls.
            sqlx::query("SELECT pg_notify($1, $2)")
                .bind(CHANNEL.to_owned())
                .bind(change.version.to_string())
                .execute(&mut *change.transaction)
                .await?;
        }
        change.transaction.commit().await?;
        Ok(())
    }

    /// Adds a row to the audit trail for a change that is kept elsewhere, such as a switch of a rule. Returns
    /// its number.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn record(
        &self,
        action: &str,
        domain: &str,
        subject: &str,
        (before, after): (Option<Value>, Option<Value>),
        editor: &Editor,
    ) -> Result<u64, QuotaError> {
        self.prepare().await?;
        within(async {
            let mut change = self.begin().await?;
            let entry = Entry {
                action,
                domain,
                subject: subject.into(),
                before,
                after,
                editor,
            };
            change.audit(&entry).await?;
            let version = change.version;
            self.commit(change).await?;
            Ok(version)
        })
        .await
    }

    /// The rows of the audit trail after `version`, oldest first; at most `most` and a thousand.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn audit(&self, version: u64, most: u64) -> Result<Vec<AuditRow>, QuotaError> {
        let filter = AuditFilter {
            after: version,
            ..AuditFilter::default()
        };
        self.audit_of(&filter, most).await
    }

    /// The rows of the audit trail that `filter` selects; at most `most` and a thousand.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn audit_of(
        &self,
        filter: &AuditFilter,
        most: u64,
    ) -> Result<Vec<AuditRow>, QuotaError> {
        self.prepare().await?;
        let (domain, tenant) = match &filter.tenant {
            Some((domain, tenant)) => (domain.clone(), tenant.to_string()),
            None => Default::default(),
        };
        let order = match filter.newest_first {
            true => "DESC",
            false => "ASC",
        };
        // Only the order is put into the text.
        let query = format!(
            "SELECT version, changed_at, editor, source, request_id, action, domain, subject, state_before, \
             state_after, hash FROM quota_audit WHERE version > $1 AND version < $2 \
             AND ($3 = '' OR (domain = $4 AND subject = $3)) ORDER BY version {order} LIMIT $5"
        );
        within(async {
            let rows = sqlx::query(AssertSqlSafe(query))
                .bind(stored(filter.after))
                .bind(stored(filter.before.unwrap_or(u64::MAX)))
                .bind(tenant)
                .bind(domain)
                .bind(stored(most.min(PAGE)))
                .fetch_all(&self.pool)
                .await?;
            rows.iter().map(AuditRow::read).collect()
        })
        .await
    }

    /// Reads the whole audit trail and checks the chain of its hashes; with `known`, the head of an earlier time, also
    /// that a row has it.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn verify_audit(&self, known: Option<&str>) -> Result<AuditVerdict, QuotaError> {
        self.prepare().await?;
        let end = within(self.audit_end()).await?;
        let (mut version, mut hash) = (0, String::new());
        let mut has_known = false;
        while version < end.version {
            let rows = self.audit(version, PAGE).await?;
            let rows = rows
                .into_iter()
                .take_while(|row| row.version <= end.version);
            let before = version;
            for row in rows {
                if row.version != version + 1 {
                    let version = version + 1;
                    return Ok(AuditVerdict::Missing { version });
                }
                if row.hash != row.chained(&hash) {
                    let version = row.version;
                    return Ok(AuditVerdict::Altered { version });
                }
                (version, hash) = (row.version, row.hash);
                has_known |= known.is_some_and(|known| known == hash);
            }
            if version == before {
                let version = version + 1;
                return Ok(AuditVerdict::Missing { version });
            }
        }
        if let Some(version) = end.stranger {
            return Ok(AuditVerdict::Altered { version });
        }
        if hash != end.hash {
            return Ok(AuditVerdict::Altered { version });
        }
        Ok(match known.is_some() && !has_known {
            true => AuditVerdict::OtherTrail,
            false => AuditVerdict::Intact {
                rows: version,
                head: hash,
            },
        })
    }

    /// The end that the trail has to have.
    async fn audit_end(&self) -> Result<AuditEnd, QuotaError> {
        let mut transaction = reading(&self.pool, self.address.kind()).await?;
        let row = sqlx::query("SELECT version, audit_hash FROM quota_version WHERE id = 1");
        let row = row.fetch_one(&mut *transaction).await?;
        let version: i64 = row.try_get("version")?;
        let hash = row.try_get("audit_hash")?;
        let outside = sqlx::query(
            "SELECT version FROM quota_audit WHERE version < 1 OR version > $1 ORDER BY version LIMIT 1",
        );
        let stranger = outside.bind(version).fetch_optional(&mut *transaction);
        let stranger: Option<i64> = stranger
            .await?
            .map(|row| row.try_get("version"))
            .transpose()?;
        Ok(AuditEnd {
            version: rows::whole(version, "quota_version")?,
            hash,
            stranger: stranger.map(|version| u64::try_from(version).unwrap_or(0)),
        })
    }
}

/// The end of the audit trail, by the row of versions.
struct AuditEnd {
    version: u64,
    /// The hash that the last row has to have.
    hash: String,
    /// The number of a row that no change has written: after the last one, or before the first.
    stranger: Option<u64>,
}
