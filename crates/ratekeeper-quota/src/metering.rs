//! The calls of tenants as lines of a file, for billing.

use std::fmt;
use std::str::FromStr;

use ratekeeper_core::Timestamp;
use ratekeeper_rules::time::Rfc3339;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sqlx::Row;

use crate::bulk::line;
use crate::rows::{self, stored};
use crate::store::within;
use crate::{BulkFormat, QuotaError, QuotaStore, UsageFilter};

/// The calls of one tenant by one rule, in one minute, on one start of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UsageLine {
    /// The beginning of the minute.
    pub minute: Rfc3339,
    /// The domain.
    pub domain: String,
    /// The tenant's value, of a secret one the end; [`None`] if no node has told it.
    pub tenant: Option<String>,
    /// The keyed hash of the value; `other` for tenants beyond what one node writes for a minute, together.
    pub hash: String,
    /// The id of the rule; empty for those together.
    pub rule: String,
    /// The name of the node.
    pub node: String,
    /// The calls that were allowed.
    pub allowed: u64,
    /// The calls that the rule denied.
    pub denied: u64,
}

/// A part of the usage.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct UsagePage {
    /// The lines, oldest first.
    pub lines: Vec<UsageLine>,
    /// The place where the usage goes on; [`None`] at its end.
    pub next: Option<UsageCursor>,
}

/// The place in the usage after which the next page begins; to be kept as the text that it displays as.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UsageCursor(u64, String, String, String, String);

/// A text that is no cursor of usage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a cursor from a page of usage")]
pub struct NotAUsageCursor;

impl fmt::Display for UsageCursor {
    /// Digits alone, so that it fits into headers and addresses whatever a rule is called.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_digits(self, f)
    }
}

impl FromStr for UsageCursor {
    type Err = NotAUsageCursor;

    fn from_str(text: &str) -> Result<Self, NotAUsageCursor> {
        let cursor: Self = read_digits(text)?;
        let Self(_, domain, hash, rule, node) = &cursor;
        none_has_a_zero([domain, hash, rule, node])?;
        Ok(cursor)
    }
}

/// Writes a cursor as digits alone.
pub(crate) fn write_digits(cursor: &impl Serialize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let text = serde_json::to_string(cursor).map_err(|_| fmt::Error)?;
    f.write_str(&hex::encode(text))
}

/// Reads a cursor that was [written so](write_digits).
pub(crate) fn read_digits<T: DeserializeOwned>(text: &str) -> Result<T, NotAUsageCursor> {
    let bytes = hex::decode(text).map_err(|_| NotAUsageCursor)?;
    serde_json::from_slice(&bytes).map_err(|_| NotAUsageCursor)
}

/// PostgreSQL takes no text with a zero in it, so nothing there is called so.
pub(crate) fn none_has_a_zero<const N: usize>(texts: [&String; N]) -> Result<(), NotAUsageCursor> {
    match texts.iter().any(|text| text.contains('\0')) {
        true => Err(NotAUsageCursor),
        false => Ok(()),
    }
}

/// The name of a tenant: that of the table of tenants, or else as nodes told it.
macro_rules! shown {
    () => {
        "CASE WHEN t.shown IS NULL OR t.shown = '…' THEN c.shown ELSE t.shown END"
    };
}
pub(crate) use shown;

/// The most lines of a page.
pub const USAGE_PAGE_MAX: u64 = 10_000;

/// The microseconds of a minute.
const MINUTE: u64 = 60_000_000;

impl QuotaStore {
    /// The usage that `filter` selects, after `cursor`, oldest first; at most `most` and [`USAGE_PAGE_MAX`] lines.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn usage_page(
        &self,
        filter: &UsageFilter,
        cursor: Option<&UsageCursor>,
        most: u64,
    ) -> Result<UsagePage, QuotaError> {
        self.prepare().await?;
        let most = most.clamp(1, USAGE_PAGE_MAX);
        let after = cursor.filter(|cursor| cursor.0 >= filter.from).cloned();
        let UsageCursor(minute, after, hash, rule, node) =
            after.unwrap_or_else(|| UsageCursor::start(filter.from));
        let query = sqlx::query(match &filter.tenant {
            None => PAGE,
            Some(_) => PAGE_OF_ONE,
        });
        let mut query = query.bind(stored(minute));
        for text in [after, hash, rule, node] {
            query = query.bind(text);
        }
        query = query.bind(stored(filter.until)).bind(stored(most + 1));
        if let Some((domain, tenant)) = &filter.tenant {
            query = query.bind(domain.clone()).bind(tenant.to_string());
        }
        let mut lines = within(async {
            let rows = query.fetch_all(&self.pool).await?;
            rows.iter()
                .map(UsageLine::read)
                .collect::<Result<Vec<_>, _>>()
        })
        .await?;
        let has_more = lines.len() as u64 > most;
        lines.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        let next = lines.last().filter(|_| has_more).map(UsageCursor::after);
        Ok(UsagePage { lines, next })
    }
}

