//! The calls of tenants by hour, added up by day or month for bills.
//!
//! A call is in here once, whatever number of rules it matched. Nodes write absolute numbers, as they do [by
//! minute](crate::UsageRow).

use std::fmt;
use std::str::FromStr;

use ratekeeper_rules::TenantHash;
use serde::{Deserialize, Serialize};
use sqlx::Row;

use crate::bulk::line;
use crate::metering::{none_has_a_zero, read_digits, shown, write_digits};
use crate::record::printable;
use crate::rows::{self, Cell, stored};
use crate::store::within;
use crate::usage::name_of;
use crate::{
    BulkFormat, NotAUsageCursor, QuotaError, QuotaStore, USAGE_PAGE_MAX, UsageFilter, UsagePeriod,
};

/// The calls of one tenant in one hour, on one node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallRow {
    /// The hour, counted from 1970 in UTC.
    pub hour: u64,
    /// The domain.
    pub domain: String,
    /// The tenant; [`None`] for those beyond what one node writes for an hour, together.
    pub tenant: Option<TenantHash>,
    /// The name of the node.
    pub node: String,
    /// The calls that were allowed.
    pub allowed: u64,
    /// The calls that a limit of the tenant denied.
    pub denied: u64,
}

/// The name of a tenant that called.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallerRow {
    /// The domain.
    pub domain: String,
    /// The tenant.
    pub tenant: TenantHash,
    /// Its value; of a secret one only the end.
    pub shown: String,
    /// The hour of the call, counted from 1970 in UTC.
    pub hour: u64,
}

/// The calls of one tenant in one period, on all nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CallLine {
    /// The day or month: `2027-01-15`, `2027-01`.
    pub period: String,
    /// The domain.
    pub domain: String,
    /// The tenant's value, of a secret one the end; [`None`] if no node has told it.
    pub tenant: Option<String>,
    /// The keyed hash of the value; `other` for tenants beyond what one node writes for an hour, together.
    pub hash: String,
    /// The calls that were allowed.
    pub allowed: u64,
    /// The calls that a limit of the tenant denied.
    pub denied: u64,
}

/// A part of the calls by period.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CallPage {
    /// The lines, oldest first.
    pub lines: Vec<CallLine>,
    /// The place where the lines go on; [`None`] at their end.
    pub next: Option<CallCursor>,
}

/// The place after which the next page begins, to be kept as the text that it displays as: an hour of the period, and the
/// last tenant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallCursor(u64, String, String);

impl fmt::Display for CallCursor {
    /// Digits alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_digits(self, f)
    }
}

impl FromStr for CallCursor {
    type Err = NotAUsageCursor;

    fn from_str(text: &str) -> Result<Self, NotAUsageCursor> {
        let cursor: Self = read_digits(text)?;
        none_has_a_zero([&cursor.1, &cursor.2])?;
        Ok(cursor)
    }
}

impl QuotaStore {
    /// Writes what a node counted by hour, in place of what it wrote for the same hours before, and the names of those who
    /// called.
    ///
    /// # Errors
    /// The database cannot be used; then some of the rows may have been written.
    pub async fn write_calls(
        &self,
        calls: &[CallRow],
        callers: &[CallerRow],
    ) -> Result<(), QuotaError> {
        self.prepare().await?;
        let cells = |row: &CallRow| {
            [
                Cell::number(row.hour),
                row.domain.clone().into(),
                name_of(row.tenant).into(),
                row.node.clone().into(),
                Cell::number(row.allowed),
                Cell::number(row.denied),
            ]
        };
        let head = "INSERT INTO quota_calls (hour, domain, api_key, node, allowed, denied)";
        let tail = " ON CONFLICT (hour, domain, api_key, node) \
                    DO UPDATE SET allowed = excluded.allowed, denied = excluded.denied";
        self.write_rows((head, tail), calls, cells).await?;
        let cells = |row: &CallerRow| {
            [
                row.domain.clone().into(),
                row.tenant.to_string().into(),
                printable(&row.shown).into(),
                Cell::number(row.hour),
            ]
        };
        let head = "INSERT INTO quota_caller (domain, api_key, shown, hour)";
        let tail = " ON CONFLICT (domain, api_key) DO UPDATE SET shown = excluded.shown, hour = excluded.hour \
                    WHERE quota_caller.hour < excluded.hour";
        self.write_rows((head, tail), callers, cells).await
    }