/// A page of usage: after the row of the key from $1 to $5, before minute $6, at most $7 rows, of those where `$where`.
macro_rules! page {
    ($where:literal) => {
        concat!(
            "SELECT u.minute, u.domain, u.api_key, u.rule, u.node, u.allowed, u.denied, ",
            shown!(),
            " AS shown FROM quota_usage u LEFT JOIN tenant t ON t.domain = u.domain AND t.api_key = u.api_key \
             LEFT JOIN quota_caller c ON c.domain = u.domain AND c.api_key = u.api_key \
             WHERE (u.minute, u.domain, u.api_key, u.rule, u.node) > ($1, $2, $3, $4, $5) AND u.minute < $6",
            $where,
            " ORDER BY u.minute, u.domain, u.api_key, u.rule, u.node LIMIT $7"
        )
    };
}

/// No other condition on the minute: SQLite would begin at that one, and each page at the first.
const PAGE: &str = page!("");

/// Of the tenant $8, $9. A text of its own, so that the index of tenants is used.
const PAGE_OF_ONE: &str = page!(" AND u.domain = $8 AND u.api_key = $9 AND u.minute >= $1");

impl UsageCursor {
    /// The place before all rows of a minute.
    fn start(minute: u64) -> Self {
        Self(
            minute,
            String::new(),
            String::new(),
            String::new(),
            String::new(),
        )
    }

    fn after(line: &UsageLine) -> Self {
        Self(
            line.minute.0.as_micros() / MINUTE,
            line.domain.clone(),
            line.hash.clone(),
            line.rule.clone(),
            line.node.clone(),
        )
    }
}

impl UsageLine {
    fn read(row: &sqlx::any::AnyRow) -> Result<Self, QuotaError> {
        const TABLE: &str = "quota_usage";
        let minute = rows::whole(row.try_get("minute")?, TABLE)?;
        Ok(Self {
            minute: Rfc3339(Timestamp::from_micros(minute.saturating_mul(MINUTE))),
            domain: row.try_get("domain")?,
            tenant: row.try_get("shown")?,
            hash: row.try_get("api_key")?,
            rule: row.try_get("rule")?,
            node: row.try_get("node")?,
            allowed: rows::whole(row.try_get("allowed")?, TABLE)?,
            denied: rows::whole(row.try_get("denied")?, TABLE)?,
        })
    }

    /// The first line of a file: the names of the columns in CSV.
    #[must_use]
    pub const fn head(format: BulkFormat) -> &'static str {
        match format {
            BulkFormat::JsonLines => "",
            BulkFormat::Csv => "minute,domain,tenant,hash,rule,node,allowed,denied\n",
        }
    }

    /// The line of a file, with its end.
    #[must_use]
    pub fn written(&self, format: BulkFormat) -> String {
        line(format, Self::head(format), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DatabaseKind;
    use crate::query_plans::Filled;
    use crate::rows::Cell;

    #[test]
    fn a_line_of_csv_has_no_formulas() {
        let line = UsageLine {
            minute: Rfc3339(Timestamp::from_secs(60)),
            domain: "d".into(),
            tenant: Some("=HYPERLINK(\"http://a\")".into()),
            hash: "h".into(),
            rule: "@r".into(),
            node: "n".into(),
            allowed: 1,
            denied: 2,
        };
        let expected = "1970-01-01T00:01:00Z,d,\"'=HYPERLINK(\"\"http://a\"\")\",h,'@r,n,1,2\n";
        assert_eq!(line.written(BulkFormat::Csv), expected);
    }

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        let cursor = UsageCursor(7, "d\"é".into(), "h".into(), "r, s".into(), String::new());
        let text = cursor.to_string();
        assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit()), "{text}");
        assert_eq!(text.parse(), Ok(cursor));
        let zero = UsageCursor(7, "a\0".into(), String::new(), String::new(), String::new());
        for wrong in ["", "0", "zz", "é", "5b5d", "7b7d", &zero.to_string()] {
            assert_eq!(
                wrong.parse::<UsageCursor>(),
                Err(NotAUsageCursor),
                "{wrong}"
            );
        }
    }

    /// The plans of a page, and of one tenant's.
    async fn plans(kind: DatabaseKind) -> [String; 2] {
        let filled = Filled::new(kind).await;
        let text = |text: &str| Cell::from(text.to_owned());
        let values = || {
            let mut values = vec![Cell::number(50)];
            values.extend(["d", "1", "r", "n"].map(text));
            values.extend([60, 10].map(Cell::number));
            values
        };
        let mut of_one = values();
        of_one.extend(["d", "1"].map(text));
        [
            filled.plan(PAGE, values()).await,
            filled.plan(PAGE_OF_ONE, of_one).await,
        ]
    }

    #[tokio::test]
    async fn sqlite_begins_a_page_where_the_last_one_ended() {
        let [page, of_one] = plans(DatabaseKind::Sqlite).await;
        let begins = "((minute,domain,api_key,rule,node)>(?,?,?,?,?) AND minute<?)";
        assert!(page.contains(begins), "{page}");
        let begins = "quota_usage_tenant (domain=? AND api_key=? AND minute>? AND minute<?)";
        assert!(of_one.contains(begins), "{of_one}");
    }

    #[tokio::test]
    async fn postgres_begins_a_page_where_the_last_one_ended() {
        let [page, of_one] = plans(DatabaseKind::Postgres).await;
        assert!(page.contains("using quota_usage_pkey"), "{page}");
        let of_tenant = of_one.contains("using quota_usage_tenant");
        assert!(
            of_tenant && !of_one.contains("Seq Scan on quota_usage"),
            "{of_one}"
        );
    }
}