    /// The calls that `filter` selects, added up `by` day or month, after `cursor`, oldest first; at most `most` and
    /// [`USAGE_PAGE_MAX`] lines. Calls count by hour, so an hour that `filter` begins in counts as a whole, and one that it
    /// ends in does as well.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn calls_by(
        &self,
        filter: &UsageFilter,
        by: UsagePeriod,
        cursor: Option<&CallCursor>,
        most: u64,
    ) -> Result<CallPage, QuotaError> {
        self.prepare().await?;
        let most = usize::try_from(most.clamp(1, USAGE_PAGE_MAX)).unwrap_or(1);
        let mut next = CallCursor(filter.from / 60, String::new(), String::new());
        if let Some(cursor) = cursor {
            next = cursor.clone();
        }
        let until = filter.until.div_ceil(60);
        let mut lines: Vec<CallLine> = Vec::new();
        while let Some(first) = self.first_hour(filter, next.0, until).await? {
            if by.end(first) != by.end(next.0) {
                // There were no calls in the rest of that period.
                (next.1, next.2) = Default::default();
            }
            let end = by.end(first).min(until);
            let hours = (first.max(filter.from / 60), end);
            let room = most + 1 - lines.len();
            let of_period = self.calls_within(filter, hours, &next, room).await?;
            let (name, before) = (by.name(first), lines.len());
            lines.extend(of_period.into_iter().map(|line| CallLine {
                period: name.clone(),
                ..line
            }));
            if lines.len() > most {
                lines.truncate(most);
                // Where nothing of this period is on the page, the next one has all of it.
                let last = lines.last().filter(|_| most > before);
                let (domain, hash) = last
                    .map(|last| (last.domain.clone(), last.hash.clone()))
                    .unwrap_or_default();
                let next = Some(CallCursor(first, domain, hash));
                return Ok(CallPage { lines, next });
            }
            next = CallCursor(end, String::new(), String::new());
        }
        Ok(CallPage { lines, next: None })
    }

    /// The first hour with calls from `from` on.
    async fn first_hour(
        &self,
        filter: &UsageFilter,
        from: u64,
        until: u64,
    ) -> Result<Option<u64>, QuotaError> {
        let (domain, tenant) = filter.named();
        let hour: Option<i64> = within(async {
            let row = sqlx::query(
                "SELECT MIN(hour) AS hour FROM quota_calls \
                 WHERE hour >= $1 AND hour < $2 AND ($3 = '' OR (domain = $4 AND api_key = $3))",
            );
            let row = row.bind(stored(from)).bind(stored(until));
            let row = row.bind(tenant).bind(domain).fetch_one(&self.pool).await?;
            Ok(row.try_get("hour")?)
        })
        .await?;
        hour.map(|hour| rows::whole(hour, "quota_calls"))
            .transpose()
    }

    /// The calls from the first of `hours` to before the second, by tenant, of those after `cursor`.
    async fn calls_within(
        &self,
        filter: &UsageFilter,
        (from, until): (u64, u64),
        CallCursor(_, after, hash): &CallCursor,
        most: usize,
    ) -> Result<Vec<CallLine>, QuotaError> {
        let (domain, tenant) = filter.named();
        within(async {
            let rows = sqlx::query(concat!(
                "SELECT u.domain, u.api_key, u.allowed, u.denied, ",
                shown!(),
                " AS shown FROM (SELECT domain, api_key, CAST(SUM(allowed) AS BIGINT) AS allowed, \
                 CAST(SUM(denied) AS BIGINT) AS denied FROM quota_calls \
                 WHERE hour >= $1 AND hour < $2 AND ($3 = '' OR (domain = $4 AND api_key = $3)) \
                 AND (domain, api_key) > ($5, $6) GROUP BY domain, api_key ORDER BY domain, api_key LIMIT $7) AS u \
                 LEFT JOIN tenant t ON t.domain = u.domain AND t.api_key = u.api_key \
                 LEFT JOIN quota_caller c ON c.domain = u.domain AND c.api_key = u.api_key \
                 ORDER BY u.domain, u.api_key"
            ))
            .bind(stored(from))
            .bind(stored(until))
            .bind(tenant)
            .bind(domain)
            .bind(after.clone())
            .bind(hash.clone())
            .bind(stored(most as u64))
            .fetch_all(&self.pool)
            .await?;
            rows.iter().map(CallLine::read).collect()
        })
        .await
    }
}

impl CallLine {
    fn read(row: &sqlx::any::AnyRow) -> Result<Self, QuotaError> {
        const TABLE: &str = "quota_calls";
        Ok(Self {
            period: String::new(),
            domain: row.try_get("domain")?,
            tenant: row.try_get("shown")?,
            hash: row.try_get("api_key")?,
            allowed: rows::whole(row.try_get("allowed")?, TABLE)?,
            denied: rows::whole(row.try_get("denied")?, TABLE)?,
        })
    }

    /// The first line of a file: the names of the columns in CSV.
    #[must_use]
    pub const fn head(format: BulkFormat) -> &'static str {
        match format {
            BulkFormat::JsonLines => "",
            BulkFormat::Csv => "period,domain,tenant,hash,allowed,denied\n",
        }
    }

    /// The line of a file, with its end.
    #[must_use]
    pub fn written(&self, format: BulkFormat) -> String {
        line(format, Self::head(format), self)
    }
}
